"""The one text machine of a generated answer: bytes, then characters, then stop strings.

Streaming and non-streaming answers both come from it, so that the joined deltas are the final text by construction.
A later stage (tool calls, reasoning) takes `TextDelta.text` in turn.

Offsets: `TokenText.offset` counts characters of this answer that were complete before the token's first byte, whether
or not they have been let out; the parts of a character that several tokens share belong to the token that begins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.engine.text.detokenizer import Detokenizer
from octavo.engine.text.stops import StopMachine, StopMatch

if TYPE_CHECKING:
    from octavo.engine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenText:
    """One token for log-probability listings. `text` shows a broken part of a character as U+FFFD; `data` is exact."""

    token_id: int
    text: str
    data: bytes
    offset: int


@dataclass
class TextDelta:
    """What one step adds. `finish` is "stop" when a stop string completed; `num_tokens` counts the tokens used of
    those pushed (the one that completes the stop is the last used). `tokens` is filled only if asked for."""

    text: str
    finish: str | None = None
    num_tokens: int = 0
    tokens: list[TokenText] = field(default_factory=list)


class TextStream:
    """The text of one answer. Not thread-safe; one per request and choice."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        include_stop: bool = False,
        skip_special: bool = True,
        min_tokens: int = 0,
        strip_first_space: bool = False,
        with_tokens: bool = False,
    ) -> None:
        """`min_tokens`: no stop string counts before this many tokens. Raises RequestError for unusable stop
        strings."""
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, skip_special=skip_special, strip_first_space=strip_first_space)
        self._stops = StopMachine(stops, include_stop=include_stop) if stops else None
        self._min_tokens = min_tokens
        self._with_tokens = with_tokens
        self._is_finished = False
        self.num_tokens = 0
        self.num_emitted_chars = 0

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the text, if one did."""
        return self._stops.match if self._stops is not None else None

    def push(self, token_ids: Sequence[int]) -> TextDelta:
        """Take the next tokens. After a finish nothing more comes out and no token counts as used."""
        delta = TextDelta("")
        pieces: list[str] = []
        detokenizer, stops = self._detokenizer, self._stops
        for token_id in token_ids:
            if self._is_finished:
                break
            self.num_tokens += 1
            delta.num_tokens += 1
            data = detokenizer.take(token_id)
            if self._with_tokens:
                delta.tokens.append(self._token_text(token_id, data))
            text = detokenizer.push_bytes(data)
            if stops is not None:
                text = stops.push(text, is_armed=self.num_tokens >= self._min_tokens)
                if stops.match is not None:
                    self._is_finished = True
                    delta.finish = "stop"
            if text:
                pieces.append(text)
        delta.text = "".join(pieces)
        self.num_emitted_chars += len(delta.text)
        return delta

    def flush(self) -> TextDelta:
        """End of generation (end token, length, abort): everything still held back comes out. Safe to call twice."""
        if self._is_finished:
            return TextDelta("")
        self._is_finished = True
        text = self._detokenizer.flush()
        if self._stops is not None:
            text = self._stops.push(text) + self._stops.flush()
        self.num_emitted_chars += len(text)
        return TextDelta(text, finish="stop" if self.match is not None else None)

    def _token_text(self, token_id: int, data: bytes) -> TokenText:
        shown = data or self._tokenizer.token_bytes(token_id)  # a skipped control token still has a name
        return TokenText(token_id, shown.decode("utf-8", "replace"), shown, self._detokenizer.num_chars)

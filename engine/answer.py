"""One choice on its way from engine outputs to text: what the server and the in-process `LLM` have in common.

The text machine is `octavo.engine.text.output`; here are the rules that join it with what the engine says: which tokens
count, and why the answer ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.messages import RequestOutput
from octavo.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText
    from octavo.engine.text.output import TextDelta


class AnswerText:
    """Text, counts and end of one choice.

    `num_tokens` counts the end token too; `finish_reason` is '' while it goes on; `stop_reason` is the stop string or stop
    token id that ended it, if one did.
    """

    def __init__(self, text: ModelText, params: SamplingParams) -> None:
        self._stream = text.open_stream(params)
        self._keeps_stop = params.include_stop_str_in_output
        self.num_tokens = 0
        self.finish_reason = ""
        self.stop_reason: int | str | None = None

    @property
    def is_stopped_by_string(self) -> bool:
        """True when a stop string ended it; the engine may not know yet."""
        return self._stream.match is not None

    @property
    def num_emitted_chars(self) -> int:
        """Characters let out so far."""
        return self._stream.num_emitted_chars

    def feed(self, output: RequestOutput) -> TextDelta:
        """The text that became certain with one output, all of it at the end. Errors and aborts are the caller's."""
        has_stop_id = output.stop_id >= 0
        keeps_stop_id = has_stop_id and self._keeps_stop
        delta = self._stream.push([*output.tokens, output.stop_id] if keeps_stop_id else output.tokens)
        self.num_tokens += delta.num_tokens + (has_stop_id and not keeps_stop_id and delta.finish is None)
        if delta.finish is None and output.finish_reason:
            rest = self._stream.flush()
            delta.text += rest.text
            delta.finish = rest.finish or output.finish_reason
        if delta.finish is not None:
            self.finish_reason = delta.finish
            if self._stream.match is not None:
                self.stop_reason = self._stream.match.stop
            elif has_stop_id:
                self.stop_reason = output.stop_id
        return delta

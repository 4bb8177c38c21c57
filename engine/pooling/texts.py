"""From texts to the token ids that enter a step: prompts, special tokens, limits, truncation.

Invariants: a text that cannot be embedded has an error of its own; nothing is cut without being asked for, and what was cut is
said; a text far beyond the limit is tokenized only so far as to show it. Reads immutable state only, so that worker threads may
call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.text.tokenizer import Tokenizer

Truncation = Literal["error", "start", "end"]
TRUNCATIONS: tuple[Truncation, ...] = get_args(Truncation)


class Rules(Protocol):
    """What a model says of its texts and vectors; `pooling.modules.Pipeline` is one."""

    @property
    def max_tokens(self) -> int: ...  # of a text with its special tokens
    @property
    def lowers_case(self) -> bool: ...
    @property
    def prompts(self) -> Mapping[str, str]: ...
    @property
    def default_prompt(self) -> str | None: ...
    @property
    def width(self) -> int: ...
    @property
    def dims(self) -> tuple[int, ...] | None: ...  # to which vectors may be cut; None: not said
    @property
    def truncate_dim(self) -> int | None: ...


@dataclass(frozen=True)
class Item:
    """A text as it enters a step. `num_prompt`: its first tokens that belong to the prompt. `truncated_from`: how many tokens it
    has (at least), where it was cut. `types`: segment ids, one per token; None: all 0. `num_unseen`: its last tokens that
    the others do not see. `marks`: what of each token does not count (`pooling.late`), uint8 each; empty: all does."""

    ids: list[int]
    num_prompt: int = 0
    truncated_from: int = 0
    error: str = ""
    code: str = "invalid_value"  # of an error
    types: list[int] | None = None
    num_unseen: int = 0
    marks: bytes = b""


def steps(items: Sequence[Item], max_tokens: int, max_seqs: int) -> Iterator[list[int]]:
    """Places of items that share a step: in order, within the tokens and sequences that one takes; those with an error are left
    out."""
    step: list[int] = []
    num_tokens = 0
    for place, item in enumerate(items):
        if item.error:
            continue
        if step and (num_tokens + len(item.ids) > max_tokens or len(step) == max_seqs):
            yield step
            step, num_tokens = [], 0
        step.append(place)
        num_tokens += len(item.ids)
    if step:
        yield step


class Texts:
    """The text side of one model. ModelError if special tokens leave no room."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        rules: Rules,
        vocab_size: int,
        *,
        allows_dimensions: bool = False,
        marker: Sequence[int] = (),
    ) -> None:
        """`marker`: tokens that stand before a text, behind the special ones."""
        self.tokenizer = tokenizer
        self.rules = rules
        self.vocab_size = vocab_size
        self.allows_dimensions = allows_dimensions
        self._before, self._after = tokenizer.surrounding
        self._before += marker
        self.room = rules.max_tokens - len(self._before) - len(self._after)
        if self.room < 1:
            raise ModelError(f"texts of {rules.max_tokens} tokens have no room beside the special ones")

    def item(self, text: object, prompt: str, truncate: Truncation) -> Item:
        """A text's tokens, or why it has none. Token ids are taken as they are, without prompt."""
        if isinstance(text, str):
            return self.from_text(text, prompt, truncate) if text else Item([], error="it is empty")
        if not isinstance(text, Sequence) or isinstance(text, bytes):
            return Item([], error=f"it is {type(text).__name__}; give text or a list of token ids")
        if not text:
            return Item([], error="it is empty")
        for token in text:
            if isinstance(token, bool) or not isinstance(token, (int, np.integer)) or not 0 <= token < self.vocab_size:
                return Item([], error=f"{token!r} is no token id; ids are 0 to {self.vocab_size - 1}")
        return self._fitted([], [int(token) for token in text], [], 0, truncate, self.rules.max_tokens)

    def from_text(self, text: str, prompt: str, truncate: Truncation) -> Item:
        """Of a text that is not empty."""
        whole = prompt + text
        if self.rules.lowers_case:
            whole, prompt = whole.lower(), prompt.lower()
        most = None if truncate == "start" else self.room
        ids = self.tokenizer.encode(whole, add_special=False, max_tokens=most)
        num_prompt = len(self.tokenizer.encode(prompt, add_special=False)) if prompt else 0
        return self._fitted(self._before, ids, self._after, num_prompt, truncate, self.room)

    def _fitted(
        self, before: list[int], ids: list[int], after: list[int], num_prompt: int, truncate: Truncation, room: int
    ) -> Item:
        """The tokens with those around them, cut where they are too many; what is cut at the start is not the prompt."""
        total = len(before) + len(ids) + len(after)
        truncated_from = 0
        if len(ids) > room:
            if truncate == "error":
                return Item(
                    [],
                    error=f"it has {total} tokens or more, and {self.rules.max_tokens} is the limit; shorten it, or ask for "
                    "truncation (start or end)",
                    code="context_length_exceeded",
                )
            truncated_from = total
            kept = min(num_prompt, room) if truncate == "start" else room
            ids = ids[:kept] + ids[len(ids) - (room - kept) :]
        whole = [*before, *ids, *after]
        if not whole:
            return Item([], error="it has no tokens")
        return Item(whole, len(before) + min(num_prompt, room) if num_prompt else 0, truncated_from)

    def prompt(self, name: str | None, text: str | None) -> str:
        """What is put before texts: one of the caller's, or one of the model's by name (default: the model's own choice)."""
        if text is not None:
            if name is not None:
                raise RequestError("prompt and prompt_name were both given; give one", param="prompt_name")
            return text
        name = self.rules.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.rules.prompts:
            known = ", ".join(self.rules.prompts) or "it has none; give the text itself (prompt), or neither"
            raise RequestError(f"prompt {name!r} is not one of the model's: {known}", param="prompt_name")
        return self.rules.prompts[name]

    def dimensions(self, asked: int | None) -> int | None:
        """To how many values vectors are cut; None: they stay whole."""
        width, allowed = self.rules.width, self.rules.dims
        if asked is None:
            return self.rules.truncate_dim
        if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= width:
            raise RequestError(f"dimensions is {asked!r}; allowed are 1 to {width}", param="dimensions")
        if asked == width or self.allows_dimensions:
            return asked
        if allowed is None:
            raise RequestError(
                f"dimensions is {asked}, and this model does not say that its vectors may be cut (is_matryoshka, "
                f"matryoshka_dimensions in config.json); leave it out, or open it with allows_dimensions=True "
                "(--allow-dimensions)",
                param="dimensions",
            )
        if allowed and asked not in allowed:
            raise RequestError(
                f"dimensions is {asked}; this model allows {', '.join(map(str, allowed))}", param="dimensions"
            )
        return asked

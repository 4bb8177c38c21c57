"""From pairs of texts to the token ids and segments that enter a step: a query and a document, a premise and a hypothesis.

Special tokens and segment ids are those of the tokenizer's post-processor for pairs. Invariants as in `texts`; where a pair is
too long, what it loses is what tokenizers cut: `longest_first` takes from the longer text until both are even, then from both;
`only_second` leaves the first text whole. Worker threads may call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.pooling.texts import Item, Rules
from octavo.engine.text.tokenizer import Tokenizer

PairTruncation = Literal["error", "longest_first", "only_second"]
PAIR_TRUNCATIONS: tuple[PairTruncation, ...] = get_args(PairTruncation)


def has_segments(tokenizer_config: Mapping[str, Any]) -> bool:
    """Whether a tokenizer's segment ids reach the model: unless its files list the model's inputs without them."""
    names = tokenizer_config.get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


class Pairs:
    """The text side of a cross-encoder. `has_segments`: whether segment ids reach the model, or all are 0."""

    takes_instruction = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        rules: Rules,
        *,
        has_segments: bool = True,
        special: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`special`: tokens before, between and after the texts, other than the tokenizer's."""
        self.tokenizer = tokenizer
        self.rules = rules
        self.has_segments = has_segments
        if special is None:
            self._special, self._types = tokenizer.pair_layout
        else:
            self._special = [list(ids) for ids in special]
            self._types = [*([0] * len(ids) for ids in special), [0, 0]]
        self.room = rules.max_tokens - sum(map(len, self._special))
        if self.room < 2:
            raise ModelError(f"pairs of {rules.max_tokens} tokens have no room beside the special ones")

    def items(
        self, pairs: Iterable[object], prompt: str, truncate: PairTruncation, *, max_second: int | None = None
    ) -> list[Item]:
        """Tokens of every pair, or why it has none; `prompt` goes before first texts, and second ones keep `max_second` tokens
        (None: all). RequestError for an unknown `truncate`."""
        check_truncation(truncate)
        firsts: dict[str, list[int]] = {}  # a query meets many documents
        found = []
        for pair in pairs:
            error = wrong(pair)
            if error:
                found.append(Item([], error=error))
                continue
            assert isinstance(pair, (tuple, list))
            first = pair[0]
            if first not in firsts:
                firsts[first] = self._ids(prompt + first)
            second = self._ids(pair[1])
            item = self._fitted(prompt + first, pair[1], firsts[first], second[:max_second], truncate, max_second)
            if max_second is not None and len(second) > max_second and not item.error:
                most = len(firsts[first]) + len(second) + sum(map(len, self._special))
                item = replace(item, truncated_from=max(item.truncated_from, most))
            found.append(item)
        return found

    def _ids(self, text: str, *, is_whole: bool = False) -> list[int]:
        """A text's tokens; of one beyond all room only so many that this shows."""
        if self.rules.lowers_case:
            text = text.lower()
        return self.tokenizer.encode(text, add_special=False, max_tokens=None if is_whole else self.room)

    def _fitted(
        self, first: str, second: str, a: list[int], b: list[int], truncate: PairTruncation, max_second: int | None
    ) -> Item:
        """Both texts' tokens with the special ones, cut where they are too many."""
        room = self.room
        total = len(a) + len(b) + sum(map(len, self._special))
        truncated_from = 0
        if len(a) + len(b) > room:
            limit = self.rules.max_tokens
            if truncate == "error":
                return Item([], error=too_long(total, limit), code="context_length_exceeded")
            if truncate == "only_second" and len(a) >= room:
                why = f"{leaves_no_room(len(a), limit)}, or ask for truncation longest_first"
                return Item([], error=why, code="context_length_exceeded")
            if truncate == "longest_first" and len(a) > room < len(b):  # which is longer decides an odd token
                a, b = self._ids(first, is_whole=True), self._ids(second, is_whole=True)[:max_second]
            truncated_from = total
            keep_a, keep_b = (
                longest_first(len(a), len(b), room) if truncate == "longest_first" else (len(a), room - len(a))
            )
            a, b = a[:keep_a], b[:keep_b]
        ids, types = [], []
        for special, kinds, part, own in zip(
            self._special, self._types[:3], (a, b, []), (*self._types[3], 0), strict=True
        ):
            ids += [*special, *part]
            types += [*kinds, *[own] * len(part)]
        return Item(ids, 0, truncated_from, types=types if self.has_segments else None)


def longest_first(num_first: int, num_second: int, room: int) -> tuple[int, int]:
    """Tokens that two texts keep of theirs, `room` in all: the shorter its own where that is at most half of the room."""
    short, long = sorted((num_first, num_second))
    if short + long > room:
        long = max(short, room - short)
        if short + long > room:
            short, long = room // 2, room - room // 2
    return (short, long) if num_first <= num_second else (long, short)


def check_truncation(truncate: str) -> None:
    """RequestError for one that there is not."""
    if truncate not in PAIR_TRUNCATIONS:
        raise RequestError(
            f"truncate is {truncate!r}; for pairs it must be one of {', '.join(PAIR_TRUNCATIONS)}", param="truncate"
        )


def too_long(num_tokens: int, limit: int) -> str:
    """Why a pair has no result that may not be cut."""
    return (
        f"it has {num_tokens} tokens or more with its query, and {limit} is the limit; shorten it, or ask for truncation "
        "(longest_first or only_second)"
    )


def leaves_no_room(num_tokens: int, limit: int) -> str:
    """Why a pair has no result whose query is too long."""
    return (
        f"its first text alone leaves the second no room: it has {num_tokens} tokens or more, and {limit} is the limit of both; "
        "shorten it"
    )


def wrong(pair: object) -> str:
    """What is wrong with a pair; '' for two texts, of which the second has something in it."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return f"it is {type(pair).__name__}; give a pair of two texts"
    for name, text in zip(("first", "second"), pair, strict=True):
        if not isinstance(text, str):
            return f"its {name} text is {type(text).__name__}; give text"
        if not text:
            return f"its {name} text is empty"
    return ""

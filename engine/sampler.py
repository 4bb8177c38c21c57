"""Turns requests into sampling rows: one `SampleBatch` per step, built from per-request constants kept by slot.

A plain request (no penalties, bans, biases or masks) costs one gathered row; only requests that ask for more carry lists.
The arithmetic is the platform's (docs/numerics.md, "Sampling"); nothing here looks at logits. Noise is keyed by (seed,
choice, position), never by slot or batch place, so neighbours cannot change a draw.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from octavo.engine.request import Request
from octavo.engine.sampling_params import BIAS_BOUND
from octavo.platforms.types import SampleBatch

FORBIDDEN_BIAS = BIAS_BOUND.low  # this bias and below: the token is never drawn


class TokenMask(Protocol):
    """A per-request constraint (a grammar, say): which tokens may come next, given what came before."""

    def next_mask(self, output_ids: list[int]) -> NDArray[np.uint32] | None:
        """Bit t of word t // 32 set: token t allowed. [ceil(vocab / 32)]; None: all."""
        ...


class SamplingState:
    """What one request's rows need beyond its constants: seen tokens, bans, biases, masks."""

    __slots__ = (
        "bias_ids",
        "bias_values",
        "has_counts",
        "num_seen",
        "output_counts",
        "request",
        "seen_ids",
        "static_bans",
        "static_mask",
    )

    def __init__(self, request: Request, vocab_size: int) -> None:
        params = request.params
        self.request = request
        self.has_counts = bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0)
        self.seen_ids = array("i")  # sorted
        self.output_counts = array("i")
        self.num_seen = 0
        bias = sorted(params.logit_bias.items())
        self.static_bans = array("i", (token for token, value in bias if value <= FORBIDDEN_BIAS))
        kept = [(token, value) for token, value in bias if value > FORBIDDEN_BIAS]
        self.bias_ids = array("i", (token for token, _ in kept))
        self.bias_values = array("f", (value for _, value in kept))
        allowed = params.allowed_token_ids
        self.static_mask = None if allowed is None else bit_mask(allowed, vocab_size)

    def count(self) -> None:
        """Takes in tokens that came since the last call; the first time a whole prompt, hence at once."""
        tokens, prompt = self.request.tokens, self.request.num_prompt
        if not self.num_seen:
            self.seen_ids = array("i", sorted(set(tokens[:prompt])))
            self.output_counts = array("i", bytes(4 * len(self.seen_ids)))
            self.num_seen = prompt
        for place in range(self.num_seen, len(tokens)):
            token = tokens[place]
            at = bisect_left(self.seen_ids, token)
            if at == len(self.seen_ids) or self.seen_ids[at] != token:
                self.seen_ids.insert(at, token)
                self.output_counts.insert(at, 0)
            self.output_counts[at] += 1
        self.num_seen = len(tokens)

    def bans(self) -> array[int]:
        """Token ids that must not be drawn now, ascending: biases of -100, ends before min_tokens, ends of bad words."""
        request = self.request
        extra: set[int] = set()
        if len(request.tokens) < request.min_len:
            extra |= request.stop_ids
        if request.params.bad_words:
            end = len(request.tokens)
            for word in request.params.bad_words:
                start = end - len(word) + 1  # of the word's head, were it the end of the output
                if start >= request.num_prompt and request.tokens[start:] == word[:-1]:
                    extra.add(word[-1])
        if not extra:
            return self.static_bans
        return array("i", sorted(extra.union(self.static_bans)))

    def mask(self) -> NDArray[np.uint32] | None:
        """The allowed set now, or None."""
        dynamic = cast("TokenMask | None", self.request.mask)
        if dynamic is None:
            return self.static_mask
        mask = dynamic.next_mask(self.request.output_ids)
        if mask is None or self.static_mask is None:
            return self.static_mask if mask is None else mask
        return mask & self.static_mask


def bit_mask(token_ids: Sequence[int], vocab_size: int) -> NDArray[np.uint32]:
    """[ceil(vocab / 32)] words with the bits of these tokens set."""
    words = np.zeros(-(-vocab_size // 32), np.uint32)
    ids = np.asarray(token_ids, np.int64)
    np.bitwise_or.at(words, ids // 32, (np.uint32(1) << (ids % 32).astype(np.uint32)))
    return words


_F32 = ("temperature", "top_p", "min_p", "typical_p", "presence", "frequency", "repetition")


class SlotRows:
    """Per-slot constants of running requests, gathered by slot into a SampleBatch each step."""

    def __init__(self, num_slots: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.f32 = {name: np.zeros(num_slots, np.float32) for name in _F32}
        self.top_k = np.zeros(num_slots, np.int32)
        self.seed = np.zeros(num_slots, np.uint64)
        self.choice = np.zeros(num_slots, np.uint32)
        self.num_logprobs = np.zeros(num_slots, np.int32)
        self.state: list[SamplingState | None] = [None] * num_slots
        self.is_plain = [True] * num_slots
        self.is_greedy = [False] * num_slots

    def set(self, slot: int, request: Request) -> None:
        """Fills a slot for a request."""
        p = request.params
        values = (
            p.temperature,
            p.top_p,
            p.min_p,
            p.typical_p,
            p.presence_penalty,
            p.frequency_penalty,
            p.repetition_penalty,
        )
        for name, value in zip(_F32, values, strict=True):
            self.f32[name][slot] = value
        self.top_k[slot] = max(p.top_k, 0)
        self.seed[slot] = request.seed & 0xFFFFFFFFFFFFFFFF
        self.choice[slot] = request.choice
        self.num_logprobs[slot] = -1 if p.logprobs is None else p.logprobs
        state = SamplingState(request, self.vocab_size)
        self.state[slot] = state
        self.is_plain[slot] = not (
            state.has_counts
            or p.logit_bias
            or p.bad_words
            or p.min_tokens
            or state.static_mask is not None
            or request.mask
        )
        self.is_greedy[slot] = self.is_plain[slot] and p.temperature == 0 and p.logprobs is None

    def are_greedy(self, slots: Sequence[int]) -> bool:
        """Whether each of these takes the token of the greatest logit, so that nobody needs to see the others."""
        return all(self.is_greedy[slot] for slot in slots)

    def clear(self, slot: int) -> None:
        """Lets go of a finished request."""
        self.state[slot] = None

    def batch(self, slots: Sequence[int], positions: Sequence[int]) -> SampleBatch:
        """Sampling rows of these slots; `positions` are those of the tokens being drawn."""
        index = np.asarray(slots, np.int64)
        lists = self._lists(slots)
        f32: dict[str, Any] = {name: values[index] for name, values in self.f32.items()}
        return SampleBatch(
            top_k=self.top_k[index], seed=self.seed[index], choice=self.choice[index],
            position=np.asarray(positions, np.int64), num_logprobs=self.num_logprobs[index], **f32, **lists,
        )  # fmt: skip

    def _lists(self, slots: Sequence[int]) -> dict[str, Any]:
        num_rows = len(slots)
        if all(self.is_plain[slot] for slot in slots):
            return _empty_lists(num_rows)
        counts, biases, bans = _Csr("i", "i"), _Csr("i", "f"), _Csr("i")
        mask_row = np.full(num_rows, -1, np.int32)
        masks: list[NDArray[np.uint32]] = []
        for row, slot in enumerate(slots):
            state = self.state[slot]
            if state is not None and not self.is_plain[slot]:
                if state.has_counts:
                    state.count()
                    counts.extend(state.seen_ids, state.output_counts)
                biases.extend(state.bias_ids, state.bias_values)
                bans.extend(state.bans())
                mask = state.mask()
                if mask is not None:
                    mask_row[row] = len(masks)
                    masks.append(mask)
            for csr in (counts, biases, bans):
                csr.end_row()
        words = -(-self.vocab_size // 32)
        return {
            "count_start": counts.starts(), "count_ids": counts.column(0), "count_output": counts.column(1),
            "bias_start": biases.starts(), "bias_ids": biases.column(0), "bias_values": biases.column(1),
            "banned_start": bans.starts(), "banned_ids": bans.column(0),
            "mask_row": mask_row, "masks": np.stack(masks) if masks else np.zeros((0, words), np.uint32),
        }  # fmt: skip


class _Csr:
    """Row lists under construction."""

    def __init__(self, *kinds: str) -> None:
        self._columns: list[array[Any]] = [array(kind) for kind in kinds]
        self._starts = array("i", [0])

    def extend(self, *values: array[Any]) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column.extend(value)

    def end_row(self) -> None:
        self._starts.append(len(self._columns[0]))

    def starts(self) -> NDArray[np.int32]:
        return np.array(self._starts, np.int32)

    def column(self, index: int) -> NDArray[Any]:
        values = self._columns[index]
        return np.array(values, np.int32 if values.typecode == "i" else np.float32)


def _empty_lists(num_rows: int) -> dict[str, Any]:
    start = np.zeros(num_rows + 1, np.int32)
    ids, values = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return {
        "count_start": start, "count_ids": ids, "count_output": ids, "bias_start": start, "bias_ids": ids,
        "bias_values": values, "banned_start": start, "banned_ids": ids, "mask_row": np.full(num_rows, -1, np.int32),
    }  # fmt: skip


def forced_rows(token_ids: Sequence[int], num_logprobs: int, vocab_size: int) -> SampleBatch:
    """Rows that can only draw the given tokens: how known tokens (prompt logprobs) are scored by the same kernel."""
    num_rows = len(token_ids)
    zeros = np.zeros(num_rows, np.float32)
    ones = np.ones(num_rows, np.float32)
    lists = _empty_lists(num_rows)
    lists["mask_row"] = np.arange(num_rows, dtype=np.int32)
    masks = np.zeros((num_rows, -(-vocab_size // 32)), np.uint32)
    ids = np.asarray(token_ids, np.int64)
    masks[np.arange(num_rows), ids // 32] = np.uint32(1) << (ids % 32).astype(np.uint32)
    return SampleBatch(
        temperature=zeros, top_k=np.zeros(num_rows, np.int32), top_p=ones, min_p=zeros, typical_p=ones, presence=zeros,
        frequency=zeros, repetition=ones, seed=np.zeros(num_rows, np.uint64), choice=np.zeros(num_rows, np.uint32),
        position=np.zeros(num_rows, np.int64), num_logprobs=np.full(num_rows, num_logprobs, np.int32), masks=masks, **lists,
    )  # fmt: skip

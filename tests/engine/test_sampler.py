"""Sampling rows hold what each request asked for, sorted and in its own row, and nothing of a slot's last owner."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from octavo.engine.request import Request
from octavo.engine.sampler import SamplingState, SlotRows, bit_mask, forced_rows
from octavo.engine.sampling_params import SamplingParams

VOCAB = 70


def request(prompt: list[int], output: list[int] | None = None, **params: object) -> Request:
    made = Request("r", prompt, SamplingParams(**params), eos_ids=[1])  # type: ignore[arg-type]
    made.tokens += output or []
    return made


@pytest.mark.parametrize("pieces", [[0], [3], [1, 1, 1], [0, 2, 5]])
def test_counts_are_those_of_all_tokens_however_they_come(pieces: list[int]) -> None:
    rng = np.random.default_rng(2)
    made = request(rng.integers(0, VOCAB, 30).tolist(), presence_penalty=1.0)
    state = SamplingState(made, VOCAB)
    for piece in pieces:
        made.tokens += rng.integers(0, VOCAB, piece).tolist()
        state.count()
    output = Counter(made.output_ids)
    assert state.seen_ids.tolist() == sorted(set(made.tokens))
    assert state.output_counts.tolist() == [output[token] for token in state.seen_ids]


@pytest.mark.parametrize(
    ("output", "words", "banned"),
    [
        ([], [[4]], [4]),
        ([], [[9, 4]], []),  # 9 stands in the prompt alone
        ([9], [[9, 4], [8, 9, 5], [9, 9, 6]], [4]),
        ([8, 9], [[9, 4], [8, 9, 5], [7, 8, 9, 6]], [4, 5]),
    ],
)
def test_a_bad_word_is_banned_where_it_would_be_completed(
    output: list[int], words: list[list[int]], banned: list[int]
) -> None:
    assert SamplingState(request([9], output, bad_words=words), VOCAB).bans().tolist() == banned


def test_ends_are_banned_before_min_tokens_beside_biases_that_forbid() -> None:
    made = request([5], min_tokens=2, stop_token_ids=[60], logit_bias={40: -100.0, 3: 2.0})
    state = SamplingState(made, VOCAB)
    assert state.bans().tolist() == [1, 40, 60]
    made.tokens += [7, 7]
    assert state.bans().tolist() == [40]
    assert (state.bias_ids.tolist(), state.bias_values.tolist()) == ([3], [2.0])


def test_rows_keep_their_lists_apart() -> None:
    rows = SlotRows(4, VOCAB)
    rows.set(0, request([5, 5], [6], frequency_penalty=0.5))
    rows.set(1, request([5], seed=-1, temperature=0.25, top_k=-1))
    rows.set(2, request([5], logit_bias={9: 1.0, 2: -3.0}, bad_words=[[8]]))
    rows.set(3, request([5], allowed_token_ids=[0, 33, 69], seed=2**64 - 1))
    batch = rows.batch([3, 2, 1, 0], [10, 20, 30, 40])
    assert batch.count_start.tolist() == [0, 0, 0, 0, 2] and batch.count_ids.tolist() == [5, 6]
    assert batch.count_output.tolist() == [0, 1]
    assert batch.bias_start.tolist() == [0, 0, 2, 2, 2] and batch.bias_ids.tolist() == [2, 9]
    assert batch.banned_start.tolist() == [0, 0, 1, 1, 1] and batch.banned_ids.tolist() == [8]
    assert batch.mask_row.tolist() == [0, -1, -1, -1] and batch.masks.tolist() == [[1, 2, 32]]
    assert batch.position.tolist() == [10, 20, 30, 40] and batch.top_k.tolist() == [0, 0, 0, 0]
    assert batch.seed.tolist()[0] == batch.seed.tolist()[2] == 2**64 - 1
    assert batch.temperature.tolist() == [1.0, 1.0, 0.25, 1.0]


def test_a_slot_forgets_its_last_owner() -> None:
    rows = SlotRows(1, VOCAB)
    rows.set(0, request([5], logit_bias={9: 1.0}, allowed_token_ids=[9], logprobs=3))
    rows.clear(0)
    rows.set(0, request([6]))
    batch = rows.batch([0], [1])
    assert batch.bias_ids.size == batch.banned_ids.size == batch.masks.size == 0
    assert batch.mask_row.tolist() == [-1] and batch.num_logprobs.tolist() == [-1]


class EvenAfter:
    """A mask that looks at the output: even ids only, once there is some."""

    def next_mask(self, output_ids: list[int]) -> np.ndarray | None:
        return bit_mask(range(0, VOCAB, 2), VOCAB) if output_ids else None


def test_a_mask_that_changes_meets_the_allowed_ids() -> None:
    made = request([5], allowed_token_ids=[2, 3])
    made.mask = EvenAfter()
    rows = SlotRows(1, VOCAB)
    rows.set(0, made)
    assert rows.batch([0], [1]).masks.tolist() == [[0b1100, 0, 0]]
    made.tokens.append(4)
    assert rows.batch([0], [2]).masks.tolist() == [[0b0100, 0, 0]]


def test_forced_rows_allow_one_token_each() -> None:
    batch = forced_rows([0, 31, 32, 69], 5, VOCAB)
    bits = np.unpackbits(batch.masks.view(np.uint8), axis=1, bitorder="little")
    assert [np.flatnonzero(row).tolist() for row in bits] == [[0], [31], [32], [69]]
    assert batch.mask_row.tolist() == [0, 1, 2, 3] and set(batch.num_logprobs.tolist()) == {5}

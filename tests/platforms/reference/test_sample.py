"""Sampling: each step against a plain formula, ties, and the distribution of what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.platforms.reference.sample import filtered, log_softmax, sample
from octavo.platforms.types import SampleBatch

VOCAB = 50


def rows(num_rows: int = 1, **values: Any) -> SampleBatch:
    """Greedy rows without filters; `values` set fields for all rows; lists are (start, ids, ...)."""
    none = np.zeros(num_rows + 1, np.int32)
    fields: dict[str, Any] = {
        "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "presence": 0.0,
        "frequency": 0.0, "repetition": 1.0, "seed": 0, "choice": 0, "position": 0, "num_logprobs": -1, "mask_row": -1,
    }  # fmt: skip
    types = {
        "top_k": np.int32, "seed": np.uint64, "choice": np.uint32, "position": np.int64, "num_logprobs": np.int32,
        "mask_row": np.int32,
    }  # fmt: skip
    made: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(values.pop(name, default), types.get(name, np.float32)), num_rows).copy()
        for name, default in fields.items()
    }
    for prefix, columns in (("count", ("ids", "output")), ("bias", ("ids", "values")), ("banned", ("ids",))):
        made[f"{prefix}_start"] = values.pop(f"{prefix}_start", none)
        for column in columns:
            kind = np.float32 if column == "values" else np.int32
            made[f"{prefix}_{column}"] = np.asarray(values.pop(f"{prefix}_{column}", []), kind)
    return SampleBatch(**made, **values)


def one_list(ids: list[int]) -> np.ndarray:
    return np.array([0, len(ids)], np.int32)


def logits(seed: int = 0, num_rows: int = 1, spread: float = 2.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((num_rows, VOCAB)) * spread).astype(np.float32)


def kept(x: np.ndarray, **values: Any) -> set[int]:
    return set(np.flatnonzero(filtered(x[0], np.ones(x.shape[1], bool), rows(**values), 0)).tolist())


def test_greedy_takes_the_greatest_and_the_lowest_of_equals() -> None:
    x = logits()
    x[0, [30, 7, 12]] = 9.0
    assert sample(x, rows()).ids.tolist() == [7]
    assert sample(x, rows(temperature=-1.0, top_k=1)).ids.tolist() == [7]


def test_nan_and_minus_infinity_are_never_chosen() -> None:
    x = np.full((1, VOCAB), -np.inf, np.float32)
    x[0, :5] = [np.nan, -np.inf, -3.0, -2.0, np.nan]
    assert sample(x, rows()).ids.tolist() == [3]
    result = sample(x, rows(temperature=5.0, seed=3, num_logprobs=4))
    assert result.ids[0] in (2, 3)
    assert result.best_ids[0].tolist() == [3, 2, -1, -1] and np.isnan(result.best_logprobs[0, 2:]).all()


def test_masks_and_bans_remove_tokens_and_nothing_left_gives_minus_one() -> None:
    x = logits()
    order = np.argsort(-x[0])
    assert sample(x, rows(banned_ids=[int(order[0])], banned_start=one_list([0]))).ids[0] == order[1]
    masks = np.zeros((2, 2), np.uint32)
    allowed = [33, 5]
    for i in allowed:
        masks[1, i >> 5] |= np.uint32(1 << (i & 31))
    best = max(allowed, key=lambda i: x[0, i])
    assert sample(x, rows(mask_row=1, masks=masks)).ids[0] == best
    empty = sample(x, rows(mask_row=0, masks=masks, num_logprobs=2, temperature=1.0))
    assert empty.ids[0] == -1 and np.isnan(empty.logprobs[0]) and empty.ranks[0] == 0


def test_penalties_follow_their_formulas_in_order() -> None:
    x = np.zeros((1, VOCAB), np.float32)
    x[0, :5] = [4.0, -1.0, 3.9, 3.0, 2.0]
    counts = {"count_ids": [0, 1, 2], "count_output": [2, 1, 0], "count_start": one_list([0, 1, 2])}
    bias = {"bias_ids": [0, 4], "bias_values": [1.0, 1.5], "bias_start": one_list([0, 4])}
    options = {"repetition": 2.0, "presence": 0.25, "frequency": 0.5, **counts, **bias, "raw_logprobs": False}
    result = sample(x, rows(num_logprobs=VOCAB, **options))
    want = x[0].astype(np.float64).copy()
    want[0] = (4.0 + 1.0) / 2 - 0.25 - 2 * 0.5
    want[1] = -1.0 * 2 - 0.25 - 0.5
    want[2] = 3.9 / 2  # in the prompt only: repetition alone
    want[4] = 3.5
    assert result.ids[0] == 4
    by_id = np.empty(VOCAB)
    by_id[result.best_ids[0]] = result.best_logprobs[0]
    np.testing.assert_allclose(by_id, want - np.log(np.exp(want).sum()), atol=2e-6)


def test_top_k_keeps_the_lowest_ids_of_equals() -> None:
    x = np.zeros((1, VOCAB), np.float32)
    x[0, [40, 20, 10]] = [2.0, 1.0, 1.0]
    assert kept(x, top_k=2) == {40, 10}
    assert kept(x, top_k=VOCAB + 9) == set(range(VOCAB))


@pytest.mark.parametrize("p", [0.01, 0.3, 0.6, 0.95, 0.999])
def test_top_p_keeps_the_shortest_head_that_reaches_p(p: float) -> None:
    for seed in range(5):
        x = logits(seed)
        prob = np.exp(x[0].astype(np.float64))
        prob /= prob.sum()
        order = np.argsort(-prob)
        count = int(np.searchsorted(np.cumsum(prob[order]), p)) + 1
        assert kept(x, top_p=p) == set(order[:count].tolist())


def test_top_p_is_exact_on_equal_tokens_in_any_count() -> None:
    x = np.zeros((1, VOCAB), np.float32)
    assert kept(x, top_p=0.5) == set(range(25))
    assert kept(x, top_p=0.0) == {0}


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_typical_p_keeps_tokens_of_expected_surprise(p: float) -> None:
    for seed in range(5):
        x = logits(seed)
        prob = np.exp(x[0].astype(np.float64))
        prob /= prob.sum()
        distance = np.abs(-np.log(prob) - (-(prob * np.log(prob)).sum()))
        order = np.argsort(distance)
        count = int(np.searchsorted(np.cumsum(prob[order]), p)) + 1
        assert kept(x, typical_p=p) == set(order[:count].tolist())


def test_min_p_is_relative_to_the_best_and_filters_apply_in_order() -> None:
    x = np.log(np.array([[0.5, 0.3, 0.1, 0.06, 0.04]])).astype(np.float32)
    assert kept(x, min_p=0.19) == {0, 1, 2}
    # top-k renormalises before top-p: 0.5 / 0.8 = 0.625 reaches 0.6 only then
    assert kept(x, top_p=0.6) == {0, 1}
    assert kept(x, top_k=2, top_p=0.6) == {0}


def test_draws_follow_the_distribution_and_depend_on_nothing_else() -> None:
    num = 1500
    x = np.repeat(logits(3, spread=1.0), num, axis=0)
    batch = rows(num, temperature=0.7, seed=11, position=np.arange(num))
    ids = sample(x, batch).ids
    prob = np.exp(x[0].astype(np.float64) / 0.7)
    prob /= prob.sum()
    count = np.bincount(ids, minlength=VOCAB)
    common = prob * num > 20
    chi2 = ((count - prob * num) ** 2 / (prob * num))[common].sum()
    assert chi2 < common.sum() + 6 * np.sqrt(2 * common.sum())
    few = sample(x[:3], rows(3, temperature=0.7, seed=11, position=[17, 5, 1200]))
    assert few.ids.tolist() == ids[[17, 5, 1200]].tolist()


def test_logprobs_are_log_softmax_over_segments() -> None:
    x = (np.random.default_rng(5).standard_normal(10_000) * 3).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(
        log_softmax(x, np.ones(10_000, bool)), wide - wide.max() - np.log(np.exp(wide - wide.max()).sum()), atol=4e-6
    )
    row = np.array([[1.0, 3.0, 3.0, 0.0]], np.float32)
    result = sample(row, rows(num_logprobs=2, bias_ids=[0], bias_values=[9.0], bias_start=one_list([0])))
    assert result.ids.tolist() == [0] and result.ranks.tolist() == [3]  # raw logits are reported, the bias is not
    assert result.best_ids.tolist() == [[1, 2]]


def test_no_logprobs_are_made_where_none_are_asked() -> None:
    x = logits(num_rows=2)
    result = sample(x, rows(2, num_logprobs=[-1, 0]))
    assert np.isnan(result.logprobs[0]) and result.ranks[0] == 0
    assert result.logprobs[1] < 0 and result.ranks[1] == 1 and result.best_ids.shape == (2, 0)

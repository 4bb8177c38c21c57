"""linear_bf16 of levels with another order of sums: within rounding of the contract's, and a row's bits are its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.harness import Kernel, same_bits, variants
from tests.kernels.panels import stored
from tests.kernels.test_linear import Case, multiply, normal, reference

from octavo.platforms.recorded.selftest import FAST_TOLERANCE
from octavo.platforms.reference import f32
from octavo.quant import load

FAST = variants("linear_bf16", is_fast=True)


def weight(n: int, k: int) -> Case:
    return Case("bf16", n, k, stored("bf16", n, k, seed=n + k))


def one_of(case: Case, row: int) -> Case:
    """The case of one row of the residual."""
    assert case.residual is not None
    return replace(case, residual=case.residual[row : row + 1])


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    assert np.abs(got - want).max() <= FAST_TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize(("n", "k"), [(16, 64), (1, 8), (15, 33), (47, 96), (100, 1100), (48, 576)])
def test_values_are_those_of_the_contract_but_for_rounding(kernel: Kernel, n: int, k: int) -> None:
    case, x = weight(n, k), normal(33, k)
    for rows in (1, 3, 4, 33):
        assert_close(multiply(kernel, case, x[:rows]), reference(case, x[:rows]))


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize(("n", "k"), [(16, 96), (33, 560), (48, 1100)])
def test_a_row_has_the_same_bits_among_any_number_of_others(kernel: Kernel, n: int, k: int) -> None:
    case, x = weight(n, k), normal(140, k)
    alone = np.concatenate([multiply(kernel, case, x[r : r + 1]) for r in range(len(x))])
    for rows in (*range(2, 18), 33, 140):
        for threads in (1, 2):
            assert same_bits(multiply(kernel, case, x[:rows], threads), alone[:rows]), rows


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("k", [90_000, 140_000, (1 << 18) + 32])
def test_rows_longer_than_scratch_or_than_a_third_of_it_have_the_same_bits_too(kernel: Kernel, k: int) -> None:
    case, x = weight(3, k), normal(5, k)
    case.residual = normal(5, 3, seed=2)
    alone = np.concatenate([multiply(kernel, one_of(case, r), x[r : r + 1]) for r in range(len(x))])
    for threads in (1, 2):  # with two the residual is y itself: a row written twice has it twice
        assert same_bits(multiply(kernel, case, x, threads), alone), threads


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_what_follows_the_product_is_done_in_order(kernel: Kernel, rows: int) -> None:
    case = weight(40, 96)
    case.scale, case.activation = 0.75, "silu"
    case.bias = normal(1, 40, seed=3)[0]
    case.gate, case.residual = normal(rows, 40, seed=4), normal(rows, 40, seed=5)
    x = normal(rows, 96)
    assert_close(multiply(kernel, case, x), reference(case, x))


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("rows", [1, 5])
def test_weights_under_the_normal_range_count_as_zero(kernel: Kernel, rows: int) -> None:
    raw = np.full((20, 64), 0x0040, np.uint16)
    x = np.full((rows, 64), np.float32(2.0**100))
    assert (multiply(kernel, Case("bf16", 20, 64, raw.view(np.uint8)), x) == 0).all()


def odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b rounded to odd: towards zero, and where that is not exact the last bit is set."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total = wide_a + wide_b
    error = (wide_a - (total - (total - wide_a))) + (wide_b - (total - wide_a))
    bits = total.view(np.int64) - ((error != 0) & ((error > 0) != (total > 0)))  # now towards zero, in float64
    cut = bits & ~((1 << 29) - 1)
    is_exact = (cut.view(np.float64) == total) & (error == 0)
    return np.where(is_exact, cut, cut | 1 << 29).view(np.float64).astype(np.float32)


@pytest.mark.parametrize("kernel", [p for p in FAST if p.id.endswith("__bf16fast")])
@pytest.mark.parametrize("rows", [1, 6])
def test_pairs_are_summed_as_bfdot_does(kernel: Kernel, rows: int) -> None:
    case, x = weight(20, 96), normal(rows, 96)
    values = load.unpack("bf16", np.ascontiguousarray(case.raw).reshape(-1), (20, 96))
    products = f32.to_bf16(x)[:, None] * values  # exact
    want = np.zeros((rows, 20), np.float32)
    for i in range(0, 96, 2):
        want = odd_sum(want, odd_sum(products[..., i], products[..., i + 1]))
    assert same_bits(multiply(kernel, case, x), want)

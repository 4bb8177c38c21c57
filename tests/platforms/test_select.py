"""Kernels by number of rows: each from where it pays up to where a better one begins, whatever is refused."""

from __future__ import annotations

import pytest

from octavo.platforms.select import FAST_LEVELS, MANY_FROM, Allowance, Choice, KernelRow, choose, explain, of_rows

GPU_LEVELS = {"simt": 1, "mma": 2, "mmawide": 2, "mmafast": 2, "mmafastwide": 2, "triton": 2}
BF16 = [KernelRow("linear_bf16", f"linear_bf16__{level}", level, GPU_LEVELS[level])
        for level in ("simt", "mmafast", "mmafastwide", "triton")]  # fmt: skip


def chosen(*refused: str, is_fast: bool = True, features: int = 3) -> list[tuple[int, str]]:
    """Bands of bfloat16 by level, where some levels were found wrong."""
    may = Allowance(features, features, dict.fromkeys(refused, "found wrong"), is_fast)
    return [(start, name.rsplit("__", 1)[1]) for start, name in choose(BF16, GPU_LEVELS, may)["linear_bf16"].bands]


def test_each_kernel_runs_from_where_it_pays_to_where_a_better_one_begins() -> None:
    assert chosen() == [(0, "mmafast"), (17, "mmafastwide"), (65, "triton")]


@pytest.mark.parametrize(
    ("refused", "bands"),
    [
        (("triton",), [(0, "mmafast"), (17, "mmafastwide")]),
        (("mmafastwide",), [(0, "mmafast"), (65, "triton")]),
        (("mmafast",), [(0, "simt"), (17, "mmafastwide"), (65, "triton")]),
        (("simt", "mmafast"), [(0, "mmafastwide"), (65, "triton")]),
        (("simt", "mmafast", "mmafastwide"), [(0, "triton")]),
    ],
)
def test_neighbours_take_the_rows_of_a_refused_kernel(refused: tuple[str, ...], bands: list[tuple[int, str]]) -> None:
    assert chosen(*refused) == bands


def test_exact_numerics_and_chips_without_matrix_units_have_one_kernel() -> None:
    assert chosen(is_fast=False) == chosen(features=1) == [(0, "simt")]


@pytest.mark.parametrize(("rows", "name"), [(0, "a"), (16, "a"), (17, "b"), (64, "b"), (65, "c"), (100_000, "c")])
def test_a_band_ends_where_the_next_begins(rows: int, name: str) -> None:
    choice = Choice(((0, "a"), (17, "b"), (65, "c")))
    assert of_rows(choice.bands, rows) == name
    assert (choice.few, choice.many, choice.many_from, choice.kernels) == ("a", "c", 65, ("a", "b", "c"))


def test_every_kernel_says_its_part_in_the_choice() -> None:
    may = Allowance(3, 3, {"simt": "found wrong"}, is_fast=True)
    told = explain(BF16, choose(BF16, GPU_LEVELS, may), may)
    assert [(v.level, v.detail["from_rows"], v.detail["chosen"], v.reason) for v in told] == [
        ("simt", None, False, "found wrong"),
        ("mmafast", 0, True, ""),
        ("mmafastwide", 17, True, ""),
        ("triton", 65, True, ""),
    ]


def test_levels_that_pay_late_are_known() -> None:
    """A misspelt level would pay from the first row on."""
    assert {level for _, level in MANY_FROM} <= FAST_LEVELS | {"amx", "i8mm", "mmawide"}

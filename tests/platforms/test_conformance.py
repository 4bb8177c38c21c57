"""Every op x case x cell: the reference within the case's tolerance of float64, every CPU cell bit for bit the reference
(cells of fast numerics: within the case's tolerance of it).

Each run also says which kernel variant did the work, so that a fallback cannot pass for a kernel.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from tests.platforms.cells import Cell, cells, reference_cell

from octavo.platforms.gpu.weights import FAST_PREPARE
from octavo.platforms.select import FAST_LEVELS

#: op -> its case table; the ops that a run of the table must have used
TABLES: dict[str, tuple[str, ...]] = {
    "add": ("add",),
    "embedding": ("embedding",),
    "rms_norm": ("rms_norm",),
    "layer_norm": ("layer_norm",),
    "rope": ("rope",),
    "linear": ("linear",),
    "linear_f8": ("linear",),
    "gated_mlp": ("linear",),
    "norm_linear": ("rms_norm", "linear"),
    "layer_norm_linear": ("layer_norm", "linear"),
    "paged_attention": ("kv_append", "paged_attention"),
    "varlen_attention": ("varlen_attention",),
    "relative_attention": ("relative_attention",),
    "softcap": ("softcap",),
    "lm_head": ("gather_rows", "linear"),
    "greedy_head": ("gather_rows", "greedy_head"),
    "pool": ("pool",),
}
CASES = [(table, case.name) for table in TABLES for case in import_module(f"tests.cases.{table}").CASES]
OTHERS = [cell for cell in cells() if not cell.reason and cell.platform != "reference"]
REFUSED = [cell for cell in cells() if cell.reason]


@cache
def case_of(table: str, name: str) -> tuple[Any, Any]:
    module = import_module(f"tests.cases.{table}")
    return module, next(case for case in module.CASES if case.name == name)


@cache
def reference_result(table: str, name: str) -> np.ndarray:
    module, case = case_of(table, name)
    return np.asarray(module.run(reference_cell(), case))


class Watched:
    """A cell whose ops are remembered, to ask them afterwards what ran."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.made: list[Any] = []
        self.weights = cell.weights

    def ops(self, *args: Any) -> Any:
        self.made.append(self.cell.ops(*args))
        return self.made[-1]


def expected_of_fast(variant: str, module: Any, case: Any, want: np.ndarray) -> np.ndarray:
    """What a kernel that may break the contract's order is held to: the reference; the float64 formula with its own inputs, where
    it takes other ones than the exact kernels (`FAST_PREPARE`)."""
    kind, _, level = variant.removeprefix("linear_").partition("__")
    prepare = FAST_PREPARE.get(kind, "") if level in FAST_LEVELS else ""
    return np.asarray(module.naive(case, prepare), np.float32) if prepare == "prepare_f16row" else want


def test_case_names_are_unique() -> None:
    assert len(set(CASES)) == len(CASES)


@pytest.mark.parametrize(("table", "name"), CASES, ids=lambda value: value)
def test_reference_is_within_tolerance_of_float64(table: str, name: str) -> None:
    module, case = case_of(table, name)
    got, want = reference_result(table, name), module.naive(case)
    assert got.dtype == np.float32 and got.shape == want.shape
    scale = max(float(np.abs(want).max(initial=0)), 1e-30)
    worst = float(np.abs(got - want).max(initial=0)) / scale
    assert worst <= case.tolerance, (
        f"{table} {name}: off by {worst:.2e} of the largest value, {case.tolerance:.0e} allowed"
    )


@pytest.mark.parametrize(
    ("table", "name", "cell"),
    [
        pytest.param(*case, cell, id="-".join((*case, cell.name)))
        for case in CASES
        for cell in OTHERS
        if cell.concerns(case[0])
    ],
)
def test_cell_has_the_reference_bits(table: str, name: str, cell: Cell) -> None:
    module, case = case_of(table, name)
    watched = Watched(cell)
    got, want = np.asarray(module.run(watched, case)), reference_result(table, name)
    if not cell.is_exact:
        variant = next((ops.last_variant("linear") for ops in watched.made if ops.last_variant("linear")), "")
        want = expected_of_fast(variant, module, case, want)
        gap = float(np.abs(got - want).max(initial=0)) / max(float(np.abs(want).max(initial=0)), 1e-30)
        assert gap <= case.tolerance, f"{table} {name} on {cell.name}: off by {gap:.1e} of the largest value"
        want = got
    differ = np.argwhere(got.view(np.uint32) != want.view(np.uint32))
    assert got.shape == want.shape
    assert not len(differ), (
        f"{table} {name} on {cell.name}: {len(differ)} of {want.size} values differ, first at {differ[0].tolist()}: "
        f"{got[tuple(differ[0])]!r} instead of {want[tuple(differ[0])]!r}"
    )
    for op in TABLES[table]:
        variant = next(ops.last_variant(op) for ops in watched.made if ops.last_variant(op))
        assert variant.rsplit("__", 1)[1] in cell.levels_of(op), f"{op} ran {variant} on {cell.name}"


@pytest.mark.parametrize("cell", OTHERS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", [case.name for case in import_module("tests.cases.sample").CASES])
def test_sampler_has_the_reference_bits(name: str, cell: Cell) -> None:
    module, case = case_of("sample", name)
    logits, batch = module.inputs(case)
    got, want = cell.sample(logits, batch), reference_cell().sample(logits, batch)
    for field in ("ids", "ranks", "best_ids", "logprobs", "best_logprobs"):
        a, b = getattr(got, field), getattr(want, field)
        same = (a == b) | ((a != a) & (b != b)) if a.dtype == np.float32 else a == b
        assert a.shape == b.shape and same.all(), f"{field} differ on {cell.name} at {np.argwhere(~same)[:3].tolist()}"


@pytest.mark.parametrize("cell", REFUSED, ids=lambda cell: cell.name)
def test_cell_runs_here(cell: Cell) -> None:
    pytest.skip(cell.reason)


def test_reference_says_what_ran() -> None:
    module, case = case_of("linear", "q4_0_64_16")
    watched = Watched(reference_cell())
    module.run(watched, case)
    assert watched.made[0].last_variant("linear") == "linear_q4_0__reference"
    assert watched.made[0].last_variant("rope") == ""

"""Every case of the conformance suite on one cell: what passed, how far off, and which kernels did the work.

The reference's results are computed once and kept in build/matrix, under the digest of everything they depend on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.platforms.cells import Cell, reference_cell
from tests.platforms.test_conformance import CASES, TABLES, Watched, case_of, expected_of_fast

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [case.name for case in import_module("tests.cases.sample").CASES]
FIELDS = ("ids", "ranks", "best_ids", "logprobs", "best_logprobs")
OPS = (*TABLES, "sample")
SHARE = 3  # one case in so many of those alike runs in a repeat of a cell
Arrays = dict[str, NDArray[Any]]


@dataclass
class OpResult:
    """One op in one cell. `max_error`: largest difference from the reference; in cells that are not held to its bits as a share
    of a case's largest value, and so of the reference itself, from float64."""

    passed: int = 0
    failed: int = 0
    max_error: float = 0.0
    kernels: list[str] = field(default_factory=list)
    first_failure: str = ""

    def add(self, is_right: bool, error: float, case: str, why: str, kernels: set[str]) -> None:
        self.passed += is_right
        self.failed += not is_right
        self.max_error = max(self.max_error, error)
        self.kernels = sorted({*self.kernels, *kernels})
        if not is_right and not self.first_failure:
            self.first_failure = f"{case}: {why}"


@dataclass
class CellRun:
    """What a cell's cases gave. `ops`: op -> result; `bits`: `table case` (and a field, of sampling) -> digest of the result, by
    which two builds are compared with each other; `kernels`: `table case` -> kernels of the table's ops that ran."""

    ops: dict[str, OpResult] = field(default_factory=dict)
    bits: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, list[str]] = field(default_factory=dict)


def all_results(cell: Cell) -> Arrays:
    """`table case` -> the cell's result; sampling gives one entry per field."""
    out = {f"{table} {name}": np.asarray(_run(cell, table, name)[0]) for table, name in CASES if cell.concerns(table)}
    for name in SAMPLES:
        out |= _sampled(cell, name)
    return out


def reference_results(folder: Path) -> Arrays:
    """The reference's results, from `folder` if nothing they depend on has changed."""
    digest = hashlib.sha256()
    for part in ("platforms", "quant", "tests/cases", "tests/platforms"):
        for path in sorted((ROOT / part).rglob("*.py")):
            digest.update(path.read_bytes())
    file = folder / f"reference-{digest.hexdigest()[:16]}.npz"
    if not file.exists():
        for old in folder.glob("reference-*.npz"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(file, **all_results(reference_cell()))
    with np.load(file) as stored:
        return dict(stored)


def run_cell(cell: Cell, reference: Arrays, only: Container[str] | None = None) -> CellRun:
    """Every case held to the reference's bits (the reference itself: to its case's tolerance of float64). `only`: the cases to
    run, as `table case`; all where it is None."""
    made = CellRun({op: OpResult() for op in OPS if cell.concerns(op)})
    for table, name in (*CASES, *(("sample", name) for name in SAMPLES)):
        if not cell.concerns(table) or (only is not None and f"{table} {name}" not in only):
            continue
        judge = _judged_sample if table == "sample" else _judged
        try:
            why, error, kernels, found = judge(cell, reference, table, name)
        except Exception as failure:
            why, error, kernels, found = f"{type(failure).__name__}: {failure}"[:300], float("inf"), set(), {}
        made.ops[table].add(not why, error, name, why, kernels)
        made.bits |= {key: hashlib.sha256(got.tobytes()).hexdigest()[:16] for key, got in found.items()}
        made.kernels[f"{table} {name}"] = sorted(kernels)
    return made


def repeated(kernels: Mapping[str, Sequence[str]], level: str) -> list[str]:
    """Cases that a repeat of a cell runs, by the kernels that each ran in it: the first of each table, so that every op runs, and
    of those with the same kernels of `level` itself every SHARE-th, from the first on."""
    first = {key.split(" ")[0]: key for key in reversed(kernels)}
    alike: dict[tuple[str, ...], int] = {}
    chosen = []
    for key, ran in kernels.items():
        own = tuple(kernel for kernel in ran if kernel.endswith(f"__{level}"))
        alike[own] = alike.get(own, -1) + 1
        if key in first.values() or (own and alike[own] % SHARE == 0):
            chosen.append(key)
    return chosen


def judged(cell: Cell, reference: Arrays, table: str, name: str) -> tuple[str, float, set[str]]:
    """What is wrong with a case ('' = nothing), its error as `OpResult` counts it, the kernels of the table's ops that ran."""
    return _judged(cell, reference, table, name)[:3]


def judged_sample(cell: Cell, reference: Arrays, name: str) -> tuple[str, float, set[str]]:
    """The same of a case of sampling, whose bits all cells share."""
    return _judged_sample(cell, reference, "sample", name)[:3]


def _judged(cell: Cell, reference: Arrays, table: str, name: str) -> tuple[str, float, set[str], Arrays]:
    want = reference[f"{table} {name}"]
    got, kernels = _run(cell, table, name)
    found, tolerance = {f"{table} {name}": got}, case_of(table, name)[1].tolerance
    if cell.platform == "reference":
        error = _share_off(want, table, name)
        return "" if error <= tolerance else f"off by {error:.1e}", error, kernels, found
    if not cell.is_exact:
        variant = next((kernel for kernel in kernels if kernel.startswith("linear_")), "")
        want = expected_of_fast(variant, *case_of(table, name), want)
    why = _difference(got, want) if cell.is_exact else _too_far(got, want, tolerance)
    error = _largest(got, want) / (1.0 if cell.is_exact else _most(want))
    return why or _wrong_kernel(cell, table, kernels), error, kernels, found


def _judged_sample(cell: Cell, reference: Arrays, table: str, name: str) -> tuple[str, float, set[str], Arrays]:
    found = _sampled(cell, name)
    why = next((f"{key}: {w}" for key, got in found.items() if (w := _difference(got, reference[key]))), "")
    return why, max(_largest(got, reference[key]) for key, got in found.items()), sampler_of(cell), found


def sampler_of(cell: Cell) -> set[str]:
    """The kernel that samples in a cell."""
    owner = getattr(cell.sample, "__self__", None)
    owner = getattr(owner, "_native", owner)  # a device's host sampler: what it draws by
    return {"sample__reference"} if owner is None else {owner.native.table["sample"].many}


def _run(cell: Cell, table: str, name: str) -> tuple[NDArray[Any], set[str]]:
    module, case = case_of(table, name)
    watched = Watched(cell)
    got = np.asarray(module.run(watched, case))
    return got, {kernel for ops in watched.made for kernel in kernels_of(ops, TABLES[table])}


def kernels_of(ops: Any, wanted: tuple[str, ...]) -> set[str]:
    """The kernels that ran the wanted ops, by name."""
    ran = getattr(ops, "ran", None)
    if ran is not None:
        return {name for name in ran if name.startswith(wanted)}
    return {ops.last_variant(op) for op in wanted} - {""}


def _sampled(cell: Cell, name: str) -> Arrays:
    module, case = case_of("sample", name)
    result = cell.sample(*module.inputs(case))
    return {f"sample {name} {field}": getattr(result, field) for field in FIELDS}


def _wrong_kernel(cell: Cell, table: str, kernels: set[str]) -> str:
    """'' if every op of the table ran on this cell's kernels."""
    for op in TABLES[table]:
        mine = {k for k in kernels if k.startswith(op)}
        if not mine:
            return f"no kernel of {op} ran"
        strange = {k for k in mine if k.rsplit("__", 1)[1] not in cell.levels_of(op)}
        if strange:
            return f"{op} ran {', '.join(sorted(strange))}"
    return ""


def _difference(got: NDArray[Any], want: NDArray[Any]) -> str:
    """'' if the bits are equal, any NaN equal to any NaN."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | (got != got) & (want != want)
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return (
        f"{int((~same).sum())} of {want.size} values differ, first at {list(at)}: {got[at]!r} instead of {want[at]!r}"
    )


def _too_far(got: NDArray[Any], want: NDArray[Any], tolerance: float) -> str:
    """'' if within a share of the largest value."""
    gap, most = _largest(got, want), _most(want)
    return "" if gap <= tolerance * most else f"off by {gap / most:.1e} of the largest value, {tolerance:.0e} allowed"


def _most(want: NDArray[Any]) -> float:
    """The largest value that shares are of."""
    return max(float(np.abs(want).max(initial=0)), 1e-30)


def _largest(got: NDArray[Any], want: NDArray[Any]) -> float:
    if got.shape != want.shape or not want.size:
        return 0.0 if got.shape == want.shape else float("inf")
    with np.errstate(all="ignore"):
        gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return float(np.nan_to_num(gap, nan=0.0).max())


def _share_off(want: NDArray[Any], table: str, name: str) -> float:
    module, case = case_of(table, name)
    exact = module.naive(case)
    return float(np.abs(want - exact).max(initial=0)) / _most(exact)

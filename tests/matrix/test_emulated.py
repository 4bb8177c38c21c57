"""Cases for emulated machine code: chosen so that every kernel runs, cheaply; what was not reached is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ci.gpu import Target, build, missing
from tests.matrix import cases, emulated, report, run
from tests.matrix.emulated import Candidate, Run, candidates, plan
from tests.platforms.gpu import emulated_device

from octavo.platforms.gpu.rows import rows_of

REASON = missing("rocm") or emulated_device.missing()


def candidate(name: str, cost: float, *kernels: str) -> Candidate:
    return Candidate("simt", "add", name, frozenset(kernels), cost)


def test_chosen_cases_launch_every_kernel_that_any_launches() -> None:
    found = [
        candidate("all", 1000, "a", "b", "c"),
        candidate("two", 10, "a", "b"),
        candidate("one", 4, "a"),
        candidate("last", 20, "c"),
        candidate("other", 1, "not in the table"),
    ]
    assert [chosen.name for chosen in plan(found, {"a", "b", "c", "never launched"})] == ["two", "last"]
    assert plan(found, set()) == plan([], {"a"}) == []


def test_without_an_emulator_the_cells_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMD_EMULATOR", raising=False)
    monkeypatch.setattr(emulated, "missing", lambda kind: "")
    rows = emulated.cells()
    assert [row["name"] for row in rows] == ["gpu-emulated-gfx942", "gpu-emulated-gfx950"]
    assert {row["reason"] for row in rows} == {"AMD_EMULATOR is not set"}
    text = report.markdown(report.assemble(rows, {}, [], 0))
    assert "gpu-emulated-gfx950: not run: AMD_EMULATOR is not set" in text and "0 cells run, 2 not run" in text


def test_the_report_names_kernels_that_were_not_reached() -> None:
    row = {
        "name": "gpu-emulated-gfx950", "platform": "gpu", "how": "emulated", "reason": "", "ops": {}, "num_kernels": 3,
        "not_reached": ["a__simt", "b__mma"], "left": 1, "too_long": 2, "seconds": 7.0, "choosing_s": 3.0,
    }  # fmt: skip
    text = report.markdown(report.assemble([row], {}, [], 0))
    assert "gpu-emulated-gfx950: 1 of 3 kernels ran in 7.0 s" in text
    assert "gpu-emulated-gfx950: not reached: a__simt, b__mma" in text


@pytest.mark.parametrize(("is_full", "task"), [(False, "emulated"), (True, "emulated_full")])
def test_a_worker_runs_them(is_full: bool, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(run, "worker", lambda task, name, **_: asked.append((task, name)) or {})
    run.run_here({"name": "gpu-emulated-gfx942", "platform": "gpu", "how": "emulated"}, is_full=is_full)
    assert asked == [(task, "gpu-emulated-gfx942")]


@pytest.fixture
def some_cases(monkeypatch: pytest.MonkeyPatch) -> cases.Arrays:
    monkeypatch.setattr(cases, "CASES", [("linear", "bf16_64_32"), ("linear", "w8a8_rows_17"), ("add", "both")])
    monkeypatch.setattr(cases, "SAMPLES", [])
    monkeypatch.setattr(emulated.start_up, "cases", lambda: [c for c in CASES_OF_START if c.name == "norm and add"])
    return cases.all_results(cases.reference_cell())


CASES_OF_START = emulated.start_up.cases()


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_machine_code_is_held_to_the_reference(some_cases: cases.Arrays) -> None:
    folder = build(Target("rocm", "gfx950"))
    found = candidates("gfx950", folder)
    kernels = frozenset().union(*(c.kernels for c in found))
    wanted = {"linear_bf16__mmafast", "linear_w8a8__mmawide", "linear_w8a8__simt", "add__simt", "rms_norm_add__simt"}
    assert wanted <= kernels <= {row.name for row in rows_of(folder)}
    made = Run("gfx950", folder, some_cases)
    for chosen in plan(found, wanted):
        made.take(chosen)
    assert wanted <= made.ran
    assert {op: result.failed for op, result in made.ops.items()} == {"linear": 0, "add": 0, "self-test": 0}
    wrong = {key: np.asarray(value) + 1 for key, value in some_cases.items()}
    failing = Run("gfx950", folder, wrong)
    failing.take(next(c for c in found if c.table == "add"))
    assert failing.ops["add"].failed == 1 and "instead of" in failing.ops["add"].first_failure


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_a_case_beyond_the_emulators_limit_is_no_failure(some_cases: cases.Arrays) -> None:
    folder = build(Target("rocm", "gfx950"))
    made = Run("gfx950", folder, some_cases)
    device: Any = made.cell("simt")[0]
    device._emulator.limit = 10
    made.take(candidate("both", 1.0))
    assert made.too_long == 1 and not made.ops

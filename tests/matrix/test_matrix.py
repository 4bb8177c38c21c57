"""The matrix counts what it sees: a wrong bit, a kernel of another level, a crash, a build that differs; and says why not."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.matrix import arm, cases, report, run
from tests.platforms.cells import Cell, reference_cell

from octavo.platforms.reference.ops import ReferenceOps


@pytest.fixture(autouse=True)
def two_short_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "CASES", [("softcap", "odd"), ("add", "both")])
    monkeypatch.setattr(cases, "SAMPLES", ["vocab_31"])


class OneBitOff(ReferenceOps):
    def softcap(self, x: np.ndarray, cap: float) -> np.ndarray:
        y = super().softcap(x, cap)
        y.view(np.uint32)[0, 3] ^= 1
        return y


class Stranger(ReferenceOps):
    def last_variant(self, op: str) -> str:
        return f"{op}__other"


class Broken(ReferenceOps):
    def add(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise ValueError("no such kernel")


def cell_of(ops: type[ReferenceOps]) -> Cell:
    return replace(reference_cell(), platform="tried", ops=ops)


def test_equal_bits_pass_and_the_kernels_are_named() -> None:
    results = cases.run_cell(cell_of(ReferenceOps), cases.all_results(reference_cell())).ops
    assert [(r.passed, r.failed) for op, r in results.items() if op in ("softcap", "add", "sample")] == [(1, 0)] * 3
    assert results["softcap"].kernels == ["softcap__reference"]


@pytest.mark.parametrize(
    ("ops", "op", "why"),
    [
        (OneBitOff, "softcap", "1 of 700 values differ"),
        (Stranger, "add", "add ran add__other"),
        (Broken, "add", "ValueError: no such kernel"),
    ],
)
def test_what_is_wrong_is_counted_and_named(ops: type[ReferenceOps], op: str, why: str) -> None:
    result = cases.run_cell(cell_of(ops), cases.all_results(reference_cell())).ops[op]
    assert (result.passed, result.failed) == (0, 1) and why in result.first_failure


def test_the_reference_is_held_to_float64() -> None:
    results = cases.run_cell(reference_cell(), cases.all_results(reference_cell())).ops
    assert results["softcap"].passed == 1 and 0 < results["softcap"].max_error < 1e-6


class SlightlyOff(ReferenceOps):
    def softcap(self, x: np.ndarray, cap: float) -> np.ndarray:
        return super().softcap(x, cap) * np.float32(1 + 5e-7)


def test_a_cell_of_other_bits_is_held_to_tolerances_and_its_error_is_shown() -> None:
    cell = replace(cell_of(SlightlyOff), is_exact=False)
    results = cases.run_cell(cell, cases.all_results(reference_cell())).ops
    assert results["softcap"].passed == 1 and 3e-7 < results["softcap"].max_error < 1e-6
    ops = {op: asdict(result) for op, result in results.items()}
    text = report.markdown(report.assemble([row(ops=ops, is_exact=False)], {}, [], 1))
    assert f"1, error {results['softcap'].max_error:.0e}" in text and "bit-equal" not in text
    assert cases.run_cell(cell_of(SlightlyOff), cases.all_results(reference_cell())).ops["softcap"].failed == 1


def test_torch_cells_are_listed_by_a_python_that_has_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [row(), row(name="torch-cpu", platform="torch", reason="torch is not installed")]
    theirs = [row(reason="other"), row(name="torch-cpu", platform="torch", is_exact=False)]
    monkeypatch.setattr(run, "worker", lambda *args, python: theirs if python == "/with/torch" else [])
    monkeypatch.setattr(run, "torch_python", lambda: "/with/torch")
    assert run.with_torch(mine) == [mine[0], theirs[1]]
    monkeypatch.setattr(run, "torch_python", lambda: "")
    assert run.with_torch(mine) == mine
    monkeypatch.setattr(run, "worker", lambda *args, python: {"error": "no numpy"})
    monkeypatch.setattr(run, "torch_python", lambda: "/bare")
    assert run.with_torch(mine)[1]["reason"] == "/bare: no numpy"


def test_the_oracles_python_counts_once_it_is_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    monkeypatch.delenv("ORACLE_PYTHON", raising=False)
    python = tmp_path / "build/oracle/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert run.torch_python() == ""
    (tmp_path / "build/oracle/.complete").touch()
    assert run.torch_python() == str(python)
    monkeypatch.setattr(run, "find_spec", lambda name: object())
    assert run.torch_python() == sys.executable


def row(**more: Any) -> dict[str, Any]:
    ops = {"add": {"passed": 2, "failed": 0, "max_error": 0.0, "kernels": ["add__avx2"], "first_failure": ""}}
    return {"name": "x86-avx2", "platform": "x86", "level": "avx2", "how": "native", "reason": "", "ops": ops, **more}


def test_summary_counts_every_failure_and_every_cell_that_did_not_run() -> None:
    bad = {"add": {"passed": 1, "failed": 1, "max_error": 1.0, "kernels": [], "first_failure": "both: off"}}
    rows = [
        row(),
        row(ops=bad),
        row(ops={}, error="ended with -11"),
        row(same_as_gcc={"equal": 3, "different": ["add both"]}, how="clang"),
        {"name": "x86-amx", "platform": "x86", "level": "amx", "how": "native", "reason": "this processor lacks amx"},
    ]
    made = report.assemble(rows, {"gcc": {"avx2": {"passed": 5, "failed": 1, "skipped": 0}}}, [], 7)
    assert made["summary"] == {"run": 4, "not_run": 1, "passed": 2 + 1 + 2 + 3 + 5, "failed": 1 + 1 + 1 + 1}
    text = report.markdown(json.loads(json.dumps(made)))
    assert text.rstrip().endswith("13 passed, 4 failed")
    for words in (
        "x86-amx: not run: this processor lacks amx",
        "FAILED: both: off",
        "ended with -11",
        "differs from gcc: add both",
    ):
        assert words in text


def test_builds_are_compared_case_by_case() -> None:
    mine = {"bits": {"a": "1", "b": "2"}}
    assert report.compared(mine, {"bits": {"a": "1", "b": "3"}}) == {"equal": 1, "different": ["b"]}
    assert report.compared(mine, {"bits": {"a": "1"}}) == {"equal": 1, "different": ["b"]}
    assert report.compared(mine, {"error": "gone"})["different"] == ["gone"]


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (["add__avx2", "copy_blocks__scalar"], ""),
        (["add__avx512"], "chose add__avx512"),
        (["add__scalar"], "nothing of its level"),
    ],
)
def test_a_forced_level_must_be_what_runs(chosen: list[str], why: str) -> None:
    found = report.checked_force(
        "avx2", {"chosen": chosen, "of_cell": chosen, "allowed": ["scalar", "avx2"], "ops": {}}
    )
    assert (why in found.get("error", "")) if why else "error" not in found


def test_a_forced_level_must_choose_as_its_cell_does() -> None:
    chosen = {"chosen": ["add__avx2"], "of_cell": ["add__avx2", "rope__avx2"], "allowed": ["avx2"], "ops": {}}
    assert "differently: rope__avx2" in report.checked_force("avx2", chosen)["error"]
    made = report.assemble([row(how="forced", **{**chosen, "of_cell": ["add__avx2"]})], {}, [], 1)
    assert made["summary"]["passed"] == 1 and "the 1 kernels of its cell" in report.markdown(made)


def test_a_repeat_runs_each_op_and_some_cases_of_each_kernel_of_its_level() -> None:
    ran = {"add a": ["add__neon"], "add b": ["add__neon"]}
    ran |= {f"linear {i}": ["linear_f32__sve"] for i in range(7)} | {"linear q": ["linear_q2k__sve", "add__neon"]}
    assert cases.repeated(ran, "sve") == ["add a", "linear 0", "linear 3", "linear 6", "linear q"]
    found = cases.run_cell(cell_of(ReferenceOps), cases.all_results(reference_cell()), ["softcap odd"])
    assert {op: r.passed for op, r in found.ops.items() if r.passed} == {"softcap": 1}
    assert list(found.kernels) == list(found.bits) == ["softcap odd"]


def test_repeats_wait_behind_the_cells_that_they_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(arm, "run_cell", lambda name, out, base: asked.append((name, base is not None)) or {"ops": {}})
    qemu = [row(name=f"arm-{name}", platform="arm", how="qemu", level=cell.level) for name, cell in arm.CELLS.items()]
    order = [cell["name"] for cell in run.longest_first([row(), *qemu])]
    assert order[0] in ("arm-neon", "arm-sve256", "arm-svebf16-128") and order[-1] == "x86-avx2"
    for name, cell in arm.CELLS.items():
        if cell.repeats:
            assert arm.CELLS[cell.repeats].level == cell.level and not arm.CELLS[cell.repeats].repeats
            assert order.index(f"arm-{cell.repeats}") < order.index(f"arm-{name}")
    done, failed = Future[Any](), Future[Any]()
    done.set_result({"ops": {}})
    failed.set_result({"error": "gone"})
    some = next(cell for cell in qemu if cell["name"] == "arm-sve512")
    assert run.run_here(some, base=done) == {"ops": {}, "repeats": "arm-sve256"}
    assert run.run_here(some, base=failed) == run.run_here(some) == {"ops": {}}
    assert asked == [("sve512", True), ("sve512", False), ("sve512", False)]


def test_kernel_tests_are_counted_by_the_level_in_their_names() -> None:
    text = """<s><testcase name="t[linear_q4g32__avx2]"/>
    <testcase name="t[32-bf16-paged_attention_bf16__avx2]"><failure/></testcase>
    <testcase name="t[scalar-2]"/><testcase name="t[add__amx]"><skipped/></testcase><testcase name="t"/>
    <testcase name="t[bf16-pack_f32__neon]"/></s>"""
    counts = run.count_by_level(ElementTree.ElementTree(ElementTree.fromstring(text)))
    assert counts["avx2"] == {"passed": 1, "failed": 1, "skipped": 0}
    assert (
        counts["scalar"]["passed"] == counts[""]["passed"] == counts["amx"]["skipped"] == counts["neon"]["passed"] == 1
    )
    assert "bf16" not in counts, "a format in a name is no level"


def test_tests_that_left_no_report_are_one_failure(tmp_path: Path) -> None:
    assert run.counted(tmp_path / "none.xml")[""]["failed"] == 1


def test_a_worker_that_dies_is_an_error_of_its_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    found = run.worker("cell", "no-such-cell")
    assert isinstance(found, dict) and "StopIteration" in found["error"]
    assert run.with_result(row(), found)["error"] == found["error"]


@pytest.mark.parametrize(
    ("bits", "levels", "warnings", "why"),
    [
        (256, ["neon", "sve"], [], ""),
        (128, ["neon", "sve"], [], "SVE vectors of 128 bits where 256 are due"),
        (256, ["neon"], [], "with SVE vectors of 256 bits levels neon run"),
        (256, ["neon", "sve"], ["level sve is not used"], "warnings where 0 is due"),
    ],
)
def test_an_arm_cell_is_the_processor_it_should_be(bits: int, levels: list[str], warnings: list[str], why: str) -> None:
    said = arm.wrong_chip(arm.CELLS["sve256"], {"sve_bits": bits, "levels": levels, "warnings": warnings})
    assert said == "" if why == "" else why in said


@pytest.mark.parametrize(
    ("levels", "warnings", "is_right"),
    [(["neon"], ["one"], True), (["neon"], [], False), (["neon"], ["one", "two"], False), (["sve"], ["one"], False)],
)
def test_a_length_without_kernels_is_passed_over_with_one_warning(
    levels: list[str], warnings: list[str], is_right: bool
) -> None:
    found = {"sve_bits": 1024, "levels": levels, "warnings": warnings}
    assert (arm.wrong_chip(arm.CELLS["sve1024"], found) == "") == is_right


def test_a_build_leaves_the_module_of_running_programs_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm, "ROOT", tmp_path)
    monkeypatch.setattr(arm, "HOME", tmp_path / "arm64")
    monkeypatch.setattr(arm, "run", lambda command: "")
    monkeypatch.setattr(arm, "cmake_options", lambda version: [])
    for folder, text in (("arm64/build", "new"), ("src/octavo", "old")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "_neon.x.so").write_text(text)
    module = tmp_path / "src/octavo/_neon.x.so"
    with module.open() as mapped:
        arm._module("3.11")
        assert mapped.read() == "old" and module.read_text() == "new"
    assert [file.name for file in module.parent.iterdir()] == [module.name]

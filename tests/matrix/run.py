"""The conformance cases and kernel tests in every cell this machine can host: `ci/matrix [--full] [--jobs N] [--only WORD]`.

Writes build/matrix/report.json (the layout is in report.py) and report.md, and exits 1 if anything failed. A cell counts as run
only if the kernels that did the work are known and are its own. `--full` builds what is missing (the emulated module, an
environment with torch) and runs the kernel tests of emulated and Arm levels too, and all cases that an emulated GPU has time for;
without it a cell that lacks its own says so. Without it also
- cells that repeat another at another length of SVE vectors run some of its cases (`cases.repeated`),
- what OCTAVO_ISA leaves is held to be the kernels of the level's cell, and their cases do not run again,
- the kernel tests run on clang's build alone: on gcc's, which is installed, they are `ci/test`'s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ci import gpu_triton
from ci.gpu import missing
from tests.matrix import arm, emulated, gpu, report
from tests.matrix.cases import ROOT, reference_results
from tests.matrix.worker import FOLDER

TIMEOUT_S = 900
TRITON_CELL = "gpu-triton-interpret"
EMULATED_LEVELS = ("avxvnni", "avx512", "amx")


@dataclass(frozen=True)
class Build:
    """A second build of the native module, or why there is none."""

    compiler: str
    module: Path | None
    reason: str = ""


def worker(
    task: str,
    cell: str,
    *,
    module: Path | None = None,
    isa: str | None = None,
    python: str = sys.executable,
    more: dict[str, str] | None = None,
    timeout_s: int = TIMEOUT_S,
) -> dict[str, Any] | list[Any]:
    """What a worker process says, or {"error": ...} if it crashed or hung. `python`: another one, which borrows this one's
    packages for what it lacks. `more`: of its environment."""
    out = FOLDER / f"{task}-{cell}{'-' + module.parent.name if module else ''}.json"
    out.unlink(missing_ok=True)
    command = [python, "-m", "tests.matrix.worker", task, cell, str(out)]
    if module is not None:
        command.append(f"--native-module={module}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCTAVO_")}
    borrowed = [] if python == sys.executable else [sysconfig.get_path("purelib")]
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT), *borrowed))
    if isa is not None:
        environment["OCTAVO_ISA"] = isa
    environment |= more or {}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return {"error": f"still running after {timeout_s} s"}
    if done.returncode or not out.exists():
        return {"error": f"ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}"}
    found: dict[str, Any] | list[Any] = json.loads(out.read_text())
    return found


def clang_build(jobs: int) -> Build:
    """The module built by clang++ in build/clang; the checkout's own module stays as it is."""
    compiler = shutil.which("clang++")
    if compiler is None:
        return Build("clang", None, "clang++ is not installed: apt install clang")
    folder = ROOT / "build/clang"
    cmakedir = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True
    ).stdout.strip()
    configure = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(folder),
        f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={cmakedir}"]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    for command in (configure, ["cmake", "--build", str(folder), "-j", str(jobs)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return Build("clang", None, f"build failed: {(done.stdout + done.stderr)[-400:]}")
    return Build("clang", next(folder.glob("_avx.*.so")))


def build_emulated(jobs: int) -> str:
    """'' or why the emulated module could not be built."""
    environment = {**os.environ, "EMULATE": "ON", "JOBS": str(jobs), "PYTHON": sys.executable}
    done = subprocess.run(["ci/dev-build"], cwd=ROOT, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"EMULATE=ON ci/dev-build failed: {(done.stdout + done.stderr)[-300:]}"


def build_missing(jobs: int) -> list[str]:
    """What could not be built of the emulated module and of the oracle's environment, which holds a torch."""
    notes = [why] if (why := build_emulated(jobs)) else []
    if not torch_python() and subprocess.run(["ci/oracle-env"], cwd=ROOT).returncode:
        notes.append("ci/oracle-env failed, so the torch cells have no torch")
    return notes


def kernel_tests(module: Path | None, is_full: bool) -> dict[str, dict[str, int]]:
    """level -> counts of tests/kernels, by the level in each test's name ('' without one)."""
    out = FOLDER / f"kernels-{module.parent.name if module else 'own'}.xml"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "tests/kernels", "-q", "-p", "no:cacheprovider", f"--junitxml={out}"]
    command.append("--ignore=tests/kernels/test_vec.py")  # compiles for itself, with both compilers
    if not is_full:
        command += ["-k", "not (" + " or ".join(EMULATED_LEVELS) + ")"]
    if module is not None:
        command.append(f"--native-module={module}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCTAVO_")}
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=3 * TIMEOUT_S)
    return counted(out)


def arm_kernel_tests(name: str) -> dict[str, dict[str, int]]:
    """The same of one Arm cell, on its processor."""
    out = FOLDER / f"kernels-arm-{name}.xml"
    arm.run_kernel_tests(name, out)
    return counted(out)


def arm_self_test(file: str) -> dict[str, dict[str, int]]:
    """The same of tests that plant faults in Arm kernels."""
    out = FOLDER / f"{file}-arm.xml"
    arm.run_self_test(file, out)
    return counted(out)


def counted(out: Path) -> dict[str, dict[str, int]]:
    """Counts of a JUnit file; one failure where there is none."""
    return count_by_level(ElementTree.parse(out)) if out.exists() else {"": {"passed": 0, "failed": 1, "skipped": 0}}


def count_by_level(tree: Any) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for case in tree.iter("testcase"):
        name = str(case.get("name"))
        words = [*re.findall(r"__(\w+)", name), *re.split(r"[\[\]-]|__", name)]
        level = next((word for word in words if word in report.LEVELS), "")
        row = counts.setdefault(level, {"passed": 0, "failed": 0, "skipped": 0})
        is_bad = case.find("failure") is not None or case.find("error") is not None
        row["failed" if is_bad else "skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts


def native_cells(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    mine = [
        cell for cell in listed if cell["platform"] not in ("reference", "portable", "torch") and not runs_by_qemu(cell)
    ]
    return [cell for cell in mine if not cell["reason"] and cell["how"] == "native"]


def arm_cells() -> list[dict[str, Any]]:
    """The Arm cells, where this is not an Arm machine: by qemu, or why not."""
    if platform.machine() in ("aarch64", "arm64"):
        return []
    same = {"platform": "arm", "how": "qemu", "reason": arm.missing()}
    return [{**same, "name": f"arm-{name}", "level": cell.level} for name, cell in arm.CELLS.items()]


def runs_by_qemu(cell: dict[str, Any]) -> bool:
    return bool(cell["how"] == "qemu" and not cell["reason"])


def torch_python() -> str:
    """A Python that has torch: this one, or the oracle's (ci/oracle-env); '' if there is none."""
    if find_spec("torch") is not None:
        return sys.executable
    oracle = Path(os.environ.get("ORACLE_PYTHON") or ROOT / "build/oracle/bin/python")
    is_whole = "ORACLE_PYTHON" in os.environ or (ROOT / "build/oracle/.complete").exists()
    return str(oracle) if is_whole and oracle.exists() else ""


def with_torch(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells, those of torch as its Python lists them."""
    python = torch_python()
    if python in ("", sys.executable):
        return listed
    found = worker("cells", "-", python=python)
    if isinstance(found, dict):
        return [{**c, "reason": f"{python}: {found['error']}"} if c["platform"] == "torch" else c for c in listed]
    theirs = {cell["name"]: cell for cell in found if cell["platform"] == "torch"}
    return [theirs.get(cell["name"], cell) for cell in listed]


def with_triton(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells, that of Triton's interpreter as a Python sees it that has Triton."""
    reason = gpu_triton.missing() or missing("host")
    return [
        {**cell, "reason": reason, "how": "interpreted"} if cell["name"] == TRITON_CELL else cell for cell in listed
    ]


def run_here(
    cell: dict[str, Any], *, is_full: bool = False, base: Future[Any] | None = None
) -> dict[str, Any] | list[Any]:
    """What a cell's conformance cases give. `base`: of the cell that it repeats."""
    if cell["platform"] == "gpu" and cell["how"] == "emulated":
        return worker("emulated_full" if is_full else "emulated", cell["name"], timeout_s=4 * TIMEOUT_S)
    if cell["platform"] == "torch":
        return worker("cell", cell["name"], python=torch_python())
    if cell["name"] == TRITON_CELL:
        return worker("cell", TRITON_CELL, python=gpu_triton.python(), more={"TRITON_INTERPRET": "1"})
    if cell["how"] == "compiled":
        return gpu.run_cell(cell["name"])
    if runs_by_qemu(cell):
        name = cell["name"].removeprefix("arm-")
        is_some = base is not None and "error" not in base.result()
        found = arm.run_cell(name, answer(name), answer(arm.CELLS[name].repeats) if is_some else None)
        return {**found, "repeats": f"arm-{arm.CELLS[name].repeats}"} if is_some else found
    return worker("cell", cell["name"])


def answer(name: str) -> Path:
    """Where an Arm cell's worker writes."""
    return FOLDER / f"arm-{name}.json"


def repeats(cell: dict[str, Any]) -> str:
    """The cell that this one repeats ('' = none)."""
    base = arm.CELLS[cell["name"].removeprefix("arm-")].repeats if runs_by_qemu(cell) else ""
    return f"arm-{base}" if base else ""


def longest_first(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells in an order that leaves no core idle at the end: emulators before fibers, those before processors' own; a cell
    that repeats another behind it."""
    slow = ("emulated", "qemu", "fibers", "interpreted", "compiled")
    place = lambda cell: slow.index(cell["how"]) if cell["how"] in slow else len(slow)  # noqa: E731
    wide = lambda cell: not any(repeats(other) == cell["name"] for other in listed)  # noqa: E731
    return sorted(listed, key=lambda cell: (place(cell), bool(repeats(cell)), wide(cell)))


def all_cells(found: list[dict[str, Any]], only: str) -> list[dict[str, Any]]:
    """Those that a worker lists and those of other machines, whose name holds `only`; Arm's with the system that they run in."""
    listed = [*with_triton(with_torch(found)), *arm_cells(), *emulated.cells(), *gpu.cells()]
    listed = [cell for cell in listed if only in cell["name"]]
    if any(runs_by_qemu(cell) for cell in listed) and (why := arm.make()):
        listed = [{**cell, "error": why, "ops": {}} if runs_by_qemu(cell) else cell for cell in listed]
    return listed


def clocked(seconds: dict[str, float], name: str, task: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What a task gives; how long it took goes to `seconds`."""
    begun = time.monotonic()
    try:
        return task(*given, **named)
    finally:
        seconds[name] = round(time.monotonic() - begun, 1)


def with_result(cell: dict[str, Any], found: Any) -> dict[str, Any]:
    """A report row; a worker that crashed is one failure of its cell."""
    return {**cell, "ops": {}, "error": found["error"]} if "error" in found else {**cell, **found}


@dataclass
class Tasks:
    """What runs, by the name of its cell; `tests` by their own. `seconds`: what each took, by its name in the report."""

    tests: dict[str, Future[Any]] = field(default_factory=dict)
    runs: dict[str, Future[Any]] = field(default_factory=dict)
    forced: dict[str, Future[Any]] = field(default_factory=dict)
    by_clang: dict[str, Future[Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def started(pool: ThreadPoolExecutor, listed: list[dict[str, Any]], module: Path | None, is_full: bool) -> Tasks:
    """All that is to run, in the order in which it starts. `module`: of clang's build."""
    made = Tasks()
    able = [c for c in longest_first(listed) if not c["reason"] and "error" not in c]
    mine = [c["name"].removeprefix("arm-") for c in able if runs_by_qemu(c)]

    def start(name: str, task: Any, *given: Any, **named: Any) -> Future[Any]:
        return pool.submit(clocked, made.seconds, name, task, *given, **named)

    for file, at in arm.SELF_TESTS.items() if mine else ():
        name = f"qemu, {file} at {at}"
        made.tests[name] = start(name, arm_self_test, file)
    for cell in mine if is_full else ():
        made.tests[f"qemu, arm-{cell}"] = start(f"qemu, arm-{cell}", arm_kernel_tests, cell)
    if is_full:
        made.tests["gcc"] = start("gcc", kernel_tests, None, is_full)
    if module is not None:
        made.tests["clang"] = start("clang", kernel_tests, module, is_full)
    for c in able:
        base = None if is_full else made.runs.get(repeats(c))
        made.runs[c["name"]] = start(c["name"], run_here, c, is_full=is_full, base=base)
    for c in native_cells(listed):
        name, task = c["name"], "forced_full" if is_full else "forced"
        made.forced[name] = start(f"{name} by OCTAVO_ISA", worker, task, c["level"], isa=c["level"])
        if module is not None:
            made.by_clang[name] = start(f"{name} by clang", worker, "cell", name, module=module)
    return made


def rows_of(listed: list[dict[str, Any]], tasks: Tasks, clang: Build) -> list[dict[str, Any]]:
    """The report's rows, once all has run."""
    runs = tasks.runs
    rows = [with_result(cell, runs[cell["name"]].result()) if cell["name"] in runs else cell for cell in listed]
    for cell in native_cells(listed):
        name = cell["name"]
        forced = report.checked_force(cell["level"], tasks.forced[name].result())
        rows.append(with_result({**cell, "name": f"{name} by OCTAVO_ISA", "how": "forced"}, forced))
        other = {**cell, "name": f"{name} by clang", "how": "clang"}
        if clang.module is None:
            rows.append({**other, "reason": clang.reason})
            continue
        found = tasks.by_clang[name].result()
        same = report.compared(runs[name].result(), found)
        rows.append({**with_result(other, found), "same_as_gcc": same})
    kept = [{key: value for key, value in row.items() if key not in ("bits", "ran")} for row in rows]
    return [{**row, "seconds": tasks.seconds.get(row["name"], 0.0)} for row in kept]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ci/matrix", description=__doc__)
    parser.add_argument("--full", action="store_true", help="build what is missing, and run all cases and kernel tests")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="WORD", default="", help="cells whose name holds this")
    args = parser.parse_args(arguments)
    begun = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    notes = build_missing(args.jobs) if args.full else []
    clang = clang_build(args.jobs)
    reference_results(FOLDER)
    found = worker("cells", "-")
    if isinstance(found, dict):
        print(f"the cells cannot be listed: {found['error']}", file=sys.stderr)
        return 2
    listed = all_cells(found, args.only)
    with ThreadPoolExecutor(args.jobs) as pool:
        tasks = started(pool, listed, clang.module, args.full)
    tests = {name: future.result() for name, future in tasks.tests.items()}
    notes += [f"tests, {name}: {tasks.seconds[name]:.0f} s" for name in tests]
    made = report.assemble(rows_of(listed, tasks, clang), tests, notes, round(time.monotonic() - begun))
    (FOLDER / "report.json").write_text(json.dumps(made, indent=1) + "\n")
    (FOLDER / "report.md").write_text(report.markdown(made))
    print(report.markdown(made))
    return 1 if made["summary"]["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

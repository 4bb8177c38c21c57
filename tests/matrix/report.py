"""The matrix's report: what is counted, how it is kept, how it reads.

report.json: {
  "commit", "machine": {"processor", "python", "numpy", "compilers"}, "seconds", "notes": [text],
  "cells": [{"name", "platform", "level", "how": native | emulated | qemu | fibers | ..., "reason": '' or why not run,
             "is_exact": whether it is held to the reference's bits (true if absent),
             "ops": {op: {"passed", "failed", "max_error", "kernels": [name], "first_failure"}}, "seconds",
             "sve_bits", "levels", "warnings" (of the Arm processor),
             "compiled": {family: as in ops, counting kernels}, "resources": [what a kernel takes], "code_bytes",
             "left_out": [text] (compiled),
             "num_kernels", "not_reached": [kernel], "left", "too_long": cases, "choosing_s" (emulated machine code),
             "chosen", "of_cell": [kernel] (forced), "repeats": the cell whose cases it ran some of (Arm),
             "same_as_gcc": {"equal", "different": [case]} (clang), "error": text (crashed)}],
  "kernel_tests": {compiler: {level: {"passed", "failed", "skipped"}}},
  "summary": {"run", "not_run", "passed", "failed"}
}
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LEVELS = (
    *("scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "avx512fast", "amx"),
    *("neon", "dotprod", "sve", "i8mm", "bf16", "svebf16", "bf16fast"),
)


def checked_force(level: str, found: Any) -> Any:
    """A forced cell's answer; every chosen kernel must be of a level that `level` includes, one at least of its own, and all are
    those of the level's cell."""
    if "error" in found:
        return found
    strange = [name for name in found["chosen"] if name.rsplit("__", 1)[1] not in found["allowed"]]
    best = any(name.endswith(f"__{level}") for name in found["chosen"])
    if strange or not best:
        return {"error": f"OCTAVO_ISA={level} chose {', '.join(strange) or 'nothing of its level'}"}
    if other := sorted({*found["chosen"]} ^ {*found["of_cell"]}):
        return {"error": f"OCTAVO_ISA={level} and the level's cell chose differently: {', '.join(other)}"}
    return found


def compared(one: Any, other: Any) -> dict[str, Any]:
    """How many cases have equal bits in a cell's answers by two builds, and which do not."""
    if "error" in one or "error" in other:
        return {"equal": 0, "different": [one.get("error") or other.get("error")]}
    mine, theirs = one["bits"], other["bits"]
    different = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    return {"equal": len(mine) - len(different), "different": different}


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    compilers = [line for c in ("g++", "clang++") if (line := _first_line([c, "--version"]))]
    return {
        "processor": names[0] if names else platform.machine(), "python": platform.python_version(), "numpy": np.__version__,
        "compilers": compilers,
    }  # fmt: skip


def assemble(rows: list[dict[str, Any]], tests: dict[str, Any], notes: list[str], seconds: int) -> dict[str, Any]:
    """The report of all rows."""
    passed = failed = 0
    for row in rows:
        failed += bool(row.get("error"))
        for result in (*row.get("ops", {}).values(), *row.get("compiled", {}).values()):
            passed, failed = passed + result["passed"], failed + result["failed"]
        pair = row.get("same_as_gcc", {"equal": 0, "different": []})
        passed, failed = passed + pair["equal"], failed + len(pair["different"])
        passed += len(row.get("of_cell", ()))
    for levels in tests.values():
        for counts in levels.values():
            passed, failed = passed + counts["passed"], failed + counts["failed"]
    not_run = sum(bool(row["reason"]) for row in rows)
    return {
        "commit": _first_line(["git", "rev-parse", "HEAD"]), "machine": machine(), "seconds": seconds, "notes": notes,
        "cells": rows, "kernel_tests": tests,
        "summary": {"run": len(rows) - not_run, "not_run": not_run, "passed": passed, "failed": failed},
    }  # fmt: skip


def _entry(row: dict[str, Any], op: str) -> str:
    result = row["ops"].get(op)
    if result is None or not result["passed"] + result["failed"]:
        return "-"
    if result["failed"]:
        return f"**{result['failed']} of {result['passed'] + result['failed']} failed**"
    if row["platform"] == "reference" or not row.get("is_exact", True):
        return f"{result['passed']}, error {result['max_error']:.0e}"
    return f"{result['passed']}, bit-equal"


def _compiled(row: dict[str, Any]) -> list[str]:
    """Kernels compiled for one chip: how many, how large, and those that take most registers."""
    most = sorted(row["resources"], key=lambda kernel: -kernel["registers"])[:3]
    failed = [result["first_failure"] for result in row["compiled"].values() if result["failed"]]
    text = ", ".join(f"{k['kernel']} {k['registers']} ({k['waves']} waves, {k['shared_bytes']} B shared)" for k in most)
    return [
        f"- {row['name']}: {len(row['resources'])} kernels, {row['code_bytes'] / 1e6:.2f} MB; most registers: {text}",
        *(f"- {row['name']}: not used there: {why}" for why in row["left_out"]),
        *(f"- {row['name']}: FAILED: {why}" for why in failed),
    ]


def _reached(row: dict[str, Any]) -> list[str]:
    """Machine code of one chip: how many of its kernels cases ran, and which they did not."""
    missed = row["not_reached"]
    ran = (
        f"- {row['name']}: {row['num_kernels'] - len(missed)} of {row['num_kernels']} kernels ran in {row['seconds']} s, "
        f"{row['choosing_s']} s of it to choose cases; no time for {row['left']} cases, {row['too_long']} too long"
    )
    return [ran, *([f"- {row['name']}: not reached: {', '.join(missed)}"] if missed else [])]


def markdown(made: dict[str, Any]) -> str:
    """The report to read: op x cell, kernels, what was not run and why, then one summary line."""
    info = made["machine"]
    out = [
        "# Matrix",
        "",
        f"{info['processor']}; Python {info['python']}, numpy {info['numpy']}; {'; '.join(info['compilers'])}",
        "",
    ]
    ran = [row for row in made["cells"] if row.get("ops")]
    ops = list(dict.fromkeys(op for row in ran for op in row["ops"]))
    out += ["| cell | s | " + " | ".join(ops) + " |", "| --- | --- |" + " --- |" * len(ops)]
    for row in ran:
        how = "" if row["how"] == "native" else f" ({row['how']})"
        how += f" (some of {row['repeats']})" if row.get("repeats") else ""
        out.append(
            f"| {row['name']}{how} | {row.get('seconds', 0.0):.0f} | "
            + " | ".join(_entry(row, op) for op in ops)
            + " |"
        )
    out += ["", "Kernels that ran:", ""]
    for row in ran:
        kernels = sorted({kernel for result in row["ops"].values() for kernel in result["kernels"]})
        length = f" (SVE vectors of {row['sve_bits']} bits)" if row.get("sve_bits") else ""
        out.append(f"- {row['name']}{length}: {', '.join(kernels)}")
    for row in made["cells"]:
        out += _compiled(row) if "compiled" in row else []
        out += _reached(row) if "not_reached" in row else []
    pairs = [row for row in ran if "same_as_gcc" in row]
    out += ["", *(f"- {row['name']}: {row['same_as_gcc']['equal']} results equal gcc's bit for bit" for row in pairs)]
    forced = [row for row in made["cells"] if "of_cell" in row and not row.get("error")]
    out += [f"- {row['name']}: the {len(row['chosen'])} kernels of its cell" for row in forced]
    for row in made["cells"]:
        if row["reason"]:
            out.append(f"- {row['name']}: not run: {row['reason']}")
        if row.get("error"):
            out.append(f"- {row['name']}: FAILED: {row['error']}")
        out += [
            f"- {row['name']} {op}: FAILED: {r['first_failure']}" for op, r in row.get("ops", {}).items() if r["failed"]
        ]
        out += [
            f"- {row['name']}: differs from gcc: {case}"
            for case in row.get("same_as_gcc", {"different": []})["different"]
        ]
    for compiler, levels in made["kernel_tests"].items():
        text = "; ".join(
            f"{level or 'all levels'} {c['passed']} passed, {c['failed']} failed" for level, c in sorted(levels.items())
        )
        out.append(f"- kernel tests, built by {compiler}: {text}")
    out += [f"- {note}" for note in made["notes"]]
    s = made["summary"]
    out += [
        "",
        f"matrix: {s['run']} cells run, {s['not_run']} not run, {made['seconds']} s: {s['passed']} passed, {s['failed']} failed",
        "",
    ]
    return "\n".join(out)

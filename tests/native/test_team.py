"""The thread team runs programs right, and its test would notice if it did not: planted faults in the headers fail it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")

#: what goes wrong -> (header, sound text, text of the fault)
FAULTS = {
    "an op starts before its predecessor is done": ("exec/team.h", "+ share.num_done == share.chunks;", ">= 0;"),
    "a run returns before its threads have left": ("exec/team.h", "    door_.close(spin_);", "    // "),
    "given-out chunks not set back": ("exec/team.h", "uint64_t{op} << 32 | share.side", "uint64_t{op} << 32 | 2"),
    "chunks claimed twice": ("exec/kernel.h", "word->fetch_add(side,", "word->fetch_add(0,"),
    "a chunk taken of a later op is lost": ("exec/kernel.h", "        held = given;\n", ""),
    "both halves take from the front": (
        "exec/kernel.h",
        "is_in_order ? before : is_front() ?",
        "is_in_order ? before : true ?",
    ),
    "the second half has no end of its own": ("exec/team.h", "shares_[t].share.side = work::kBack;", ";"),
    "the two ends overlap": ("exec/kernel.h", "if (before >= chunks) return -1;", "if (before > chunks) return -1;"),
    "a sleeper is not woken": ("exec/team.h", "if (old & work::kSleepers) futex_wake_all(futex());", ""),
    "the caller sleeps when the last one leaves": (
        "exec/door.h",
        "(kClosed | kAwaited)) futex_wake_all",
        "kClosed) futex_wake_all",
    ),
    "caller keeps flushing denormals": ("exec/wait.h", "~FlushDenormals() {", "~FlushDenormals() { return;"),
}


def build(headers: Path, target: Path) -> Path:
    command = [
        str(COMPILER),
        "-std=c++17",
        "-O1",
        f"-I{headers}",
        str(ROOT / "tests/native/team_test.cpp"),
        "-o",
        str(target),
    ]
    subprocess.run([*command, "-lpthread"], check=True)
    return target


def run(binary: Path, runs: int, limit_s: float) -> subprocess.CompletedProcess[str] | None:
    """None: it hung."""
    try:
        return subprocess.run([str(binary), str(runs)], capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return None


def test_programs_give_the_same_result_on_any_number_of_threads(tmp_path: Path) -> None:
    done = run(build(ROOT / "csrc_common", tmp_path / "team"), 30, 120)
    assert done is not None, "the team hung"
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_in_the_team_is_noticed(tmp_path: Path, fault: str) -> None:
    name, sound, broken = FAULTS[fault]
    shutil.copytree(ROOT / "csrc_common", tmp_path / "headers")
    header = tmp_path / "headers" / name
    text = header.read_text()
    assert text.count(sound) == 1, f"{name} has changed: plant the fault anew"
    header.write_text(text.replace(sound, broken))
    done = run(build(tmp_path / "headers", tmp_path / "team"), 300, 10)
    assert done is None or done.returncode != 0

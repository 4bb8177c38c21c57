"""What this machine can do at most: bytes read a second, and operations a second by number type and instruction level.

    octavo bench limits

limit.read             reading memory with all threads, beyond every cache
limit.TYPE__LEVEL      multiplications and additions of that instruction, operands in registers: FMA, dot products, AMX tiles
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, parser, report, row

SOURCE = ROOT / "benchmarks" / "limits.cpp"
#: what an engine capped at a level may use
LEVELS = {
    "avx2": ("avx2", "avxvnni"),
    "avx512": ("avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16"),
    "": ("avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"),
}


@cache
def measured(threads: int, rounds: int = 5, is_realtime: bool = False) -> dict[str, float]:
    """Rates of `limits.cpp`, the best of so many rounds, at real-time priority if so wanted.

    RuntimeError without a C++ compiler or if it fails.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise RuntimeError("there is no C++ compiler: the machine's limits are not measured; install g++ or set CXX")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "limits"
        command = [compiler, "-O2", "-std=c++17", "-pthread", str(SOURCE), "-o", str(program)]
        first = ["chrt", "-f", "10"] if is_realtime else []
        for words in (command, [*first, str(program), str(threads), str(rounds)]):
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{Path(words[0]).name}: status {done.returncode}: {done.stderr[-300:]}")
    return {name: float(rate) for name, rate in json.loads(done.stdout).items() if name != "threads"}


def best_ops(rates: Mapping[str, float], width: str, level: str = "") -> float:
    """Operations a second of the best instruction for weights of `width` bits at a level and below it.

    Quantized weights may be multiplied as int8; 16-bit ones as bfloat16 or float32.
    """
    types = ("bf16", "f32") if width == "16" else ("int8", "bf16", "f32")
    fitting = [rate for name, rate in rates.items() if name.partition("__")[::2] in _pairs(types, LEVELS[level])]
    return max(fitting, default=0.0)


def _pairs(types: tuple[str, ...], levels: tuple[str, ...]) -> set[tuple[str, str]]:
    return {(kind, level) for kind in types for level in levels}


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    for name, rate in measured(args.threads, args.repeats).items():
        unit = "GB/s" if name == "read" else "Gop/s"
        yield row(f"limit.{name}", unit, [rate / 1e9], better="higher", threads=args.threads)


def main() -> None:
    report(results(args := parser(__doc__).parse_args()), args, "limits")


if __name__ == "__main__":
    main()

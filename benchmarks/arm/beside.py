"""Instructions per multiply-accumulate beside KleidiAI's micro-kernels, both counted in the same way on the same shapes.

    git clone https://github.com/ARM-software/kleidiai FOLDER
    octavo bench arm/beside -- --kleidiai FOLDER [--only PREFIX,...] [--docs]

arm.OP__LEVEL.COLUMN  ours; peer is the micro-kernel of KleidiAI for the same formats and instructions with the fewest there,
                      ratio ours to it. --docs writes the tables of docs/arm.md.
Weights of 4 bits in groups of 32 with activations in groups of 32, int8 weights with a scale per output, bfloat16 and float32
weights. Matrices count as packed before, on both sides; making the inputs' form has rows of its own. KleidiAI's W8A8 takes a zero
point per row off its inputs, ours does not. Its bfloat16 products are BFDOT's and BFMMLA's, as are ours at
bf16fast; ours at bf16 keep the order of the contract.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arm import build, page, trace
from benchmarks.arm.cases import Case, cases, kernels
from benchmarks.common import Peer, Samples, parser, report, row

MATMUL = "kai_run_matmul_clamp_f32_"
PACK = "kai_run_lhs_quant_pack_"


@dataclass(frozen=True)
class Match:
    """One of our kernels and those of KleidiAI that do its work with its instructions."""

    label: str  # as in cases.py
    level: str
    theirs: tuple[str, ...]


def _d32(*rest: str) -> tuple[str, ...]:
    return tuple(f"{MATMUL}qsi8d32p{name}" for name in rest)


MATCHES = (
    Match("linear_q4g32 zero 8", "dotprod", _d32(
        "1x4_qsi4c32p4x4_1x4_neon_dotprod", "1x8_qsi4c32p4x8_1x4x32_neon_dotprod", "4x4_qsi4c32p4x4_16x4_neon_dotprod",
    )),
    Match("linear_q4g32 zero 8", "i8mm", _d32(
        "1x8_qsi4c32p4x8_1x4x32_neon_dotprod", "4x8_qsi4c32p4x8_16x4_neon_i8mm", "4x8_qsi4c32p4x8_8x4x32_neon_i8mm",
    )),
    Match("linear_w8a8", "dotprod", tuple(f"{MATMUL}qai8dxp{name}" for name in (
        "1x4_qsi8cxp4x4_1x4_neon_dotprod", "1x8_qsi8cxp4x8_1x4_neon_dotprod", "4x4_qsi8cxp4x4_16x4_neon_dotprod",
    ))),
    Match("linear_w8a8", "i8mm", tuple(f"{MATMUL}qai8dxp{name}" for name in (
        "1x8_qsi8cxp4x8_1x4_neon_dotprod", "4x8_qsi8cxp4x8_16x4_neon_i8mm",
    ))),
    *(Match("linear_bf16", level, (
        f"{MATMUL}bf16p1x4_bf16p12x4b_1x36_neon_dot", f"{MATMUL}bf16p8x4_bf16p12x4b_8x12_neon_mmla",
    )) for level in ("bf16", "bf16fast")),
    Match("linear_f32", "neon", (f"{MATMUL}f32_f32p16x1b_6x16_neon_mla", f"{MATMUL}f32_f32p8x1biasf32_6x8x4_neon_mla")),
    Match("prepare_i8g32", "neon", (f"{PACK}qsi8d32p_f32_neon", f"{PACK}qsi8d32p4x8sb_f32_neon")),
    Match("prepare_i8row", "neon", (f"{PACK}qai8dxp_f32",)),
    Match("prepare_bf16", "bf16", (f"{PACK}bf16p8x4_f32_neon", f"{PACK}bf16p1x4_f32_neon")),
)  # fmt: skip


def can_run(function: str, rows: int) -> bool:
    """A micro-kernel for one row takes rows one by one; one for four or eight counts as such from there on."""
    return not ("p1x" in function and rows > 1) and not ("4x8sb" in function and rows < 4)


def form_of(function: str, rows: int) -> tuple[int, int, int]:
    """mr, kr and sr of packed inputs: rows side by side, values together, parts of those."""
    if "4x8sb" in function:
        return 4, 16, 2
    return 8 if "8x4_f32" in function else 1 if rows < 4 or "p1x4" in function else 4, 4, 1


def flags_of(function: str) -> str:
    """What KleidiAI's own build compiles a function for."""
    name = function.rsplit("_", 1)[1]
    return (
        "armv8.2-a+bf16" if "bf16p" in function else f"armv8.2-a+{name}" if name in ("dotprod", "i8mm") else "armv8-a"
    )


def source_of(folder: Path, function: str) -> Path:
    """The C source of a function. FileNotFoundError where this KleidiAI has none."""
    stem = function.replace("kai_run_", "kai_")
    found = sorted((folder / "kai/ukernels/matmul").rglob(f"{stem}.c"))
    if not found:
        raise FileNotFoundError(f"{folder}: no {stem}.c: this is not KleidiAI, or a version without that micro-kernel")
    return found[0]


def version_of(folder: Path) -> str:
    """Its commit, or the newest version that its changelog names."""
    said = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    if said.returncode == 0 and (folder / ".git").exists():
        return said.stdout.strip()
    lines = (folder / "CHANGELOG.md").read_text().splitlines()
    return next(line.removeprefix("## ") for line in lines if line.startswith("## v"))


def program_of(folder: Path, functions: list[str]) -> Path:
    """kleidiai.cpp with these functions."""
    home = build.HOME / "kleidiai"
    home.mkdir(parents=True, exist_ok=True)
    objects = []
    for function in functions:
        source = source_of(folder, function)
        flags = [f"-march={flags_of(function)}", "-O3", f"-I{folder}"]
        for part in (source, *source.parent.glob(f"{source.stem}_asm.S")):
            objects.append(home / f"{part.name}.o")
            build.run([build.COMPILER.replace("g++", "gcc"), *flags, "-c", str(part), "-o", str(objects[-1])])
    headers = [f'#include "{source_of(folder, function).with_suffix(".h")}"' for function in functions]
    counted = " ".join(f"OCTAVO_COUNTED({function})" for function in functions)
    (home / "kai_matmuls.h").write_text("\n".join([*headers, f"#define OCTAVO_ALL_COUNTED {counted}", ""]))
    common = ["-std=c++17", "-O2", "-static", f"-I{home}", f"-I{folder}"]
    build.run(
        [build.COMPILER, *common, str(build.HERE / "kleidiai.cpp"), *map(str, objects), "-o", str(home / "program")]
    )
    return home / "program"


def ours(match: Match) -> list[Case]:
    """Our cases that a match stands beside; those of the level below where a level has no kernel of its own."""
    op = match.label.split()[0]
    there = [level for name, level in kernels() if name == op]
    level = match.level if match.level in there else "dotprod" if "dotprod" in there else there[0]
    return [case for case in cases(op, level) if case.label == match.label]


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    if why := build.missing():
        raise SystemExit(why)
    only = tuple(args.only.split(","))
    matches = [match for match in MATCHES if match.label.startswith(only)]
    mine = build.driver(build.kernels())
    names = sorted({name for match in matches for name in match.theirs})
    theirs, version = program_of(args.kleidiai, names), version_of(args.kleidiai)

    def counted(job: tuple[Match, Case]) -> tuple[float, str, float]:
        match, case = job
        sizes = dict(case.sizes)
        rows = sizes["rows"]

        def words(name: str) -> list[str]:
            values = (sizes.get("n", 0), sizes["k"], rows, *form_of(name, rows))
            return [
                name,
                *(f"{key}={value}" for key, value in zip(("n", "k", "rows", "mr", "kr", "sr"), values, strict=True)),
            ]

        fitting = [name for name in match.theirs if can_run(name, rows)]
        fewest, name = min((trace.count(theirs, words(name)).total, name) for name in fitting)
        return trace.count(mine, case.words()).total / case.work, name, fewest / case.work

    jobs = [(match, case) for match in matches for case in ours(match)]
    with ThreadPoolExecutor(args.threads) as pool:
        for (match, case), (value, name, peer) in zip(jobs, pool.map(counted, jobs), strict=True):
            yield row(
                f"arm.{match.label}__{match.level}.{case.column}", "instr/MAC" if case.is_product else "instr/value", [value],
                peer=Peer(name.removeprefix("kai_run_"), version, Samples([peer], [0.0])), label=match.label, level=match.level,
                column=case.column, kernel=case.kernel,
            )  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kleidiai", type=Path, required=True, metavar="FOLDER", help="KleidiAI's sources")
    options.add_argument("--only", default="", metavar="PREFIX,...", help="ops that begin so (default: all)")
    options.add_argument("--docs", action="store_true", help="write the tables of docs/arm.md; needs all kernels")
    args = options.parse_args()
    if args.docs and args.only:
        options.error("--docs writes whole tables: leave --only out")
    found: list[dict[str, Any]] = []
    try:
        report((found.append(result) or result for result in results(args)), args, "arm-beside")
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None
    if args.docs:
        page.write(page.beside(found))


if __name__ == "__main__":
    main()

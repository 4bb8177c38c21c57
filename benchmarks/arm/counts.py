"""Instructions per multiply-accumulate of the Arm kernels, counted under qemu-user: exact, and no time.

    octavo bench arm/counts -- [--only PREFIX,...] [--levels LEVEL,...] [--docs]

arm.KERNEL.COLUMN  instructions of one call, edges and set-up of the kernel included, per multiply-accumulate (prepare_* and
                   kv_append_*: per value). --docs writes the table of docs/arm.md.
What a chip makes of them, docs/arm.md says. Needs Debian's g++-aarch64-linux-gnu, qemu-user-static and cmake.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.arm import build, page, trace
from benchmarks.arm.cases import Case, cases, kernels
from benchmarks.common import parser, report, row

#: SVE vectors that are counted, in bits
SVE_BITS = (128, 256)


def processors(level: str) -> dict[str, str]:
    """What follows a kernel's name -> qemu's processor."""
    if level.startswith("sve"):
        return {f"@{bits}": f"max,sve{bits}=on" for bits in SVE_BITS}
    return {"": "max"}


def chosen(args: argparse.Namespace) -> list[tuple[Case, str, str, str]]:
    """(case, level, what follows its name, processor)."""
    only, levels = tuple(args.only.split(",")), args.levels.split(",")
    return [
        (case, level, after, cpu)
        for op, level in kernels()
        if op.startswith(only) and (level in levels or not args.levels)
        for case in cases(op, level)
        for after, cpu in processors(level).items()
    ]


Results = Callable[[argparse.Namespace], Iterator[dict[str, Any]]]
Tables = Callable[[list[dict[str, Any]]], dict[str, str]]


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    if why := build.missing():
        raise SystemExit(why)
    program = build.driver(build.kernels())

    def counted(job: tuple[Case, str, str, str]) -> float:
        case, _, _, cpu = job
        return trace.count(program, case.words(), cpu).total / case.work

    jobs = chosen(args)
    with ThreadPoolExecutor(args.threads) as pool:
        for (case, level, after, _), value in zip(jobs, pool.map(counted, jobs), strict=True):
            name = f"arm.{case.label}__{level}{after}.{case.column}"
            unit = "instr/MAC" if case.is_product else "instr/value"
            yield row(name, unit, [value], label=case.label, level=level + after, column=case.column)


def run_benchmark(doc: str | None, name: str, results: Results, tables: Tables) -> None:
    """The command line of a benchmark of Arm kernels: reports its rows, and with --docs writes the tables made of them."""
    options = parser(doc)
    options.add_argument("--only", default="", metavar="PREFIX,...", help="ops that begin so (default: all)")
    options.add_argument("--levels", default="", metavar="LEVEL,...", help="kernels of these levels (default: all)")
    options.add_argument("--docs", action="store_true", help="write the table of docs/arm.md; needs all kernels")
    args = options.parse_args()
    if args.docs and (args.only or args.levels):
        options.error("--docs writes whole tables: leave --only and --levels out")
    found: list[dict[str, Any]] = []
    report((found.append(result) or result for result in results(args)), args, name)
    if args.docs:
        page.write(tables(found))


if __name__ == "__main__":
    run_benchmark(__doc__, "arm-counts", results, lambda found: page.counts(found, "{:.3f}".format))

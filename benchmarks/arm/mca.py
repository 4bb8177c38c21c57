"""Cycles of the Arm kernels' inner loops as llvm-mca predicts them for three processors, against the limit of their busiest unit.

    octavo bench arm/mca -- [--only PREFIX,...] [--levels LEVEL,...] [--docs]

arm.OP__LEVEL.COLUMN.LOOP.CPU  share of the limit that a round reaches (cycles and limit beside it), for the innermost loops that
                               execute most of a call, found by counting. --docs writes the table of docs/arm.md.
A model, not a measurement: caches always hit, branches are foreseen. Needs llvm-mca and llvm-objdump of LLVM 22 beside what
arm/counts needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.arm import build, loops, page, trace
from benchmarks.arm.cases import Case
from benchmarks.arm.counts import chosen, run_benchmark
from benchmarks.common import row

#: processor -> bits of its SVE vectors
CPUS = {"neoverse-n1": 0, "neoverse-v1": 256, "neoverse-v2": 128}
#: columns of cases.py that are looked at: every kind of tile, once
COLUMNS = ("64 x 512, 1", "64 x 512, 4", "decode 4:1", "prefill 4:1", "16 x 576", "64 tokens")
#: a loop below this share of a call's instructions is not looked at
LEAST_SHARE = 0.15


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    if why := " and ".join(filter(None, (build.missing(), loops.missing()))):
        raise SystemExit(why)
    program = build.driver(build.kernels())
    code = loops.disassembly(program)

    def looked_at(job: tuple[Case, str, str, str]) -> list[tuple[float, loops.Loop]]:
        case, _, _, cpu = job
        counted = trace.count(program, case.words(), cpu)
        found = loops.inner_loops(code, counted.by_address)
        shares = [(loop.executed / counted.total, loop) for loop in found]
        return [(share, loop) for share, loop in shares if share >= LEAST_SHARE]

    jobs = [job for job in chosen(args) if job[0].column in COLUMNS]
    with ThreadPoolExecutor(args.threads) as pool:
        for (case, level, after, _), found in zip(jobs, pool.map(looked_at, jobs), strict=True):
            for number, (share, loop) in enumerate(found):
                for cpu, bits in CPUS.items():
                    if after not in ("", f"@{bits}"):
                        continue  # vectors of a length that it does not have
                    said = loops.predicted(loop.body, cpu)
                    if said is None:
                        continue
                    yield row(
                        f"arm.{case.label}__{level}{after}.{case.column}.{number}.{cpu}", "of limit", [said.share],
                        better="higher", label=case.label, level=level + after, column=case.column, loop=number, cpu=cpu,
                        cycles=round(said.cycles, 2), limit=said.limit, instructions=len(loop.body), of_call=round(share, 3),
                    )  # fmt: skip


if __name__ == "__main__":
    run_benchmark(__doc__, "arm-mca", results, lambda found: page.predictions(found, list(CPUS)))

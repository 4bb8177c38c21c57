"""One process of the matrix: `python -m tests.matrix.worker TASK CELL OUT [--native-module FILE]` writes OUT as JSON.

Tasks: `cells` lists every cell; `cell` runs the conformance cases on one; `digests` gives the bits of one, to compare builds;
`forced` runs what OCTAVO_ISA leaves of the x86 platform. A process of its own, so that a build under test can take the place of
the installed module, and a crash of one cell is that cell's failure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.conftest import load_as_native
from tests.matrix import cases
from tests.platforms.cells import Cell, cells, x86_cell

FOLDER = cases.ROOT / "build/matrix"


def cell_named(name: str) -> Cell:
    return next(cell for cell in cells() if cell.name == name)


def list_cells(_: str) -> Any:
    return [
        {"name": c.name, "platform": c.platform, "level": c.level, "how": c.how, "reason": c.reason} for c in cells()
    ]


def run_cell(name: str) -> Any:
    results, seconds = cases.timed(cell_named(name), cases.reference_results(FOLDER))
    return {"ops": {op: asdict(result) for op, result in results.items()}, "seconds": seconds}


def bits(name: str) -> Any:
    return cases.digests(cell_named(name))


def forced(level: str) -> Any:
    """The environment's OCTAVO_ISA, read as the engine reads it: the chosen kernels, and their results."""
    from octavo.engine.config import read_environment
    from octavo.platforms.registry import choose_platform

    environment = read_environment()
    platform = choose_platform("x86", 2, environment.isa).platform
    chosen = sorted(v.name for v in platform.variants() if v.detail["chosen"])
    results = cases.run_cell(x86_cell(level), cases.reference_results(FOLDER))
    levels = x86_cell(level).sample.__self__.native.levels  # type: ignore[attr-defined]
    allowed = [name for name, bits in levels.items() if not bits & ~levels[level]]
    return {"chosen": chosen, "allowed": allowed, "ops": {op: asdict(result) for op, result in results.items()}}


TASKS: dict[str, Callable[[str], Any]] = {"cells": list_cells, "cell": run_cell, "digests": bits, "forced": forced}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("cell")
    parser.add_argument("out", type=Path)
    parser.add_argument("--native-module", type=Path)
    args = parser.parse_args()
    if args.native_module is not None:
        load_as_native(args.native_module.resolve())
    args.out.write_text(json.dumps(TASKS[args.task](args.cell)))


if __name__ == "__main__":
    main()

"""One process of the matrix: `python -m tests.matrix.worker TASK CELL OUT [--native-module FILE]` writes OUT as JSON.

Tasks: `cells` lists every cell; `cell` runs the conformance cases on one; `digests` gives the bits of one, to compare builds;
`forced` runs what OCTAVO_ISA leaves of the x86 platform; `emulated` and `emulated_full` run a GPU's machine code. A process of
its own, so that a build under test can take the place of the installed module, and a crash of one cell is that cell's failure.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.conftest import load_as_native

FOLDER = Path(__file__).resolve().parents[2] / "build/matrix"
# The cells load the native module when they are imported, so every task imports them after the build under test is in place.


def cell_named(name: str) -> Any:
    from tests.platforms.cells import cells

    return next(cell for cell in cells() if cell.name == name)


def list_cells(_: str) -> Any:
    from tests.platforms.cells import cells

    fields = ("name", "platform", "level", "how", "reason", "is_exact")
    return [{field: getattr(cell, field) for field in fields} for cell in cells()]


def run_cell(name: str) -> Any:
    from tests.matrix import cases

    results, seconds = cases.timed(cell_named(name), cases.reference_results(FOLDER))
    made = {"ops": {op: asdict(result) for op, result in results.items()}, "seconds": seconds}
    return made | (arm_chip() if name.startswith("arm-") else {})


def arm_chip() -> dict[str, Any]:
    """Of the Arm processor that this runs on: length of an SVE vector (0: has none), levels that run where nobody asks for one,
    and what the engine warns of."""
    from octavo.platforms.arm.platform import ArmPlatform

    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("octavo.platforms")
    log.addHandler(handler)
    platform = ArmPlatform(1)
    log.removeHandler(handler)
    return {
        "sve_bits": 8 * int(platform.native.module.sve_bytes()),
        "levels": list(platform.levels),
        "warnings": warnings,
    }


def bits(name: str) -> Any:
    from tests.matrix import cases

    return cases.digests(cell_named(name))


def forced(level: str) -> Any:
    """The environment's OCTAVO_ISA, read as the engine reads it: the chosen kernels, and their results."""
    from tests.matrix import cases
    from tests.platforms.cells import native_cell

    from octavo.engine.config import read_environment
    from octavo.platforms.registry import choose_platform
    from octavo.platforms.select import FAST_LEVELS

    environment = read_environment()
    numerics = "fast" if level in FAST_LEVELS else environment.numerics
    platform = choose_platform(native_cell(level).platform, 2, environment.isa, numerics).platform
    chosen = sorted(v.name for v in platform.variants() if v.detail["chosen"])
    results = cases.run_cell(native_cell(level), cases.reference_results(FOLDER))
    levels = native_cell(level).sample.__self__.native.levels  # type: ignore[attr-defined]
    allowed = [name for name, bits in levels.items() if not bits & ~levels[level]]
    return {"chosen": chosen, "allowed": allowed, "ops": {op: asdict(result) for op, result in results.items()}}


def emulated(name: str, *, is_full: bool = False) -> Any:
    from tests.matrix import emulated as machine_code

    return machine_code.main_cell(name, FOLDER, is_full=is_full)


def emulated_full(name: str) -> Any:
    return emulated(name, is_full=True)


TASKS: dict[str, Callable[[str], Any]] = {
    "cells": list_cells, "cell": run_cell, "digests": bits, "forced": forced, "emulated": emulated,
    "emulated_full": emulated_full,
}  # fmt: skip


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

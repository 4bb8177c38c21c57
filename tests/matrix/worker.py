"""One process of the matrix: `python -m tests.matrix.worker TASK CELL OUT [--native-module FILE] [--repeats FILE]` writes OUT as
JSON.

Tasks: `cells` lists every cell; `cell` runs the conformance cases on one (with --repeats those that a repeat of another cell
needs, whose answer FILE is: `cases.repeated`); `forced` lists the kernels that OCTAVO_ISA leaves of the platform, `forced_full`
runs the cases on them as well; `emulated` and `emulated_full` run a GPU's machine code. A process of its own, so that a build
under test can take the place of the installed module, and a crash of one cell is that cell's failure.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
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


def run_cell(name: str, repeats: Path | None = None) -> Any:
    from tests.matrix import cases

    cell = cell_named(name)
    only = None if repeats is None else cases.repeated(json.loads(repeats.read_text())["ran"], cell.level)
    start = time.monotonic()
    found = cases.run_cell(cell, cases.reference_results(FOLDER), only)
    made = {
        "ops": {op: asdict(result) for op, result in found.ops.items()},
        "seconds": round(time.monotonic() - start, 1),
    }
    return made | {"bits": found.bits, "ran": found.kernels} | (arm_chip() if name.startswith("arm-") else {})


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


def forced(level: str, *, is_full: bool = False) -> Any:
    """The environment's OCTAVO_ISA, read as the engine reads it. `chosen`: kernels that it leaves; `allowed`: the levels of them;
    `of_cell`: those that the cell of this level has, whose cases then need not run again. `is_full`: they do."""
    from tests.matrix import cases
    from tests.platforms.cells import native_cell

    from octavo.engine.config import read_environment
    from octavo.platforms.registry import choose_platform
    from octavo.platforms.select import FAST_LEVELS

    environment, cell = read_environment(), native_cell(level)
    numerics = "fast" if level in FAST_LEVELS else environment.numerics
    platform: Any = choose_platform(cell.platform, 2, environment.isa, numerics).platform
    native = cell.sample.__self__.native  # type: ignore[attr-defined]
    levels = native.levels
    found = cases.run_cell(cell, cases.reference_results(FOLDER)) if is_full else cases.CellRun()
    return {
        "chosen": sorted(v.name for v in platform.variants() if v.detail["chosen"]),
        "of_cell": sorted(v.name for v in native.variants() if v.detail["chosen"]),
        "allowed": [name for name, bits in levels.items() if not bits & ~levels[level]],
        "ops": {op: asdict(result) for op, result in found.ops.items()},
    }


def forced_full(level: str) -> Any:
    return forced(level, is_full=True)


def emulated(name: str, *, is_full: bool = False) -> Any:
    from tests.matrix import emulated as machine_code

    return machine_code.main_cell(name, FOLDER, is_full=is_full)


def emulated_full(name: str) -> Any:
    return emulated(name, is_full=True)


TASKS: dict[str, Callable[[str], Any]] = {
    "cells": list_cells, "cell": run_cell, "forced": forced, "forced_full": forced_full, "emulated": emulated,
    "emulated_full": emulated_full,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("cell")
    parser.add_argument("out", type=Path)
    parser.add_argument("--native-module", type=Path)
    parser.add_argument("--repeats", type=Path)
    args = parser.parse_args()
    if args.native_module is not None:
        load_as_native(args.native_module.resolve())
    made = run_cell(args.cell, args.repeats) if args.repeats is not None else TASKS[args.task](args.cell)
    args.out.write_text(json.dumps(made))


if __name__ == "__main__":
    main()

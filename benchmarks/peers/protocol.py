"""What every engine's program under this folder speaks, whatever Python runs it: one JSON object a line.

    python PROGRAM.py MODEL THREADS            says {"peer", "version"}, then answers commands on stdin
    python PROGRAM.py MODEL THREADS --first    prints the first token of an answer and ends (process start to first token)

{"do": "generate", "prompts": [[ids], ...], "new": n}: all prompts at once, exactly n tokens each, the highest logit taken.
    Answer: seconds; first_seconds, until every request had a token; and of the steps from there to the one in which the
    first request ended, when all were decoding: window_seconds, window_tokens.
{"do": "logits", "ids": [..], "file": path}: writes float32 logits [ids, vocabulary] of one text (llama.cpp only).
{"do": "embed", ...}: see embedding.py (programs of embedding engines, which have no other command but memory).
{"do": "reset"}: forget prompts that were computed. {"do": "memory"}: bytes, the peak of resident memory.
A command that fails answers {"error"}, and so does an
engine that cannot start, instead of its name. Only the standard library is used here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

TEXT = "Gravity is"


class Steps:
    """When how many tokens were there. `mark` after each step of the engine, with every request's count so far."""

    def __init__(self, new: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.new, self._clock = new, clock
        self._start = clock()
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None

    def mark(self, counts: Sequence[int]) -> None:
        """All requests' tokens after a step."""
        now, total = self._clock(), sum(counts)
        if self._first is None:
            if min(counts) >= 1:
                self._first = (now, total)
            return
        if self._last is None and max(counts) >= self.new:
            self._last = (now, total)

    def answer(self, counts: Sequence[int]) -> dict[str, Any]:
        """What `generate` answers. RuntimeError if an answer has not the length that was asked for."""
        seconds = self._clock() - self._start
        if set(counts) != {self.new}:
            raise RuntimeError(f"asked for {self.new} tokens each, got {sorted(set(counts))}")
        out: dict[str, Any] = {"seconds": seconds}
        if self._first is not None:
            out["first_seconds"] = self._first[0] - self._start
        if self._first is not None and self._last is not None:
            out["window_seconds"] = self._last[0] - self._first[0]
            out["window_tokens"] = self._last[1] - self._first[1]
        return out


class Engine(Protocol):
    """What a program under this folder gives to `serve`."""

    peer: str
    version: str

    def first(self) -> str:
        """The text of the first token after TEXT."""

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """As `Steps.answer`."""

    def logits(self, ids: list[int], file: str) -> None:
        """Writes float32 logits [len(ids), vocabulary] of one text to `file`. Engines that cannot raise NotImplementedError."""

    def embed(self, command: dict[str, Any]) -> dict[str, Any]:
        """As embedding.py says; engines that generate do not have it."""

    def reset(self) -> None:
        """Forgets cached prompts."""


def peak_bytes() -> int:
    """The peak of this process's resident memory."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def answer(engine: Engine, command: dict[str, Any]) -> dict[str, Any]:
    """One command's answer; a failure is one too."""
    try:
        if command["do"] == "generate":
            return engine.generate(command["prompts"], command["new"])
        if command["do"] == "logits":
            engine.logits(command["ids"], command["file"])
            return {}
        if command["do"] == "embed":
            return engine.embed(command)
        if command["do"] == "reset":
            engine.reset()
            return {}
        if command["do"] == "memory":
            return {"bytes": peak_bytes()}
        return {"error": f"there is no command {command['do']!r}; there are generate, logits, embed, reset, memory"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all prompts begin with, one at least left to each."""
    length = min(map(len, prompts)) - 1
    return next((i for i in range(length) if len({prompt[i] for prompt in prompts}) > 1), length)


def limit_threads(threads: str) -> None:
    """Sets the usual variables, before libraries that read them are imported; nothing is fetched."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = threads
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def serve(make: Callable[[str, int], Engine]) -> None:
    """The whole program. Answers go to the standard output as it was at the start; libraries that print go to stderr."""
    path, threads = sys.argv[1], int(sys.argv[2])
    limit_threads(str(threads))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: str) -> None:
        print(line, file=out, flush=True)

    try:
        engine = make(path, threads)
    except Exception as error:
        say(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}))
        raise SystemExit(1) from error
    if "--first" in sys.argv[3:]:
        say(engine.first() or "?")
        return
    say(json.dumps({"peer": engine.peer, "version": engine.version}))
    for line in sys.stdin:
        say(json.dumps(answer(engine, json.loads(line))))

"""The cells of the comparison: what is asked of an engine, what its answer is worth, and what the machine's limit is.

prefill.N   tokens/s of a prompt of N tokens to its first token
decode.B    tokens/s of B requests decoding at once, from the step after which all have a token to the one in which the first
            ends; prompts are not in it
shared      seconds for 64 requests at once whose prompts begin with the same 256 tokens
start       seconds from the start of the process to the first token, files in the page cache
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.shapes import Shape

SHARED_REQUESTS, SHARED_PREFIX = 64, 256
USUAL = ("prefill.512", "prefill.2048", "decode.1", "decode.4", "decode.16", "decode.32", "shared", "start")


class Prompts:
    """Token ids that never repeat, so that no cache of prompts helps anybody."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)

    def __call__(self, length: int) -> list[int]:
        return [self._rng.randrange(1000, 40000) for _ in range(length)]


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts and answers: of decode cells, and of `shared` after the prefix."""

    decode_prompt: int = 128
    decode_new: int = 64
    shared_own: int = 64
    shared_new: int = 64


@dataclass(frozen=True)
class Cell:
    """One cell. `count`: tokens of a prefill, requests of a decode."""

    name: str
    kind: str
    count: int = 0
    lengths: Lengths = field(default_factory=Lengths)

    @property
    def unit(self) -> str:
        """Of its value."""
        return "tokens/s" if self.kind in ("prefill", "decode") else "s"

    @property
    def better(self) -> str:
        """higher or lower."""
        return "higher" if self.unit == "tokens/s" else "lower"

    def command(self, prompts: Prompts) -> dict[str, Any]:
        """What the engine is asked (not for `start`, which is a process)."""
        sizes = self.lengths
        if self.kind == "prefill":
            return {"do": "generate", "prompts": [prompts(self.count)], "new": 1}
        if self.kind == "decode":
            asked = [prompts(sizes.decode_prompt) for _ in range(self.count)]
            return {"do": "generate", "prompts": asked, "new": sizes.decode_new}
        prefix = prompts(SHARED_PREFIX)
        asked = [prefix + prompts(sizes.shared_own) for _ in range(SHARED_REQUESTS)]
        return {"do": "generate", "prompts": asked, "new": sizes.shared_new}

    def value(self, answer: Mapping[str, Any]) -> float:
        """The answer's worth in the cell's unit."""
        if self.kind == "prefill":
            return float(self.count / answer["seconds"])
        if self.kind == "decode":
            if not answer.get("window_tokens"):
                raise RuntimeError(f"{self.name}: no step in which all {self.count} requests were decoding")
            return float(answer["window_tokens"] / answer["window_seconds"])
        return float(answer["seconds"])

    def limit(self, shape: Shape, weight_bytes: float, read: float, ops: float) -> float | None:
        """The most (tokens/s) that `read` bytes/s and `ops` operations/s allow, the slower of the two; None: not known.

        A decoding step reads the weights and every request's keys and values once, and multiplies each weight once
        per request.
        """
        if not (read and ops) or self.kind not in ("prefill", "decode"):
            return None
        if self.kind == "prefill":
            return self.count / max(shape.prefill_ops(self.count) / ops, weight_bytes / read)
        context = self.lengths.decode_prompt + self.lengths.decode_new / 2
        step_ops = 2.0 * self.count * (shape.layer_params + shape.vocab * shape.hidden)
        step_ops += 4.0 * self.count * context * shape.layers * shape.heads * shape.head_dim
        return self.count / max(shape.step_bytes(weight_bytes, self.count, context) / read, step_ops / ops)


def parse_cell(text: str, lengths: Lengths) -> Cell:
    """`prefill.512`, `decode.16`, `shared`, `start`. ValueError for anything else."""
    kind, _, count = text.partition(".")
    is_counted = kind in ("prefill", "decode")
    if kind not in ("prefill", "decode", "shared", "start") or is_counted != bool(count):
        raise ValueError(f"there is no cell {text!r}; allowed are prefill.N, decode.N, shared, start")
    if is_counted and not (count.isascii() and count.isdigit() and 1 <= int(count) <= 100_000):
        raise ValueError(f"cell {text!r}: {count!r} is not a whole number from 1 to 100000")
    return Cell(text, kind, int(count or 0), lengths)

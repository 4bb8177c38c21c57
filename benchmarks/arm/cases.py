"""What is counted: kernels of csrc_neon, at which sizes, and how many multiply-accumulates (or values) that makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.common import ROOT

#: outputs x inputs; the second one where a K-quant's rows are no whole blocks of 256
SHAPES = ((64, 512), (576, 576), (576, 512))
ROWS = (1, 4, 16)
#: of packed/panels.h
HAS_MIN, ZERO_8, HAS_ZEROS, SCALE_BF16, SCALE_F16, GROUP_64, GROUP_128 = (1 << bit for bit in range(7))
#: op -> (label, flags) of the layouts worth counting; other linear ops have one
LAYOUTS = {
    "linear_q4g32": (("zero 8", ZERO_8), ("minima", HAS_MIN)),
    "linear_q5g32": (("zero 16", 0), ("minima", HAS_MIN)),
    "linear_i4": (("32", SCALE_F16), ("128", SCALE_F16 | GROUP_128), ("128, zeros", SCALE_F16 | GROUP_128 | HAS_ZEROS)),
}
HEAD_DIM = 64
#: (query heads, kv heads)
GROUPED = ((3, 1), (4, 1))
#: (name, new tokens, length with them)
STEPS = (("decode", 1, 1024), ("prefill", 64, 512))
ROW = re.compile(r"^OCTAVO_KERNEL\((\w+), (\w+),", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One call of a kernel. `work`: its multiply-accumulates, or values where nothing is multiplied."""

    kernel: str
    label: str  # of the row of the table
    column: str
    work: int
    sizes: tuple[tuple[str, int], ...]

    @property
    def is_product(self) -> bool:
        """Whether `work` is multiply-accumulates."""
        return self.label.startswith(("linear_", "paged_attention_"))

    def words(self) -> list[str]:
        """Arguments of the driver."""
        return [self.kernel, *(f"{name}={value}" for name, value in self.sizes)]


def kernels() -> list[tuple[str, str]]:
    """(op, level) of every row of kernels.inc."""
    return ROW.findall((ROOT / "csrc_neon/kernels.inc").read_text())


def cases(op: str, level: str) -> Iterator[Case]:
    """The calls of a kernel that are counted; none where it neither multiplies nor prepares."""
    kernel = f"{op}__{level}"
    if op.startswith("linear_"):
        for label, flags in LAYOUTS.get(op, (("", 0),)):
            yield from _products(kernel, f"{op} {label}".strip(), flags, is_k=op.endswith("k"))
    elif op.startswith("prepare_"):
        for rows in (1, 16):
            sizes = (("k", 576), ("rows", rows))
            yield Case(kernel, op, f"{rows} x 576", rows * 576, sizes)
    elif op.startswith("paged_attention_"):
        for heads, kv_heads in GROUPED:
            for step, tokens, length in STEPS:
                sizes = _sequence(kv_heads, tokens, length, heads=heads)
                seen = sum(range(length - tokens + 1, length + 1))
                work = 2 * seen * heads * HEAD_DIM
                yield Case(kernel, op, f"{step} {heads}:{kv_heads}", work, sizes)
    elif op.startswith("kv_append_"):
        for tokens in (1, 64):
            yield Case(kernel, op, f"{tokens} tokens", 2 * tokens * 3 * HEAD_DIM, _sequence(3, tokens, 512))


def _products(kernel: str, label: str, flags: int, *, is_k: bool) -> Iterator[Case]:
    for n, k in (SHAPES[0], SHAPES[2] if is_k else SHAPES[1]):
        for rows in ROWS:
            sizes = (("n", n), ("k", k), ("rows", rows), ("flags", flags))
            yield Case(kernel, label, f"{'64 x 512' if n == 64 else '576 x 576'}, {rows}", n * k * rows, sizes)


def _sequence(kv_heads: int, tokens: int, length: int, **more: int) -> tuple[tuple[str, int], ...]:
    sizes = {"kv_heads": kv_heads, "head_dim": HEAD_DIM, "tokens": tokens, "length": length, **more}
    return tuple(sizes.items())

"""The only chooser: which kernel runs each op, and why the others do not.

Rows come from the loaded module itself, never from constants, so that what is listed is what is there. Levels agree bit for
bit, hence a choice changes speed only; the few that do not (FAST_LEVELS) run under `--numerics fast`. A level may be refused
by the processor, by the user (OCTAVO_ISA, numerics) or by its own self-test; every refusal keeps its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from octavo.engine.errors import ConfigError, PlatformError
from octavo.platforms.types import Variant

T = TypeVar("T")


@dataclass(frozen=True)
class KernelRow:
    """One kernel as its module lists it."""

    op: str
    name: str
    level: str
    required: int


@dataclass(frozen=True)
class Choice:
    """An op's kernels by number of rows: `bands` are (from so many rows on, kernel), ascending, the first from 0 on; often there
    is one. And the refused, with reasons."""

    bands: tuple[tuple[int, str], ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """All of them, that for few rows first."""
        return tuple(name for _, name in self.bands)

    @property
    def few(self) -> str:
        return self.bands[0][1]

    @property
    def many(self) -> str:
        return self.bands[-1][1]

    @property
    def many_from(self) -> int:
        """The rows from which `many` runs."""
        return self.bands[-1][0]


def of_rows(bands: Sequence[tuple[int, T]], rows: int) -> T:
    """What the last band has that begins at so many rows or below."""
    return next(what for start, what in reversed(bands) if start <= rows)


#: levels whose results leave the contract's last bits (docs/numerics.md, "Fast"): run only where the user asked for it
FAST_LEVELS = frozenset({"avx512fast", "bf16fast", "mmafast", "mmafastwide", "triton"})
#: levels that only pay from some rows on: (op prefix, level) -> rows. Of int8 codes SVE takes fewer cycles than i8mm, whose
#: products of two rows by two begin at four rows (docs/arm.md).
MANY_FROM = {
    ("linear_w8a8", "amx"): 3,  # the self-test's few rows are two
    ("linear_bf16", "amx"): 3,
    ("linear_q4g32", "amx"): 32,  # below that, unpacking and filling the tiles cost more than VNNI's products
    ("linear_q8g32", "amx"): 32,
    ("linear_q5g32", "amx"): 32,
    ("linear_", "amx"): 16,
    ("paged_attention_", "amx"): 4,
    ("linear_w8a8", "i8mm"): 4,
    ("linear_q8g32", "i8mm"): 4,
    ("linear_", "mmawide"): 17,
    ("linear_", "mmafastwide"): 17,
    ("linear_", "triton"): 65,  # a tile has 128 rows (platforms/gpu/triton)
    ("paged_attention_", "mmafastwide"): 16,  # kManyTokens of csrc_common/gpu/attention_mma_cuts.inl.h
}


@dataclass
class OpTable:
    """op -> Choice."""

    choices: dict[str, Choice] = field(default_factory=dict)

    def __getitem__(self, op: str) -> Choice:
        choice = self.choices.get(op)
        if choice is None:
            raise PlatformError(f"no kernel for {op}; there are kernels for {', '.join(sorted(self.choices))}")
        return choice

    def __contains__(self, op: str) -> bool:
        return op in self.choices


def allowed_features(available: int, levels: Mapping[str, int], asked: tuple[str, ...] | None) -> int:
    """Feature bits to use: what the machine has, cut to the levels asked for (None: all). Unknown names are an error."""
    if asked is None:
        return available
    unknown = [name for name in asked if name not in levels]
    if unknown:
        raise ConfigError(f"unknown level {unknown[0]!r} in --isa or OCTAVO_ISA; allowed are {', '.join(levels)}")
    bits = 0
    for name in asked:
        bits |= levels[name]
    return available & bits


@dataclass(frozen=True)
class Allowance:
    """What may run: feature bits of the machine and of the user, levels found wrong, whether bits may differ, and kernels that
    others of the op outrun here."""

    available: int
    allowed: int
    bad_levels: Mapping[str, str]
    is_fast: bool = False
    passed_over: Mapping[str, str] = field(default_factory=dict)


def refusal(row: KernelRow, may: Allowance) -> str:
    """Why a kernel may not run ('' = it may)."""
    if row.level in may.bad_levels:
        return may.bad_levels[row.level]
    if row.required & ~may.available:
        return f"the processor lacks what {row.level} needs"
    if row.required & ~may.allowed:
        return "switched off by --isa or OCTAVO_ISA"
    if row.level in FAST_LEVELS and not may.is_fast:
        return "its last bits differ from the other levels'; --numerics fast allows it"
    return may.passed_over.get(row.name, "")


def choose(rows: Iterable[KernelRow], levels: Mapping[str, int], may: Allowance) -> OpTable:
    """Best level first for every op; `levels` is ordered slowest first. An op without a runnable kernel is left out."""
    order = {name: i for i, name in enumerate(levels)}
    by_op: dict[str, list[KernelRow]] = {}
    for row in rows:
        by_op.setdefault(row.op, []).append(row)
    table = OpTable()
    for op, candidates in by_op.items():
        candidates.sort(key=lambda row: -order[row.level])
        why = {row.name: refusal(row, may) for row in candidates}
        runnable = [row for row in candidates if not why[row.name]]
        if not runnable:
            continue
        refused = tuple((row.name, why[row.name]) for row in candidates if why[row.name])
        table.choices[op] = Choice(_bands(op, runnable), refused)
    return table


def _bands(op: str, best_first: list[KernelRow]) -> tuple[tuple[int, str], ...]:
    """Every kernel from the rows on from which it pays, up to where a better one begins; the last of them for fewer rows, too."""
    bands: list[tuple[int, str]] = []
    for row in best_first:
        start = _many_from(op, row.level)
        if not bands or start < bands[0][0]:
            bands.insert(0, (start, row.name))
    bands[0] = (0, bands[0][1])
    return tuple(bands)


def _many_from(op: str, level: str) -> int:
    return next((rows for (prefix, name), rows in MANY_FROM.items() if name == level and op.startswith(prefix)), 0)


def explain(rows: Iterable[KernelRow], table: OpTable, may: Allowance) -> list[Variant]:
    """Every kernel with its part in the choice, for `octavo doctor` and the tests."""
    out = []
    for row in rows:
        choice = table.choices.get(row.op)
        reason = refusal(row, may)
        uses = [start for start, name in (() if choice is None else choice.bands) if name == row.name]
        out.append(Variant(row.op, row.name, row.level, reason, {"chosen": bool(uses), "from_rows": (*uses, None)[0]}))
    return out

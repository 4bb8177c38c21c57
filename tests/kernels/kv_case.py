"""Small paged steps for the kernel tests: sequences with pages in any order, the reference and every runnable level side by side.

Slots that no token has filled hold NaN (codes: NaN scales) in the native pool, so that a kernel that reads one shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load, native_module
from octavo.platforms.recorded.eager import EagerOps
from octavo.platforms.recorded.native import Native
from octavo.platforms.reference.kv import PagePool
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.select import FAST_LEVELS
from octavo.platforms.types import Batch, GroupKind, KVGroup, KVSpec

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@cache
def lowest() -> str:
    """The level that every processor of this machine's kind has."""
    return next(iter(Native(load()).levels))


@cache
def module_of(level: str) -> Any:
    """The native module where the processor has the level, else the emulated one (tests/emulated) if built, else None."""
    for name in (native_module(), "octavo._avx_emulated"):
        try:
            found = load(name)
        except PlatformError:
            continue
        if level in Native(found).runnable_levels():
            return found
    return None


def variants(op: str, *before: Any) -> list[Any]:
    """(*before, kernel name, level) of every kernel of `op`, as pytest parameters; what cannot run is skipped."""
    rows = [row for row in Native(load()).rows if row.op == op and row.level not in FAST_LEVELS]
    assert rows, f"no kernel of {op} is listed"
    return [pytest.param(*before, row.name, row.level, id=row.name, marks=_marks(row.level)) for row in rows]


def typed(op: str, dtypes: Sequence[str]) -> list[Any]:
    """(dtype, kernel name, level) of every kernel of `op`_`dtype`."""
    return [case for dtype in dtypes for case in variants(f"{op}_{dtype}", dtype)]


def levels(op: str) -> list[Any]:
    """(level,) of every kernel of `op`."""
    rows = [row for row in Native(load()).rows if row.op == op and row.level not in FAST_LEVELS]
    return [pytest.param(row.level, id=row.level, marks=_marks(row.level)) for row in rows]


def _marks(level: str) -> list[Any]:
    why = f"this processor lacks {level} and octavo._avx_emulated is not built"
    return [] if module_of(level) else [pytest.mark.skip(reason=why)]


def eager(
    level: str, spec: KVSpec | None = None, num_pages: int = 1, threads: int = 1, max_len: int = 4096
) -> EagerOps:
    """Ops of one level and no other; kernels with a row threshold run from the first row on."""
    native = Native(module_of(level), (level,))
    own = {row.op for row in native.rows if row.level == level}
    native.__dict__["rows"] = [row for row in native.rows if row.level == level or row.op not in own]
    return EagerOps(native, native.module.Team(threads, 100), spec, num_pages, max_len)


def same_bits(found: F32, wanted: F32) -> bool:
    """Equal bit for bit, any NaN equal to any NaN."""
    if found.shape != wanted.shape:
        return False
    a, b = (np.ascontiguousarray(x, np.float32).view(np.uint32) for x in (found, wanted))
    return bool(np.all((a == b) | (np.isnan(found) & np.isnan(wanted))))


def assert_bits(found: F32, wanted: F32, what: str = "") -> None:
    if same_bits(found, wanted):
        return
    assert found.shape == wanted.shape, f"{what}: shape {found.shape}, wanted {wanted.shape}"
    a, b = (np.ascontiguousarray(x, np.float32).view(np.uint32) for x in (found, wanted))
    bad = np.argwhere((a != b) & ~(np.isnan(found) & np.isnan(wanted)))
    at = tuple(int(i) for i in bad[0])
    raise AssertionError(f"{what}: {len(bad)} of {a.size} differ, first at {at}: {found[at]!r}, wanted {wanted[at]!r}")


def kv_spec(
    dtype: str, kv_heads: int, head_dim: int, block_tokens: int = 32, window: int = 0, layers: int = 2
) -> KVSpec:
    kind = GroupKind.SLIDING if window else GroupKind.FULL
    group = KVGroup(kind, tuple(range(layers)), window)
    return KVSpec((group,), kv_heads, head_dim, dtype, block_tokens)  # type: ignore[arg-type]


def batch_of(lengths: Sequence[tuple[int, int]], tables: I32) -> Batch:
    """`lengths`: (tokens computed before, tokens of this step) per sequence."""
    new = [n for _, n in lengths]
    start = np.cumsum([0, *new]).astype(np.int32)
    total = int(start[-1])
    positions = [np.arange(before, before + n) for before, n in lengths]
    flat = np.concatenate(positions) if positions else np.zeros(0)
    return Batch(
        token_ids=np.zeros(total, np.int32),
        positions=np.ascontiguousarray(flat.astype(np.int32)[None]),
        query_start=start,
        kv_len=np.array([before + n for before, n in lengths], np.int32),
        token_seq=np.repeat(np.arange(len(new)), new).astype(np.int32),
        block_tables=[tables],
        logits_rows=np.zeros(0, np.int32),
    )


def tables_of(totals: Sequence[int], block_tokens: int, seed: int = 0) -> tuple[I32, int]:
    """Page ids in shuffled order for sequences of these total lengths; (table [S, most blocks], pages of the pool)."""
    blocks = [-(-n // block_tokens) for n in totals]
    ids = np.random.default_rng(seed).permutation(sum(blocks)).astype(np.int32) + 1
    table = np.zeros((len(totals), max(blocks, default=1)), np.int32)
    at = 0
    for s, count in enumerate(blocks):
        table[s, :count] = ids[at : at + count]
        at += count
    return table, at + 1


@dataclass
class Inputs:
    """Queries, keys and values of whole sequences, [tokens, heads * dim] each."""

    q: list[F32]
    k: list[F32]
    v: list[F32]

    def step(self, lengths: Sequence[tuple[int, int]]) -> tuple[F32, F32, F32]:
        def pick(rows: list[F32]) -> F32:
            return np.concatenate([rows[s][before : before + n] for s, (before, n) in enumerate(lengths)])

        return pick(self.q), pick(self.k), pick(self.v)


def random_inputs(totals: Sequence[int], heads: int, kv_heads: int, dim: int, seed: int = 0) -> Inputs:
    rng = np.random.default_rng(seed)

    def rows(n: int, h: int, spread: float) -> F32:
        return (rng.standard_normal((n, h * dim)) * spread).astype(np.float32)

    return Inputs(
        [rows(n, heads, 2.0) for n in totals],
        [rows(n, kv_heads, 1.0) for n in totals],
        [rows(n, kv_heads, 1.0) for n in totals],
    )


@dataclass
class Paged:
    """One platform's ops with its pool, driven step by step."""

    ops: Any
    spec: KVSpec
    heads: int
    options: dict[str, Any] = field(default_factory=dict)
    layer: int = 1

    def step(self, batch: Batch, q: F32, k: F32, v: F32) -> F32:
        self.ops.begin(batch)
        self.ops.kv_append(k, v, layer=self.layer)
        scale = self.options.get("scale", self.spec.head_dim**-0.5)
        rest = {name: value for name, value in self.options.items() if name != "scale"}
        out: F32 = self.ops.paged_attention(q, layer=self.layer, heads=self.heads, scale=scale, **rest)
        return out


def reference(spec: KVSpec, num_pages: int, heads: int, **options: Any) -> Paged:
    return Paged(ReferenceOps(PagePool(spec, num_pages)), spec, heads, options)


def native(level: str, spec: KVSpec, num_pages: int, heads: int, threads: int = 1, **options: Any) -> Paged:
    ops = eager(level, spec, num_pages, threads)
    fill = {"f32": 0x7FC00000, "bf16": 0x7FC07FC0, "f16": 0x7E007E00, "int8": 0x7FC07FC0, "fp8": 0x7FC07FC0}[spec.dtype]
    np.frombuffer(ops.pages, np.uint32)[:] = fill
    return Paged(ops, spec, heads, options)


def run_whole(paged: Paged, totals: Sequence[int], inputs: Inputs, tables: I32, pieces: int = 0) -> list[F32]:
    """Prefills all sequences together in steps of `pieces` tokens each (0: at once); the outputs per sequence."""
    out: list[list[F32]] = [[] for _ in totals]
    done = [0] * len(totals)
    while any(d < n for d, n in zip(done, totals, strict=True)):
        lengths = [(d, min(pieces or n, n - d)) for d, n in zip(done, totals, strict=True)]
        y = paged.step(batch_of(lengths, tables), *inputs.step(lengths))
        at = 0
        for s, (before, n) in enumerate(lengths):
            out[s].append(y[at : at + n])
            at += n
            done[s] = before + n
    return [np.concatenate(rows) for rows in out]

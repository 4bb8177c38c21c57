"""Cases of `kv_append` and `paged_attention`: KV dtypes, head sizes, groupings, windows, segment borders, extras."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, batch_of, bf16, e4m3_rows, int8_rows, normal, num_pages, one_layer

from octavo.platforms.types import KVSpec
from octavo.quant.fp8 import E4M3FN

#: weights are rounded to bfloat16 (half a unit of 8 bits) where KV is bf16, int8 or fp8
TOLERANCE = {"f32": 2e-6, "f16": 2e-6, "bf16": 6e-3, "int8": 6e-3, "fp8": 6e-3}


@dataclass(frozen=True)
class Case:
    name: str
    dtype: str
    heads: int
    kv_heads: int
    head_dim: int
    seqs: tuple[tuple[int, int], ...]  # (tokens stored by earlier steps, tokens of this step)
    window: int = 0
    softcap: float = 0.0
    has_sinks: bool = False
    has_alibi: bool = False
    spread: float = 1.0  # of the queries: large ones make the softmax sharp
    kv_scale: float = 1.0
    block_tokens: int = 32

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    @property
    def spec(self) -> KVSpec:
        return one_layer(self.dtype, self.kv_heads, self.head_dim, self.window, self.block_tokens)


_MIXED = ((0, 1), (37, 5), (0, 33), (63, 1), (64, 2))
DTYPES = ("f32", "bf16", "f16", "int8", "fp8")
CASES = (
    *(Case(f"{d}_mixed", d, 4, 2, 64, _MIXED) for d in DTYPES),
    *(Case(f"{d}_sharp", d, 2, 1, 32, ((70, 3),), spread=8.0) for d in DTYPES),
    *(Case(f"bf16_dim_{n}", "bf16", 2, 1, n, ((20, 3), (31, 1))) for n in (16, 32, 80, 96, 128, 256)),
    *(Case(f"{d}_dim_80", d, 2, 2, 80, ((33, 2),)) for d in ("f32", "f16", "int8", "fp8")),
    *(Case(f"gqa_{h}_{k}", "bf16", h, k, 32, ((40, 2), (0, 7))) for h, k in ((8, 8), (8, 1), (6, 2), (9, 3))),
    *(Case(f"{d}_window_16", d, 2, 1, 32, ((14, 1), (15, 1), (16, 1), (17, 1), (0, 40)), window=16) for d in DTYPES),
    Case("window_1", "f32", 2, 1, 32, ((40, 3), (0, 2)), window=1),
    Case("window_33_long", "bf16", 2, 1, 32, ((600, 2), (511, 3)), window=33),
    Case("window_700", "bf16", 2, 1, 32, ((1100, 2),), window=700),
    *(
        Case(f"{d}_borders", d, 2, 1, 32, ((509, 1), (510, 1), (511, 1), (512, 1), (508, 7), (1023, 2)))
        for d in ("f32", "bf16", "int8", "fp8")
    ),
    Case("prompt_513", "bf16", 2, 1, 32, ((0, 513),)),
    Case("rows_empty", "bf16", 2, 1, 32, ((5, 0), (0, 2), (40, 0), (3, 1))),
    *(Case(f"{d}_softcap", d, 2, 1, 32, ((90, 3),), softcap=5.0, spread=6.0) for d in ("f32", "bf16", "int8", "fp8")),
    *(Case(f"{d}_sinks", d, 4, 2, 32, ((90, 3), (600, 1)), has_sinks=True) for d in ("f32", "bf16")),
    *(Case(f"{d}_alibi", d, 4, 2, 32, ((90, 3), (600, 1)), has_alibi=True) for d in ("f32", "bf16")),
    *(Case(f"{d}_denormal", d, 2, 1, 32, ((40, 2),), kv_scale=1e-36) for d in ("int8", "fp8")),
    Case("fp8_large", "fp8", 2, 1, 32, ((40, 2),), spread=1e-30, kv_scale=1e30),
    Case("fp8_codes", "fp8", 2, 1, 256, ((0, 1), (0, 18), (40, 2))),
    *(Case(f"{d}_dim_{n}", d, 2, 1, n, ((20, 3), (0, 6))) for d in DTYPES for n in (48, 112, 160, 192)),
    *(Case(f"{d}_block_{n}", d, 2, 1, 32, ((120, 3), (0, 70)), block_tokens=n) for d in DTYPES for n in (64, 128)),
    Case("bf16_block_128_window_40", "bf16", 4, 1, 48, ((300, 4),), window=40, block_tokens=128),
    *(  # pages in which segments do not begin
        Case(f"{d}_block_96_window", d, 2, 1, 32, ((530, 1), (1030, 2)), window=16, block_tokens=96)
        for d in ("f32", "bf16", "int8")
    ),
    Case("nothing_to_do", "bf16", 2, 1, 32, ((5, 0), (0, 0), (40, 0))),
    Case("nobody_there", "int8", 2, 1, 32, ()),
    Case("first_and_last_empty", "int8", 4, 2, 32, ((600, 0), (0, 20), (513, 2), (0, 0))),
    *(
        Case(
            f"{d}_all_extras",
            d,
            4,
            1,
            64,
            ((520, 9), (0, 5), (63, 1)),
            window=64,
            softcap=4.0,
            has_sinks=True,
            has_alibi=True,
        )
        for d in ("f32", "bf16", "f16")
    ),
    *(
        Case(f"{d}_sinks_and_window", d, 8, 1, 32, ((100, 5),), window=30, has_sinks=True)
        for d in ("bf16", "int8", "fp8")
    ),
    *(Case(f"{d}_softcap_and_alibi", d, 3, 1, 32, ((510, 5),), softcap=9.0, has_alibi=True) for d in DTYPES),
    *(
        Case(f"{d}_gqa_{h}_borders", d, h, 1, 32, ((505, 12), (1020, 1)))
        for d in ("bf16", "int8", "fp8")
        for h in (3, 4, 8)
    ),
    Case("all_extras", "int8", 4, 2, 32, ((520, 3),), window=64, softcap=4.0, has_sinks=True, has_alibi=True),
)


def inputs(case: Case) -> dict[str, F32]:
    """q of this step; k and v of all tokens, sequence by sequence; sinks and slopes. `_codes` has every code that is stored."""
    new, total = sum(n for _, n in case.seqs), sum(p + n for p, n in case.seqs)
    width = case.kv_heads * case.head_dim
    if case.name.endswith("_codes"):
        return _every_code(new, total, case.heads)
    return {
        "q": normal(case.name + "q", new, case.heads * case.head_dim, scale=case.spread),
        "k": normal(case.name + "k", total, width, scale=case.kv_scale),
        "v": normal(case.name + "v", total, width, scale=case.kv_scale),
        "sinks": normal(case.name + "sinks", case.heads),
        "alibi": (2.0 ** -np.arange(1, case.heads + 1)).astype(np.float32),
    }


def _every_code(new: int, total: int, heads: int) -> dict[str, F32]:
    """Heads of 256 numbers, one per code. Queries are such that all weigh the same in a score, the largest and the least."""
    numbers = np.where(np.isfinite(E4M3FN.table), E4M3FN.table, np.float32(448))
    signs = np.sign(normal("signs of codes", new, heads, 256))
    scales = np.exp2(np.arange(total) % 3).astype(np.float32)
    return {
        "q": (signs / np.where(numbers == 0, 1, numbers)).reshape(new, -1).astype(np.float32),
        "k": numbers * scales[:, None],
        "v": np.stack([np.roll(numbers, 37 * i) for i in range(total)]) * scales[:, None],
    }


def _split(case: Case, rows: F32) -> tuple[F32, F32]:
    """Rows of all tokens as (those of earlier steps, those of this step)."""
    past, new, at = [rows[:0]], [rows[:0]], 0
    for p, n in case.seqs:
        past.append(rows[at : at + p])
        new.append(rows[at + p : at + p + n])
        at += p + n
    return np.concatenate(past), np.concatenate(new)


def run(cell: Any, case: Case) -> F32:
    given = inputs(case)
    lengths = np.array([p + n for p, n in case.seqs], np.int32)
    step = batch_of(case.seqs, case.spec)
    before = batch_of([(0, p) for p, _ in case.seqs], case.spec)
    before.block_tables = step.block_tables
    ops = cell.ops(case.spec, num_pages(case.spec, lengths))
    (k0, k1), (v0, v1) = _split(case, given["k"]), _split(case, given["v"])
    if len(k0):
        ops.begin(before)
        ops.kv_append(k0, v0, layer=0)
    ops.begin(step)
    ops.kv_append(k1, v1, layer=0)
    return ops.paged_attention(
        given["q"],
        layer=0,
        heads=case.heads,
        scale=case.head_dim**-0.5,
        softcap=case.softcap,
        sinks=given["sinks"] if case.has_sinks else None,
        alibi=given["alibi"] if case.has_alibi else None,
    )


def as_stored(x: F32, case: Case) -> F64:
    """[tokens, kv heads, dim] as the KV dtype keeps it."""
    heads = x.reshape(len(x), case.kv_heads, case.head_dim)
    if case.spec.has_scales:
        codes, scale = (int8_rows if case.dtype == "int8" else e4m3_rows)(heads)
        return codes * scale
    return (
        bf16(heads)
        if case.dtype == "bf16"
        else heads.astype(np.float16 if case.dtype == "f16" else float).astype(float)
    )


def naive(case: Case) -> F64:
    given = inputs(case)
    q = bf16(given["q"]) if case.spec.rounds else given["q"].astype(float)
    q = q.reshape(len(q), case.heads, case.head_dim)
    k, v = as_stored(given["k"], case), as_stored(given["v"], case)
    out, row, at = np.zeros_like(q), 0, 0
    for p, n in case.seqs:
        for i in range(p, p + n):
            low = max(0, i - case.window + 1) if case.window else 0
            for h in range(case.heads):
                kv = h // (case.heads // case.kv_heads)
                score = k[at + low : at + i + 1, kv] @ q[row, h] * case.head_dim**-0.5
                if case.softcap:
                    score = case.softcap * np.tanh(score / case.softcap)
                if case.has_alibi:
                    score = score + float(given["alibi"][h]) * (np.arange(low, i + 1) - i)
                weight = np.exp(score - score.max())
                total = weight.sum() + (np.exp(float(given["sinks"][h]) - score.max()) if case.has_sinks else 0)
                out[row, h] = weight @ v[at + low : at + i + 1, kv] / total
            row += 1
        at += p + n
    return out.reshape(given["q"].shape)

"""Cases of `varlen_attention`: packed sequences, both directions visible or the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, batch_of, normal


@dataclass(frozen=True)
class Case:
    name: str
    heads: int
    kv_heads: int
    head_dim: int
    lengths: tuple[int, ...]
    window: int = 0
    has_alibi: bool = False
    dtype: str = "f32"
    tolerance: float = 2e-6
    is_causal: bool = False
    reach: int = 0  # of a bias by distance; 0: none


CASES = (
    Case("mixed", 4, 4, 32, (1, 7, 33, 16)),
    Case("grouped", 4, 2, 64, (20, 3)),
    Case("odd_dim", 2, 2, 20, (5, 40)),
    Case("empty", 2, 2, 32, (3, 0, 2)),
    Case("window_4", 2, 1, 32, (30, 4, 5), window=4),
    Case("alibi", 4, 4, 32, (40, 2), has_alibi=True),
    *(Case(f"length_{n}", 1, 1, 32, (n,)) for n in (511, 512, 513)),
    *(Case(f"dim_{n}", 3, 1, n, (34, 5)) for n in (48, 64, 80, 96, 112, 128, 160, 192, 256)),
    Case("window_and_alibi", 4, 2, 48, (70, 0, 33), window=20, has_alibi=True),
    Case("all_empty", 2, 1, 32, (0, 0)),
    Case("nobody_there", 2, 1, 32, ()),
    Case("window_over_border", 1, 1, 32, (530,), window=9),
    Case("causal", 4, 2, 64, (1, 33, 0, 70), is_causal=True),
    Case("causal_over_border", 2, 1, 32, (530, 3), is_causal=True),
    Case("causal_window", 2, 2, 32, (70, 5), window=20, is_causal=True),
    Case("bias", 4, 4, 32, (1, 40, 0, 7), reach=5),
    Case("bias_over_border", 2, 1, 48, (530,), reach=40),
    Case("bias_causal", 2, 2, 32, (45, 3), reach=64, is_causal=True),
    Case("bias_and_alibi", 3, 1, 64, (70,), window=30, has_alibi=True, reach=20),
    *(
        Case(f"bf16_{name}", *shape, dtype="bf16", tolerance=8e-3, **options)
        for name, shape, options in (
            ("mixed", (4, 4, 32, (1, 7, 33, 16)), {}),
            ("grouped", (4, 2, 64, (60, 3)), {}),
            ("odd_dim", (2, 2, 20, (5, 40)), {}),
            ("empty", (2, 2, 32, (3, 0, 2)), {}),
            ("window_4", (2, 1, 32, (30, 4, 5)), {"window": 4}),
            ("alibi", (4, 4, 32, (40, 2)), {"has_alibi": True}),
            ("length_513", (1, 1, 32, (513,)), {}),
            ("many_tiles", (2, 2, 32, (450, 2)), {}),
            ("window_over_border", (1, 1, 32, (1060,)), {"window": 9}),
            ("causal", (4, 2, 64, (60, 3)), {"is_causal": True}),
            ("causal_over_border", (2, 1, 32, (530, 3)), {"is_causal": True}),
            ("bias", (4, 4, 32, (45, 7)), {"reach": 9}),
            *((f"dim_{n}", (3, 1, n, (34, 5)), {}) for n in (48, 64, 80, 96, 128, 192, 256)),
        )
    ),
)


def inputs(case: Case) -> tuple[F32, F32, F32, F32]:
    total = sum(case.lengths)
    q = normal(case.name + "q", total, case.heads * case.head_dim, scale=2.0)
    k, v = (normal(case.name + part, total, case.kv_heads * case.head_dim) for part in "kv")
    return q, k, v, (2.0 ** -np.arange(1, case.heads + 1)).astype(np.float32)


def bias_of(case: Case) -> F32 | None:
    """[heads * (2 * reach + 1)], large enough to be seen."""
    return normal(case.name + "bias", case.heads * (2 * case.reach + 1)) if case.reach else None


def run(cell: Any, case: Case) -> F32:
    q, k, v, slopes = inputs(case)
    ops = cell.ops()
    ops.begin(batch_of([(0, n) for n in case.lengths]))
    return ops.varlen_attention(
        q,
        k,
        v,
        heads=case.heads,
        kv_heads=case.kv_heads,
        scale=case.head_dim**-0.5,
        window=case.window,
        alibi=slopes if case.has_alibi else None,
        bias=bias_of(case),
        reach=case.reach,
        is_causal=case.is_causal,
        dtype=case.dtype,
    )


def naive(case: Case) -> F64:
    q, k, v, slopes = inputs(case)
    q3 = q.astype(float).reshape(len(q), case.heads, case.head_dim)
    repeat = case.heads // case.kv_heads
    k3, v3 = (np.repeat(a.astype(float).reshape(len(a), case.kv_heads, case.head_dim), repeat, axis=1) for a in (k, v))
    out, at = np.zeros_like(q3), 0
    for n in case.lengths:
        mine = slice(at, at + n)
        at += n
        distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        score = np.einsum("ihd,jhd->hij", q3[mine], k3[mine]) * case.head_dim**-0.5
        if case.has_alibi:
            score = score - slopes.astype(float)[:, None, None] * distance
        bias = bias_of(case)
        if bias is not None:
            apart = np.clip(np.subtract.outer(np.arange(n), np.arange(n)).T, -case.reach, case.reach)
            score = score + bias.astype(float).reshape(case.heads, -1)[:, apart + case.reach]
        if case.is_causal:
            score = np.where(np.tri(n, dtype=bool), score, -np.inf)
        if case.window:
            score = np.where(distance <= case.window, score, -np.inf)
        if n:
            weight = np.exp(score - score.max(axis=-1, keepdims=True))
            out[mine] = np.einsum("hij,jhd->ihd", weight / weight.sum(axis=-1, keepdims=True), v3[mine])
    return out.reshape(q.shape)

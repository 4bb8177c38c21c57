"""Cases of `relative_attention`: packed sequences whose scores also ask how far apart two tokens are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, F64, batch_of, normal

from octavo.platforms.types import I32


@dataclass(frozen=True)
class Case:
    name: str
    heads: int
    head_dim: int
    lengths: tuple[int, ...]
    near: int  # distances that have a bucket of their own, on either side; further ones share by `shared`
    far: int = 0  # further buckets on either side
    shared: int = 1  # distances of each of them
    terms: str = "kq"
    dtype: str = "f32"
    tolerance: float = 2e-6


CASES = (
    Case("mixed", 4, 32, (1, 7, 33, 16), 5, 3, 2),
    Case("own_buckets", 2, 64, (20, 0, 3), 40),
    Case("clamped", 2, 20, (5, 70), 3),
    Case("only_keys", 2, 32, (45,), 8, 8, 3, terms="k"),
    Case("only_queries", 2, 32, (45, 2), 8, 8, 3, terms="q"),
    Case("one_bucket", 1, 32, (9,), 0),
    Case("empty", 2, 32, (3, 0, 2), 4),
    Case("nobody_there", 2, 32, (), 4),
    *(Case(f"length_{n}", 1, 32, (n,), 60, 30, 5) for n in (511, 512, 513)),
    Case("over_border", 2, 48, (1050, 3), 128, 127, 4),
    Case("wide_over_border", 1, 32, (600,), 511),
    *(Case(f"dim_{n}", 2, n, (34, 5), 16, 16, 2) for n in (64, 80, 96, 128, 160, 192, 256)),
    *(
        Case(f"bf16_{name}", *shape, dtype="bf16", tolerance=8e-3, **options)
        for name, shape, options in (
            ("mixed", (4, 32, (1, 7, 33, 16), 5, 3, 2), {}),
            ("clamped", (2, 20, (5, 70), 3), {}),
            ("only_keys", (2, 32, (45,), 8, 8, 3), {"terms": "k"}),
            ("only_queries", (2, 32, (45, 2), 8, 8, 3), {"terms": "q"}),
            ("over_border", (1, 48, (530, 3), 128, 127, 4), {}),
            *((f"dim_{n}", (2, n, (34, 5), 16, 16, 2), {}) for n in (64, 96, 128, 256)),
        )
    ),
)


def by_distance(case: Case) -> I32:
    """[2 * reach + 1] buckets, as `near`, `far` and `shared` say."""
    side = np.arange(1, case.near + case.far * case.shared + 1)
    side = np.where(side <= case.near, side, case.near - (case.near - side) // case.shared)
    both = np.concatenate([-side[::-1], [0], side])
    return (both - both[0]).astype(np.int32)


def inputs(case: Case) -> tuple[F32, F32, F32, F32 | None, F32 | None]:
    """q, k, v, rel_k and rel_q."""
    total, width = sum(case.lengths), case.heads * case.head_dim
    q = normal(case.name + "q", total, width, scale=2.0)
    k, v = (normal(case.name + part, total, width) for part in "kv")
    size = (int(by_distance(case)[-1]) + 1) * width
    tables = [normal(f"{case.name}rel{part}", size, scale=0.5) if part in case.terms else None for part in "kq"]
    return q, k, v, *tables


def run(cell: Any, case: Case) -> F32:
    q, k, v, rel_k, rel_q = inputs(case)
    ops = cell.ops()
    ops.begin(batch_of([(0, n) for n in case.lengths]))
    return ops.relative_attention(
        q,
        k,
        v,
        heads=case.heads,
        scale=(3 * case.head_dim) ** -0.5,
        by_distance=tuple(by_distance(case).tolist()),
        rel_k=rel_k,
        rel_q=rel_q,
        dtype=case.dtype,
    )


def naive(case: Case) -> F64:
    q, k, v, rel_k, rel_q = inputs(case)
    q3, k3, v3 = (a.astype(float).reshape(len(a), case.heads, case.head_dim) for a in (q, k, v))
    rows = by_distance(case)
    reach = len(rows) // 2
    out, at = np.zeros_like(q3), 0
    for n in case.lengths:
        mine = slice(at, at + n)
        at += n
        apart = np.subtract.outer(np.arange(n), np.arange(n)).T  # [i, j] = j - i
        score = np.einsum("ihd,jhd->hij", q3[mine], k3[mine])
        row, (first, second) = rows[np.clip(apart, -reach, reach) + reach], np.indices((n, n))
        for table, side, place in ((rel_k, q3, first), (rel_q, k3, second)):
            if table is not None:
                products = np.einsum(
                    "ihd,hbd->hib", side[mine], table.astype(float).reshape(case.heads, -1, case.head_dim)
                )
                score = score + products[:, place, row]
        score = score * (3 * case.head_dim) ** -0.5
        if n:
            weight = np.exp(score - score.max(axis=-1, keepdims=True))
            out[mine] = np.einsum("hij,jhd->ihd", weight / weight.sum(axis=-1, keepdims=True), v3[mine])
    return out.reshape(q.shape)

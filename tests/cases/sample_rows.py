"""Random sampling parameters and logits, and rows of one kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.platforms.types import SampleBatch

FIELDS = ("ids", "logprobs", "ranks", "best_ids", "best_logprobs")


def plain(rows: int, **values: Any) -> SampleBatch:
    """Rows of one kind without lists: temperature 1, no filter, unless `values` say otherwise."""
    column = {
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "presence": 0.0, "frequency": 0.0,
        "repetition": 1.0, "seed": 11, "choice": 0, "position": 5, "num_logprobs": -1, "mask_row": -1,
    } | {name: value for name, value in values.items() if name != "masks"}  # fmt: skip
    whole = {"top_k": np.int32, "seed": np.uint64, "choice": np.uint32, "position": np.int64, "num_logprobs": np.int32}
    starts, none = np.zeros(rows + 1, np.int32), np.zeros(0, np.int32)
    made: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(value, whole.get(name, np.int32 if name == "mask_row" else np.float32)), rows)
        for name, value in column.items()
    }
    lists = {f"{name}_start": starts for name in ("count", "bias", "banned")}
    lists |= {"count_ids": none, "count_output": none, "bias_ids": none, "bias_values": np.zeros(0, np.float32)}
    if "masks" in values:
        lists["masks"] = values["masks"]
    return SampleBatch(**{name: value.copy() for name, value in made.items()}, banned_ids=none, **lists)


def csr(rng: np.random.Generator, rows: int, vocab: int, most: int) -> tuple[Any, Any]:
    start, ids = [0], []
    for _ in range(rows):
        ids += sorted(rng.choice(vocab, rng.integers(0, min(most, vocab) + 1), replace=False).tolist())
        start.append(len(ids))
    return np.array(start, np.int32), np.array(ids, np.int32)


def random_batch(rng: np.random.Generator, rows: int, vocab: int) -> SampleBatch:
    def pick(*values: float) -> Any:
        return rng.choice(values, rows).astype(np.float32)

    counts, count_ids = csr(rng, rows, vocab, min(20, vocab))
    bias, bias_ids = csr(rng, rows, vocab, 5)
    banned, banned_ids = csr(rng, rows, vocab, 5)
    return SampleBatch(
        temperature=pick(0, 0.7, 1, 2, 1e-37, 1e-38),
        top_k=rng.choice([0, 1, 5, 50, 100_000], rows).astype(np.int32),
        top_p=pick(1, 0.9, 0.5, 0.01),
        min_p=pick(0, 0.05, 1),
        typical_p=pick(1, 0.9, 0.2),
        presence=pick(0, 1),
        frequency=pick(0, 0.5),
        repetition=pick(1, 1.3, 0.7),
        seed=rng.integers(0, 2**63, rows).astype(np.uint64),
        choice=rng.integers(0, 3, rows).astype(np.uint32),
        position=rng.integers(0, 1 << 34, rows),
        num_logprobs=rng.choice([-1, 0, 5, 20], rows).astype(np.int32),
        count_start=counts,
        count_ids=count_ids,
        count_output=rng.integers(0, 4, len(count_ids)).astype(np.int32),
        bias_start=bias,
        bias_ids=bias_ids,
        bias_values=rng.uniform(-5, 5, len(bias_ids)).astype(np.float32),
        banned_start=banned,
        banned_ids=banned_ids,
        mask_row=np.where(rng.random(rows) < 0.3, 0, -1).astype(np.int32),
        masks=rng.integers(0, 2**32, (1, -(-vocab // 32)), dtype=np.uint32),
        raw_logprobs=bool(rng.integers(2)),
    )


def random_logits(rng: np.random.Generator, rows: int, vocab: int, kind: str) -> Any:
    logits = (rng.standard_normal((rows, vocab)) * rng.choice([0.5, 2, 8])).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    if kind == "odd":
        logits[rng.random((rows, vocab)) < 0.02] = np.nan
        logits[rng.random((rows, vocab)) < 0.02] = -np.inf
        logits[:, 3] = np.inf
    return logits


def assert_same(a: Any, b: Any) -> None:
    for name in FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        assert np.array_equal(x, y, equal_nan=x.dtype == np.float32), name

"""Cases of `sample`: many rows of mixed parameters at vocabularies around the segment of 4,096 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.cases.common import F32, generator, normal

from octavo.platforms.types import SampleBatch


@dataclass(frozen=True)
class Case:
    """`lattice` > 0 rounds logits to its multiples, so that ties are everywhere; `all_are` makes them one value."""

    name: str
    rows: int
    vocab: int
    spread: float = 3.0
    lattice: float = 0.0
    raw_logprobs: bool = True
    all_are: float | None = None


CASES = (
    Case("vocab_1", 3, 1),
    Case("vocab_31", 33, 31),
    Case("ties", 33, 64, lattice=1.0),
    Case("ties_processed", 24, 200, lattice=0.5, raw_logprobs=False),
    Case("segment", 7, 4096),
    Case("over_segment", 7, 4097, raw_logprobs=False),
    Case("flat", 7, 9000, spread=0.05),
    Case("peaked", 7, 9000, spread=12.0),
    Case("equal", 5, 4099, all_are=1.5),
    Case("none", 3, 4099, all_are=-np.inf),
    Case("not_numbers", 3, 100, all_are=np.nan),
    Case("qwen_vocabulary", 3, 152_064),
    Case("gemma_vocabulary", 2, 256_000, raw_logprobs=False),
)


def _lists(case: Case, name: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR of sorted unique ids per row."""
    rng = generator(case.name + name)
    ids = [
        np.sort(rng.choice(case.vocab, min(case.vocab, int(rng.integers(0, most))), False)) for _ in range(case.rows)
    ]
    start = np.concatenate([[0], np.cumsum([len(row) for row in ids])]).astype(np.int32)
    return start, np.concatenate(ids).astype(np.int32)


def inputs(case: Case) -> tuple[F32, SampleBatch]:
    rng = generator(case.name)
    logits = normal(case.name + "logits", case.rows, case.vocab, scale=case.spread)
    if case.lattice:
        logits = (np.rint(logits / np.float32(case.lattice)) * np.float32(case.lattice)).astype(np.float32)
    if case.all_are is not None:
        logits[:] = case.all_are
    elif case.vocab > 20:
        logits[0, :3] = [np.nan, -np.inf, np.inf]

    def pick(*choices: float, dtype: Any = np.float32) -> Any:
        return rng.choice(np.array(choices), case.rows).astype(dtype)

    count_start, count_ids = _lists(case, "count", 30)
    bias_start, bias_ids = _lists(case, "bias", 6)
    banned_start, banned_ids = _lists(case, "banned", 6)
    masks = rng.integers(0, 2**32, (2, -(-case.vocab // 32)), dtype=np.uint64).astype(np.uint32)
    return logits, SampleBatch(
        temperature=pick(0.0, 0.7, 1.0, 1.0, 1.9),
        top_k=pick(0, 0, 1, 5, 40, 100000, dtype=np.int32),
        top_p=pick(1.0, 0.95, 0.5, 0.01),
        min_p=pick(0.0, 0.0, 0.02, 0.3),
        typical_p=pick(1.0, 1.0, 0.9, 0.2),
        presence=pick(0.0, 0.5, -0.3),
        frequency=pick(0.0, 0.2, -0.1),
        repetition=pick(1.0, 1.3, 0.8),
        seed=rng.integers(0, 2**63, case.rows).astype(np.uint64),
        choice=np.arange(case.rows, dtype=np.uint32) % 3,
        position=rng.integers(0, 2**33, case.rows),
        num_logprobs=pick(-1, 0, 5, dtype=np.int32),
        count_start=count_start,
        count_ids=count_ids,
        count_output=rng.integers(0, 4, len(count_ids)).astype(np.int32),
        bias_start=bias_start,
        bias_ids=bias_ids,
        bias_values=rng.uniform(-5, 5, len(bias_ids)).astype(np.float32),
        banned_start=banned_start,
        banned_ids=banned_ids,
        mask_row=pick(-1, -1, 0, 1, dtype=np.int32),
        masks=masks,
        raw_logprobs=case.raw_logprobs,
    )

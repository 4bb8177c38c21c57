"""An executable without a model: logits are a function of all tokens up to a row, read back through the block tables.

So a wrong table, slot, page copy or position shows as another token. Sampling is the reference platform's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.core import EngineCore, make_scheduler
from octavo.engine.messages import EngineInfo
from octavo.engine.runner import Runner
from octavo.platforms.batch import check_batch, check_size
from octavo.platforms.platform import Capacity
from octavo.platforms.reference.sample import best_id, clean, sample
from octavo.platforms.types import Batch, GroupKind, KVGroup, KVSpec, SampleBatch, SampleResult

BLOCK = 4
EOS = 1


class FakeExecutable:
    """Implements `octavo.platforms.platform.Executable`. `broken_at` names a token id whose step raises."""

    def __init__(self, capacity: Capacity, vocab: int) -> None:
        self.capacity = capacity
        self.vocab = vocab
        self.broken_at: int | None = None
        self.num_runs = 0
        self.knee_rows = 0
        self._pages = np.full((capacity.num_pages, BLOCK), -1, np.int64)
        self._states: list[tuple[int, ...]] = []

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        for source, target in pairs:
            self._pages[target] = self._pages[source]

    def run(self, batch: Batch) -> None:
        check_batch(batch)
        check_size(batch, self.capacity)
        self.num_runs += 1
        if self.broken_at is not None and self.broken_at in batch.token_ids:
            raise ArithmeticError("planted")
        where = []
        for t, (s, p) in enumerate(zip(batch.token_seq.tolist(), batch.positions[0].tolist(), strict=True)):
            page = batch.block_tables[0][s, p // BLOCK]
            assert page, "a token was written into the null page"
            self._pages[page, p % BLOCK] = batch.token_ids[t]
            where.append((s, p))
        self._states = [self._seen(batch.block_tables[0][s], p) for s, p in where]

    def _seen(self, table: NDArray[np.int32], position: int) -> tuple[int, ...]:
        return tuple(self._pages[table[: position // BLOCK + 1]].ravel()[: position + 1].tolist())

    def head(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        assert len(rows) <= self.capacity.max_logits
        return np.stack([logits_after(self._states[row], self.vocab) for row in rows.tolist()])

    def greedy(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        assert len(rows) <= self.capacity.max_seqs
        return np.array(
            [best_id(*clean(logits_after(self._states[row], self.vocab))) for row in rows.tolist()], np.int32
        )

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        return sample(logits, batch)

    def close(self) -> None:
        """Nothing to let go of."""


def logits_after(tokens: tuple[int, ...], vocab: int) -> NDArray[np.float32]:
    """What the model says after these tokens."""
    return (3 * np.random.default_rng(tokens).standard_normal(vocab)).astype(np.float32)


def greedy_after(prompt: list[int], count: int, vocab: int) -> list[int]:
    """The greedy answer, computed without any engine."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(logits_after(tuple(tokens), vocab))))
    return tokens[len(prompt) :]


def make_core(
    vocab: int = 50, *, num_pages: int = 120, max_tokens: int = 16, max_seqs: int = 4, **options: Any
) -> EngineCore:
    """A core over a FakeExecutable."""
    spec = KVSpec((KVGroup(GroupKind.FULL, (0,)),), 1, 1, "f32", BLOCK)
    capacity = Capacity(max_tokens, max_seqs, 3, 100, num_pages)
    settings: dict[str, Any] = {
        "num_blocks": num_pages, "max_model_len": 100, "max_batch_tokens": max_tokens, "max_num_seqs": max_seqs,
        "max_queue": 5000, "policy": "fcfs", "has_prefix_cache": True, "has_partial_reuse": True,
        "model_identity": b"fake", "server_secret": bytes(32),
    }  # fmt: skip
    scheduler = make_scheduler(spec, **{**settings, **options})
    info = EngineInfo(
        model="fake", architecture="fake", vocab_size=vocab, max_model_len=scheduler.max_len, num_blocks=num_pages,
        block_tokens=BLOCK, eos_ids=[EOS], weight_formats=[], kv_dtype="f32", platform="fake", levels=[], num_threads=1,
        weights_bytes=0, load_s={}, epoch=0,
    )  # fmt: skip
    return EngineCore(Runner(FakeExecutable(capacity, vocab), spec, capacity, vocab), scheduler, info)

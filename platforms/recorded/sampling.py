"""Sampling rows through the native `sample` kernel: arrays in, arrays out, no Python per row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.recorded.native import Native
from octavo.platforms.types import SampleBatch, SampleResult

_INPUTS = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "presence", "frequency", "repetition", "seed", "choice"),
    *("position", "num_logprobs", "count_start", "count_ids", "count_output", "bias_start", "bias_ids", "bias_values"),
    *("banned_start", "banned_ids", "mask_row", "masks"),
)
_STAGES = 3
_FIXED_ROWS = (3, 1)


def work_bytes(vocab: int) -> int:
    """Of one row at work (csrc_common/contract/sample.h, sample_work_bytes)."""
    return 6 * 4 * (-(-vocab // 64) * 64 + 64) + 4096


class NativeSampler:
    """Runs `sample` over logits rows on the team; the arithmetic is in docs/numerics.md, "Sampling"."""

    def __init__(self, native: Native, team: Any) -> None:
        self.native = native
        self.team = team
        self._work: Any = None
        self._program: Any = None  # one instruction per stage
        self._kernel = ""
        self._no_step = native.module.Step(0, 0, 0, None, None, None, None, None, None, None, 0, [])

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        rows, vocab = logits.shape
        most = max([0, *batch.num_logprobs.tolist()])
        ids, ranks = np.empty((2, rows), np.int32)
        logprobs = np.empty(rows, np.float32)
        best_ids, best_logprobs = np.empty((rows, most), np.int32), np.empty((rows, most), np.float32)
        if rows == 0:
            return SampleResult(ids, logprobs, ranks, best_ids, best_logprobs)
        threads = self.team.num_threads
        cut = rows % threads  # rows that several threads share
        size = work_bytes(vocab)
        fields = {"logits": logits, "ld": logits.strides[0] // 4, "vocab": vocab, "num_rows": rows}
        values = vars(batch)
        for name in _INPUTS:
            fields[name] = values[name]
        fields |= {
            "mask_words": batch.masks.shape[1], "raw_logprobs": batch.raw_logprobs, "max_logprobs": most, "ids": ids,
            "logprobs": logprobs, "ranks": ranks, "best_ids": best_ids, "best_logprobs": best_logprobs,
            "work": self._room((cut + (threads if rows >= threads else 0)) * size), "work_bytes": size,
        }  # fmt: skip
        if self.native.table["sample"].many == self._kernel:
            self._program.set(fields)
        else:
            self._record(fields)
        self._program.run(self.team, self._no_step, 0, _STAGES if cut else 1)
        return SampleResult(ids, logprobs, ranks, best_ids, best_logprobs)

    def _room(self, num_bytes: int) -> int:
        """The address of so much memory."""
        if self._work is None or self._work.bytes < num_bytes:
            self._work = self.native.arena(num_bytes, "sampling")
        return int(self._work.address)

    def _record(self, fields: dict[str, Any]) -> None:
        choice = self.native.table["sample"]
        self._kernel = choice.many
        self._program = self.native.module.Program()
        for stage in range(_STAGES):
            self._program.add(choice.bands, _FIXED_ROWS, fields | {"stage": stage})

"""Sampling rows through the native `sample` kernel: arrays in, arrays out, no Python per row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.types import SampleBatch, SampleResult
from octavo.platforms.x86.native import Native

_INPUTS = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "presence", "frequency", "repetition", "seed", "choice"),
    *("position", "num_logprobs", "count_start", "count_ids", "count_output", "bias_start", "bias_ids", "bias_values"),
    *("banned_start", "banned_ids", "mask_row", "masks"),
)
_OUTPUTS = ("ids", "logprobs", "ranks", "best_ids", "best_logprobs")
#: csrc_common/contract/sample.h, sample_work_bytes
WORK_BYTES_PER_BLOCK = 64 * (2 * 16 + 4 + 4) + 4


class NativeSampler:
    """Runs `sample` over logits rows on the team; the arithmetic is in docs/numerics.md, "Sampling"."""

    def __init__(self, native: Native, team: Any) -> None:
        self.native = native
        self.team = team
        self._work: Any = None
        self._no_step = native.module.Step(0, 0, 0, None, None, None, None, None, None, None, 0, [])

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        rows, vocab = logits.shape
        best = max(int(batch.num_logprobs.max(initial=-1)), 0)
        result = SampleResult(
            ids=np.zeros(rows, np.int32),
            logprobs=np.full(rows, np.nan, np.float32),
            ranks=np.zeros(rows, np.int32),
            best_ids=np.full((rows, best), -1, np.int32),
            best_logprobs=np.full((rows, best), np.nan, np.float32),
        )
        if rows == 0:
            return result
        fields: dict[str, Any] = {name: getattr(batch, name) for name in _INPUTS}
        fields |= {name: getattr(result, name) for name in _OUTPUTS}
        fields |= {
            "logits": logits, "ld": logits.strides[0] // 4, "vocab": vocab, "num_rows": rows,
            "mask_words": batch.masks.shape[1], "raw_logprobs": int(batch.raw_logprobs), "max_logprobs": best,
        }  # fmt: skip
        work_bytes = -(-vocab // 64 * WORK_BYTES_PER_BLOCK // 64) * 64
        if self._work is None or self._work.bytes < work_bytes * self.team.num_threads:
            self._work = self.native.module.Arena(work_bytes * self.team.num_threads)
        fields |= {"work": self._work.address, "work_bytes": work_bytes}
        name = self.native.table["sample"].many
        program = self.native.module.Program()
        program.add(name, name, 0, (3, rows), fields)
        program.run(self.team, self._no_step, 0, 1)
        return result

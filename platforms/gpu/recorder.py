"""Records a model for a GPU: the recorder of CPUs, but for the head that picks tokens, and what threads of a CPU share."""

from __future__ import annotations

from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.symbols import Symbol

MOST_HEAD_DIM = 256  # csrc_common/gpu/attention.inl.h


class GpuRecorder(Recorder):
    """See `Recorder`."""

    tile_tokens = 16

    def greedy_head(self, x: Symbol, weight: Any, *, scale: float = 1.0, softcap: float = 0.0) -> Symbol:
        """Logits, then the id of each row's greatest: memory bandwidth is no concern beside the weights'."""
        logits = self._linear(x, weight, self._new(weight.num_out, x.rows), "none", None, None, scale)
        if softcap:
            logits = self._softcap(logits, logits, softcap)
        y = self._new(1, x.rows, is_int=True)
        self._emit(
            "greedy_head", x.rows, reads=(logits,), writes=(y,),
            x=self._at(logits), ldx=logits.stride, width=logits.width, rows=self._rows_field(x.rows), **self._out(y),
        )  # fmt: skip
        return y

    def _shared_segments(self, heads: int, window: int) -> tuple[tuple[Symbol, ...], dict[str, Any]]:
        del heads, window
        head_dim = self._kv().head_dim
        if head_dim > MOST_HEAD_DIM:
            raise PlatformError(f"head_dim {head_dim}: attention on GPUs takes at most {MOST_HEAD_DIM}; run on a CPU")
        return (), {"partials": 0, "partials_bytes": 0, "counters": 0}

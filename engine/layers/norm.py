"""A normalisation with its weights: RMS, or layer norm with bias. Rows in, rows out, [rows, width] float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from octavo.platforms.ops import Ops
from octavo.platforms.types import Array


@dataclass(frozen=True)
class Norm:
    """`weight` and `bias` are a platform's vectors [width], or [width / heads] for a norm per head (`heads` > 1)."""

    kind: Literal["rms", "layer"]
    weight: Any
    bias: Any | None
    eps: float
    heads: int = 1

    def __call__(self, ops: Ops, x: Array) -> Array:
        """The normalised rows."""
        if self.kind == "layer":
            return ops.layer_norm(x, self.weight, self.bias, self.eps)
        return ops.rms_norm(x, self.weight, self.eps, heads=self.heads)

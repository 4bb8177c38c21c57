"""How a branch's output joins the residual stream: x + scale * norm(out(h)), and the MLP that uses it.

The sum is fused into the output projection where that gives the same bits: without a norm in between, and without a
bias that the scale would miss. Rows are [rows, hidden] float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.engine.layers.norm import Norm
from octavo.platforms.ops import Ops
from octavo.platforms.types import Activation, Array, LinearWeight


@dataclass(frozen=True)
class Output:
    """A branch's output projection, its norm if any, and the scale of the branch."""

    weight: LinearWeight
    has_bias: bool = False
    norm: Norm | None = None
    scale: float = 1.0

    @property
    def is_fused(self) -> bool:
        """Whether projection, scale and residual sum are one op."""
        return self.norm is None and (self.scale == 1.0 or not self.has_bias)

    def join(self, ops: Ops, x: Array, hidden: Array) -> Array:
        """x + scale * norm(weight(hidden))."""
        if self.is_fused:
            return ops.linear(hidden, self.weight, residual=x, scale=self.scale)
        return self.add(ops, x, ops.linear(hidden, self.weight))

    def add(self, ops: Ops, x: Array, y: Array) -> Array:
        """x + scale * norm(y)."""
        return ops.add(x, y if self.norm is None else self.norm(ops, y), scale_b=self.scale)


@dataclass(frozen=True)
class MLP:
    """down(act(gate h) * up h), or down(act(up h)) where it is not gated. Where a gated one has no `gate`, `up` holds gate's
    outputs, too."""

    gate: LinearWeight | None
    up: LinearWeight
    down: Output
    activation: Activation
    is_gated: bool

    def __call__(self, ops: Ops, x: Array, hidden: Array) -> Array:
        """x + scale * norm(mlp(hidden))."""
        if not self.is_gated:
            return self.down.join(ops, x, ops.linear(hidden, self.up, activation=self.activation))
        down = self.down
        if down.is_fused:
            return ops.gated_mlp(hidden, self.gate, self.up, down.weight, self.activation, residual=x, scale=down.scale)
        return down.add(ops, x, ops.gated_mlp(hidden, self.gate, self.up, down.weight, self.activation))

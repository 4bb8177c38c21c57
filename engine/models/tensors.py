"""Takes a checkpoint's tensors by role into a platform's memory: what loading decoders and encoders has in common.

Invariants: a tensor is claimed when it is taken, its shape is checked, and a platform sees only what fits; the file pages behind
it are given back when `give_back` is called. A role's name comes from the family's `Names`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from octavo.engine.errors import ModelError
from octavo.engine.layers.norm import Norm
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import compressed
from octavo.engine.models.change import Change, grown_bytes
from octavo.engine.models.compressed import Scheme
from octavo.engine.models.names import Names
from octavo.engine.models.raw import columns_of, expanded, joined, rows_of
from octavo.engine.models.source import raw_tensor
from octavo.platforms.ops import Weights
from octavo.platforms.types import LinearWeight, RawTensor


class Tensors:
    """`used` are the names to give back at the end of the layer at hand; `grown_bytes` by which quantizing changed the model."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: Weights,
        names: Names,
        schemes: tuple[Scheme, ...] = (),
        change: Change | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.weights = weights
        self.names = names
        self.schemes = schemes
        self.change = change or Change()
        self.used: list[str] = []
        self.grown_bytes = 0
        cut = names.optional_prefix
        stem = names.stem("tokens")
        has_prefix = f"{stem}.weight" in checkpoint
        self.cut = cut if cut and not has_prefix and f"{stem.removeprefix(cut)}.weight" in checkpoint else ""

    def fused(self, parts: list[RawTensor], biases: list[RawTensor]) -> tuple[LinearWeight, ...]:
        """One weight of all parts where they have one format, else one each."""
        if len({part.layout for part in parts}) == 1:
            return (self.take(parts, joined(biases) if biases else None),)
        return tuple(self.take([part], biases[i] if biases else None) for i, part in enumerate(parts))

    def cut_rows(self, raw: RawTensor, widths: list[int]) -> list[RawTensor]:
        """A fused tensor's parts, as views."""
        ends = [sum(widths[: i + 1]) for i in range(len(widths))]
        return [rows_of(raw, end - width, end, str(i)) for i, (end, width) in enumerate(zip(ends, widths, strict=True))]

    def gate_up(
        self, layer: int, ffn: int, hidden: int, *, is_gated: bool, has_bias: bool
    ) -> tuple[LinearWeight | None, LinearWeight]:
        """Gate and up of a gated MLP (also from one fused tensor), or only up: of an MLP without gate, or of both stacked."""
        names, stacks = self.names, self.weights.stacks_gated
        roles = ("gate", "up") if is_gated else ("up",)
        both = next((role for role in ("gate_up", "up_gate") if is_gated and role in names.roles), "")
        if both:
            weight = self.matrix(both, layer, 2 * ffn, hidden)
            bias = self.raw(both, (2 * ffn,), layer, "bias") if has_bias else None
            if stacks and both == "gate_up":
                return None, self.take([weight], bias)
            cut = columns_of if names.is_transposed else rows_of
            starts = {"gate": 0, "up": ffn} if both == "gate_up" else {"gate": ffn, "up": 0}
            parts = [cut(weight, start, start + ffn, role) for role, start in starts.items()]
            biases = [rows_of(bias, start, start + ffn, role) for role, start in starts.items()] if bias else []
        else:
            parts = [self.matrix(role, layer, ffn, hidden) for role in roles]
            biases = [self.raw(role, (ffn,), layer, "bias") for role in roles] if has_bias else []
        if stacks and len({part.layout for part in parts}) == 1:
            return None, self.take(parts, joined(biases) if biases else None)
        taken = [self.take([part], biases[i] if biases else None) for i, part in enumerate(parts)]
        return taken[0] if is_gated else None, taken[-1]

    def linear(self, role: str, layer: int, num_out: int, num_in: int, *, has_bias: bool) -> LinearWeight:
        """One linear weight [num_out, num_in]."""
        weight = self.matrix(role, layer, num_out, num_in)
        bias = self.raw(role, (num_out,), layer, "bias") if has_bias else None
        return self.take([weight], bias, role=role)

    def take(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        role: str = "",
        is_kept: bool = False,
    ) -> LinearWeight:
        """Hands stored tensors to the platform, quantized on the way where that was asked for. `is_kept`: the tensors are needed
        as stored, too."""
        is_head = role == "head"
        is_transposed = self.names.is_transposed and not is_head
        form = self.change.of(parts, is_head=is_head, is_transposed=is_transposed)
        if form:
            self.grown_bytes += grown_bytes(parts, form, is_kept=is_kept)
        return self.weights.linear(parts, bias, transpose=is_transposed, quantize=form)

    def matrix(self, role: str, layer: int, num_out: int, num_in: int) -> RawTensor:
        """A linear weight as stored."""
        is_transposed = self.names.is_transposed and role != "head"
        stem = self.name(role, layer, "")
        if compressed.is_quantized(self.checkpoint, stem):
            if is_transposed:
                raise ModelError(f"{stem}: quantized weights stored [in, out] are not served")
            raw, used = compressed.quantized_matrix(self.checkpoint, stem, (num_out, num_in), self.schemes)
            self.used += used
            return expanded(raw) if self.change.is_expanding else raw
        return self.raw(role, (num_in, num_out) if is_transposed else (num_out, num_in), layer)

    def norm(
        self,
        role: str,
        layer: int,
        width: int,
        *,
        kind: Literal["rms", "layer"],
        eps: float,
        add: float = 0.0,
        heads: int = 1,
        has_bias: bool = True,
    ) -> Norm:
        """A norm's vectors; the bias only of a layer norm. Older files call them gamma and beta."""
        scale, shift = ("weight", "bias")
        if self.name(role, layer, scale) not in self.checkpoint and self.name(role, layer, "gamma") in self.checkpoint:
            scale, shift = "gamma", "beta"
        weight = self.weights.vector(self.raw(role, (width,), layer, scale), add=add)
        bias = None
        if kind == "layer" and has_bias:
            bias = self.weights.vector(self.raw(role, (width,), layer, shift))
        return Norm(kind, weight, bias, eps, heads)

    def has(self, role: str, layer: int) -> bool:
        """Whether the family knows the role and the checkpoint holds it."""
        return role in self.names.roles and compressed.has_matrix(self.checkpoint, self.name(role, layer, ""))

    def name(self, role: str, layer: int, what: str) -> str:
        """The full name of a role's tensor; of its module where `what` is ''."""
        stem = self.names.stem(role, layer).removeprefix(self.cut)
        return f"{stem}.{what}" if what else stem

    def raw(self, role: str, shape: tuple[int, ...], layer: int = 0, what: str = "weight") -> RawTensor:
        """Claims a tensor and checks its shape. ModelError if it is missing or has another shape."""
        return self.stored(self.name(role, layer, what), shape)

    def stored(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        """The same of a tensor by its full name."""
        raw = raw_tensor(self.checkpoint, name)
        if shape == (1, *raw.shape) and self.checkpoint.kind == "gguf":
            raw = replace(raw, shape=shape)  # the format drops dimensions of 1
        if raw.shape != shape:
            raise ModelError(
                f"{self.checkpoint.describe()}: tensor {name} has shape {list(raw.shape)}; "
                f"the model's description asks for {list(shape)}"
            )
        self.used.append(name)
        return expanded(raw) if self.change.is_expanding else raw

    def claim_unused(self, role: str) -> None:
        """A tied head may be stored as well; it is the token table again."""
        name = self.name(role, 0, "weight")
        if name in self.checkpoint:
            self.checkpoint.claim(name)

    def give_back(self) -> None:
        """Lets the system have the file pages of everything taken in so far."""
        for name in self.used:
            self.checkpoint.drop(name)
        self.used.clear()

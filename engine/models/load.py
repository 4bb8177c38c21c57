"""From an open checkpoint to a `Decoder`: tensors stream in layer order into the platform's memory, and none is left
over.

Invariants: at most one layer's tensors are touched at a time, and the file pages behind a tensor are given back when
it has been taken in; a tensor that no role claims fails the load by name; both file formats of one checkpoint give
the same bits (llama.cpp's row order is undone, fused tensors are split where the model needs the parts). Biases must
be there exactly where the description says. Shapes are checked here, so that a platform sees only what fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.engine.errors import ModelError
from octavo.engine.layers.attention import Attention
from octavo.engine.layers.branch import MLP, Output
from octavo.engine.layers.norm import Norm
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import compressed
from octavo.engine.models.change import Change, grown_bytes
from octavo.engine.models.compressed import Scheme
from octavo.engine.models.decoder import Block, Decoder, DecoderWeights
from octavo.engine.models.names import Names
from octavo.engine.models.raw import columns_of, expanded, joined, rows_of, unpair_rows
from octavo.engine.models.source import describe, raw_tensor
from octavo.engine.models.spec import DecoderSpec
from octavo.platforms.ops import Weights
from octavo.platforms.types import LinearWeight, RawTensor


def load_model(
    checkpoint: Checkpoint,
    weights: Weights,
    *,
    config: Mapping[str, Any] | None = None,
    max_len: int | None = None,
    expand: bool = False,
    quantize: str = "",
    quantize_head: bool = False,
) -> Decoder:
    """Loads every weight into `weights`. `config`: config.json, for safetensors. `max_len`: tokens to serve at most.

    `expand` turns every tensor to float32 first (parity runs). `quantize` names a format that the layers' matrices are
    rounded to on the way, with `quantize_head` the head's too. ModelError names what is missing, left over, misshapen.
    """
    _, spec, names, schemes = describe(checkpoint, config, max_len=max_len)
    change = Change(expand, quantize, quantize if quantize_head else "")
    decoder = load_spec(checkpoint, weights, spec, names, schemes, change)
    checkpoint.finish(names.harmless)
    return decoder


def load_spec(
    checkpoint: Checkpoint,
    weights: Weights,
    spec: DecoderSpec,
    names: Names,
    schemes: tuple[Scheme, ...] = (),
    change: Change | None = None,
) -> Decoder:
    """Loads what `spec` asks for, by `names`; what it does not ask for stays unclaimed."""
    loader = _Loader(checkpoint, weights, spec, names, schemes, change or Change())
    loaded = loader.load()
    return Decoder(spec, loaded, loader.grown_bytes)


class _Loader:
    """Takes tensors by role. `used` are the names to give back at the end of the layer at hand."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: Weights,
        spec: DecoderSpec,
        names: Names,
        schemes: tuple[Scheme, ...],
        change: Change,
    ) -> None:
        self.checkpoint = checkpoint
        self.weights = weights
        self.spec = spec
        self.names = names
        self.schemes = schemes
        self.change = change
        self.used: list[str] = []
        self.grown_bytes = 0
        cut = names.optional_prefix
        stem = names.stem("tokens")
        has_prefix = f"{stem}.weight" in checkpoint
        self.cut = cut if cut and not has_prefix and f"{stem.removeprefix(cut)}.weight" in checkpoint else ""

    def load(self) -> DecoderWeights:
        """Token table, layers in order, final norm, head; a tied head first, since taking it in searches the table for damage."""
        spec = self.spec
        table = self.raw("tokens", (spec.vocab, spec.hidden))
        head = self.take([table], role="head") if spec.is_tied else None
        tokens = self.weights.embedding(table)
        positions = None
        if spec.num_learned_positions:
            positions = self.weights.embedding(self.raw("positions", (spec.num_learned_positions, spec.hidden)))
        self.give_back()
        blocks = []
        for layer in range(len(spec.layers)):
            blocks.append(self.block(layer))
            self.give_back()
        final_norm = self.norm("final_norm", 0, spec.hidden)
        if head is None:
            head = self.linear("head", 0, spec.vocab, spec.hidden, has_bias=spec.has_head_bias)
        else:
            self.claim_unused("head")
        self.give_back()
        return DecoderWeights(tokens, positions, tuple(blocks), final_norm, head)

    def block(self, layer: int) -> Block:
        """All of one layer."""
        spec = self.spec
        hidden, width, narrow = spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        here = spec.layers[layer]
        pre_attn = self.norm("pre_attn", layer, hidden) if spec.has_pre_norm else None
        q_norm = k_norm = None
        if spec.qk_norm != "none":
            is_per_head = spec.qk_norm == "head"
            q_norm = self.norm("q_norm", layer, spec.head_dim if is_per_head else width, spec.heads * is_per_head)
            k_norm = self.norm("k_norm", layer, spec.head_dim if is_per_head else narrow, spec.kv_heads * is_per_head)
        attention = Attention(
            layer=layer,
            qkv=self.qkv(layer, [width, narrow, narrow]),
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            scale=here.scale,
            softcap=spec.attn_softcap,
            rope=here.rope,
            q_norm=q_norm,
            k_norm=k_norm,
        )
        out = Output(
            self.linear("o", layer, hidden, width, has_bias=spec.has_o_bias),
            spec.has_o_bias,
            self.norm("post_attn", layer, hidden) if spec.has_post_norm else None,
            spec.residual_scale,
        )
        pre_ffn = self.norm("pre_ffn", layer, hidden) if spec.has_pre_norm else None
        gate, up = self.gate_up(layer)
        down = Output(
            self.linear("down", layer, hidden, spec.ffn, has_bias=spec.has_mlp_bias),
            spec.has_mlp_bias,
            self.norm("post_ffn", layer, hidden) if spec.has_post_norm else None,
            spec.residual_scale,
        )
        return Block(pre_attn, attention, out, pre_ffn, MLP(gate, up, down, spec.activation))

    def qkv(self, layer: int, widths: list[int]) -> tuple[LinearWeight, ...]:
        """One fused weight where all parts have one format, else three."""
        spec, names, has_bias = self.spec, self.names, self.spec.has_qkv_bias
        total = sum(widths)
        if self.has("qkv", layer):
            weight = self.matrix("qkv", layer, total, spec.hidden)
            bias = self.raw("qkv", (total,), layer, "bias") if has_bias else None
            if not names.has_paired_qk:
                return (self.take([weight], bias),)
            parts, biases = self.cut_rows(weight, widths), self.cut_rows(bias, widths) if bias else []
        else:
            roles = list(zip("qkv", widths, strict=True))
            parts = [self.matrix(role, layer, num, spec.hidden) for role, num in roles]
            biases = [self.raw(role, (num,), layer, "bias") for role, num in roles] if has_bias else []
        if names.has_paired_qk:
            parts, biases = self.unpaired(parts, layer), self.unpaired(biases, layer)
        if len({part.layout for part in parts}) == 1:
            return (self.take(parts, joined(biases) if biases else None),)
        return tuple(self.take([part], biases[i] if biases else None) for i, part in enumerate(parts))

    def unpaired(self, parts: list[RawTensor], layer: int) -> list[RawTensor]:
        """q and k with llama.cpp's row order undone; v as it is."""
        spec = self.spec
        turn = spec.layers[layer].rope
        rotary_dim = spec.head_dim if turn is None else turn.rotary_dim
        heads = (spec.heads, spec.kv_heads)
        return [unpair_rows(part, heads[i], rotary_dim) if i < len(heads) else part for i, part in enumerate(parts)]

    def cut_rows(self, raw: RawTensor, widths: list[int]) -> list[RawTensor]:
        """A fused tensor's parts, as views."""
        ends = [sum(widths[: i + 1]) for i in range(len(widths))]
        return [rows_of(raw, end - width, end, str(i)) for i, (end, width) in enumerate(zip(ends, widths, strict=True))]

    def gate_up(self, layer: int) -> tuple[LinearWeight | None, LinearWeight]:
        """Gate and up of a gated MLP (also from one fused tensor), or only up."""
        spec, names, has_bias = self.spec, self.names, self.spec.has_mlp_bias
        if spec.is_gated and "gate_up" in names.roles:
            weight = self.matrix("gate_up", layer, 2 * spec.ffn, spec.hidden)
            cut = columns_of if names.is_transposed else rows_of
            bias = self.raw("gate_up", (2 * spec.ffn,), layer, "bias") if has_bias else None
            gate, up = (
                self.take(
                    [cut(weight, start, start + spec.ffn, part)],
                    rows_of(bias, start, start + spec.ffn, part) if bias else None,
                )
                for part, start in (("gate", 0), ("up", spec.ffn))
            )
            return gate, up
        single = self.linear("gate", layer, spec.ffn, spec.hidden, has_bias=has_bias) if spec.is_gated else None
        return single, self.linear("up", layer, spec.ffn, spec.hidden, has_bias=has_bias)

    def linear(self, role: str, layer: int, num_out: int, num_in: int, *, has_bias: bool) -> LinearWeight:
        """One linear weight [num_out, num_in]."""
        weight = self.matrix(role, layer, num_out, num_in)
        bias = self.raw(role, (num_out,), layer, "bias") if has_bias else None
        return self.take([weight], bias, role=role)

    def take(
        self, parts: list[RawTensor], bias: RawTensor | list[RawTensor] | None = None, *, role: str = ""
    ) -> LinearWeight:
        """Hands stored tensors to the platform, quantized on the way where that was asked for."""
        is_head = role == "head"
        is_transposed = self.names.is_transposed and not is_head
        form = self.change.of(parts, is_head=is_head, is_transposed=is_transposed)
        if form:
            self.grown_bytes += grown_bytes(parts, form, is_kept=is_head and self.spec.is_tied)
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

    def norm(self, role: str, layer: int, width: int, heads: int = 1) -> Norm:
        """A norm's vectors."""
        spec = self.spec
        weight = self.weights.vector(self.raw(role, (width,), layer), add=spec.norm_add)
        bias = self.weights.vector(self.raw(role, (width,), layer, "bias")) if spec.norm == "layer" else None
        return Norm(spec.norm, weight, bias, spec.norm_eps, max(heads, 1))

    def has(self, role: str, layer: int) -> bool:
        """Whether the family knows the role and the checkpoint holds it."""
        return role in self.names.roles and compressed.has_matrix(self.checkpoint, self.name(role, layer, ""))

    def name(self, role: str, layer: int, what: str) -> str:
        """The full name of a role's tensor; of its module where `what` is ''."""
        stem = self.names.stem(role, layer).removeprefix(self.cut)
        return f"{stem}.{what}" if what else stem

    def raw(self, role: str, shape: tuple[int, ...], layer: int = 0, what: str = "weight") -> RawTensor:
        """Claims a tensor and checks its shape. ModelError if it is missing or has another shape."""
        name = self.name(role, layer, what)
        raw = raw_tensor(self.checkpoint, name)
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

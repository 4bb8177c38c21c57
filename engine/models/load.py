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
from octavo.engine.layers.packed import PackedAttention
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.change import Change
from octavo.engine.models.compressed import Scheme
from octavo.engine.models.decoder import Block, Decoder, DecoderWeights, LayerWeights
from octavo.engine.models.names import Names
from octavo.engine.models.raw import unpair_rows
from octavo.engine.models.source import describe
from octavo.engine.models.spec import DecoderSpec
from octavo.engine.models.tensors import Tensors
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
    loader = Loader(checkpoint, weights, spec, names, schemes, change or Change())
    loaded = loader.load()
    return Decoder(spec, loaded, loader.grown_bytes)


class Loader(Tensors):
    """The layers of a decoder, in order. `is_packed`: attention over whole texts, without pages."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: Weights,
        spec: DecoderSpec,
        names: Names,
        schemes: tuple[Scheme, ...],
        change: Change,
        *,
        is_packed: bool = False,
    ) -> None:
        super().__init__(checkpoint, weights, names, schemes, change)
        self.spec = spec
        self.is_packed = is_packed

    def load(self) -> DecoderWeights:
        """Token table, layers in order, final norm, head; a tied head first, since taking it in searches the table for damage."""
        spec = self.spec
        tied = None
        if spec.is_tied:
            tied = self.take([self.raw("tokens", (spec.vocab, spec.hidden))], role="head", is_kept=True)
        layers = self.layers()
        if tied is None:
            head = self.linear("head", 0, spec.vocab, spec.hidden, has_bias=spec.has_head_bias)
        else:
            head = tied
            self.claim_unused("head")
        self.give_back()
        return DecoderWeights(layers.tokens, layers.positions, layers.blocks, layers.final_norm, head)

    def layers(self) -> LayerWeights:
        """All but the head."""
        spec = self.spec
        tokens = self.weights.embedding(self.raw("tokens", (spec.vocab, spec.hidden)))
        positions = None
        if spec.num_learned_positions:
            positions = self.weights.embedding(self.raw("positions", (spec.num_learned_positions, spec.hidden)))
        self.give_back()
        blocks = []
        for layer in range(len(spec.layers)):
            blocks.append(self.block(layer))
            self.give_back()
        final_norm = self.normal("final_norm", 0, spec.hidden)
        self.give_back()
        return LayerWeights(tokens, positions, tuple(blocks), final_norm)

    def block(self, layer: int) -> Block:
        """All of one layer."""
        spec = self.spec
        hidden, width, narrow = spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        pre_attn = self.normal("pre_attn", layer, hidden) if spec.has_pre_norm else None
        q_norm = k_norm = None
        if spec.qk_norm != "none":
            is_per_head = spec.qk_norm == "head"
            q_norm = self.normal("q_norm", layer, spec.head_dim if is_per_head else width, spec.heads * is_per_head)
            k_norm = self.normal("k_norm", layer, spec.head_dim if is_per_head else narrow, spec.kv_heads * is_per_head)
        qkv = self.qkv(layer, [width, narrow, narrow])
        attention = self.attention(layer, qkv, q_norm, k_norm)
        out = Output(
            self.linear("o", layer, hidden, width, has_bias=spec.has_o_bias),
            spec.has_o_bias,
            self.normal("post_attn", layer, hidden) if spec.has_post_norm else None,
            spec.residual_scale,
        )
        pre_ffn = self.normal("pre_ffn", layer, hidden) if spec.has_pre_norm else None
        gate, up = self.gate_up(layer, spec.ffn, hidden, is_gated=spec.is_gated, has_bias=spec.has_mlp_bias)
        down = Output(
            self.linear("down", layer, hidden, spec.ffn, has_bias=spec.has_mlp_bias),
            spec.has_mlp_bias,
            self.normal("post_ffn", layer, hidden) if spec.has_post_norm else None,
            spec.residual_scale,
        )
        return Block(pre_attn, attention, out, pre_ffn, MLP(gate, up, down, spec.activation, spec.is_gated))

    def attention(
        self, layer: int, qkv: tuple[LinearWeight, ...], q_norm: Norm | None, k_norm: Norm | None
    ) -> Attention | PackedAttention:
        """Over pages, or over packed texts: there a window counts the tokens beside the query's own."""
        spec, here = self.spec, self.spec.layers[layer]
        sizes: dict[str, Any] = {"heads": spec.heads, "kv_heads": spec.kv_heads, "head_dim": spec.head_dim}
        sizes |= {"scale": here.scale, "rope": here.rope, "q_norm": q_norm, "k_norm": k_norm}
        if not self.is_packed:
            return Attention(layer=layer, qkv=qkv, softcap=spec.attn_softcap, **sizes)
        if spec.attn_softcap or here.window == 1:
            found = f"a cap of {spec.attn_softcap:g} on scores" if spec.attn_softcap else "windows of one token"
            raise ModelError(f"{spec.family}: layers with {found} are not served as an embedder")
        return PackedAttention(qkv, window=max(0, here.window - 1), is_causal=not spec.is_bidirectional, **sizes)

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
        return self.fused(parts, biases)

    def unpaired(self, parts: list[RawTensor], layer: int) -> list[RawTensor]:
        """q and k with llama.cpp's row order undone; v as it is."""
        spec = self.spec
        turn = spec.layers[layer].rope
        rotary_dim = spec.head_dim if turn is None else turn.rotary_dim
        heads = (spec.heads, spec.kv_heads)
        return [unpair_rows(part, heads[i], rotary_dim) if i < len(heads) else part for i, part in enumerate(parts)]

    def normal(self, role: str, layer: int, width: int, heads: int = 1) -> Norm:
        """One of the spec's norms."""
        spec = self.spec
        kind, eps, add = spec.norm, spec.norm_eps, spec.norm_add
        return self.norm(role, layer, width, kind=kind, eps=eps, add=add, heads=max(heads, 1))

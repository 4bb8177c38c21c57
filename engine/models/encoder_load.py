"""From an open checkpoint to an `Encoder`: tensors stream in layer order into the platform's memory, and none is left over.

Invariants: those of `models.load`; heads that an embedding has no use for (a pooler, a masked language model's) are declared
harmless by the family, everything else that stays unclaimed fails the load by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from octavo.engine.layers.branch import MLP, Output
from octavo.engine.layers.norm import Norm
from octavo.engine.layers.packed import PackedAttention, RelativeRows
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.change import Change
from octavo.engine.models.compressed import Scheme
from octavo.engine.models.disentangled import F64, Disentangled, by_head, normed, projected
from octavo.engine.models.encoder import Encoder, EncoderBlock, EncoderWeights
from octavo.engine.models.encoder_spec import EncoderSpec
from octavo.engine.models.heads import Head, HeadSpec
from octavo.engine.models.names import Names
from octavo.engine.models.raw import floats_of
from octavo.engine.models.relative import by_distance
from octavo.engine.models.source import describe_encoder, describe_head
from octavo.engine.models.tensors import Tensors
from octavo.platforms.ops import Weights
from octavo.platforms.types import F32, Embedding, LinearWeight, RawTensor


def load_encoder(
    checkpoint: Checkpoint,
    weights: Weights,
    *,
    config: Mapping[str, Any] | None = None,
    max_len: int | None = None,
    expand: bool = False,
    quantize: str = "",
    with_head: bool = False,
) -> Encoder:
    """Loads every weight into `weights`. `config`: config.json, for safetensors. `max_len`: tokens of a sequence at most.

    `expand` turns every tensor to float32 first. `quantize` names a format that the layers' matrices are rounded to on the way.
    `with_head`: also the checkpoint's head, which it must have. ModelError names what is missing, left over, misshapen.
    """
    family, spec, names, schemes = describe_encoder(checkpoint, config, max_len=max_len)
    wanted = describe_head(checkpoint, config, family) if with_head else None
    encoder = load_encoder_spec(checkpoint, weights, spec, names, schemes, Change(expand, quantize), wanted)
    checkpoint.finish(names.harmless)
    return encoder


def load_encoder_spec(
    checkpoint: Checkpoint,
    weights: Weights,
    spec: EncoderSpec,
    names: Names,
    schemes: tuple[Scheme, ...] = (),
    change: Change | None = None,
    head: HeadSpec | None = None,
) -> Encoder:
    """Loads what `spec` and `head` ask for, by `names`; what they do not ask for stays unclaimed."""
    loader = _Loader(checkpoint, weights, spec, names, schemes, change or Change())
    loaded = loader.load()
    return Encoder(spec, loaded, loader.grown_bytes, None if head is None else loader.head(head))


class _Loader(Tensors):
    """The tables and layers of an encoder, in order."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: Weights,
        spec: EncoderSpec,
        names: Names,
        schemes: tuple[Scheme, ...],
        change: Change,
    ) -> None:
        super().__init__(checkpoint, weights, names, schemes, change)
        self.spec = spec
        self.alibi: Any | None = None
        self.bias: Any | None = None
        self.learned = np.zeros((0, 0))
        if spec.alibi:
            self.alibi = self.constant("alibi", np.array(spec.alibi, np.float32))

    def load(self) -> EncoderWeights:
        """Tables, embedding norm, layers in order, final norm."""
        spec = self.spec
        tokens = self.table("tokens", spec.vocab)
        assert tokens is not None
        positions = self.table("positions", spec.num_learned_positions)
        token_types = self.table("token_types", spec.num_token_types)
        token_proj = None
        if spec.token_width:
            token_proj = self.linear("token_proj", 0, spec.hidden, spec.token_width, has_bias=False)
        embedding_norm = self.normal("embedding_norm", 0) if spec.has_embedding_norm else None
        if spec.num_buckets:
            learned = floats_of(self.raw("relative", (spec.num_buckets, spec.heads)))
            self.bias = self.constant("bias by distance", by_distance(learned, spec.bucket_reach))
        if spec.disentangled:
            self.learned = self.learned_rows(spec.disentangled)
        self.give_back()
        blocks = []
        for layer in range(len(spec.layers)):
            blocks.append(self.block(layer))
            self.give_back()
        final_norm = self.normal("final_norm", 0) if spec.norm_place == "pre" else None
        self.give_back()
        return EncoderWeights(tokens, positions, token_types, embedding_norm, tuple(blocks), final_norm, token_proj)

    def constant(self, name: str, values: F32) -> Any:
        """A platform's vector of values that no tensor holds."""
        flat = values.reshape(-1)
        return self.weights.vector(RawTensor(name, "f32", flat.shape, flat.view(np.uint8)))

    def table(self, role: str, num_rows: int) -> Embedding | None:
        """A table of rows [hidden]; None where the model has none."""
        width = self.spec.token_width or self.spec.hidden
        return self.weights.embedding(self.raw(role, (num_rows, width))) if num_rows else None

    def learned_rows(self, of: Disentangled) -> F64:
        """Rows [buckets, hidden] of distances, which every layer projects."""
        hidden = self.spec.hidden
        rows = floats_of(self.raw("relative", (of.num_rows, hidden)))[list(of.rows)]
        if not of.has_norm:
            return rows.astype(np.float64)
        weight, bias = (floats_of(self.raw("relative_norm", (hidden,), what=what)) for what in ("weight", "bias"))
        return normed(rows, weight, bias, self.spec.norm_eps)

    def relative_rows(self, layer: int, width: int) -> RelativeRows | None:
        """The same as a layer's queries and keys meet them."""
        spec, of = self.spec, self.spec.disentangled
        if of is None:
            return None
        made: list[Any] = []
        for role, is_there in (("k", of.has_k), ("q", of.has_q)):
            if not is_there:
                made.append(None)
                continue
            name = role if of.is_shared else f"rel_{role}"
            weight = floats_of(self.matrix(name, layer, width, spec.hidden))
            bias = floats_of(self.raw(name, (width,), layer, "bias"))
            rows = by_head(projected(self.learned, weight, bias), spec.heads)
            made.append(self.constant(f"rows of distances {layer} {role}", rows))
        return RelativeRows(of.by_distance, *made)

    def block(self, layer: int) -> EncoderBlock:
        """All of one layer."""
        spec, here = self.spec, self.spec.layers[layer]
        width, is_pre = spec.heads * spec.head_dim, spec.norm_place == "pre"
        pre_attn = self.normal("pre_attn", layer) if is_pre and here.has_pre_attn_norm else None
        attention = PackedAttention(
            self.qkv(layer, width),
            heads=spec.heads,
            kv_heads=spec.heads,
            head_dim=spec.head_dim,
            scale=spec.scale,
            window=here.window,
            rope=here.rope,
            alibi=self.alibi,
            bias=self.bias,
            reach=spec.bucket_reach,
            relative=self.relative_rows(layer, width),
            q_norm=self.normal("q_norm", layer, width) if spec.has_qk_norm else None,
            k_norm=self.normal("k_norm", layer, width) if spec.has_qk_norm else None,
        )
        out = Output(self.linear("o", layer, spec.hidden, width, has_bias=spec.has_o_bias), spec.has_o_bias)
        after_attn = None if is_pre else self.normal("after_attn", layer)
        pre_ffn = self.normal("pre_ffn", layer) if is_pre else None
        gate, up = self.gate_up(layer, spec.ffn, spec.hidden, is_gated=spec.is_gated, has_bias=spec.has_up_bias)
        down = Output(
            self.linear("down", layer, spec.hidden, spec.ffn, has_bias=spec.has_down_bias), spec.has_down_bias
        )
        mlp = MLP(gate, up, down, spec.activation, spec.is_gated)
        after_ffn = None if is_pre else self.normal("after_ffn", layer)
        return EncoderBlock(pre_attn, attention, out, after_attn, pre_ffn, mlp, after_ffn)

    def qkv(self, layer: int, width: int) -> tuple[LinearWeight, ...]:
        """One fused weight where all parts have one format, else three."""
        spec = self.spec
        if self.has("qkv", layer):
            weight = self.matrix("qkv", layer, 3 * width, spec.hidden)
            bias = self.raw("qkv", (3 * width,), layer, "bias") if spec.has_qkv_bias else None
            return (self.take([weight], bias),)
        parts = [self.matrix(role, layer, width, spec.hidden) for role in "qkv"]
        biases = [self.raw(role, (width,), layer, "bias") for role in "qkv"] if spec.has_qkv_bias else []
        return self.fused(parts, biases)

    def head(self, head: HeadSpec) -> Head:
        """A head, as stored: it is small beside the layers, and its scores are what is compared."""
        kind, hidden = head.kind, self.spec.hidden
        dense = norm = None
        if head.activation is not None:
            bias = self.raw(f"{kind}_dense", (hidden,), what="bias") if head.has_dense_bias else None
            dense = self.weights.linear([self.raw(f"{kind}_dense", (hidden, hidden))], bias)
        if head.norm_eps is not None:
            norm = self.norm(f"{kind}_norm", 0, hidden, kind="layer", eps=head.norm_eps, has_bias=head.has_norm_bias)
        role = biased = f"{kind}_out"
        if kind == "masked":
            role = "tokens" if head.is_tied else "masked_decoder"
            if not head.is_tied and self.name("masked_decoder", 0, "bias") in self.checkpoint:
                biased = role  # newer files untie it, too
        num_out = head.num_out or self.checkpoint.info(self.name(role, 0, "weight")).shape[0]
        bias = self.raw(biased, (num_out,), what="bias") if head.has_out_bias else None
        out = self.weights.linear([self.raw(role, (num_out, hidden))], bias)
        self.give_back()
        return Head(head, dense, norm, out)

    def normal(self, role: str, layer: int, width: int = 0) -> Norm:
        """One of the spec's norms, over `width` values or the model's width."""
        spec = self.spec
        return self.norm(
            role, layer, width or spec.hidden, kind=spec.norm, eps=spec.norm_eps, has_bias=spec.has_norm_bias
        )

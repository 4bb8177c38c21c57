"""The decoder: one forward pass for every dense family, written once against the op contract.

Invariants: no look at a platform, a family or a file; all differences are data (`DecoderSpec`, the layers' fields);
every layer and every attention | FFN seam is marked, so that recorded programs can be cut there. Only rows named by
the batch's `logits_rows` reach the head. Rows are [rows, hidden] float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.engine.layers.attention import Attention
from octavo.engine.layers.branch import MLP, Output
from octavo.engine.layers.norm import Norm
from octavo.engine.layers.packed import PackedAttention
from octavo.engine.models.spec import DecoderSpec
from octavo.platforms.ops import Ops
from octavo.platforms.types import Array, Embedding, KVSpec, LinearWeight


@dataclass(frozen=True)
class Block:
    """One layer."""

    pre_attn: Norm | None
    attention: Attention | PackedAttention
    out: Output
    pre_ffn: Norm | None
    mlp: MLP


@dataclass(frozen=True)
class LayerWeights:
    """Everything but the head, in a platform's memory."""

    tokens: Embedding
    positions: Embedding | None
    blocks: tuple[Block, ...]
    final_norm: Norm


@dataclass(frozen=True)
class DecoderWeights(LayerWeights):
    """Everything a checkpoint gives."""

    head: LinearWeight


class Decoder:
    """A model ready to run: its description and its weights. `grown_bytes`: by which they are larger (below 0: smaller) than
    what the checkpoint stores, for having been quantized on the way."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, grown_bytes: int = 0) -> None:
        self.spec = spec
        self.weights = weights
        self.grown_bytes = grown_bytes
        self.vocab_size = spec.vocab

    def kv_spec(self, dtype: str, block_tokens: int = 32) -> KVSpec:
        """The paged memory this model needs (see `DecoderSpec.kv_spec`)."""
        return self.spec.kv_spec(dtype, block_tokens)

    def formats(self) -> list[str]:
        """Formats of the linear weights as they run, sorted."""
        return sorted({self.weights.head.format, *formats_of(self.weights.blocks)})

    def forward(self, ops: Ops, batch: object) -> Array:
        """Logits [R, vocab] of the batch's `logits_rows`. `ops` are bound to `batch`: its ids, positions and pages."""
        del batch  # everything a dense decoder needs of it goes through the ops
        spec, weights = self.spec, self.weights
        x = through_layers(ops, spec, weights)
        ops.segment("head")
        x = weights.final_norm(ops, ops.gather_rows(x))
        return ops.lm_head(x, weights.head, scale=spec.logits_scale, softcap=spec.final_softcap)


def through_layers(ops: Ops, spec: DecoderSpec, weights: LayerWeights) -> Array:
    """[T, hidden] of every token behind the last layer, before the last norm."""
    ops.segment("embedding")
    x = ops.embedding(weights.tokens, scale=spec.embedding_scale)
    if weights.positions is not None:
        x = ops.add(x, ops.embedding(weights.positions, ids="positions"))
    for index, block in enumerate(weights.blocks):
        ops.segment(f"layer {index} attention")
        hidden = x if block.pre_attn is None else block.pre_attn(ops, x)
        x = block.out.join(ops, x, block.attention(ops, hidden))
        ops.segment(f"layer {index} ffn")
        hidden = x if block.pre_ffn is None else block.pre_ffn(ops, x)
        x = block.mlp(ops, x, hidden)
    return x


def formats_of(blocks: tuple[Block, ...]) -> set[str]:
    """Formats of the linear weights of layers as they run."""
    found = set()
    for block in blocks:
        mlp = block.mlp
        some = (*block.attention.qkv, block.out.weight, mlp.gate, mlp.up, mlp.down.weight)
        found |= {weight.format for weight in some if weight is not None}
    return found

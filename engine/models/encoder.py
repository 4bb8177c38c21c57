"""The encoder: one forward pass for every bidirectional family, written once against the op contract.

Invariants: no look at a platform, a family or a file; all differences are data (`EncoderSpec`, the layers' fields); texts of a
batch are packed without padding, and nothing of another enters one. Rows are [rows, hidden] float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.engine.layers.branch import MLP, Output
from octavo.engine.layers.norm import Norm
from octavo.engine.layers.packed import PackedAttention
from octavo.engine.models.encoder_spec import NO_PAGES, EncoderSpec
from octavo.engine.models.heads import Head
from octavo.platforms.ops import Ops
from octavo.platforms.types import I32, Array, Batch, Embedding, KVSpec, LinearWeight


@dataclass(frozen=True)
class EncoderBlock:
    """One layer. Norms before a branch are `pre_*`, norms of the sum behind it `after_*`."""

    pre_attn: Norm | None
    attention: PackedAttention
    out: Output
    after_attn: Norm | None
    pre_ffn: Norm | None
    mlp: MLP
    after_ffn: Norm | None


@dataclass(frozen=True)
class EncoderWeights:
    """Everything a checkpoint gives, in a platform's memory."""

    tokens: Embedding
    positions: Embedding | None
    token_types: Embedding | None
    embedding_norm: Norm | None
    blocks: tuple[EncoderBlock, ...]
    final_norm: Norm | None
    token_proj: LinearWeight | None = None


class Encoder:
    """A model ready to run: its description and its weights. `grown_bytes`: by which they are larger (below 0: smaller) than
    what the checkpoint stores, for having been quantized on the way. `head`: what was loaded with them."""

    def __init__(
        self, spec: EncoderSpec, weights: EncoderWeights, grown_bytes: int = 0, head: Head | None = None
    ) -> None:
        self.spec = spec
        self.weights = weights
        self.grown_bytes = grown_bytes
        self.head = head

    def kv_spec(self, dtype: str = "f32", block_tokens: int = 32) -> KVSpec:
        """No layer keeps keys and values."""
        del dtype, block_tokens
        return NO_PAGES

    def formats(self) -> list[str]:
        """Formats of the linear weights as they run, sorted."""
        found = set()
        for block in self.weights.blocks:
            mlp = block.mlp
            some = (*block.attention.qkv, block.out.weight, mlp.gate, mlp.up, mlp.down.weight)
            found |= {weight.format for weight in some if weight is not None}
        return sorted(found)

    def forward(self, ops: Ops, batch: object) -> Array:
        """Hidden states [R, hidden] of the batch's `logits_rows`. `ops` are bound to `batch`."""
        del batch  # everything an encoder needs of it goes through the ops
        return ops.gather_rows(self.hidden(ops))

    def hidden(self, ops: Ops) -> Array:
        """Hidden states [T, hidden] of every token, behind the last norm."""
        weights = self.weights
        ops.segment("embedding")
        x = ops.embedding(weights.tokens)
        if weights.positions is not None:
            x = ops.add(x, ops.embedding(weights.positions, ids="positions"))
        if weights.token_types is not None:
            x = ops.add(x, ops.embedding(weights.token_types, ids="token_types"))
        if weights.token_proj is not None:
            x = ops.linear(x, weights.token_proj)
        x = _normed(ops, weights.embedding_norm, x)
        for index, block in enumerate(weights.blocks):
            ops.segment(f"layer {index} attention")
            x = block.out.join(ops, x, block.attention(ops, _normed(ops, block.pre_attn, x)))
            x = _normed(ops, block.after_attn, x)
            ops.segment(f"layer {index} ffn")
            x = block.mlp(ops, x, _normed(ops, block.pre_ffn, x))
            x = _normed(ops, block.after_ffn, x)
        return _normed(ops, weights.final_norm, x)

    def batch(
        self,
        sequences: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
        unseen: Sequence[int] | None = None,
    ) -> Batch:
        """One step over whole sequences of token ids, packed; `types` are their segment ids (None: all 0), of which the last row
        of the table serves those beyond it. `unseen`: how many tokens at the end of each see the others and are not seen."""
        counts = [len(ids) for ids in sequences]
        total = sum(counts)
        token_types = None
        if self.spec.num_token_types:
            token_types = np.zeros(total, np.int32)
            if types is not None:
                most = self.spec.num_token_types - 1
                token_types[:] = np.minimum(np.concatenate([np.asarray(part, np.int32) for part in types]), most)
        return Batch(
            token_ids=joined_ids([np.asarray(ids, np.int32) for ids in sequences]),
            positions=joined_ids([self.spec.positions(ids) for ids in sequences])[None],
            query_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            kv_len=np.array(counts, np.int32) - np.array(0 if unseen is None else unseen, np.int32),
            token_seq=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            block_tables=[],
            logits_rows=np.zeros(0, np.int32),
            token_types=token_types,
        )


def _normed(ops: Ops, norm: Norm | None, x: Array) -> Array:
    return x if norm is None else norm(ops, x)


def joined_ids(parts: list[I32]) -> I32:
    """int32 values of sequences, end to end."""
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)

"""A decoder over whole packed texts, without pages: hidden states for pooling, and of rerankers scores. What embedders and
rerankers are that were trained from generators, causal ones as well as those that then see both directions.

A head is a linear layer over the last token (`...ForSequenceClassification`), or a few rows of the generator's own: the logits
of the words that say whether a document fits a query. Other rows are not loaded.

Invariants: the layers are a `Decoder`'s, weight by weight, but for attention, which reads the step's own keys and values
(`layers.packed`); so a text's states do not depend on the texts beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import registry
from octavo.engine.models.change import Change
from octavo.engine.models.decoder import LayerWeights, formats_of, through_layers
from octavo.engine.models.encoder import joined_ids
from octavo.engine.models.encoder_spec import NO_PAGES
from octavo.engine.models.heads import Head, HeadSpec, classification
from octavo.engine.models.load import Loader
from octavo.engine.models.raw import expanded, joined, rows_of
from octavo.engine.models.reader import Description
from octavo.engine.models.source import architecture_of, describe_bare
from octavo.engine.models.spec import DecoderSpec
from octavo.platforms.ops import Ops, Weights
from octavo.platforms.types import Array, Batch, KVSpec

_SCORE = "score.weight"  # of transformers' classifiers made of decoders


class BareDecoder:
    """A model ready to run: a `TextEncoder`."""

    def __init__(
        self, spec: DecoderSpec, weights: LayerWeights, grown_bytes: int = 0, head: Head | None = None
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
        return sorted(formats_of(self.weights.blocks))

    def forward(self, ops: Ops, batch: object) -> Array:
        """Hidden states [R, hidden] of the batch's `logits_rows`. `ops` are bound to `batch`."""
        del batch  # everything that the layers need of it goes through the ops
        return ops.gather_rows(self.hidden(ops))

    def hidden(self, ops: Ops) -> Array:
        """Hidden states [T, hidden] of every token, behind the last norm."""
        return self.weights.final_norm(ops, through_layers(ops, self.spec, self.weights))

    def batch(
        self,
        sequences: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
        unseen: Sequence[int] | None = None,
    ) -> Batch:
        """One step over whole sequences of token ids, packed; decoders have no segments."""
        del types
        if unseen is not None and any(unseen):
            raise ModelError(
                "queries with tokens that are not seen (expansion of ColBERT) are served for encoders, not decoders"
            )
        counts = [len(ids) for ids in sequences]
        return Batch(
            token_ids=joined_ids([np.asarray(ids, np.int32) for ids in sequences]),
            positions=joined_ids([np.arange(count, dtype=np.int32) for count in counts])[None],
            query_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            kv_len=np.array(counts, np.int32),
            token_seq=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            block_tables=[],
            logits_rows=np.zeros(0, np.int32),
        )


def load_bare(
    checkpoint: Checkpoint,
    weights: Weights,
    *,
    config: Mapping[str, Any] | None = None,
    max_len: int | None = None,
    expand: bool = False,
    quantize: str = "",
    with_head: bool = False,
    rows: tuple[int, ...] = (),
) -> BareDecoder:
    """Loads a decoder's layers into `weights`, and of heads what was asked for; see `models.load.load_model`."""
    spec, names, schemes = describe_bare(checkpoint, config, max_len=max_len)
    loader = Loader(checkpoint, weights, spec, names, schemes, Change(expand, quantize), is_packed=True)
    loaded = loader.layers()
    head = None
    if rows:
        head = _of_rows(loader, rows)
    elif with_head:
        wanted = classification(Description(config or {}, checkpoint.describe()), "sequence", pooling="last")
        raw = loader.stored(_SCORE, (wanted.num_out, spec.hidden))
        head = Head(wanted, None, None, weights.linear([expanded(raw)]))
    loader.give_back()
    stem = names.stem("head").removeprefix(loader.cut)
    is_gguf = checkpoint.kind == "gguf"
    classifies = not is_gguf and architecture_of(config, checkpoint.describe()) in registry.SCORED
    checkpoint.finish((*names.harmless, f"{stem}.*", *((_SCORE,) if classifies else ())))
    return BareDecoder(spec, loaded, loader.grown_bytes, head)


def _of_rows(loader: Loader, rows: tuple[int, ...]) -> Head:
    """Rows of the generator's head, in float32."""
    spec = loader.spec
    if not all(0 <= row < spec.vocab for row in rows):
        raise ModelError(
            f"{loader.checkpoint.describe()}: scores are to be logits of the tokens {rows}; there are {spec.vocab}"
        )
    shape = (spec.vocab, spec.hidden)
    whole = loader.raw("tokens", shape) if spec.is_tied else loader.matrix("head", 0, *shape)
    bias = None
    if spec.has_head_bias:
        stored = loader.raw("head", (spec.vocab,), what="bias")
        bias = [expanded(rows_of(stored, row, row + 1, str(row))) for row in rows]
    parts = [expanded(rows_of(whole, row, row + 1, str(row))) for row in rows]
    wanted = HeadSpec(
        "sequence", len(rows), ("LABEL_0",), "last", rows=rows, cap=spec.final_softcap, scale=spec.logits_scale
    )
    return Head(wanted, None, None, loader.weights.linear(parts, None if bias is None else joined(bias)))

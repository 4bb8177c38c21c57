"""A decoder without its head, over whole packed texts: hidden states for pooling, no pages. What embedders are that were trained
from generators, causal ones as well as those that then see both directions.

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
from octavo.engine.models.encoder_load import load_encoder
from octavo.engine.models.encoder_spec import NO_PAGES
from octavo.engine.models.load import Loader
from octavo.engine.models.source import describe_bare
from octavo.engine.models.spec import DecoderSpec
from octavo.engine.models.text_encoder import TextEncoder
from octavo.platforms.ops import Ops, Weights
from octavo.platforms.types import Array, Batch, KVSpec


class BareDecoder:
    """A model ready to run: a `TextEncoder`."""

    def __init__(self, spec: DecoderSpec, weights: LayerWeights, grown_bytes: int = 0) -> None:
        self.spec = spec
        self.weights = weights
        self.grown_bytes = grown_bytes
        self.head = None

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


def load_text_encoder(
    checkpoint: Checkpoint,
    weights: Weights,
    *,
    config: Mapping[str, Any] | None = None,
    with_head: bool = False,
    **options: Any,
) -> TextEncoder:
    """An `Encoder`, or a `BareDecoder` where the checkpoint is a decoder's; `options` are those of both loaders."""
    listed = (config or {}).get("architectures")
    loads_bare = isinstance(listed, list) and len(listed) == 1 and registry.is_decoder(str(listed[0]))
    if loads_bare and not with_head:
        return load_bare(checkpoint, weights, config=config, **options)
    return load_encoder(checkpoint, weights, config=config, with_head=with_head, **options)


def load_bare(
    checkpoint: Checkpoint,
    weights: Weights,
    *,
    config: Mapping[str, Any] | None = None,
    max_len: int | None = None,
    expand: bool = False,
    quantize: str = "",
) -> BareDecoder:
    """Loads a decoder's layers into `weights` and leaves its head out; see `models.load.load_model`."""
    spec, names, schemes = describe_bare(checkpoint, config, max_len=max_len)
    loader = Loader(checkpoint, weights, spec, names, schemes, Change(expand, quantize), is_packed=True)
    loaded = loader.layers()
    head = names.stem("head").removeprefix(loader.cut)
    checkpoint.finish((*names.harmless, f"{head}.*"))
    return BareDecoder(spec, loaded, loader.grown_bytes)

"""Steps of an encoder, from packed token ids to vectors.

A program runs from ids to vectors where the platform pools as the model asks, else to hidden states that are pooled here. They
are made when they are first needed and share the weights. Invariant: which way a vector takes follows from the model and from
whether it is normalised, never from its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.models.encoder_spec import NO_PAGES
from octavo.engine.models.text_encoder import TextEncoder
from octavo.engine.pooling.model import DenseTail, PooledEncoder, is_native, load_dense
from octavo.engine.pooling.modules import Pipeline
from octavo.engine.pooling.opened import Opened
from octavo.engine.pooling.vectors import cut, normalized, pooled
from octavo.platforms.ops import Weights
from octavo.platforms.platform import Capacity, Executable, Model, Platform
from octavo.platforms.types import F32, KVSpec

NOT_FINITE = "its vector is not finite; the model overflows on this text"


class EmbeddingRunner:
    """`max_tokens` and `max_seqs` bound a step."""

    def __init__(
        self,
        platform: Platform,
        weights: Weights,
        encoder: TextEncoder,
        pipeline: Pipeline,
        *,
        max_tokens: int,
        max_seqs: int,
    ) -> None:
        self._platform = platform
        self._weights = weights
        self._encoder = encoder
        self._pipeline = pipeline
        self._layers = tuple(load_dense(dense, weights) for dense in pipeline.dense)
        if not pipeline.modes:
            raise ModelError(
                f"this model gives no vector of a whole text, but {' and '.join(pipeline.outputs)}: octavo.Embedder"
            )
        self._is_native = is_native(pipeline)
        self._max_tokens = max_tokens
        self._max_seqs = max_seqs
        self._programs: dict[bool, Executable] = {}

    @classmethod
    def of(cls, opened: Opened) -> EmbeddingRunner:
        """Over an encoder that was opened."""
        return cls(
            opened.platform,
            opened.weights,
            opened.encoder,
            opened.pipeline,
            max_tokens=opened.max_batch_tokens,
            max_seqs=opened.max_num_seqs,
        )

    def vectors(
        self, texts: Sequence[Sequence[int]], num_prompt: Sequence[int], normalizes: bool, num_dims: int | None = None
    ) -> list[F32 | None]:
        """Each text's vector, the first `num_dims` values of it (None: all); None for one that is not finite."""
        found = self.run(texts, num_prompt, normalizes)
        if num_dims is not None:
            found = cut(found, num_dims, normalizes=normalizes)
        return [vector if np.isfinite(vector).all() else None for vector in found]

    def run(self, texts: Sequence[Sequence[int]], num_prompt: Sequence[int], normalizes: bool) -> F32:
        """Vectors [texts, width] of one step; `num_prompt` tokens of each belong to its prompt."""
        batch = self._encoder.batch(texts)
        if self._is_native:
            is_joined = normalizes and not self._layers
            program = self._program(is_joined)
            program.run(batch)
            vectors = np.array(program.head(np.arange(len(texts), dtype=np.int32)))
            return vectors if is_joined or not normalizes else normalized(vectors)
        program = self._program(False)
        program.run(batch)
        rows = np.asarray(program.head(np.arange(batch.num_tokens, dtype=np.int32)))
        parts = np.split(rows, batch.query_start[1:-1])
        skipped = [0 if self._pipeline.includes_prompt else count for count in num_prompt]
        modes = self._pipeline.modes
        vectors = np.stack([pooled(part, modes, num_prompt=n) for part, n in zip(parts, skipped, strict=True)])
        if self._layers:
            vectors = self._through_layers(vectors)
        return normalized(vectors) if normalizes else vectors

    def close(self) -> None:
        """Lets go of the programs."""
        for program in self._programs.values():
            program.close()
        self._programs.clear()

    def _program(self, is_joined: bool) -> Executable:
        """The program that normalises as it pools, or the one that does not."""
        if is_joined not in self._programs:
            self._programs[is_joined] = self._platform.build(*self._shape(is_joined))
        return self._programs[is_joined]

    def _shape(self, is_joined: bool) -> tuple[Model, KVSpec, Capacity]:
        """What is built."""
        spec, pipeline = self._encoder.spec, self._pipeline
        num_rows = self._max_seqs if self._is_native else self._max_tokens
        max_len = spec.max_positions + spec.position_offset
        capacity = Capacity(self._max_tokens, self._max_seqs, num_rows, max_len, 1)
        if self._is_native:
            return PooledEncoder(self._encoder, pipeline.modes[0], self._layers, is_joined), NO_PAGES, capacity
        return self._encoder, NO_PAGES, capacity

    def scratch_bytes(self) -> int:
        """Of the work area of a step."""
        return self._platform.scratch_bytes(*self._shape(self._pipeline.normalizes and not self._layers))

    def _through_layers(self, vectors: F32) -> F32:
        """Dense layers over vectors that were pooled here."""
        count = len(vectors)
        tail = DenseTail.over(vectors, self._layers, self._weights)
        program = self._platform.build(tail, NO_PAGES, Capacity(count, count, count, 1, 1))
        try:
            program.run(tail.batch(count))
            return np.array(program.head(np.arange(count, dtype=np.int32)))
        finally:
            program.close()

"""An encoder whose forward pass ends in one vector per text, as far as a platform's ops reach; and the layers behind a pooling
that they do not reach.

`pool` has cls, lasttoken and mean; other modes, several at once, and prompts that are left out are pooled on the host
(`pooling.vectors`), with Dense layers behind them as a program of their own. Heads end a program likewise (`HeadedEncoder`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.encoder_spec import NO_PAGES
from octavo.engine.models.source import raw_tensor
from octavo.engine.models.text_encoder import TextEncoder
from octavo.engine.pooling.modules import Dense, Pipeline
from octavo.platforms.ops import Ops, Weights
from octavo.platforms.types import F32, Activation, Array, Batch, Embedding, KVSpec, LinearWeight, RawTensor

_OPS = {"cls": "cls", "last": "last", "lasttoken": "last", "mean": "mean"}


@dataclass(frozen=True)
class DenseLayer:
    """activation(weight x + bias)."""

    weight: LinearWeight
    activation: Activation

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[rows, num_out]."""
        return ops.linear(x, self.weight, activation=self.activation)


def load_dense(dense: Dense, weights: Weights) -> DenseLayer:
    """A Dense module's tensors. ModelError for what is missing, left over or misshapen."""
    with Checkpoint.open(dense.folder) as checkpoint:
        weight = raw_tensor(checkpoint, "linear.weight")
        bias = raw_tensor(checkpoint, "linear.bias") if dense.has_bias else None
        for tensor, shape in ((weight, (dense.num_out, dense.num_in)), (bias, (dense.num_out,))):
            if tensor is not None and tensor.shape != shape:
                raise ModelError(
                    f"{checkpoint.describe()}: tensor {tensor.name} has shape {list(tensor.shape)}; its config.json asks for "
                    f"{list(shape)}"
                )
        checkpoint.finish()
        return DenseLayer(weights.linear([weight], bias), dense.activation)


def is_native(pipeline: Pipeline) -> bool:
    """Whether platforms pool as this pipeline asks."""
    return len(pipeline.modes) == 1 and pipeline.modes[0] in _OPS and pipeline.includes_prompt


@dataclass(frozen=True)
class PooledEncoder:
    """One program from token ids to vectors. `normalizes`: directly behind the pooling."""

    encoder: TextEncoder
    mode: str
    layers: tuple[DenseLayer, ...] = ()
    normalizes: bool = False

    def kv_spec(self, dtype: str = "f32", block_tokens: int = 32) -> KVSpec:
        """No layer keeps keys and values."""
        return self.encoder.kv_spec(dtype, block_tokens)

    def forward(self, ops: Ops, batch: object) -> Array:
        """Vectors [sequences, width]."""
        del batch
        x = self.encoder.hidden(ops)
        ops.segment("pooling")
        x = ops.pool(x, _OPS[self.mode], normalize=self.normalizes)
        for layer in self.layers:
            x = layer(ops, x)
        return x


@dataclass(frozen=True)
class HeadedEncoder:
    """One program from token ids to what `tail` makes of hidden states: of each sequence, pooled by `pooling` ("cls", "last",
    "mean"), or of the tokens whose rows are asked for (""), which are then all that `tail` runs on."""

    encoder: TextEncoder
    tail: Callable[[Ops, Array], Array]
    pooling: str = ""

    def kv_spec(self, dtype: str = "f32", block_tokens: int = 32) -> KVSpec:
        """No layer keeps keys and values."""
        return self.encoder.kv_spec(dtype, block_tokens)

    def forward(self, ops: Ops, batch: object) -> Array:
        """[sequences or rows, width of `tail`]."""
        del batch
        x = self.encoder.hidden(ops)
        ops.segment("head")
        return self.tail(ops, ops.pool(x, _OPS[self.pooling]) if self.pooling else ops.gather_rows(x))


@dataclass(frozen=True)
class DenseTail:
    """Dense layers over vectors that were pooled on the host: a table of them, looked up row by row."""

    table: Embedding
    layers: tuple[DenseLayer, ...]

    @classmethod
    def over(cls, vectors: F32, layers: tuple[DenseLayer, ...], weights: Weights) -> DenseTail:
        """Of vectors [n, width]."""
        rows = np.ascontiguousarray(vectors)
        raw = RawTensor("pooled vectors", "f32", rows.shape, rows.reshape(-1).view(np.uint8))
        return cls(weights.embedding(raw), layers)

    def kv_spec(self, dtype: str = "f32", block_tokens: int = 32) -> KVSpec:
        """Nothing is kept."""
        del dtype, block_tokens
        return NO_PAGES

    def forward(self, ops: Ops, batch: object) -> Array:
        """[R, width]."""
        del batch
        x = ops.embedding(self.table)
        for layer in self.layers:
            x = layer(ops, x)
        return ops.gather_rows(x)

    @staticmethod
    def batch(num_rows: int) -> Batch:
        """A step over all rows."""
        every = np.arange(num_rows, dtype=np.int32)
        start, ones = np.arange(num_rows + 1, dtype=np.int32), np.ones(num_rows, np.int32)
        return Batch(every, np.zeros((1, num_rows), np.int32), start, ones, every, [], every[:0])

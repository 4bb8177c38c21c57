"""Steps of models that give sparse vectors or a vector per token: the encoder runs once, whichever of its outputs are wanted.

Where several come of one pass (bge-m3), one linear layer gives all rows: hidden states as they are (by the identity, which is
exact), weights of tokens and vectors of tokens. Invariants: a value depends on its own text, not on what else is asked for;
widths of a vocabulary never lie in memory for more than a few tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.raw import floats_of
from octavo.engine.models.source import raw_tensor
from octavo.engine.pooling.head_runner import HeadRunner
from octavo.engine.pooling.model import is_native, load_dense
from octavo.engine.pooling.opened import Opened
from octavo.engine.pooling.outputs import Output
from octavo.engine.pooling.vectors import normalized, pooled, unit
from octavo.platforms import elementwise
from octavo.platforms.ops import Ops
from octavo.platforms.types import F32, Array, RawTensor

Tail = Callable[[Ops, Array], Array]
_ONE = np.float32(1)


@dataclass(frozen=True)
class Made:
    """What a text became. `dense` float32 [width]; `entries` [vocabulary], weights of its entries; `weights` [tokens], of its own
    tokens; `vectors` [tokens, width]; None for what was not asked for or is not finite."""

    dense: F32 | None = None
    entries: F32 | None = None
    weights: F32 | None = None
    vectors: F32 | None = None


class TokenRunner:
    """Over a model that was opened and gives such outputs."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._pipeline = opened.pipeline
        self._parts: dict[Output, tuple[F32, F32]] = {}  # weight and bias of each joined layer
        if opened.pipeline.joined is not None:
            self._parts = _joined_parts(opened)
        elif opened.pipeline.dense:
            layers = tuple(load_dense(dense, opened.weights) for dense in opened.pipeline.dense)
            self._tail = _chain(layers)
        else:
            self._tail = opened.encoder.head or _as_they_are
        self._runners: dict[tuple[Output, ...], HeadRunner] = {}

    @property
    def vector_width(self) -> int:
        """Of vectors of tokens."""
        if self._parts:
            return len(self._parts["multi_vector"][1]) if "multi_vector" in self._parts else 0
        return self._pipeline.width

    def made(
        self, texts: Sequence[Sequence[int]], outputs: Sequence[Output], unseen: Sequence[int] | None = None
    ) -> list[Made]:
        """Of every text of one step. `unseen`: tokens at the end of each that the others do not see."""
        if self._parts:
            return self._joined(texts, tuple(name for name in self._parts if name in outputs))
        runner, splade = self._runner(()), self._pipeline.splade
        if splade is None:
            return [Made(vectors=self._unit(rows)) for rows in _rows(runner, texts, unseen)]
        best: list[F32 | None] = [None] * len(texts)
        for place, rows in runner.of_tokens(texts):
            before = best[place]
            if splade.pooling == "max":
                most = rows.max(axis=0)
                best[place] = most if before is None else np.maximum(before, most)
            else:
                total = np.zeros(rows.shape[1], np.float32) if before is None else before
                for row in rows:
                    total += saturated(row, is_doubled=splade.is_doubled)
                best[place] = total
        found = []
        for values in best:
            assert values is not None
            is_max = splade.pooling == "max"
            entries = (
                saturated(values, is_doubled=splade.is_doubled) if is_max and not np.isnan(values).any() else values
            )
            found.append(Made(entries=entries if np.isfinite(entries).all() else None))
        return found

    def scratch_bytes(self) -> int:
        """Of the work area of a step that gives all outputs."""
        return self._runner(tuple(self._parts)).scratch_bytes()

    def close(self) -> None:
        """Lets go of the programs."""
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

    def _joined(self, texts: Sequence[Sequence[int]], wanted: tuple[Output, ...]) -> list[Made]:
        """Several outputs of one pass."""
        ends = np.cumsum([len(self._parts[name][1]) for name in wanted])
        found = []
        for rows in _rows(self._runner(wanted), texts, None):
            columns = dict(zip(wanted, np.split(rows, ends[:-1], axis=1), strict=True))
            made: dict[str, F32 | None] = {}
            if "dense" in columns:
                vector = pooled(columns["dense"], self._pipeline.modes)[None]
                if self._pipeline.normalizes:
                    vector = unit(vector) if is_native(self._pipeline) else normalized(vector)
                made["dense"] = _finite(vector[0])
            if "sparse" in columns:
                made["weights"] = _finite(np.maximum(columns["sparse"][:, 0], np.float32(0)))
            if "multi_vector" in columns:
                made["vectors"] = self._unit(np.ascontiguousarray(columns["multi_vector"]))
            found.append(Made(**made))
        return found

    def _unit(self, rows: F32) -> F32 | None:
        late = self._pipeline.late
        return _finite(normalized(rows) if late is not None and late.normalizes else rows)

    def _runner(self, wanted: tuple[Output, ...]) -> HeadRunner:
        if wanted not in self._runners:
            opened = self._opened
            tail = self._stacked(wanted) if wanted else self._tail
            self._runners[wanted] = HeadRunner(
                opened.platform,
                opened.encoder,
                tail,
                max_tokens=opened.max_batch_tokens,
                max_seqs=opened.max_num_seqs,
            )
        return self._runners[wanted]

    def _stacked(self, wanted: tuple[Output, ...]) -> Tail:
        """One linear layer of several."""
        weight, bias = (np.concatenate([self._parts[name][i] for name in wanted]) for i in (0, 1))
        layer = self._opened.weights.linear([_raw("joined layers", weight)], _raw("joined biases", bias))
        return lambda ops, x: ops.linear(x, layer)


def saturated(values: F32, *, is_doubled: bool = False) -> F32:
    """log(1 + relu(x)), to the last bit or two also near 0, with the same bits on every chip."""
    x: F32 = np.maximum(values, np.float32(0))
    for _ in range(1 + is_doubled):
        one = _ONE + x
        step = one - _ONE  # what of x the sum holds
        is_small = step == 0
        ratio = x / np.where(is_small, _ONE, step)
        x = np.where(is_small, x, elementwise.log(one) * ratio).astype(np.float32)
    return x


def _rows(runner: HeadRunner, texts: Sequence[Sequence[int]], unseen: Sequence[int] | None) -> list[F32]:
    """All rows of every text."""
    parts: list[list[F32]] = [[] for _ in texts]
    for place, rows in runner.of_tokens(texts, unseen=unseen):
        parts[place].append(np.array(rows))
    return [np.concatenate(some) for some in parts]


def _finite(values: F32) -> F32 | None:
    return values if np.isfinite(values).all() else None


def _as_they_are(ops: Ops, x: Array) -> Array:
    del ops
    return x


def _chain(layers: Sequence[Callable[[Ops, Array], Array]]) -> Tail:
    def run(ops: Ops, x: Array) -> Array:
        for layer in layers:
            x = layer(ops, x)
        return x

    return run


def _joined_parts(opened: Opened) -> dict[Output, tuple[F32, F32]]:
    """Weight [width, hidden] and bias [width] of every output, hidden states by the identity."""
    pipeline, hidden = opened.pipeline, opened.encoder.spec.hidden
    assert pipeline.joined is not None
    if pipeline.dense:
        raise ModelError(f"{opened.name} has Dense modules beside {pipeline.joined}; both together are not served")
    parts: dict[Output, tuple[F32, F32]] = {"dense": (np.eye(hidden, dtype=np.float32), np.zeros(hidden, np.float32))}
    files: tuple[tuple[Output, Any, int | None], ...] = (
        ("sparse", pipeline.joined.sparse, 1),
        ("multi_vector", pipeline.joined.multi_vector, None),
    )
    for name, file, width in files:
        if file is None:
            continue
        if file.suffix == ".pt":
            from octavo.engine.loading.torch_file import read_torch_file  # which few models need

            tensors = {key: RawTensor(key, *stored) for key, stored in read_torch_file(file).items()}
        else:
            with Checkpoint.open(file) as checkpoint:
                tensors = {key: raw_tensor(checkpoint, key) for key in checkpoint}
        if set(tensors) != {"weight", "bias"}:
            raise ModelError(f"{file} holds {', '.join(tensors) or 'nothing'}; it must hold weight and bias")
        weight, bias = (np.array(floats_of(tensors[key]), np.float32) for key in ("weight", "bias"))
        rows = weight.shape[0] if width is None else width
        if weight.shape != (rows, hidden) or bias.shape != (rows,):
            raise ModelError(
                f"{file}: weight and bias are {weight.shape} and {bias.shape}; they must be {(rows, hidden)} and ({rows},)"
            )
        parts[name] = (weight, bias)
    return parts


def _raw(name: str, values: F32) -> RawTensor:
    whole = np.ascontiguousarray(values, np.float32)
    return RawTensor(name, "f32", whole.shape, whole.reshape(-1).view(np.uint8))

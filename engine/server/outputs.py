"""Outputs beside one vector per text, as JSON: weights of the vocabulary's entries, and several outputs of one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from octavo.engine.errors import InternalError
from octavo.engine.pooling.outputs import OUTPUTS
from octavo.engine.server.json_numbers import json_numbers, shortest

if TYPE_CHECKING:
    from octavo.engine.messages import PoolingInfo
    from octavo.platforms.types import F32

_encode = msgspec.json.Encoder().encode


def weights_of(ids: bytes, weights: F32) -> bytes:
    """[{"index", "value"}, ...] of entries [n] with their int32 ids, as text-embeddings-inference writes it. InternalError for a
    weight that is not finite."""
    if not np.isfinite(weights).all():
        raise InternalError("a value of the result is not finite", code="not_finite")
    entries = np.frombuffer(ids, "<i4").tolist()
    return _encode([{"index": i, "value": w} for i, w in zip(entries, shortest(weights).tolist(), strict=True)])


def several(ids: bytes, values: F32, outputs: Sequence[str], pooling: PoolingInfo) -> bytes:
    """An object of what `pooling.core.Encode` put together: numbers of a vector, weights, an array per token."""
    wanted = [name for name in OUTPUTS if name in outputs]
    num_weights, place = len(ids) // 4, 0
    found: dict[str, Any] = {}
    for name in wanted:
        if name == "multi_vector":
            found[name] = msgspec.Raw(json_numbers(values[place:].reshape(-1, pooling.vector_width)))
            continue
        count = pooling.width if name == "dense" else num_weights
        part, place = values[place : place + count], place + count
        found[name] = msgspec.Raw(json_numbers(part) if name == "dense" else weights_of(ids, part))
    return _encode(found)

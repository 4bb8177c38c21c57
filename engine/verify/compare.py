"""How far two sets of vectors of the same texts are apart: by value, by angle, and by what a search finds.

Vectors are float32 or float64 [texts, dim]; everything is computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.pooling.modules import Similarity

Array = NDArray[Any]


@dataclass(frozen=True)
class Agreement:
    """`max_difference`: of any value, divided by the largest one wanted where that is beyond 1. `cosines` float64 [texts].

    `top`: how many texts a search for each of the texts returns. `in_top`: share of the places of these searches whose text the
    other search returns too; `same_rank`: at the same place. Both are 1.0 where there is nothing to search among.
    """

    max_difference: float
    cosines: NDArray[np.float64]
    top: int
    in_top: float
    same_rank: float


def compare(found: Array, wanted: Array, similarity: Similarity, *, top: int = 10) -> Agreement:
    """Measures `found` against `wanted`, both [texts, dim]. ValueError unless shapes agree."""
    if found.shape != wanted.shape or found.ndim != 2:
        raise ValueError(f"vectors are {list(found.shape)} and {list(wanted.shape)}; both must be [texts, dim], alike")
    ours, theirs = found.astype(np.float64), wanted.astype(np.float64)
    largest = float(np.abs(theirs).max(initial=1.0))
    top = min(top, len(ours) - 1)
    in_top, same_rank = _places(_ranked(ours, similarity, top), _ranked(theirs, similarity, top))
    return Agreement(
        float(np.abs(ours - theirs).max(initial=0.0)) / largest, _cosines(ours, theirs), top, in_top, same_rank
    )


def _cosines(ours: Array, theirs: Array) -> NDArray[np.float64]:
    """The cosine of each pair; 1 for two vectors of zeros, 0 for one."""
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    products = np.asarray((ours * theirs).sum(axis=1), np.float64)
    both_zero = ~(ours.any(axis=1) | theirs.any(axis=1))
    return np.where(lengths > 0, products / np.where(lengths > 0, lengths, 1.0), both_zero.astype(np.float64))


def _ranked(vectors: Array, similarity: Similarity, top: int) -> NDArray[np.int64]:
    """For every text the `top` most similar others, best first [texts, top]; of equals the earlier one is first."""
    scores = scored(vectors, vectors, similarity)
    np.fill_diagonal(scores, -np.inf)
    order: NDArray[np.int64] = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return order


def _places(found: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[float, float]:
    """(share of places whose text the other list has anywhere, share where it is at the same place)."""
    if wanted.size == 0:
        return 1.0, 1.0
    anywhere = (wanted[:, :, None] == found[:, None, :]).any(axis=2)
    return float(anywhere.mean()), float((wanted == found).mean())


def scored(queries: Array, documents: Array, similarity: Similarity) -> NDArray[np.float64]:
    """Scores [queries, documents], larger for more alike, in the measure that the model was made for."""
    queries, documents = queries.astype(np.float64), documents.astype(np.float64)
    if similarity == "cosine":
        queries, documents = _unit(queries), _unit(documents)
    if similarity in ("cosine", "dot"):
        return np.asarray(queries @ documents.T, np.float64)
    rows = [
        np.sqrt(((row - documents) ** 2).sum(axis=1))
        if similarity == "euclidean"
        else np.abs(row - documents).sum(axis=1)
        for row in queries
    ]
    return -np.asarray(rows, np.float64)


def _unit(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)

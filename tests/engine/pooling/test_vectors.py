"""Pooling on the host: every mode by hand, without the prompt, and the same bits alone as among others."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.engine.pooling.vectors import cut, normalized, pooled

ROWS = np.array([[1, 0], [0, 1], [4, 4]], np.float32)


@pytest.mark.parametrize(
    ("modes", "num_prompt", "wanted"),
    [
        (("mean",), 0, [5 / 3, 5 / 3]),
        (("cls",), 0, [1, 0]),
        (("lasttoken",), 0, [4, 4]),
        (("max",), 0, [4, 4]),
        (("mean_sqrt_len_tokens",), 0, [5 / 3**0.5, 5 / 3**0.5]),
        (("weightedmean",), 0, [13 / 6, 14 / 6]),
        (("mean",), 1, [2, 2.5]),
        (("cls",), 1, [0, 1]),
        (("max",), 2, [4, 4]),
        (("weightedmean",), 1, [12 / 5, 14 / 5]),
        (("mean_sqrt_len_tokens",), 1, [4 / 2**0.5, 5 / 2**0.5]),
        (("mean",), 3, [5 / 3, 5 / 3]),  # nothing but the prompt is there
        (("cls", "max"), 0, [1, 0, 4, 4]),
    ],
)
def test_modes(modes: tuple[str, ...], num_prompt: int, wanted: list[float]) -> None:
    found = pooled(ROWS, modes, num_prompt=num_prompt)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_normalized_vectors_have_length_one_and_zero_stays_zero() -> None:
    vectors = np.random.default_rng(1).standard_normal((5, 100)).astype(np.float32)
    vectors[2] = 0
    found = normalized(vectors)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 1, 1], atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 16, 17, 384, 1024])
def test_a_vector_is_normalised_alone_as_among_others(width: int) -> None:
    vectors = np.random.default_rng(width).standard_normal((9, width)).astype(np.float32)
    together = normalized(vectors)
    for row, vector in zip(together, vectors, strict=True):
        assert normalized(vector[None])[0].tobytes() == row.tobytes()


def test_vectors_are_normalised_again_when_they_are_cut() -> None:
    whole: NDArray[np.float32] = np.array([[0.1, 0.7, 0.1, 0.7]], np.float32)
    np.testing.assert_allclose(cut(whole, 2, normalizes=True), [[0.141421, 0.989949]], atol=1e-6)
    np.testing.assert_array_equal(cut(whole, 2, normalizes=False), whole[:, :2])

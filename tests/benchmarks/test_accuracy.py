"""The divergence of two sets of logits is that of the textbook in float64, also where it is tiny."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.accuracy import divergence


def textbook(exact: np.ndarray, other: np.ndarray) -> float:
    logs = []
    for logits in (exact, other):
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        logs.append(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())


@pytest.mark.parametrize("noise", [1.0, 0.05, 0.002])
def test_divergence_is_that_of_the_textbook(noise: float) -> None:
    rng = np.random.default_rng(7)
    exact = (rng.standard_normal((8, 30_000)) * 4 - 7).astype(np.float32)
    other = exact + (rng.standard_normal(exact.shape) * noise).astype(np.float32)
    found, same = divergence(exact, other)
    assert found == pytest.approx(textbook(exact, other), rel=1e-4, abs=8e-8)
    assert same == int((exact.argmax(1) == other.argmax(1)).sum())


def test_equal_logits_do_not_diverge() -> None:
    exact = np.random.default_rng(1).standard_normal((4, 5000)).astype(np.float32)
    assert abs(divergence(exact, exact.copy())[0]) < 1e-9

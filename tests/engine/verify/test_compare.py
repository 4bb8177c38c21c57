"""How far sets of vectors are apart: values, cosines and places of searches, by small examples."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.engine.verify.compare import compare, scored


def unit(seed: int, rows: int = 12, dim: int = 6) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_same_vectors_agree_in_everything() -> None:
    found = compare(unit(0), unit(0), "cosine", top=5)
    assert found.max_difference == 0 and found.in_top == found.same_rank == 1 and found.top == 5
    np.testing.assert_allclose(found.cosines, 1, atol=1e-12)


def test_a_difference_is_measured_by_the_largest_value_beyond_one() -> None:
    wanted = unit(0)
    moved = wanted.copy()
    moved[3, 2] += 0.25
    assert compare(moved, wanted, "cosine").max_difference == pytest.approx(0.25)
    assert compare(moved * 8, wanted * 8, "cosine").max_difference == pytest.approx(2 / float(np.abs(wanted * 8).max()))


def test_vectors_that_were_exchanged_are_found_by_cosine_and_by_searches() -> None:
    wanted = unit(1)
    swapped = wanted[[1, 0, *range(2, 12)]]
    found = compare(swapped, wanted, "cosine", top=3)
    expected = float(wanted[0].astype(np.float64) @ wanted[1])
    assert found.cosines[0] == pytest.approx(expected) and found.cosines[2] == pytest.approx(1)
    assert found.in_top < 1


def test_places_count_texts_of_both_lists_and_ranks_apart() -> None:
    wanted = np.array([[1, 0], [0.9, 0.1], [0.8, 0.3], [0, 1], [-1, 0]], np.float32)
    found = wanted.copy()
    found[[1, 2]] = wanted[[2, 1]]  # text 0 now finds 2 before 1, the same two
    both = compare(found, wanted, "dot", top=2)
    assert both.in_top > both.same_rank


def test_searches_return_at_most_the_other_texts() -> None:
    assert compare(unit(0, rows=3), unit(0, rows=3), "cosine").top == 2
    one = compare(unit(0, rows=1), unit(0, rows=1), "cosine")
    assert one.top == 0 and one.in_top == one.same_rank == 1


def test_a_vector_of_zeros_has_the_cosine_of_nothing() -> None:
    wanted = unit(0)
    found = wanted.copy()
    found[2] = 0
    assert compare(found, wanted, "cosine").cosines[2] == 0
    both = wanted.copy()
    both[2] = 0
    assert compare(both, both.copy(), "cosine").cosines[2] == 1


def test_vectors_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[12, 6\] and \[12, 5\]"):
        compare(unit(0), unit(0, dim=5), "cosine")


@pytest.mark.parametrize(
    ("similarity", "expected"), [("cosine", 0.6), ("dot", 6.0), ("euclidean", -(17**0.5)), ("manhattan", -5.0)]
)
def test_scores_are_larger_for_more_alike(similarity: str, expected: float) -> None:
    query, document = np.array([[2.0, 0.0]]), np.array([[3.0, 4.0]])
    assert scored(query, document, similarity)[0, 0] == pytest.approx(expected)  # type: ignore[arg-type]

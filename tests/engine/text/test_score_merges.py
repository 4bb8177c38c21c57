"""Merges recovered from scores are those that trying every cut of every token gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engine.text.corpus import Numbers, make_lines

from octavo.engine.text import score_merges


def merges_from_scores(tokens: list[str], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    return score_merges.merges_from_scores(tokens, np.array(scores, np.float64), np.array(types, np.int32))


def by_trying(tokens: list[str], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    """The definition."""
    normal = [i for i, kind in enumerate(types) if kind == 1]
    parts = {tokens[i] for i in normal}
    return [
        (tokens[index][:cut], tokens[index][cut:])
        for index in sorted(normal, key=lambda i: -scores[i])
        for cut in range(len(tokens[index]) - 1, 0, -1)
        if tokens[index][:cut] in parts and tokens[index][cut:] in parts
    ]


def test_merges_follow_scores_and_skip_control_and_user_tokens() -> None:
    tokens = ["a", "b", "ab", "aba", "ba", "<s>", "<", "s>"]
    merges = merges_from_scores(tokens, [-9, -9, -2, -1, -3, 0, -9, -9], [1, 1, 1, 1, 1, 3, 1, 1])
    assert merges == [("ab", "a"), ("a", "ba"), ("a", "b"), ("b", "a")]


@pytest.mark.parametrize("table_bits", [None, 2])
def test_all_cuts_of_mixed_scripts_are_found_in_order(table_bits: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if table_bits:  # nearly every token loses its slot to another
        monkeypatch.setattr(score_merges, "_SPARE_BITS", table_bits - 12)
    numbers = Numbers(5)
    pieces = {
        line[at : at + size] for line in make_lines(300, seed=3) for at in range(0, 40, 3) for size in (1, 2, 3, 5)
    }
    tokens = ["", "😀", "a😀", "a", *sorted(pieces)]
    scores = [float(-numbers.below(50)) for _ in tokens]  # many are equal
    types = [1 + (numbers.below(12) == 0) * 3 for _ in tokens]
    merges = merges_from_scores(tokens, scores, types)
    assert merges == by_trying(tokens, scores, types) and len(merges) > 1000


def test_a_vocabulary_without_normal_tokens_or_with_repeats_has_its_merges() -> None:
    assert merges_from_scores([], [], []) == []
    assert merges_from_scores(["a", "b"], [0, 0], [3, 6]) == []
    tokens, scores = ["a", "aa", "a", "aa"], [0.0, -1.0, -2.0, -1.0]
    assert merges_from_scores(tokens, scores, [1] * 4) == by_trying(tokens, scores, [1] * 4) == [("a", "a")] * 2

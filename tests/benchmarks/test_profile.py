"""A step's instructions are summed by kernel, the costliest first; the step is one a platform takes."""

from __future__ import annotations

from benchmarks.profile import by_kernel, step_of

from octavo.platforms.selftest.values import one_layer


def test_instructions_are_summed_by_kernel() -> None:
    found = by_kernel([("a", 1.0), ("b", 5.0), ("a", 2.0)])
    assert list(found.items()) == [("b", (5.0, 1)), ("a", (3.0, 2))]


def test_step_has_pages_for_every_token() -> None:
    step = step_of(one_layer("bf16", 1, 16), 64, 3)
    assert step.kv_len.tolist() == [67] and step.positions.tolist() == [[64, 65, 66]]
    assert step.block_tables[0].tolist() == [[1, 2, 3]]
    assert step.num_tokens == 3

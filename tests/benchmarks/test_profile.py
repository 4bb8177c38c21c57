"""A step's instructions are summed by kernel, the costliest first; the step is one a platform takes."""

from __future__ import annotations

import argparse
import random

from benchmarks.profile import by_kernel, cost_rows, step_of, work
from tests.engine.fake_executable import make_core

from octavo.engine.cost import CostModel
from octavo.platforms.selftest.values import one_layer


def test_instructions_are_summed_by_kernel() -> None:
    found = by_kernel([("a", 1.0), ("b", 5.0), ("a", 2.0)])
    assert list(found.items()) == [("b", (5.0, 1)), ("a", (3.0, 2))]


def test_step_has_pages_for_every_token() -> None:
    step = step_of(one_layer("bf16", 1, 16), 64, 3)
    assert step.kv_len.tolist() == [67] and step.positions.tolist() == [[64, 65, 66]]
    assert step.block_tables[0].tolist() == [[1, 2, 3]]
    assert step.num_tokens == 3


def test_learned_terms_are_shown_without_those_that_no_kernel_has(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("benchmarks.profile.MIXES", ((1, 5, 9), (2, 4, 20)))
    core = make_core()
    core.cost = CostModel([1e-4] * 7)
    args = argparse.Namespace(threads=1, model="fake")
    found = {row["name"]: row["median"] for row in cost_rows(core, args)}
    names = ["step_many", "token_many", "kv", "pair", "row", "ratio"]
    assert list(found) == [f"profile.cost.{name}" for name in names]
    assert found["profile.cost.kv"] > 0 and found["profile.cost.ratio"] > 0
    assert core.cost.num_steps > 20 and not core.has_work


def test_a_longer_prompt_comes_while_streams_run() -> None:
    core, seen = make_core(max_tokens=8), []
    plain = core.scheduler.plan
    core.scheduler.plan = lambda: seen.append(plain()) or seen[-1]  # type: ignore[func-returns-value, method-assign]
    work(core, random.Random(1), ((2, 4, 20),))
    assert any({e.num_tokens for e in plan.entries} >= {1, 6} for plan in seen)

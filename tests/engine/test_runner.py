"""The arrays of a step are those its plan asks for, whatever slots its requests were given before."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.engine.fake_executable import BLOCK, make_core

from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.plan import StepPlan
from octavo.engine.sampling_params import SamplingParams
from octavo.platforms.types import Batch


def watched(core: EngineCore) -> tuple[list[StepPlan], list[Batch]]:
    """Plans and batches of every step from now on."""
    plans: list[StepPlan] = []
    batches: list[Batch] = []
    run, execute = core.runner.run, core.runner.executable.run

    def keep_plan(plan: StepPlan) -> object:
        plans.append(dataclasses.replace(plan, entries=list(plan.entries)))
        tables = [[table.ids[:] for table in entry.request.tables] for entry in plan.entries]
        tokens = [entry.token_ids for entry in plan.entries]
        result = run(plan)
        if plan.entries:
            check(plan, tokens, tables, batches[-1])
        return result

    def keep_batch(batch: Batch) -> None:
        batches.append(batch)
        execute(batch)

    core.runner.run = keep_plan  # type: ignore[method-assign,assignment]
    core.runner.executable.run = keep_batch  # type: ignore[method-assign]
    return plans, batches


def check(plan: StepPlan, tokens: list[list[int]], tables: list[list[list[int]]], batch: Batch) -> None:
    """The batch, row by row, from the plan alone."""
    assert batch.token_ids.tolist() == [token for ids in tokens for token in ids]
    positions = [p for e in plan.entries for p in range(e.start, e.start + e.num_tokens)]
    assert batch.positions.tolist() == [positions]
    assert batch.token_seq.tolist() == [i for i, e in enumerate(plan.entries) for _ in range(e.num_tokens)]
    assert np.diff(batch.query_start).tolist() == [e.num_tokens for e in plan.entries]
    assert batch.kv_len.tolist() == [e.start + e.num_tokens for e in plan.entries]
    for row, (entry, held) in enumerate(zip(plan.entries, tables, strict=True)):
        num = -(-(entry.start + entry.num_tokens) // BLOCK)
        assert batch.block_tables[0][row, :num].tolist() == held[0][:num]
    for array in (batch.token_ids, batch.positions, batch.query_start, batch.kv_len, *batch.block_tables):
        assert array.dtype == np.int32 and array.flags.c_contiguous


@pytest.mark.parametrize("num_pages", [120, 14])
def test_every_batch_is_its_plan(num_pages: int) -> None:
    core = make_core(num_pages=num_pages, max_tokens=16, max_seqs=4)
    plans, batches = watched(core)
    rng = np.random.default_rng(5)
    for i in range(25):
        prompt = rng.integers(2, 50, int(rng.integers(1, 12))).tolist()
        params = SamplingParams(max_tokens=int(rng.integers(1, 30)), seed=i, ignore_eos=True)
        core.add(AddRequest(f"r{i}", prompt, params))
        for _ in range(int(rng.integers(0, 4))):
            core.step()
        if i % 6 == 5:
            core.abort(f"r{i - 1}")
    while core.has_work:
        core.step()
    assert len(batches) > 20
    kinds = {(len(p.entries) == p.num_tokens, any(not e.is_sampling for e in p.entries)) for p in plans if p.entries}
    assert len(kinds) >= 3, "decode, prefill and mixed steps are all due"
    assert (core.stats()["num_preemptions"] > 0) == (num_pages == 14)


def test_more_rows_than_one_head_takes_are_drawn_in_pieces() -> None:
    core = make_core(max_seqs=8, max_tokens=32)  # max_logits is 3
    for i in range(8):
        core.add(AddRequest(f"r{i}", [2 + i, 3], SamplingParams(seed=i, max_tokens=3, ignore_eos=True)))
    answers: dict[str, list[int]] = {}
    while core.has_work:
        for output in core.step():
            answers.setdefault(output.request_id, []).extend(output.tokens)
    for i in range(8):
        alone = make_core()
        alone.add(AddRequest("one", [2 + i, 3], SamplingParams(seed=i, max_tokens=3, ignore_eos=True)))
        expected: list[int] = []
        while alone.has_work:
            expected += [token for output in alone.step() for token in output.tokens]
        assert answers[f"r{i}"] == expected

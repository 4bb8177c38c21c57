"""What a plan entry says of the ids to run."""

from __future__ import annotations

import pytest

from octavo.engine.plan import PLACEHOLDER, PlanEntry, StepPlan
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams


def test_token_ids_are_a_slice_then_placeholders_then_drafts():
    request = Request("r", [10, 11, 12, 13], SamplingParams())
    assert PlanEntry(request, 0, 1, 2, 0, False).token_ids == [11, 12]
    assert PlanEntry(request, 0, 3, 2, 1, True).token_ids == [13, PLACEHOLDER]
    assert PlanEntry(request, 0, 3, 3, 3, True, (7, 8)).token_ids == [13, 7, 8]


def test_the_slice_does_not_move_when_tokens_are_appended():
    request = Request("r", [10, 11], SamplingParams())
    entry = PlanEntry(request, 0, 1, 1, 1, True)
    request.tokens.append(12)
    assert entry.token_ids == [11]


def test_plans_are_frozen():
    plan = StepPlan(1, [], [], 0, [], [])
    assert plan.is_empty
    with pytest.raises(AttributeError):
        plan.step = 2

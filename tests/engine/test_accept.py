"""Which sampled tokens count, token by token."""

from __future__ import annotations

import pytest

from octavo.engine.accept import accept, end_reason
from octavo.engine.plan import PlanEntry
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams


def make(output=(), **kwargs):
    request = Request("r", [1, 2, 3, 4], SamplingParams(**kwargs), eos_ids=[99])
    request.tokens += output
    return request


@pytest.mark.parametrize(
    ("output", "kwargs", "reason"),
    [
        ([5], {}, None),
        ([99], {}, "stop"),
        ([7], {"stop_token_ids": [7]}, "stop"),
        ([99], {"ignore_eos": True}, None),
        ([99], {"min_tokens": 1}, None),
        ([5, 99], {"min_tokens": 1}, "stop"),
        ([5, 6], {"max_tokens": 2}, "length"),
        ([5, 99], {"max_tokens": 2}, "stop"),
        ([5, 99], {"max_tokens": 2, "min_tokens": 2}, "length"),
    ],
)
def test_end_reason(output, kwargs, reason):
    assert end_reason(make(output, **kwargs)) == reason


@pytest.mark.parametrize(
    ("sampled", "kwargs", "kept"),
    [
        ([], {}, []),
        ([5], {}, [5]),
        ([5, 6, 7], {}, [5, 6, 7]),
        ([5, 99, 7], {}, [5, 99]),
        ([99, 5, 99, 6], {"min_tokens": 2}, [99, 5, 99]),
        ([5, 6, 7], {"max_tokens": 2}, [5, 6]),
    ],
)
def test_the_run_is_cut_at_the_first_end(sampled, kwargs, kept):
    request = make(**kwargs)
    entry = PlanEntry(request, request.epoch, 3, 4, 4, True, (5, 6, 7))
    assert accept(request, entry, sampled) == kept
    # Position 3 was known; each kept token but the last was a draft whose KV is right.
    assert request.num_computed == request.num_planned == 3 + len(kept)


def test_counts_of_another_epoch_are_left_alone():
    request = make()
    entry = PlanEntry(request, request.epoch, 3, 2, 2, True, (5,))
    request.reset_kv()
    assert accept(request, entry, [5, 6]) == [5, 6] and request.num_computed == 0

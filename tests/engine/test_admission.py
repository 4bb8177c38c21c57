"""What is refused at the door, and with which numbers."""

from __future__ import annotations

import pytest

from octavo.engine.admission import check_length, check_queue
from octavo.engine.errors import OverloadedError, RequestError, TooLargeError
from octavo.engine.kv.groups import GroupSpec
from octavo.engine.kv.manager import KVManager
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams


def ask(num_prompt, max_tokens=None, **kwargs):
    return Request("r", [1] * num_prompt, SamplingParams(max_tokens=max_tokens, **kwargs))


def test_the_smaller_of_model_and_pool_is_named():
    kv = KVManager([GroupSpec()], 5, 16)
    with pytest.raises(TooLargeError, match=r"65 tokens, but .* pool of 4 blocks of 16 tokens holds 64") as caught:
        check_length(ask(65), kv, 4096)
    assert caught.value.param == "prompt" and caught.value.code == "context_length_exceeded"
    with pytest.raises(TooLargeError, match=r"10 tokens and 41 more .* limit is 50 tokens") as caught:
        check_length(ask(10, 41), kv, 50)
    assert caught.value.param == "max_tokens"


def test_exactly_the_limit_fits():
    kv = KVManager([GroupSpec()], 5, 16)
    check_length(ask(63), kv, 4096)
    check_length(ask(60, 4), kv, 4096)
    check_length(ask(64, 0, prompt_logprobs=1), kv, 4096)
    with pytest.raises(TooLargeError):
        check_length(ask(64), kv, 4096)
    with pytest.raises(RequestError, match="no tokens"):
        check_length(ask(0), kv, 4096)


def test_all_choices_must_find_a_place_in_the_queue():
    check_queue(ask(1, n=3), 7, 10)
    with pytest.raises(OverloadedError, match="8 choices wait and 3 more"):
        check_queue(ask(1, n=3), 8, 10)

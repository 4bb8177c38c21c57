"""Every senseless value is refused by name, before anything grows with it."""

from __future__ import annotations

import math
import time

import msgspec
import pytest

from octavo.engine.errors import RequestError
from octavo.engine.sampling_params import BOUNDS, SamplingParams, check_token_ids

VOCAB = 32000


def refuse(param, **kwargs):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**kwargs).validate(VOCAB)
    assert caught.value.param == param and caught.value.status == 400
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    return str(caught.value)


def test_defaults_are_valid_and_survive_the_wire():
    params = SamplingParams()
    params.validate(VOCAB)
    full = SamplingParams(
        temperature=0.5, logit_bias={3: -100.0}, bad_words=[[1, 2]], stop=["x"], seed=2**64 - 1, allowed_token_ids=[1]
    )
    full.validate(VOCAB)
    for value in (params, full):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=SamplingParams) == value
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"temprature": 1}), type=SamplingParams)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 5_000_000),
        ("n", 0),
        ("n", True),
        ("logprobs", 1_000_000_000),
        ("logprobs", -1),
        ("prompt_logprobs", -1),
        ("temperature", -1),
        ("temperature", 1e308),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("top_p", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("typical_p", 0),
        ("repetition_penalty", 0),
        ("min_p", 2),
        ("top_k", -5),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("presence_penalty", 1e9),
        ("frequency_penalty", -2.5),
        ("seed", 2**64),
        ("seed", 0.5),
        ("temperature", None),
    ],
)
def test_values_outside_the_range_name_the_parameter(param, value):
    text = refuse(param, **{param: value})
    assert param in text


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_both_ends_of_every_range_are_valid(name):
    bound = BOUNDS[name]
    for value in (bound.high, bound.low + (1e-6 if bound.is_low_open else 0)):
        extra = {"prompt_logprobs": 0} if name == "max_tokens" else {}
        SamplingParams(**{name: value, **extra}).validate(VOCAB)


def test_huge_requests_are_refused_quickly():
    begin = time.process_time()
    refuse("stop", stop=["x"] * 100_000)
    refuse("stop_token_ids", stop_token_ids=[1] * 100_000)
    refuse("logit_bias", logit_bias=dict.fromkeys(range(20_000), 1.0))
    refuse("bad_words", bad_words=[[1]] * 100_000)
    refuse("bad_words", bad_words=[[1] * 100_000])
    refuse("allowed_token_ids", allowed_token_ids=[1] * 40_000)
    refuse("stop", stop=["x" * 1_000_000])
    assert time.process_time() - begin < 0.1


@pytest.mark.parametrize("token", [191222, VOCAB, -1, 999999999, 1.0, True, "AI"])
def test_ids_outside_the_vocabulary(token):
    refuse("logit_bias", logit_bias={token: -100.0})
    refuse("stop_token_ids", stop_token_ids=[0, token])
    refuse("bad_words", bad_words=[[0, token]])
    refuse("allowed_token_ids", allowed_token_ids=[token])
    with pytest.raises(RequestError, match="prompt holds") as caught:
        check_token_ids("prompt", [0, token], VOCAB)
    assert caught.value.param == "prompt"


def test_logit_bias_values():
    SamplingParams(logit_bias={}).validate(VOCAB)
    SamplingParams(logit_bias={0: -100, VOCAB - 1: 100}).validate(VOCAB)
    for bias in (-100.5, 101, math.nan, "1", None):
        refuse("logit_bias", logit_bias={5: bias})


def test_something_must_remain_to_sample():
    refuse("allowed_token_ids", allowed_token_ids=[])
    refuse("logit_bias", allowed_token_ids=[1, 2], logit_bias={1: -100.0, 2: -100.0})
    SamplingParams(allowed_token_ids=[1, 2], logit_bias={1: -100.0}).validate(VOCAB)
    with pytest.raises(RequestError, match="whole vocabulary"):
        SamplingParams(logit_bias=dict.fromkeys(range(8), -100.0)).validate(8)


def test_combinations():
    refuse("min_tokens", min_tokens=5, max_tokens=4)
    refuse("stop", stop=["a", ""])
    refuse("bad_words", bad_words=[[]])
    SamplingParams(max_tokens=0, prompt_logprobs=0).validate(VOCAB)


def test_params_cannot_be_changed():
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 0.0


def test_bounds_of_whole_numbers_are_told_to_the_last_digit():
    assert refuse("max_tokens", max_tokens="5") == "max_tokens is '5'; it must be an integer in [0, 2147483647]"
    assert refuse("top_p", top_p=0).endswith("in (0, 1]")

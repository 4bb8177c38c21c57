"""Request bodies: every field is honoured, harmless or refused by name; sizes are bounded before they cost anything."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.engine.server.conftest import LiveServer

Post = Callable[..., httpx.Response]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ASK = [{"role": "user", "content": "hi"}]


def raw(server: LiveServer, body: bytes, path: str = CHAT, kind: str = "application/json") -> httpx.Response:
    return httpx.post(server.url + path, content=body, headers={"content-type": kind}, trust_env=False)


def refused(answer: httpx.Response, param: str | None) -> dict[str, Any]:
    """The error of a 400 that names `param`, in OpenAI's shape."""
    error: dict[str, Any] = answer.json()["error"]
    assert answer.status_code == 400, error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["code"]
    assert "\n" not in error["message"]
    return error


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (CHAT, "n", 5_000_000),
        (CHAT, "top_logprobs", 1_000_000_000),
        (CHAT, "prompt_logprobs", -1),
        (COMPLETIONS, "prompt_logprobs", -1),
        (COMPLETIONS, "prompt", [999_999_999]),
        (COMPLETIONS, "prompt", [-1]),
        (CHAT, "stop", ["x"] * 100_000),
        (COMPLETIONS, "logprobs", 1_000_000_000),
        (CHAT, "stop", ["x" * 5000]),
        (CHAT, "logit_bias", {str(i): 1 for i in range(5000)}),
        (CHAT, "bad_words", ["x"] * 5000),
        (CHAT, "stop_token_ids", [1] * 5000),
        (CHAT, "max_tokens", 10**12),
        (CHAT, "seed", 2**70),
    ],
)
def test_huge_numbers_and_lists_are_refused_at_once(
    post: Post, server: LiveServer, path: str, field: str, value: Any
) -> None:
    body: dict[str, Any] = {"messages": ASK} if path == CHAT else {"prompt": "a"}
    if field == "top_logprobs":
        body["logprobs"] = True
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()  # of client and server both; wall time would measure the neighbours of this machine
    refused(post(path, **{**body, field: value}), field)
    assert time.process_time() - started < 1  # five million choices would take minutes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10  # KiB
    assert server.engine.requests == []
    assert post(CHAT, messages=ASK).status_code == 200


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("temperature", "-1"),
        ("temperature", "1e308"),
        ("temperature", "1e999"),
        ("temperature", "NaN"),
        ("temperature", "-Infinity"),
        ("temperature", '"hot"'),
        ("top_p", "-1"),
        ("top_p", "0"),
        ("top_p", "1.5"),
        ("repetition_penalty", "0"),
        ("min_p", "2"),
        ("top_k", "-5"),
        ("max_tokens", "0"),
        ("presence_penalty", "1e9"),
        ("n", "0"),
        ("n", "true"),
        ("n", "1.5"),
        ("seed", "NaN"),
    ],
)
def test_senseless_numbers_are_refused_by_name(server: LiveServer, field: str, text: str) -> None:
    body = f'{{"messages":[{{"role":"user","content":"hi"}}],"{field}": {text}}}'
    refused(raw(server, body.encode()), field)
    assert server.engine.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 1},
        {"top_k": -1},
        {"logit_bias": {}},
        {"logit_bias": {"5": -100}},
        {"seed": -1},
        {"stop": None},
        {"stop": "x"},
        {"tools": [], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"n": 1, "stream": None, "max_tokens": None},
        {"min_tokens": 1, "ignore_eos": True, "stop_token_ids": [7], "allowed_token_ids": [5, 6], "priority": -3},
    ],
)
def test_legal_extremes_are_served(post: Post, fields: dict[str, Any]) -> None:
    answer = post(CHAT, messages=ASK, **fields)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("bias", [{"191222": -100}, {"AI": -100}, {"-1": 1}, {"5": 101}, {"5": -100.5}, {"٣": 1}])
def test_bias_outside_vocabulary_or_range_is_refused(post: Post, bias: dict[str, float]) -> None:
    refused(post(CHAT, messages=ASK, logit_bias=bias), "logit_bias")


def test_bias_reaches_the_sampler(post: Post, server: LiveServer) -> None:
    post(CHAT, messages=ASK, logit_bias={"5": -100})
    assert server.engine.requests[-1].params.logit_bias == {5: -100.0}


def test_unknown_field_is_refused_by_name(post: Post) -> None:
    error = refused(post(CHAT, messages=ASK, temprature=1), "temprature")
    assert error["code"] == "unknown_field" and error["message"].endswith("did you mean temperature?")
    assert refused(post(CHAT, messages=ASK, zebra=1), "zebra")["message"].endswith("of this endpoint; remove it")
    assert refused(post(CHAT, messages=[{**ASK[0], "colour": 1}]), "messages[0].colour")["code"] == "unknown_field"
    refused(post(CHAT, messages=ASK, stream=True, stream_options={"x": 1}), "stream_options.x")
    assert refused(post(CHAT), "messages")["code"] == "missing_field"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("functions", [{}]),
        ("modalities", ["text", "audio"]),
        ("chat_template", "{{ x }}"),
        ("reasoning_effort", "high"),
        ("store", True),
        ("service_tier", "flex"),
        ("best_of", 2),
        ("use_beam_search", True),
    ],
)
def test_what_is_not_served_is_refused_not_dropped(post: Post, field: str, value: Any) -> None:
    assert refused(post(CHAT, messages=ASK, **{field: value}), field)["code"] == "unsupported_parameter"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "system", "content": None, "cache_control": {}}], "messages[0].content"),
        ([{"role": "user", "content": "x", "refusal": "no"}], "messages[0].refusal"),
        ([{"role": "assistant", "content": "x", "refusal": "no"}], "messages[0].refusal"),
        ([{"role": "assistant", "content": None, "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": "x", "colour": 1}]}], "messages[0].content[0].colour"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}] * 300}], "messages[0].content"),
        ([{"role": "user", "content": "x"}] * 5000, "messages"),
        ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls"),
    ],
)
def test_bad_messages_are_refused_by_name(post: Post, messages: Any, param: str) -> None:
    refused(post(CHAT, messages=messages), param)


def test_contradictions_are_refused(post: Post) -> None:
    refused(post(CHAT, messages=ASK, top_logprobs=2), "top_logprobs")
    refused(post(CHAT, messages=ASK, max_tokens=2, max_completion_tokens=3), "max_tokens")
    refused(post(CHAT, messages=ASK, min_tokens=5, max_tokens=2), "min_tokens")
    refused(post(CHAT, messages=ASK, cache_salt=""), "cache_salt")
    refused(post(CHAT, messages=ASK, priority=2**40), "priority")
    refused(post(COMPLETIONS, prompt="a", max_tokens=0), "max_tokens")


def test_prompt_that_cannot_fit_is_refused_with_both_sizes(post: Post) -> None:
    error = refused(post(COMPLETIONS, prompt="x" * 510, max_tokens=3), "prompt")
    assert error["code"] == "context_length_exceeded"
    assert "510" in error["message"] and "512" in error["message"]
    assert post(COMPLETIONS, prompt="x" * 509, max_tokens=3).status_code == 200
    refused(post(COMPLETIONS, prompt="x" * 20_000_000), "prompt")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"messages":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"messages":[],"chat_template_kwargs":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"\xff"}]}',
        b'{"messages":[{"role":"user","content":"x"}]} trailing',
    ],
)
def test_broken_json_is_a_400(server: LiveServer, body: bytes) -> None:
    answer = raw(server, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_body_over_the_limit_is_a_413(server: LiveServer) -> None:
    big = b'{"x":"' + b"a" * (33 << 20) + b'"}'
    assert raw(server, big).status_code == 413

    def parts() -> Any:
        for start in range(0, len(big), 1 << 20):
            yield big[start : start + (1 << 20)]

    answer = httpx.post(
        server.url + CHAT, content=parts(), headers={"content-type": "application/json"}, trust_env=False
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


def test_other_content_types_are_a_415(server: LiveServer) -> None:
    assert raw(server, b"{}", kind="text/plain").status_code == 415
    assert raw(server, b"{}", kind="application/json; charset=utf-8").json()["error"]["code"] == "missing_field"


def test_model_that_is_not_served_is_a_404(post: Post) -> None:
    answer = post(CHAT, messages=ASK, model="gpt-9")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert post(CHAT, messages=ASK, model="org/alias").status_code == 200

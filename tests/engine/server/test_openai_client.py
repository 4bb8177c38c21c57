"""The official `openai` client against the server: results, streams and the exception classes users catch."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.fakes import Script, endless, piece_ids

from octavo.engine.errors import OverloadedError

ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, http_client=http) as made,
    ):
        yield made


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=ASK, temperature=0, max_tokens=8, user="me")
    assert answer.choices[0].message.content == "hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.completion_tokens == 3
    assert answer.usage.prompt_tokens_details is not None
    assert answer._request_id


def test_chat_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny", messages=ASK, stream=True, stream_options={"include_usage": True}, logprobs=True, top_logprobs=1
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hello world"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 3
    logprobs = chunks[1].choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and logprobs.content[0].token == "hello"


def test_chat_helper_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="tiny", messages=ASK) as stream:
        assert stream.get_final_completion().choices[0].message.content == "hello world"


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="a", logprobs=1, echo=True)
    assert answer.choices[0].text == "ahello world"
    assert answer.choices[0].logprobs is not None and answer.choices[0].logprobs.text_offset == [0, 1, 6]
    parts = client.completions.create(model="tiny", prompt=["a", "b"], stream=True)
    assert sorted(c.choices[0].index for c in parts if c.choices[0].finish_reason) == [0, 1]


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "org/alias"]
    assert client.models.retrieve("org/alias").id == "org/alias"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_errors_are_the_classes_users_catch(client: openai.OpenAI, server: LiveServer) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="tiny", messages=ASK, temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=ASK)
    assert missing.value.code == "model_not_found"
    server.engine.script = Script([], reject=OverloadedError("full"))
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="tiny", messages=ASK, stream=True)


def test_engine_death_in_mid_stream_raises(client: openai.OpenAI, server: LiveServer) -> None:
    server.engine.script = endless(piece_ids(b" and")[0], 0.02)
    stream = client.chat.completions.create(model="tiny", messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="the engine is gone"):
        for place, _ in enumerate(stream):
            if place == 3:
                server.call(server.engine.kill)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="tiny", messages=ASK)


def test_wrong_key_is_an_authentication_error() -> None:
    from octavo.engine.server.state import Settings

    server = LiveServer(Settings(("tiny",)), ("right",))
    try:
        with httpx.Client(trust_env=False) as http:
            wrong = openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0, http_client=http)
            with pytest.raises(openai.AuthenticationError):
                wrong.models.list()
            right = openai.OpenAI(base_url=server.url + "/v1", api_key="right", max_retries=0, http_client=http)
            assert right.chat.completions.create(model="tiny", messages=ASK).choices
    finally:
        server.stop()

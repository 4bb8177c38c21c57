"""/v1/chat/completions over a real socket: shapes, streams, stop strings, characters, usage, logprobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.fakes import Script, make_text, piece_ids

from octavo.engine.server.auth import cache_salt

Post = Callable[..., httpx.Response]
PATH = "/v1/chat/completions"
ASK = [{"role": "user", "content": "hi"}]


def events(text: str) -> list[Any]:
    """The data of a stream; the last one must be [DONE]."""
    lines = [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def joined(chunks: list[Any], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content", "") for c in chunks for choice in c["choices"] if choice["index"] == index
    )


def test_answer_has_the_shape_clients_expect(post: Post, server: LiveServer) -> None:
    server.engine.num_cached = 2
    answer = post(PATH, model="tiny", messages=ASK).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "tiny"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello world", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    prompt = len("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n") - 3 * len("<|im_start|>") + 2 + 3
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 3,  # hello, world, and the end token
        "total_tokens": prompt + 3,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_user_text_cannot_become_a_control_token(post: Post, server: LiveServer) -> None:
    post(PATH, messages=[{"role": "user", "content": "<|im_end|>"}])
    assert server.engine.requests[-1].prompt.count(1) == 1  # the template's own


def test_stream_begins_with_the_role_and_ends_with_the_reason(post: Post) -> None:
    answer = post(PATH, messages=ASK, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks = events(answer.text)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(chunks) == "hello world"
    assert chunks[-1]["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len({c["id"] for c in chunks}) == 1


def test_length_is_the_reason_when_max_tokens_ends_it(post: Post) -> None:
    choice = post(PATH, messages=ASK, max_tokens=1).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("hello", "length")
    choice = post(PATH, messages=ASK, max_completion_tokens=1).json()["choices"][0]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(("stop", "right"), [("DEFG", "abc"), ("DEFX", "abcDEFGHtail"), ("c", "ab")])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_stop_string_over_several_tokens_never_leaks(
    post: Post, server: LiveServer, stop: str, right: str, step: int
) -> None:
    tokens = piece_ids(b"abc", b"DE", b"F", b"GH", b"tail")
    server.engine.script = Script([tokens[i : i + step] for i in range(0, 5, step)], step_s=0.002)
    chunks = events(post(PATH, messages=ASK, stream=True, stop=[stop]).text)
    whole = post(PATH, messages=ASK, stop=stop).json()["choices"][0]
    assert joined(chunks) == whole["message"]["content"] == right
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"] == "stop"
    assert server.engine.aborted == []
    is_engine_told = stop != "DEFX" and step != 5  # with all tokens in one step the engine has ended it itself
    assert len(server.engine.finished) == (2 if is_engine_told else 0)


def test_stop_string_is_kept_when_asked_for(post: Post, server: LiveServer) -> None:
    server.engine.script = Script([[t] for t in piece_ids(b"abc", b"DE", b"F", b"GH")])
    answer = post(PATH, messages=ASK, stop="EF", include_stop_str_in_output=True).json()
    assert answer["choices"][0]["message"]["content"] == "abcDEF"


def test_character_in_two_tokens_arrives_whole(post: Post, server: LiveServer) -> None:
    server.engine.script = Script([[t] for t in piece_ids(b"\xf0\x9f", b"\x8c\xb6", b" ok")], step_s=0.002)
    chunks = events(post(PATH, messages=ASK, stream=True).text)
    assert not any("\ufffd" in c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert joined(chunks) == "\U0001f336 ok"


def test_unfinished_character_at_the_end_is_one_replacement(post: Post, server: LiveServer) -> None:
    server.engine.script = Script([[t] for t in piece_ids(b"hello", b"\xf0\x9f")], end="length")
    chunks = events(post(PATH, messages=ASK, stream=True).text)
    assert joined(chunks) == "hello\ufffd"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_stream_without_asking_for_usage_has_none(post: Post, options: Any) -> None:
    extra = {} if options is None else {"stream_options": options}
    chunks = events(post(PATH, messages=ASK, stream=True, **extra).text)
    assert all(chunk.get("usage") is None for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)


def test_stream_with_usage_has_it_once_at_the_end(post: Post) -> None:
    chunks = events(post(PATH, messages=ASK, stream=True, stream_options={"include_usage": True}).text)
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == post(PATH, messages=ASK).json()["usage"]


def test_stream_options_without_stream_is_refused(post: Post) -> None:
    answer = post(PATH, messages=ASK, stream_options={"include_usage": True})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stream_options"


def test_n_gives_every_choice_its_own_text(post: Post, server: LiveServer) -> None:
    one, two = piece_ids(b"hello", b"tail")
    server.engine.choose = lambda request: Script([[one if request.choice == 0 else two]])
    answer = post(PATH, messages=ASK, n=2, seed=5).json()
    assert [c["message"]["content"] for c in answer["choices"]] == ["hello", "tail"]
    first, second = server.engine.requests
    assert (first.choice, second.choice) == (0, 1)
    assert first.params == second.params
    assert first.params.seed == 5
    assert answer["usage"]["prompt_tokens"] == len(first.prompt)
    chunks = events(post(PATH, messages=ASK, n=2, stream=True).text)
    assert (joined(chunks, 0), joined(chunks, 1)) == ("hello", "tail")
    assert sum(c["choices"][0]["delta"].get("role") == "assistant" for c in chunks) == 2


def test_logprobs_without_top_have_bytes_and_no_alternatives(post: Post, server: LiveServer) -> None:
    server.engine.script = Script([[t] for t in piece_ids(b"\xf0\x9f", b"\x8c\xb6", b" ok")])
    content = post(PATH, messages=ASK, logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [[0xF0, 0x9F], [0x8C, 0xB6], [32, 111, 107]]
    assert [entry["top_logprobs"] for entry in content] == [[], [], []]
    assert content[2]["token"] == " ok"


def test_top_logprobs_are_listed_best_first(post: Post, server: LiveServer) -> None:
    content = post(PATH, messages=ASK, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in content[0]["top_logprobs"]] == [-0.1, -0.2]
    assert server.engine.requests[-1].params.logprobs == 2


def test_streamed_logprobs_are_those_of_the_whole_answer(post: Post, server: LiveServer) -> None:
    tokens = piece_ids(b"abc", b"DE", b"F", b"GH", b"tail")
    for stop in (None, "EFG", "lost"):
        server.engine.script = Script([[t] for t in tokens])
        extra = {} if stop is None else {"stop": stop}
        chunks = events(post(PATH, messages=ASK, stream=True, logprobs=True, top_logprobs=1, **extra).text)
        streamed = [e for c in chunks for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
        whole = post(PATH, messages=ASK, logprobs=True, top_logprobs=1, **extra).json()["choices"][0]
        assert streamed == whole["logprobs"]["content"]
        assert len(streamed) == (2 if stop == "EFG" else 5)  # D is of the token that the stop string cuts


def test_several_tokens_in_one_step_are_one_chunk(post: Post, server: LiveServer) -> None:
    server.engine.script = Script([piece_ids(b"hello", b" world", b" and")])
    chunks = events(post(PATH, messages=ASK, stream=True).text)
    assert len(chunks) == 3


def prompt_of(post: Post, server: LiveServer, messages: list[dict[str, Any]], **extra: Any) -> list[int]:
    """What the engine was asked to go on from."""
    answer = post(PATH, messages=messages, **extra)
    assert answer.status_code == 200, answer.text
    return server.engine.requests[-1].prompt


def test_text_parts_and_developer_role_reach_the_prompt(post: Post, server: LiveServer) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given = prompt_of(post, server, [{"role": "developer", "content": parts}, *ASK])
    assert given == prompt_of(post, server, [{"role": "system", "content": "a\nb"}, *ASK])
    assert given == make_text().encode_chat([{"role": "system", "content": parts}, *ASK]), "as LLM.chat has it"


@pytest.mark.parametrize("silent", [{"content": None}, {}, {"content": None, "tool_calls": None}, {"content": []}])
def test_an_assistant_turn_without_text_is_an_empty_one(post: Post, server: LiveServer, silent: dict[str, Any]) -> None:
    talk = [*ASK, {"role": "assistant", **silent}, *ASK]
    assert prompt_of(post, server, talk) == prompt_of(post, server, [*ASK, {"role": "assistant", "content": ""}, *ASK])


def test_a_refusal_is_what_the_assistant_said(post: Post, server: LiveServer) -> None:
    said = prompt_of(post, server, [*ASK, {"role": "assistant", "content": "no"}, *ASK])
    for turn in ({"content": None, "refusal": "no"}, {"content": [{"type": "refusal", "refusal": "no"}]}):
        assert prompt_of(post, server, [*ASK, {"role": "assistant", **turn}, *ASK]) == said


def test_a_conversation_with_cache_marks_and_names_is_answered_without_them(post: Post, server: LiveServer) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "s", **mark}]},
        {"role": "user", "content": "hi", "name": "ada", **mark},
        {"role": "assistant", "content": "yes", "annotations": [], "audio": None, "refusal": None, "tool_calls": []},
        {"role": "user", "content": "so"},
    ]
    plain = [{"role": turn["role"], "content": "s" if n == 0 else turn["content"]} for n, turn in enumerate(turns)]
    assert prompt_of(post, server, turns) == prompt_of(post, server, plain)
    assert post(PATH, messages=turns).headers["x-octavo-ignored"] == "messages.cache_control"
    assert post("/tokenize", messages=turns).headers["x-octavo-ignored"] == "messages.cache_control"
    cited = [*ASK, {"role": "assistant", "content": "x", "annotations": [{"type": "url_citation"}]}, *ASK]
    assert post(PATH, messages=cited, user="u").headers["x-octavo-ignored"] == "user, messages.annotations"


def test_the_servers_own_answer_can_be_sent_back(post: Post) -> None:
    message = post(PATH, messages=ASK).json()["choices"][0]["message"]
    again = post(PATH, messages=[*ASK, message, *ASK])
    assert again.status_code == 200 and "x-octavo-ignored" not in again.headers


def test_final_message_can_be_continued(post: Post, server: LiveServer) -> None:
    turns = [*ASK, {"role": "assistant", "content": "he"}]
    bad = post(PATH, messages=turns, continue_final_message=True)
    assert bad.status_code == 400
    post(PATH, messages=turns, continue_final_message=True, add_generation_prompt=False)
    assert server.engine.requests[-1].prompt[-2:] == [2 + ord("h"), 2 + ord("e")]


def test_cache_salt_of_a_request_narrows_the_cache(post: Post, server: LiveServer) -> None:
    post(PATH, messages=ASK)
    post(PATH, messages=ASK, cache_salt="mine")
    plain, salted = (request.salt for request in server.engine.requests)
    assert plain == b""
    assert salted == cache_salt(b"", "mine") != cache_salt(b"tenant", "mine")


def test_harmless_fields_are_named_in_a_header(post: Post) -> None:
    answer = post(PATH, messages=ASK, user="u", metadata={"a": "b"}, store=False, service_tier="auto")
    assert answer.status_code == 200
    assert answer.headers["x-octavo-ignored"] == "user, metadata, store, service_tier"
    assert "x-octavo-ignored" not in post(PATH, messages=ASK).headers


def test_long_conversation_is_rendered_the_same_off_the_loop(post: Post, server: LiveServer) -> None:
    answer = post(PATH, messages=[{"role": "user", "content": "x" * 2500}])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    huge = post(PATH, messages=[{"role": "user", "content": "x" * 3_000_000}])
    assert huge.json()["error"]["code"] == "context_length_exceeded"
    assert server.engine.requests == []

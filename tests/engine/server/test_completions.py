"""/v1/completions over a real socket: prompt forms, echo with logprobs, several prompts and choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.fakes import Script, fake_logprobs, piece_ids

Post = Callable[..., httpx.Response]
PATH = "/v1/completions"


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]


def test_answer_has_the_shape_clients_expect(post: Post, server: LiveServer) -> None:
    answer = post(PATH, model="tiny", prompt="hi").json()
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": "hello world", "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"]["prompt_tokens"] == 2
    assert server.engine.requests[-1].params.max_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [[99, 100]]),
        (["ab", "c"], [[99, 100], [101]]),
        ([99, 100], [[99, 100]]),
        ([[99, 100], [101]], [[99, 100], [101]]),
    ],
)
def test_every_form_of_prompt_reaches_the_engine(post: Post, server: LiveServer, prompt: Any, ids: Any) -> None:
    answer = post(PATH, prompt=prompt)
    assert answer.status_code == 200, answer.text
    assert [request.prompt for request in server.engine.requests] == ids
    assert [choice["index"] for choice in answer.json()["choices"]] == list(range(len(ids)))


@pytest.mark.parametrize("prompt", [[], "", [[]], ["a", 1], [1, [2]], [-1], [999_999_999], [[5], [-1]], [1.5], None])
def test_senseless_prompts_are_refused_by_name(post: Post, server: LiveServer, prompt: Any) -> None:
    answer = post(PATH, prompt=prompt)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("prompt")
    assert server.engine.requests == []


def test_prompts_times_n_keep_their_indices(post: Post, server: LiveServer) -> None:
    first, second = piece_ids(b"hello", b"tail")
    server.engine.choose = lambda request: Script([[first if request.choice == 0 else second]])
    answer = post(PATH, prompt=["a", "b"], n=2).json()
    assert [choice["text"] for choice in answer["choices"]] == ["hello", "tail", "hello", "tail"]
    assert [request.prompt for request in server.engine.requests] == [[99], [99], [100], [100]]
    assert answer["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("prompt", ["abcdef", [99, 100, 101, 102, 103, 104]])
def test_echo_with_logprobs_scores_the_prompt(post: Post, server: LiveServer, max_tokens: int, prompt: Any) -> None:
    answer = post(PATH, prompt=prompt, echo=True, logprobs=2, max_tokens=max_tokens).json()
    choice = answer["choices"][0]
    lists = choice["logprobs"]
    num = 6 + max_tokens
    assert {name: len(values) for name, values in lists.items()} == dict.fromkeys(
        ("tokens", "token_logprobs", "top_logprobs", "text_offset"), num
    )
    assert lists["token_logprobs"][0] is None
    assert lists["top_logprobs"][0] is None
    assert lists["token_logprobs"][1:6] == [fake_logprobs(99 + i, 2).logprob for i in range(1, 6)]
    assert lists["tokens"][:6] == list("abcdef")
    assert lists["text_offset"] == [0, 1, 2, 3, 4, 5, 6][:num]
    assert choice["text"] == "abcdef" + ("hello" if max_tokens else "")
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == max_tokens
    streamed = events(post(PATH, prompt=prompt, echo=True, logprobs=2, max_tokens=max_tokens, stream=True).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == choice["text"]
    for name, values in lists.items():
        parts = [chunk["choices"][0]["logprobs"] for chunk in streamed]
        assert [value for part in parts if part for value in part[name]] == values


def test_logprobs_name_the_token_itself_even_if_it_is_not_among_the_best(post: Post) -> None:
    lists = post(PATH, prompt="a", logprobs=1).json()["choices"][0]["logprobs"]
    assert set(lists["top_logprobs"][0]) == {"\x08", "hello"}
    assert lists["text_offset"] == [0, 5]


def test_part_of_a_character_is_spelled_as_bytes(post: Post, server: LiveServer) -> None:
    server.engine.script = Script([[t] for t in piece_ids(b"abc", b"\xf0\x9f", b"\x8c\xb6", b" ok")])
    lists = post(PATH, prompt="a", logprobs=0).json()["choices"][0]["logprobs"]
    assert lists["tokens"] == ["abc", "bytes:\\xf0\\x9f", "bytes:\\x8c\\xb6", " ok"]
    assert lists["text_offset"] == [0, 3, 3, 4]


def test_echo_without_logprobs_is_the_text_alone(post: Post, server: LiveServer) -> None:
    choice = post(PATH, prompt="ab", echo=True).json()["choices"][0]
    assert (choice["text"], choice["logprobs"]) == ("abhello world", None)
    assert server.engine.requests[-1].params.prompt_logprobs is None
    streamed = events(post(PATH, prompt="ab", echo=True, stream=True).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == "abhello world"


def test_prompt_logprobs_come_in_the_known_shape(post: Post) -> None:
    choice = post(PATH, prompt="abc", prompt_logprobs=1).json()["choices"][0]
    assert choice["prompt_logprobs"][0] is None
    entry = choice["prompt_logprobs"][1]
    assert entry["100"] == {"logprob": -1.0, "rank": 1, "decoded_token": "b"}
    assert entry["10"]["logprob"] == -0.1
    assert post(PATH, prompt="abc", prompt_logprobs=1, stream=True).status_code == 400


def test_usage_in_streams_only_when_asked(post: Post) -> None:
    plain = events(post(PATH, prompt="a", stream=True).text)
    assert all("usage" not in chunk for chunk in plain)
    asked = events(post(PATH, prompt="a", stream=True, stream_options={"include_usage": True}).text)
    assert [chunk["usage"] is None for chunk in asked] == [True] * (len(asked) - 1) + [False]
    assert asked[-1]["choices"] == []


def test_infilling_and_ranking_are_refused_or_honest(post: Post) -> None:
    assert post(PATH, prompt="a", suffix="b").json()["error"]["param"] == "suffix"
    assert post(PATH, prompt="a", suffix="").status_code == 200
    assert post(PATH, prompt="a", best_of=3).json()["error"]["param"] == "best_of"
    assert post(PATH, prompt="a", best_of=2, n=2).status_code == 200


def test_bad_words_are_refused_with_and_without_a_space(post: Post, server: LiveServer) -> None:
    post(PATH, prompt="a", bad_words=["ab"])
    assert server.engine.requests[-1].params.bad_words == [[99, 100], [34, 99, 100]]


def test_tokenize_and_detokenize_are_inverse(post: Post) -> None:
    answer = post("/tokenize", prompt="héy", return_token_strs=True).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"]) == 4
    assert answer["max_model_len"] == 512
    assert post("/detokenize", tokens=answer["tokens"]).json() == {"prompt": "héy"}
    chat = post("/tokenize", messages=[{"role": "user", "content": "a"}]).json()
    assert post("/detokenize", tokens=chat["tokens"]).json()["prompt"].startswith("<|im_start|>user\na<|im_end|>")
    assert post("/detokenize", tokens=[-1]).status_code == 400
    assert post("/tokenize").status_code == 400

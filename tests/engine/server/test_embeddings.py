"""/v1/embeddings and /pooling over a real socket: shapes, encodings, errors by item, fairness, admission, ends."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from tests.engine.server.conftest import LiveServer, wait_until
from tests.engine.server.poolers import FakePooler, use, use_model
from tests.golden import tiny_sentences

from octavo.engine.embedder import Embedder

Post = Callable[..., httpx.Response]
EMBED = "/v1/embeddings"


@pytest.fixture
def pooler(server: LiveServer) -> FakePooler:
    return use(server)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sentences.write_case("prompt", tmp_path_factory.mktemp("model"))


def vectors(answer: httpx.Response, name: str = "embedding") -> list[list[float]]:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [item["index"] for item in body["data"]] == list(range(len(body["data"])))
    return [item[name] for item in body["data"]]


def test_base64_is_little_endian_float32_and_float_is_numbers(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [1.0, -2.0, 0.5, 0.25]
    assert vectors(post(EMBED, input="a", encoding_format="base64")) == ["AACAPwAAAMAAAAA/AACAPg=="]
    assert vectors(post(EMBED, input="a", encoding_format="float")) == [[1.0, -2.0, 0.5, 0.25]]
    assert vectors(post(EMBED, input="a")) == [[1.0, -2.0, 0.5, 0.25]]
    bad = post(EMBED, input="a", encoding_format="hex")
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "encoding_format")


def test_answers_have_openais_shape_and_usage(pooler: FakePooler, post: Post) -> None:
    answer = post(EMBED, input=["ab", "cde"], model="tiny", user="me")
    assert vectors(answer) == [[2, 99, 100, 0], [3, 101, 103, 0]]
    body = answer.json()
    assert {key: body[key] for key in ("object", "model", "usage")} == {
        "object": "list",
        "model": "tiny",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    assert body["data"][0]["object"] == "embedding" and answer.headers["x-octavo-ignored"] == "user"
    assert post(EMBED, input="a", model="other").status_code == 404


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("", "input"),
        ([], "input"),
        (["a", ""], "input[1]"),
        ([""], "input[0]"),
        ([-1], "input"),
        ([[999999999]], "input[0]"),
        ([[1], []], "input[1]"),
        (["a", [1]], "input"),
        ([1, "a"], "input"),
        (["x" * 33], "input[0]"),
        (["a"] * ((1 << 15) + 1), "input"),
    ],
)
def test_inputs_that_cannot_be_are_named(pooler: FakePooler, post: Post, given: Any, param: str) -> None:
    answer = post(EMBED, input=given)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert pooler.core.is_idle


def test_texts_and_ids_in_every_shape(pooler: FakePooler, post: Post) -> None:
    assert vectors(post(EMBED, input=" ")) == [[1, 34, 34, 0]]
    assert vectors(post(EMBED, input=[1, 2, 3])) == [[3, 1, 3, 0]]
    assert vectors(post(EMBED, input=[[1, 2], [3]])) == [[2, 1, 2, 0], [1, 3, 3, 0]]
    assert len(vectors(post(EMBED, input=["a"] * 5000))) == 5000


def test_one_bad_input_fails_the_call_or_says_so_in_its_place(pooler: FakePooler, post: Post) -> None:
    texts = ["ab", "", "x" * 40, "c"]
    assert post(EMBED, input=texts).status_code == 400
    answer = post(EMBED, input=texts, item_errors=True)
    good, empty, long, last = answer.json()["data"]
    assert good["embedding"] == [2, 99, 100, 0] and last["embedding"] == [1, 101, 101, 0]
    assert (empty["object"], empty["error"]["param"], empty["error"]["message"]) == (
        "error",
        "input[1]",
        "input[1]: it is empty",
    )
    assert long["error"]["code"] == "context_length_exceeded" and "32 is the limit" in long["error"]["message"]
    assert answer.json()["usage"]["prompt_tokens"] == 3
    nothing = post(EMBED, input=["", ""], item_errors=True)
    assert [item["object"] for item in nothing.json()["data"]] == ["error", "error"]
    wait_until(lambda: pooler.core.is_idle)


def test_what_is_not_finite_is_an_error_never_null(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [float("inf") if item.index == 1 else 1.0] * 4
    strict = post(EMBED, input=["a", "b", "c"])
    assert (strict.status_code, strict.json()["error"]["param"]) == (500, "input[1]")
    assert strict.json()["error"]["code"] == "not_finite" and "overflows" in strict.json()["error"]["message"]
    answer = post(EMBED, input=["a", "b", "c"], item_errors=True)
    assert [item["object"] for item in answer.json()["data"]] == ["embedding", "error", "embedding"]
    assert "null" not in answer.text.replace('"param":null', "")


def test_dimensions_are_cut_where_the_model_allows_it(pooler: FakePooler, server: LiveServer, post: Post) -> None:
    pooler.task.vector = lambda item: [0.1, 0.7, 0.1, 0.7]
    np.testing.assert_allclose(vectors(post(EMBED, input="a", dimensions=2)), [[0.141421, 0.989949]], atol=1e-6)
    for bad in (0, -1, 5, 3):
        answer = post(EMBED, input="a", dimensions=bad)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "dimensions")
    untrained = use(server, replace_dims(None))
    untrained.task.vector = lambda item: [0.1, 0.7, 0.1, 0.7]
    assert "--allow-dimensions" in post(EMBED, input="a", dimensions=2).json()["error"]["message"]
    settings = server.state.settings
    server.state.settings = replace(settings, allows_dimensions=True)
    try:
        use(server, replace_dims(None))
        assert len(vectors(post(EMBED, input="a", dimensions=3))[0]) == 3
    finally:
        server.state.settings = settings


def replace_dims(dims: tuple[int, ...] | None) -> Any:
    import msgspec
    from tests.engine.server.poolers import POOLING

    return msgspec.structs.replace(POOLING, dims=dims)


def test_prompts_by_name_type_text_and_instruction(pooler: FakePooler, post: Post) -> None:
    def used(**fields: Any) -> tuple[float, float]:
        count, _, _, prompt = vectors(post(EMBED, input="ab", **fields))[0]
        return count, prompt

    assert used() == (2, 0) and used(prompt_name="query") == (5, 3)
    assert used(input_type="search_query") == used(input_type="query") == (5, 3)
    assert used(input_type="document") == used(input_type="passage") == used(input_type="clustering") == (2, 0)
    assert used(prompt=">> ") == (5, 3) and used(instruction="x") == (21, 19)
    for fields in ({"input_type": "poem"}, {"prompt_name": "poem"}):
        answer = post(EMBED, input="ab", **fields)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(fields)))
    twice = post(EMBED, input="ab", prompt="x", input_type="query")
    assert twice.status_code == 400 and "input_type and prompt were sent" in twice.json()["error"]["message"]


@pytest.mark.parametrize("shape", ["text", "list", "among"])
def test_truncation_is_the_same_in_every_shape(pooler: FakePooler, post: Post, shape: str) -> None:
    long = "a" + "b" * 498 + "c"
    given: Any = {"text": long, "list": [long], "among": ["z", long, "z"]}[shape]
    place = 1 if shape == "among" else 0
    for fields in ({}, {"truncate": "error"}):
        refused = post(EMBED, input=given, **fields).json()["error"]
        assert refused["code"] == "context_length_exceeded" and refused["param"].startswith("input")
        assert "32 is the limit" in refused["message"] and (shape == "text" or f"input[{place}]" in refused["message"])
    for truncate, ends in (("end", [98 + 1, 99 + 1]), ("start", [99 + 1, 100 + 1])):
        item = post(EMBED, input=given, truncate=truncate).json()["data"][place]
        assert item["embedding"][:3] == [32, *ends] and item["truncated_from"] > 32
    bad = post(EMBED, input=given, truncate="middle")
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "truncate")


def test_a_text_without_end_is_cut_at_its_end_alone(pooler: FakePooler, post: Post) -> None:
    long = "ab " * 400_000
    assert vectors(post(EMBED, input=["c", long], truncate="end"))[1][:2] == [32, 99]
    refused = post(EMBED, input=["c", long], truncate="start").json()["error"]
    assert refused["param"] == "input[1]" and "more than 1048576 characters" in refused["message"]


def test_pooling_has_vllms_shape(pooler: FakePooler, post: Post) -> None:
    answer = post("/pooling", input=["ab", "c"], task="embed")
    assert vectors(answer, "data") == [[2, 99, 100, 0], [1, 101, 101, 0]]
    assert answer.json()["id"].startswith("pool-") and answer.json()["data"][0]["object"] == "pooling"
    assert post("/pooling", input="ab", task="sing").json()["error"]["param"] == "task"


def test_endpoints_that_do_not_fit_the_model_say_which_do(server: LiveServer, post: Post) -> None:
    wrong = post(EMBED, input="a")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "unsupported_endpoint")
    assert wrong.json()["error"]["message"] == (
        "/v1/embeddings: tiny is a model that generates text; use /v1/chat/completions or /v1/completions"
    )
    use(server)
    asks = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
        "/v1/completions": {"prompt": "x"},
    }
    for path, body in asks.items():
        answer = post(path, **body)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == f"{path}: tiny is an embedding model; use /v1/embeddings"
    assert post("/tokenize", prompt="ab").json()["tokens"] == [99, 100]


def test_a_long_list_does_not_hold_up_a_short_text(pooler: FakePooler, server: LiveServer, post: Post) -> None:
    pooler.task.step_s = 0.01
    answers: dict[str, Any] = {}

    def long() -> None:
        with httpx.Client(trust_env=False, timeout=60) as client:
            answers["long"] = client.post(server.url + EMBED, json={"input": ["x" * 16] * 1000})

    thread = threading.Thread(target=long)
    thread.start()
    wait_until(lambda: len(pooler.task.steps) > 3)
    before = len(pooler.task.steps)
    vectors(post(EMBED, input="ab"))
    waited = len(pooler.task.steps) - before
    assert waited <= 5, f"{waited} steps of 250"
    assert "long" not in answers
    thread.join()
    assert len(vectors(answers["long"])) == 1000


def test_a_client_that_goes_takes_its_items_with_it(pooler: FakePooler, server: LiveServer) -> None:
    pooler.task.step_s = 0.02
    with httpx.Client(trust_env=False, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post(server.url + EMBED, json={"input": ["x" * 16] * 4000})
    wait_until(lambda: pooler.core.is_idle)
    steps = len(pooler.task.steps)
    assert steps < 200 and server.state.held.tokens == 0 and server.state.num_running == 0
    wait_until(lambda: len(pooler.aborted) == 1)
    assert sum(len(message.ids) // 4 for message in pooler.sent) < 4000 * 16  # nor was all of it tokenized


def test_what_is_held_is_bounded_and_a_429_says_when_to_come_back(pooler: FakePooler, server: LiveServer) -> None:
    pooler.task.step_s = 0.02
    held = server.state.held
    usual, held.max_tokens = held.max_tokens, 1000
    answers: list[httpx.Response] = []

    def ask(count: int) -> None:
        with httpx.Client(trust_env=False, timeout=60) as client:
            answers.append(client.post(server.url + EMBED, json={"input": ["x" * 16] * count}))

    try:
        threads = [threading.Thread(target=ask, args=(400,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: held.tokens > 900)
        with httpx.Client(trust_env=False) as client:
            full = client.post(server.url + EMBED, json={"input": ["x" * 16] * 80})
        assert full.status_code == 429 and "--max-held-tokens" in full.json()["error"]["message"]
        assert int(full.headers["retry-after"]) >= 1
        for thread in threads:
            thread.join()
    finally:
        held.max_tokens = usual
    assert [len(vectors(answer)) for answer in answers] == [400, 400] and held.tokens == 0 and held.num_bytes == 0


def test_an_engine_that_dies_ends_every_call(pooler: FakePooler, server: LiveServer, post: Post) -> None:
    pooler.task.step_s = 0.05
    threading.Timer(0.2, lambda: server.call(pooler.kill)).start()
    answer = post(EMBED, input=["x" * 16] * 2000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_dead")
    assert post(EMBED, input="a").status_code == 503


def test_calls_are_counted(pooler: FakePooler, server: LiveServer, post: Post, http_session: httpx.Client) -> None:
    before = server.state.metrics.prompt_tokens
    vectors(post(EMBED, input=["ab", "cde"]))
    assert server.state.metrics.prompt_tokens == before + 5
    text = http_session.get(server.url + "/metrics").text
    for line in ("engine_items_total", "engine_item_tokens_total", "engine_items_waiting", "engine_tokens_waiting"):
        assert f'octavo:{line}{{model_name="tiny"}}' in text
    assert 'octavo:engine_items_total{model_name="tiny"} 2' in text
    card = http_session.get(server.url + "/v1/models/tiny").json()
    assert (card["tasks"], card["dimensions"], list(card["prompts"])) == (
        ["embed"],
        4,
        ["query", "document", "instructed"],
    )


@pytest.fixture(scope="module")
def model_server(folder: Path) -> Iterator[LiveServer]:
    """A server with a real engine process of a tiny encoder."""
    from octavo.engine.server.state import Settings

    server = LiveServer(Settings(("tiny",)))
    engine = use_model(server, folder)
    yield server
    import asyncio

    asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)
    server.stop()


def test_the_openai_client_gets_the_embedders_own_vectors(model_server: LiveServer, folder: Path) -> None:
    embedder = Embedder(folder, platform="reference", num_threads=1)
    texts = list(tiny_sentences.TEXTS)
    wanted = embedder.embed(texts, prompt="")
    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(base_url=model_server.url + "/v1", api_key="x", max_retries=0, http_client=http) as client,
    ):
        for encoding in ("float", "base64", None):
            fields: Any = {} if encoding is None else {"encoding_format": encoding}
            answer = client.embeddings.create(model="tiny", input=texts, extra_body={"prompt": ""}, **fields)
            found: list[Any] = [item.embedding for item in answer.data]
            if encoding == "base64":
                found = [np.frombuffer(base64.b64decode(item), "<f4") for item in found]
            assert np.array(found, np.float32).tobytes() == wanted.tobytes()
        counts = [item.num_tokens for item in embedder.embed_each(texts, prompt="")]
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(counts)
        query = client.embeddings.create(model="tiny", input="a cat", extra_body={"input_type": "query"})
        expected = embedder.embed("a cat", prompt_name="query")[0]
        assert np.array(query.data[0].embedding, np.float32).tobytes() == expected.tobytes()
        with pytest.raises(openai.BadRequestError) as bad:
            client.embeddings.create(model="tiny", input=["a", ""])
        assert bad.value.param == "input[1]"


def test_company_order_and_calls_change_no_bit(model_server: LiveServer) -> None:
    texts = [[2], [2, 3], *([2, *range(5, 3 + n), 3] for n in (7, 8, 9, 31, 64))]
    with httpx.Client(trust_env=False) as client:

        def found(given: Any) -> list[str]:
            body = {"input": given, "encoding_format": "base64"}
            return vectors(client.post(model_server.url + EMBED, json=body))  # type: ignore[return-value]

        together = found(texts)
        assert [found(ids)[0] for ids in texts] == together and found(texts[::-1])[::-1] == together

"""/embed and /info in the shapes of text-embeddings-inference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.poolers import POOLING, RANKING, FakePooler, use, use_model
from tests.golden import tiny_sentences

from octavo.engine.embedder import Embedder
from octavo.engine.messages import PoolingInfo

Post = Callable[..., httpx.Response]


@pytest.fixture
def pooler(server: LiveServer) -> FakePooler:
    engine = use(server)
    engine.task.vector = lambda item: [3, 4, 0, 0] if item.index == 0 else [len(item.ids), 0, 0, 0]
    return engine


def test_vectors_are_an_array_of_arrays_of_length_one(pooler: FakePooler, post: Post) -> None:
    np.testing.assert_allclose(post("/embed", inputs=["a", "bcd"]).json(), [[0.6, 0.8, 0, 0], [1, 0, 0, 0]], atol=1e-7)
    np.testing.assert_allclose(post("/embed", inputs="a").json(), [[0.6, 0.8, 0, 0]], atol=1e-7)
    assert post("/embed", inputs=["a", "bcd"], normalize=False).json() == [[3, 4, 0, 0], [3, 0, 0, 0]]
    np.testing.assert_allclose(post("/embed", inputs=[[5, 6]], dimensions=2).json(), [[0.6, 0.8]], atol=1e-7)


def test_truncation_is_asked_for(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [len(item.ids), item.ids[0], item.ids[-1], 0]
    long = "a" + "b" * 98 + "c"
    for fields in ({}, {"truncate": False}):
        refused = post("/embed", inputs=["x", long], **fields)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "inputs[1]")
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [32, 99, 100, 0]),
        ({"truncation_direction": "Right"}, [32, 99, 100, 0]),
        ({"truncation_direction": "Left"}, [32, 100, 101, 0]),
    ]
    for fields, expected in cases:
        assert post("/embed", inputs=long, truncate=True, normalize=False, **fields).json() == [expected]
    bad = post("/embed", inputs=long, truncate=True, truncation_direction="up")
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "truncation_direction")


def test_prompts_and_unknown_fields(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [len(item.ids), item.num_prompt, 0, 0]
    assert post("/embed", inputs="ab", prompt_name="query", normalize=False).json() == [[5, 3, 0, 0]]
    assert post("/embed", input="ab").json()["error"]["code"] == "unknown_field"


@pytest.mark.parametrize(
    ("info", "path", "body"),
    [
        (POOLING, "/embed", {"inputs": "a"}),
        (POOLING, "/embed_all", {"inputs": "a"}),
        (POOLING, "/embed_sparse", {"inputs": "a"}),
        (RANKING, "/rerank", {"query": "a", "texts": ["b"]}),
        (RANKING, "/predict", {"inputs": [["a", "b"]]}),
    ],
)
def test_a_server_of_several_models_is_told_which(
    info: PoolingInfo, path: str, body: dict[str, Any], server: LiveServer, post: Post
) -> None:
    use(server, info).task.vector = lambda item: [0.5] * info.width
    other = post(path, model="other", **body)
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
    named, nameless = post(path, model="tiny", **body), post(path, **body)
    assert named.status_code == nameless.status_code != 404 and named.json() == nameless.json()


def test_every_token_has_a_vector(tmp_path: Path, server: LiveServer, http_session: httpx.Client) -> None:
    folder = tiny_sentences.write_case("mean_plain", tmp_path)
    engine = use_model(server, folder)
    try:
        answer = http_session.post(server.url + "/embed_all", json={"inputs": ["the cat", "a dog ran"]})
        assert answer.status_code == 200, answer.text
        tokens = [np.array(rows, np.float32) for rows in answer.json()]
        assert [rows.shape for rows in tokens] == [(4, 64), (5, 64)]
        whole = Embedder(folder, platform="reference", num_threads=1).embed(["the cat", "a dog ran"])
        np.testing.assert_allclose([rows.mean(0) for rows in tokens], whole, atol=1e-6)
        same = http_session.post(server.url + "/pooling", json={"input": ["the cat"], "task": "token_embed"}).json()
        assert np.array(same["data"][0]["data"], np.float32).tobytes() == tokens[0].tobytes()
        one = http_session.post(server.url + "/pooling", json={"input": [[5]], "task": "token_embed"}).json()
        assert np.array(one["data"][0]["data"]).shape == (1, 64)
        refused = http_session.post(
            server.url + "/pooling", json={"input": "a", "task": "token_embed", "normalize": True}
        )
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "normalize")
        assert http_session.get(server.url + "/v1/models/tiny").json()["tasks"] == ["embed", "token_embed"]
    finally:
        asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)


def test_info_names_model_and_limits(server: LiveServer, http_session: httpx.Client) -> None:
    generation = http_session.get(server.url + "/info").json()
    assert generation["model_type"] == {"generation": {}} and "dimensions" not in generation
    use(server)
    info = http_session.get(server.url + "/info").json()
    assert info["model_type"] == {"embedding": {"pooling": "mean"}} and info["max_input_length"] == 32
    assert (info["model_id"], info["dimensions"], info["auto_truncate"]) == ("tiny", 4, False)
    assert info["max_client_batch_size"] == 1 << 15 and "query" in info["prompts"]

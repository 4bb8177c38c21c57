"""/score of models that give vectors: cosines of pairs, each text embedded once; and what cannot be is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.poolers import FakePooler, use, use_model
from tests.golden import tiny_sentences, tiny_tokens

from octavo.engine.embedder import Embedder
from octavo.engine.pooling.late import max_sim
from octavo.engine.server.similarity import cosine

Post = Callable[..., httpx.Response]


@pytest.fixture
def pooler(server: LiveServer) -> FakePooler:
    """Texts that begin like "q" have (3, 4, 0, 0), others lie on the first axis."""
    engine = use(server)
    engine.task.vector = lambda item: [3, 4, 0, 0] if item.ids[0] == 115 else [len(item.ids), 0, 0, 0]
    return engine


def scores(answer: httpx.Response) -> list[float]:
    assert answer.status_code == 200, answer.text
    assert [one["index"] for one in answer.json()["data"]] == list(range(len(answer.json()["data"])))
    return [one["score"] for one in answer.json()["data"]]


def test_scores_are_cosines_of_each_pair(pooler: FakePooler, post: Post) -> None:
    np.testing.assert_allclose(scores(post("/score", text_1="q", text_2=["a", "qq", "bcd"])), [0.6, 1, 0.6], atol=1e-6)
    assert sum(len(message.lengths) // 4 for message in pooler.sent) == 4  # the query goes in once
    np.testing.assert_allclose(scores(post("/score", text_1=["q", "a"], text_2=["b", "c"])), [0.6, 1], atol=1e-6)
    body = post("/score", text_1="q", text_2="q").json()
    assert body["id"].startswith("score-") and body["usage"]["prompt_tokens"] == 1
    assert body["data"] == [{"index": 0, "object": "score", "score": 1.0}]


def test_a_cut_text_is_said_and_errors_name_the_side(pooler: FakePooler, post: Post) -> None:
    long = "a" * 40
    found = post("/score", text_1="q", text_2=["b", long], truncate="end").json()["data"]
    assert "truncated_from" not in found[0] and found[1]["truncated_from"] > 32
    cases: list[tuple[dict[str, Any], str]] = [
        ({"text_1": "q", "text_2": ["b", long]}, "text_2[1]"),
        ({"text_1": long, "text_2": ["b", "c"]}, "text_1"),
        ({"text_1": "a", "text_2": ["b", ""]}, "text_2[1]"),
        ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ({"text_1": "a", "text_2": "b", "truncate": "only_second"}, "truncate"),
        ({"text_1": "a", "text_2": "b", "use_activation": False}, "use_activation"),
        ({"text_1": "a", "text_2": "b", "instruction": "find it"}, "instruction"),
        ({"text_1": "a", "text_2": ["b"] * ((1 << 15) + 1)}, "text_2"),
    ]
    for fields, param in cases:
        answer = post("/score", **fields)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_a_vector_that_is_not_finite_is_an_error_of_its_text(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [float("nan")] * 4 if len(item.ids) == 2 else [1, 0, 0, 0]
    answer = post("/score", text_1="q", text_2=["a", "bb", "c"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "not_finite")
    assert answer.json()["error"]["param"] == "text_2[1]"


def test_a_vector_without_length_is_like_nothing() -> None:
    zero, one = np.zeros((1, 4), np.float32), np.eye(4, dtype=np.float32)[:1]
    assert (cosine(zero, one), cosine(one, one), cosine(one, -2 * one)) == (0.0, 1.0, -1.0)


@pytest.mark.parametrize("name", ["mean", "late"])
def test_scores_are_of_the_embedders_vectors(
    name: str, tmp_path: Path, server: LiveServer, http_session: httpx.Client
) -> None:
    write = tiny_sentences.write_case if name == "mean" else tiny_tokens.write_case
    folder = write(name, tmp_path)
    embedder = Embedder(folder, platform="reference", num_threads=1)
    query, documents = "the cat sat", ["a dog ran", "the cat sat", "the river"]
    if name == "mean":
        vectors = embedder.embed([query, *documents])
        wanted = [cosine(vectors[:1], vector[None]) for vector in vectors[1:]]
    else:
        (first,) = embedder.encode_each(query, role="query")
        others = [one.multi_vector for one in embedder.encode_each(documents, role="document")]
        wanted = [max_sim(first.multi_vector, other) for other in others]  # type: ignore[arg-type]
    engine = use_model(server, folder)
    try:
        answer = http_session.post(server.url + "/score", json={"text_1": query, "text_2": documents})
        np.testing.assert_allclose(scores(answer), wanted, atol=1e-6)
    finally:
        asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)

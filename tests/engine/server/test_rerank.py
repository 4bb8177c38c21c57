"""Rerank endpoints and /score: order, shapes of three APIs, truncation that is said, one bad document."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.poolers import LABELS, POOLING, RANKING, FakePooler, use, use_model
from tests.golden import tiny_pairs, tiny_rankers

from octavo.engine.pooling.fair import Work
from octavo.engine.reranker import Reranker

Post = Callable[..., httpx.Response]
SCORES = (0.1, 0.9, 0.5)
THREE = {"query": "q", "documents": ["a", "b", "c"]}
PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")


@pytest.fixture
def pooler(server: LiveServer) -> FakePooler:
    """Scores are those of SCORES by index, before the sigmoid."""
    engine = use(server, RANKING)
    engine.task.vector = lambda item: [math.log(SCORES[item.index % 3] / (1 - SCORES[item.index % 3]))]
    return engine


def ranks(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [found["index"] for found in answer.json()["results"]]


@pytest.mark.parametrize("path", PATHS)
def test_documents_come_from_high_scores_to_low_ones(pooler: FakePooler, post: Post, path: str) -> None:
    answer = post(path, **THREE)
    assert ranks(answer) == [1, 2, 0]
    np.testing.assert_allclose([one["relevance_score"] for one in answer.json()["results"]], [0.9, 0.5, 0.1], atol=1e-6)
    assert [len(ranks(post(path, **THREE, top_n=n))) for n in (1, 2, 5)] == [1, 2, 3]
    for bad in (0, -1):
        refused = post(path, **THREE, top_n=bad)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_n")
    assert "document" not in answer.json()["results"][0]
    with_text = post(path, query="q", documents=[{"text": "a"}, "b", {"text": "c"}], return_documents=True)
    assert [one["document"]["text"] for one in with_text.json()["results"]] == ["b", "c", "a"]
    raw = post(path, **THREE, raw_scores=True).json()["results"][0]["relevance_score"]
    assert abs(raw - math.log(9)) < 1e-6


def test_equal_scores_keep_the_documents_order(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [1.0 if item.index in (1, 3) else 0.0]
    assert ranks(post("/rerank", query="q", documents=list("abcdef"))) == [1, 3, 0, 2, 4, 5]


def test_each_api_has_its_own_frame(pooler: FakePooler, post: Post) -> None:
    jina = post("/v1/rerank", **THREE, model="tiny", user="me")
    assert set(jina.json()) == {"id", "model", "usage", "results"} and jina.headers["x-octavo-ignored"] == "user"
    assert jina.json()["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    cohere = post("/v2/rerank", **THREE).json()
    assert set(cohere) == {"id", "results", "meta"} and cohere["meta"]["billed_units"] == {"search_units": 1}
    tei = post("/rerank", query="q", texts=["a", "b", "c"], return_text=True).json()
    assert [(one["index"], one["text"]) for one in tei] == [(1, "b"), (2, "c"), (0, "a")]
    np.testing.assert_allclose([one["score"] for one in tei], [0.9, 0.5, 0.1], atol=1e-6)
    assert abs(post("/rerank", query="q", texts=["a"], raw_scores=True).json()[0]["score"] - math.log(1 / 9)) < 1e-6
    assert post("/v1/rerank", query="q", texts=["a"]).json()["error"]["code"] in ("unknown_field", "missing_field")


def test_documents_lose_their_end_and_say_so(pooler: FakePooler, post: Post) -> None:
    seen: list[list[int]] = []

    def vector(item: Work) -> list[float]:
        seen.append(item.ids)
        return [0.0]

    pooler.task.vector = vector
    long = "a" * 40
    found = post("/v2/rerank", query="qq", documents=["z", long]).json()["results"]
    assert "truncated_from" not in found[0] and found[1]["truncated_from"] > 32 and len(seen[-1]) == 32
    assert seen[-1][:2] == [115, 115]  # the query is whole
    for fields in ({"truncate": "error"}, {"truncation": False}):
        refused = post("/v1/rerank", query="qq", documents=["z", long], **fields)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "documents[1]"
    short = post("/v2/rerank", query="qq", documents=["z", long], max_tokens_per_doc=5).json()["results"]
    assert len(seen[-1]) == 7 and short[1]["truncated_from"] > 32
    assert post("/rerank", query="qq", texts=["z", long]).json()["error"]["param"] == "texts[1]"
    assert len(post("/rerank", query="qq", texts=["z", long], truncate=True).json()) == 2


def test_texts_without_end_lose_the_documents_end_alone(pooler: FakePooler, post: Post) -> None:
    long = "ab " * 400_000
    assert len(ranks(post("/v1/rerank", query="q", documents=["a", long]))) == 2
    answer = post("/v1/rerank", query="q", documents=["a", long, "b"], truncate="longest_first", item_errors=True)
    assert ranks(answer) == [2, 0, 1] and "1048576 characters" in answer.json()["results"][2]["error"]["message"]


def test_a_prompt_goes_before_the_query(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [float(len(item.ids))]
    found = [
        post("/v1/rerank", query="q", documents=["d"], raw_scores=True, **fields).json()["results"][0][
            "relevance_score"
        ]
        for fields in ({}, {"prompt_name": "query"}, {"prompt": ">>"})
    ]
    assert found == [2, 5, 4]


def test_one_bad_document_fails_the_call_or_comes_last(pooler: FakePooler, post: Post) -> None:
    refused = post("/v1/rerank", query="q", documents=["a", "", "c"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "documents[1]")
    results = post("/v1/rerank", query="q", documents=["a", "", "c"], item_errors=True, top_n=1).json()["results"]
    assert [one["index"] for one in results] == [2, 1] and "empty" in results[1]["error"]["message"]
    pooler.task.vector = lambda item: [float("nan")] if item.index == 1 else [0.0]
    broken = post("/v1/rerank", **THREE)
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, "not_finite")
    kept = post("/v1/rerank", **THREE, item_errors=True)
    assert ranks(kept) == [0, 2, 1] and kept.json()["results"][2]["error"]["code"] == "not_finite"
    assert "relevance_score" not in kept.json()["results"][2]
    assert post("/score", text_1="q", text_2=["a", "b"]).json()["error"]["param"] == "text_2[1]"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": []}, "documents"),
        ({"query": ""}, "query"),
        ({"documents": [{"title": "a"}]}, "documents[0]"),
        ({"rank_fields": ["a"]}, "rank_fields"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"truncate": "start"}, "truncate"),
        ({"prompt_name": "poem"}, "prompt_name"),
        ({"documents": ["a"] * ((1 << 15) + 1)}, "documents"),
        ({"model": "other"}, "model"),
    ],
)
def test_what_cannot_be_is_named(pooler: FakePooler, post: Post, fields: dict[str, Any], param: str) -> None:
    answer = post("/v1/rerank", **{**THREE, **fields})
    assert answer.status_code in (400, 404) and answer.json()["error"]["param"] == param, answer.text


def test_scores_of_one_with_many_and_of_pairs(pooler: FakePooler, post: Post) -> None:
    def scores(answer: httpx.Response) -> list[float]:
        assert answer.status_code == 200, answer.text
        assert [one["index"] for one in answer.json()["data"]] == list(range(len(answer.json()["data"])))
        return [one["score"] for one in answer.json()["data"]]

    np.testing.assert_allclose(scores(post("/score", text_1="q", text_2=["a", "b", "c"])), SCORES, atol=1e-6)
    np.testing.assert_allclose(scores(post("/score", text_1=["p", "q"], text_2=["a", "b"])), SCORES[:2], atol=1e-6)
    np.testing.assert_allclose(
        scores(post("/score", text_1="q", text_2="a", use_activation=False)), [-math.log(9)], atol=1e-6
    )
    body = post("/score", text_1="q", text_2="a", model="tiny").json()
    assert body["id"].startswith("score-") and body["usage"]["prompt_tokens"] == 2
    for fields, param in (
        ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ({"text_1": [], "text_2": "a"}, "text_1"),
        ({"text_1": "a", "text_2": []}, "text_2"),
        ({"text_1": "a", "text_2": ["b", ""]}, "text_2[1]"),
        ({"text_1": "a", "text_2": "b" * 40}, "text_2"),
    ):
        answer = post("/score", **fields)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_models_that_do_not_rank_say_what_they_do(server: LiveServer, post: Post) -> None:
    for pooling, kind in ((POOLING, "an embedding model; use /v1/embeddings"), (LABELS, "a classifier; use /classify")):
        use(server, pooling)
        for path in (*PATHS, *(("/score",) if pooling is LABELS else ())):
            body: dict[str, Any] = {"text_1": "a", "text_2": "b"} if path == "/score" else THREE
            answer = post(path, **body)
            assert answer.status_code == 400 and f"{path}: tiny is {kind}" in answer.json()["error"]["message"]
    use(server, RANKING)
    for path in ("/v1/embeddings", "/embed", "/v2/embed", "/v1/completions"):
        name = {"/embed": "inputs", "/v2/embed": "texts", "/v1/completions": "prompt"}.get(path, "input")
        answer = post(path, **{name: ["a"]})
        assert (
            f"{path}: tiny is a model that scores pairs of texts; use /v1/rerank" in answer.json()["error"]["message"]
        )


def test_an_instruction_is_refused_where_there_is_no_place_for_it(pooler: FakePooler, post: Post) -> None:
    for path, body in (("/v1/rerank", THREE), ("/score", {"text_1": "q", "text_2": "a"})):
        answer = post(path, **body, instruction="find it")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "instruction")
        assert "takes no instruction" in answer.json()["error"]["message"]


@pytest.mark.parametrize("case", ["card", "roles"])
def test_an_instruction_reaches_the_question(
    case: str, tmp_path: Path, server: LiveServer, http_session: httpx.Client
) -> None:
    folder = tiny_rankers.write_case(case, tmp_path)
    query, documents = "where?", ["a city", "a river", "yes"]
    reranker = Reranker(folder, platform="reference", num_threads=1)
    engine = use_model(server, folder)

    def post(path: str, **body: Any) -> Any:
        answer = http_session.post(server.url + path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    try:
        for said in ({}, {"instruction": "Find rivers"}):
            wanted = reranker.rank(query, documents, **said)
            results = post("/v1/rerank", query=query, documents=documents, **said)["results"]
            assert [one["index"] for one in results] == [one.index for one in wanted]
            found = np.array([one["relevance_score"] for one in results], np.float32)
            assert found.tobytes() == np.array([one.score for one in wanted], np.float32).tobytes()
            scores = post("/score", text_1=query, text_2=documents, **said)["data"]
            in_order = reranker.score([(query, document) for document in documents], **said)
            assert np.array([one["score"] for one in scores], np.float32).tobytes() == in_order.tobytes()
        assert "reranker" in http_session.get(server.url + "/info").json()["model_type"]
    finally:
        asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)


def test_scores_are_the_rerankers_own(tmp_path: Path, server: LiveServer, http_session: httpx.Client) -> None:
    folder = tiny_pairs.write_case("prompt", tmp_path)
    query, documents = "a small dog", [second for _, second in tiny_pairs.PAIRS]
    wanted = Reranker(folder, platform="reference", num_threads=1).rank(query, documents, truncate="only_second")
    engine = use_model(server, folder)
    try:
        answer = http_session.post(server.url + "/rerank", json={"query": query, "documents": documents})
        assert ranks(answer) == [one.index for one in wanted]
        found = np.array([one["relevance_score"] for one in answer.json()["results"]], np.float32)
        assert found.tobytes() == np.array([one.score for one in wanted], np.float32).tobytes()
        assert answer.json()["usage"]["prompt_tokens"] == sum(one.num_tokens for one in wanted)
    finally:
        asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)

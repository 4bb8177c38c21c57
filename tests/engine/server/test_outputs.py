"""Sparse vectors and vectors of tokens over HTTP: those of `Embedder`, several of one pass, one error where there are none."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.poolers import LABELS, POOLING, RANKING, use, use_model
from tests.golden import tiny_tokens

from octavo.engine.embedder import Embedder
from octavo.engine.errors import InternalError
from octavo.engine.messages import PoolingInfo
from octavo.engine.pooling.core import Outcome
from octavo.engine.pooling.late import Sparse
from octavo.engine.server.outputs import several, weights_of
from octavo.platforms.types import F32

TEXTS = ["the cat sat", "a dog a dog , the river"]
Call = Callable[..., Any]


@contextmanager
def serving(server: LiveServer, folder: Path, http: httpx.Client) -> Iterator[tuple[Embedder, Call]]:
    """The model behind the server, and beside it in this process."""
    engine = use_model(server, folder)

    def call(path: str, status: int = 200, **body: Any) -> Any:
        answer = http.post(server.url + path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    try:
        yield Embedder(folder, platform="reference", num_threads=1), call
    finally:
        asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)


def same_weights(found: list[dict[str, Any]], wanted: Sparse | None) -> bool:
    assert wanted is not None
    values = np.array([one["value"] for one in found], np.float32)
    return [one["index"] for one in found] == wanted.ids.tolist() and values.tobytes() == wanted.weights.tobytes()


def same_rows(found: Any, wanted: F32 | None) -> bool:
    return wanted is not None and np.array(found, np.float32).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["splade", "splade_sum"])
def test_sparse_vectors_are_the_embedders(
    name: str, tmp_path: Path, server: LiveServer, http_session: httpx.Client
) -> None:
    with serving(server, tiny_tokens.write_case(name, tmp_path), http_session) as (embedder, call):
        wanted = embedder.encode_each(TEXTS)
        found = call("/embed_sparse", inputs=TEXTS)
        assert all(same_weights(one, encoding.sparse) for one, encoding in zip(found, wanted, strict=True))
        assert call("/embed_sparse", inputs=TEXTS[0]) == found[:1]
        pooled = call("/pooling", input=TEXTS)
        assert [one["data"] for one in pooled["data"]] == found and call("/pooling", input=TEXTS, task="sparse")["data"]
        assert pooled["usage"]["prompt_tokens"] == sum(one.num_tokens for one in wanted)
        refused = call("/pooling", 400, input="a", encoding_format="base64")
        assert refused["error"]["param"] == "encoding_format"
        for path, body in (
            ("/v1/embeddings", {"input": "a"}),
            ("/embed", {"inputs": "a"}),
            ("/embed_all", {"inputs": "a"}),
        ):
            said = call(path, 400, **body)["error"]
            assert (
                said["code"] == "unsupported_endpoint"
                and "a model of sparse vectors; use /embed_sparse" in said["message"]
            )
        bad = call("/embed_sparse", 400, inputs=["a cat", ""])
        assert bad["error"]["param"] == "inputs[1]"
        assert http_session.get(server.url + "/info").json()["model_type"] == {"embedding": {"pooling": "sparse"}}


@pytest.mark.parametrize("name", ["late", "pylate", "stanford"])
def test_vectors_of_tokens_are_the_embedders(
    name: str, tmp_path: Path, server: LiveServer, http_session: httpx.Client
) -> None:
    with serving(server, tiny_tokens.write_case(name, tmp_path), http_session) as (embedder, call):
        for role, fields in (
            ("query", {"input_type": "query"}),
            ("document", {"input_type": "document"}),
            ("document", {}),
        ):
            wanted = embedder.encode_each(TEXTS, role=role)  # type: ignore[arg-type]
            found = call("/pooling", input=TEXTS, task="token_embed", **fields)["data"]
            assert all(
                same_rows(one["data"], encoding.multi_vector) for one, encoding in zip(found, wanted, strict=True)
            )
        queries = embedder.encode_each(TEXTS, role="query")
        (packed,) = call("/pooling", input=TEXTS[:1], prompt_name="query", encoding_format="base64")["data"]
        vectors = queries[0].multi_vector
        assert vectors is not None and base64.b64decode(packed["data"]) == vectors.astype("<f4").tobytes()
        found = call("/embed_all", inputs=TEXTS, prompt_name="query")
        assert all(same_rows(one, encoding.multi_vector) for one, encoding in zip(found, queries, strict=True))
        said = call("/v1/embeddings", 400, input="a")["error"]
        assert "a model that gives a vector per token; use /pooling or /embed_all" in said["message"]


def test_several_outputs_come_of_one_pass(tmp_path: Path, server: LiveServer, http_session: httpx.Client) -> None:
    with serving(server, tiny_tokens.write_joined(tmp_path, ".pt"), http_session) as (embedder, call):
        wanted = embedder.encode_each(TEXTS)
        steps = _steps(server)
        found = call("/pooling", input=TEXTS, outputs=["sparse", "dense", "multi_vector"])["data"]
        assert _steps(server) == steps + 1
        for one, encoding in zip(found, wanted, strict=True):
            assert list(one["data"]) == ["dense", "sparse", "multi_vector"]
            assert same_rows(one["data"]["dense"], encoding.dense)
            assert same_rows(one["data"]["multi_vector"], encoding.multi_vector)
            assert same_weights(one["data"]["sparse"], encoding.sparse)
        for names in (["dense"], ["multi_vector"], ["sparse", "multi_vector"]):
            some = call("/pooling", input=TEXTS, outputs=names)["data"]
            assert [one["data"] for one in some] == [{name: one["data"][name] for name in names} for one in found]
        assert call("/embed_sparse", inputs=TEXTS) == [one["data"]["sparse"] for one in found]
        assert call("/embed_all", inputs=TEXTS) == [one["data"]["multi_vector"] for one in found]
        dense = [one["embedding"] for one in call("/v1/embeddings", input=TEXTS)["data"]]
        assert dense == [one["data"]["dense"] for one in found]
        for bad in ([], ["tokens"]):
            said = call("/pooling", 400, input="a", outputs=bad)["error"]
            assert said["param"] == "outputs" and "this model gives dense, sparse, multi_vector" in said["message"]
        assert call("/pooling", 400, input="a", outputs=["dense"], task="embed")["error"]["param"] == "task"
        mixed = call("/pooling", input=["a cat", ""], outputs=["dense", "sparse"], item_errors=True)["data"]
        assert set(mixed[0]["data"]) == {"dense", "sparse"} and mixed[1]["object"] == "error"


def _steps(server: LiveServer) -> float:
    engine = server.state.model().engine
    return asyncio.run_coroutine_threadsafe(engine.stats(), server.loop).result(20)["num_steps"]


def test_a_model_that_has_no_such_output_says_what_it_is(
    server: LiveServer, post: Callable[..., httpx.Response]
) -> None:
    for pooling, kind in (
        (POOLING, "an embedding model"),
        (RANKING, "a model that scores pairs"),
        (LABELS, "a classifier"),
    ):
        use(server, pooling)
        answer = post("/embed_sparse", inputs="a")
        assert answer.status_code == 400 and f"/embed_sparse: tiny is {kind}" in answer.json()["error"]["message"]
        several_of = post("/pooling", input="a", outputs=["dense", "sparse"])
        assert (several_of.status_code, several_of.json()["error"]["param"]) == (400, "outputs")
        done = ", ".join(pooling.tasks)
        assert f"this model does one thing at a time ({done}); leave it out" in several_of.json()["error"]["message"]


def test_weights_that_are_not_finite_never_become_null(server: LiveServer, post: Callable[..., httpx.Response]) -> None:
    with pytest.raises(InternalError, match="not finite"):
        weights_of(np.array([3], "<i4").tobytes(), np.array([np.nan], np.float32))
    pooler = use(server, PoolingInfo(["sparse"], 256, 32, outputs=["sparse"]))
    bad, good = Outcome(np.array([[np.inf]], np.float32), b"\5\0\0\0"), Outcome(np.zeros((1, 0), np.float32))
    pooler.core.tasks["sparse"] = lambda items, options: [bad if item.index == 1 else good for item in items]
    answer = post("/embed_sparse", inputs=["a", "b", "c"])
    assert (answer.status_code, answer.json()["error"]["param"]) == (500, "inputs[1]")
    kept = post("/pooling", input=["a", "b", "c"], item_errors=True).json()["data"]
    assert [one.get("data") for one in kept] == [[], None, []] and kept[1]["error"]["code"] == "not_finite"


def test_parts_are_cut_where_their_lengths_say() -> None:
    info = PoolingInfo(["encode"], 2, 8, outputs=["dense", "sparse", "multi_vector"], vector_width=3)
    values = np.array([1, 2, 0.5, 7, 8, 9, 10, 11, 12], np.float32)
    found = several(np.array([4], "<i4").tobytes(), values, info.outputs, info)
    assert found == (
        b'{"dense":[1.0,2.0],"sparse":[{"index":4,"value":0.5}],"multi_vector":[[7.0,8.0,9.0],[10.0,11.0,12.0]]}'
    )

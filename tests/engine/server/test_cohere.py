"""/v2/embed in Cohere's shape, and its types of vectors."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.poolers import FakePooler, use

from octavo.engine.server.cohere import compressed

Post = Callable[..., httpx.Response]


@pytest.fixture
def pooler(server: LiveServer) -> FakePooler:
    return use(server)


def test_every_type_from_one_call(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [1.0, -2.0, 0.5, 0.25]
    kinds = ["float", "base64", "binary", "ubinary", "int8", "uint8"]
    answer = post("/v2/embed", model="tiny", texts=["a", "bc"], input_type="search_document", embedding_types=kinds)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    found = body["embeddings"]
    assert list(found) == kinds and found["float"] == [[1.0, -2.0, 0.5, 0.25]] * 2
    assert found["base64"][0] == "AACAPwAAAMAAAAA/AACAPg=="
    assert (found["ubinary"][0], found["binary"][0]) == ([0b10110000], [0b10110000 - 128])
    assert [value + 128 for value in found["int8"][0]] == found["uint8"][0]
    assert body["texts"] == ["a", "bc"] and body["response_type"] == "embeddings_by_type" and body["id"]
    assert body["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 3}}
    assert list(post("/v2/embed", texts=["a"]).json()["embeddings"]) == ["float"]


def test_whole_numbers_keep_directions_and_are_scaled_by_width() -> None:
    values = np.random.default_rng(3).standard_normal((200, 384)).astype(np.float32)
    whole = np.array([compressed("int8", row) for row in values], np.float64)
    exact = values / np.linalg.norm(values, axis=1)[:, None]
    cosines = (whole * exact).sum(1) / np.linalg.norm(whole, axis=1)
    assert cosines.min() > 0.9995
    assert np.abs(whole - exact * 127 * np.sqrt(384) / 8).max() <= 0.5001
    spike = np.zeros(384, np.float32)
    spike[[0, 1]] = 1, -1
    assert compressed("int8", spike)[:3].tolist() == [127, -128, 0]
    assert compressed("uint8", spike)[:3].tolist() == [255, 0, 128]
    assert compressed("ubinary", np.array([1, 0, -1, 1, 1, 1, 1, 1, 2], np.float32)).tolist() == [
        0b10011111,
        0b10000000,
    ]


def test_types_of_input_and_truncation(pooler: FakePooler, post: Post) -> None:
    def found(**fields: object) -> list[float]:
        answer = post("/v2/embed", texts=["a" + "b" * 98 + "c"], **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["embeddings"]["float"][0]  # type: ignore[no-any-return]

    assert found() == found(truncate="END") == [32, 99, 100, 0]
    assert found(truncate="START") == [32, 100, 101, 0]
    assert found(input_type="search_query") == [32, 83, 100, 3]
    assert len(found(output_dimension=2)) == 2
    refused = post("/v2/embed", texts=["ok", "x" * 99], truncate="NONE").json()["error"]
    assert refused["param"] == "texts[1]" and "32 is the limit" in refused["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": ["a", ""]}, "texts[1]"),
        ({"texts": ["a"], "embedding_types": ["int4"]}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": []}, "embedding_types"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "truncate"),
        ({"texts": ["a"], "input_type": "poem"}, "input_type"),
        ({"texts": ["a"], "output_dimension": 99}, "output_dimension"),
        ({"texts": ["a"], "images": ["data:"]}, "images"),
        ({"texts": ["a"], "model": "other"}, "model"),
    ],
)
def test_what_cannot_be_is_named(pooler: FakePooler, post: Post, fields: dict[str, object], param: str) -> None:
    answer = post("/v2/embed", **fields)
    assert answer.status_code in (400, 404) and answer.json()["error"]["param"] == param, answer.text

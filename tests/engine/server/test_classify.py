"""/classify and /predict: labels with their scores, texts and pairs, and token labels through /pooling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import LiveServer
from tests.engine.server.poolers import LABELS, RANKING, FakePooler, use, use_model
from tests.golden import tiny_pairs

from octavo.engine.classifier import Classifier

Post = Callable[..., httpx.Response]


@pytest.fixture
def pooler(server: LiveServer) -> FakePooler:
    """Scores: twice as likely each, in an order that turns with the index."""
    engine = use(server, LABELS)
    engine.task.vector = lambda item: list(np.roll(np.log([1.0, 2.0, 4.0]), item.index))
    return engine


def test_texts_get_their_best_label_and_all_scores(pooler: FakePooler, post: Post) -> None:
    answer = post("/classify", input=["a", "bc"], model="tiny")
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["data"]
    assert (first["label"], second["label"], first["num_classes"]) == ("yes", "no", 3)
    np.testing.assert_allclose(first["probs"], [1 / 7, 2 / 7, 4 / 7], atol=1e-6)
    assert answer.json()["id"].startswith("classify-") and answer.json()["usage"]["prompt_tokens"] == 3
    raw = post("/classify", input="a", use_activation=False).json()["data"][0]["probs"]
    np.testing.assert_allclose(raw, np.log([1, 2, 4]), atol=1e-6)


def test_one_bad_text_fails_the_call_or_says_so_in_its_place(pooler: FakePooler, post: Post) -> None:
    refused = post("/classify", input=["a", ""])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[1]")
    data = post("/classify", input=["a", "", "b" * 40, "c"], item_errors=True).json()["data"]
    assert [one.get("object") for one in data] == [None, "error", "error", None]
    assert data[2]["error"]["code"] == "context_length_exceeded"
    cut = post("/classify", input="b" * 40, truncate="end").json()["data"][0]
    assert cut["truncated_from"] > 32


def test_scores_that_are_not_finite_never_become_null(pooler: FakePooler, post: Post) -> None:
    pooler.task.vector = lambda item: [0.0, float("inf" if item.index == 1 else 1), 0.0]
    refused = post("/classify", input=["a", "b", "c"], use_activation=False)
    assert (refused.status_code, refused.json()["error"]["param"]) == (500, "input[1]")
    data = post("/classify", input=["a", "b", "c"], use_activation=False, item_errors=True).json()["data"]
    assert data[1]["error"]["code"] == "not_finite" and data[0]["probs"] == data[2]["probs"] == [0, 1, 0]
    assert post("/predict", inputs=[["a"], ["b"]], raw_scores=True).json()["error"]["code"] == "not_finite"


def test_predictions_are_sorted_and_shaped_as_their_inputs(pooler: FakePooler, post: Post) -> None:
    one = post("/predict", inputs="a").json()
    assert [found["label"] for found in one] == ["yes", "maybe", "no"]
    np.testing.assert_allclose([found["score"] for found in one], [4 / 7, 2 / 7, 1 / 7], atol=1e-6)
    assert post("/predict", inputs=["a", "b"]).json() == one  # a pair
    many = post("/predict", inputs=[["a"], ["b"]]).json()
    assert [found[0]["label"] for found in many] == ["yes", "no"]
    pairs = post("/predict", inputs=[["a", "b"], ["c", "d"]]).json()
    assert [len(message.ids) // 4 for message in pooler.sent[-1:]] == [4] and len(pairs) == 2
    raw = post("/predict", inputs="a", raw_scores=True).json()
    np.testing.assert_allclose([found["score"] for found in raw], np.log([4, 2, 1]), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([], "inputs"),
        ([["a"], ["b", "c"]], "inputs[1]"),
        ([["a", "b", "c"]], "inputs[0]"),
        ([[]], "inputs[0]"),
        ([["a"], [""]], "inputs[1]"),
        ("", "inputs"),
        ("x" * 40, "inputs"),
        (["x" * 40, "b"], "inputs"),
    ],
)
def test_inputs_that_cannot_be_are_named(pooler: FakePooler, post: Post, given: Any, param: str) -> None:
    answer = post("/predict", inputs=given)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_a_model_that_ranks_classifies_too_and_info_tells_them_apart(
    server: LiveServer, post: Post, http_session: httpx.Client
) -> None:
    use(server, RANKING).task.vector = lambda item: [0.0]
    assert post("/classify", input="a").json()["data"][0]["label"] == "LABEL_0"
    info = http_session.get(server.url + "/info").json()
    assert info["model_type"] == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    use(server, LABELS)
    info = http_session.get(server.url + "/info").json()
    assert info["model_type"]["classifier"]["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    assert http_session.get(server.url + "/v1/models/tiny").json()["labels"] == ["no", "maybe", "yes"]


@pytest.mark.parametrize("case", ["labels", "tokens"])
def test_scores_are_the_classifiers_own(
    case: str, tmp_path: Path, server: LiveServer, http_session: httpx.Client
) -> None:
    options: dict[str, Any] = {"case": "bert_token"} if case == "tokens" else tiny_pairs.CASES[case]
    folder = tiny_pairs.write(tmp_path, **options)
    texts = ["the cat sat", "a small dog ran under the old tree"]
    wanted = Classifier(folder, platform="reference", num_threads=1).classify_each(texts)
    engine = use_model(server, folder)
    try:
        path = "/pooling" if case == "tokens" else "/classify"
        answer = http_session.post(server.url + path, json={"input": texts})
        assert answer.status_code == 200, answer.text
        for found, one in zip(answer.json()["data"], wanted, strict=True):
            values = np.array(found["data" if case == "tokens" else "probs"], np.float32)
            assert one.scores is not None and values.tobytes() == one.scores.tobytes()
        if case == "tokens":
            refused = http_session.post(server.url + "/classify", json={"input": texts})
            assert "is a classifier of tokens; use /pooling" in refused.json()["error"]["message"]
    finally:
        asyncio.run_coroutine_threadsafe(engine.close(), server.loop).result(20)

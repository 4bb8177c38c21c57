"""`octavo serve` of an embedder and a reranker: loaded when a call needs them, unloaded when none does, each with an engine
process, numbers and the bits of the same model alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.engine.server.conftest import wait_until
from tests.golden import tiny_pairs, tiny_sentences

from octavo.engine.embedder import Embedder
from octavo.engine.reranker import Reranker

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ["the old tree", "a small dog ran", "river , river"]


def started(*words: str) -> tuple[subprocess.Popen[str], httpx.Client, dict[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "octavo", "serve", *words, "--port", "0", "--json", "--offline"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    return process, httpx.Client(base_url=ready["url"], trust_env=False, timeout=60), ready


def engines(process: subprocess.Popen[str]) -> int:
    """Engine processes that live."""
    return len(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("models")
    return tiny_sentences.write_case("mean", root / "vec"), tiny_pairs.write_case(
        next(iter(tiny_pairs.CASES)), root / "rank"
    )


@pytest.fixture
def several(folders: tuple[Path, Path]) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    words = [f"vec={folders[0]}", f"rank={folders[1]}", "--on-demand", "--unload-s", "1.0"]
    process, client, _ = started(*words)
    yield process, client
    client.close()
    if process.poll() is None:
        process.kill()
    process.communicate()


def loaded(client: httpx.Client) -> dict[str, bool]:
    return {card["id"]: card["is_loaded"] for card in client.get("/v1/models").json()["data"]}


def test_models_come_when_they_are_asked_for_and_go_when_they_are_not(
    several: tuple[subprocess.Popen[str], httpx.Client], folders: tuple[Path, Path]
) -> None:
    process, client = several
    assert client.get("/ready").status_code == 200 and engines(process) == 0
    assert loaded(client) == {"vec": False, "rank": False}

    answer = client.post("/v1/embeddings", json={"input": DOCUMENTS})
    assert engines(process) == 1
    wanted = Embedder(folders[0], platform="reference", num_threads=1).embed(DOCUMENTS)
    vectors = np.array([item["embedding"] for item in answer.json()["data"]], np.float32)
    assert vectors.tobytes() == wanted.tobytes() and answer.json()["model"] == "vec"

    answer = client.post("/rerank", json={"query": "the dog", "documents": DOCUMENTS, "model": "rank"})
    best = Reranker(folders[1], platform="reference", num_threads=1).rank("the dog", DOCUMENTS)
    found = [(one["index"], np.float32(one["relevance_score"])) for one in answer.json()["results"]]
    assert found == [(one.index, np.float32(one.score or 0)) for one in best]

    wait_until(lambda: engines(process) == 0)
    assert loaded(client) == {"vec": False, "rank": False}
    again = client.post("/v1/embeddings", json={"input": DOCUMENTS, "model": "vec"})
    assert np.array(again.json()["data"][0]["embedding"], np.float32).tobytes() == vectors[0].tobytes()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_names_and_numbers_are_told_apart(several: tuple[subprocess.Popen[str], httpx.Client]) -> None:
    _, client = several
    for path, body, status, code in (
        ("/v1/embeddings", {"input": "a", "model": "nobody"}, 404, "model_not_found"),
        ("/v1/embeddings", {"input": "a", "model": "rank"}, 400, "unsupported_endpoint"),
        ("/v1/chat/completions", {"messages": []}, 400, "unsupported_endpoint"),
        ("/tokenize", {"prompt": "the cat"}, 400, "missing_field"),
        ("/pooling", {"input": "the cat"}, 400, "missing_field"),
        ("/rerank", {"query": "a", "documents": ["b"], "modle": "rank"}, 400, "unknown_field"),
    ):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert client.post("/tokenize", json={"prompt": "the cat", "model": "rank"}).status_code == 200
    answer = client.post("/v1/embeddings", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    counts = {
        (sample.labels["model_name"], sample.labels["route"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.name == "octavo:http_responses_total"
    }
    assert counts["rank", "/tokenize", "200"] == 1 and counts["rank", "/v1/embeddings", "400"] == 1
    info = client.get("/info").json()["models"]
    assert {one["model_id"] for one in info} <= {"vec", "rank"}


def test_models_that_load_at_the_start_are_there_when_the_server_is_ready(folders: tuple[Path, Path]) -> None:
    process, client, ready = started(f"vec={folders[0]}", f"rank={folders[1]}")
    try:
        assert ready["model"] == "vec, rank" and {"vec.load", "rank.first_token"} <= ready["seconds"].keys()
        assert engines(process) == 2 and client.get("/ready").status_code == 200
        assert "is_loaded" not in client.get("/v1/models/rank").json()
        text = client.get("/metrics").text
        families = {family.name: family.samples for family in text_string_to_metric_families(text)}
        assert {sample.labels["model_name"] for sample in families["octavo:engine_up"]} == {"vec", "rank"}
        assert text.count("# TYPE octavo:engine_up ") == 1
    finally:
        client.close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a={0}", "a={1}"], "two models are called a; name them apart: NAME=MODEL"),
        (["{0}", "{1}", "--served-model-name", "x"], "--served-model-name names a single model"),
        (["{0}", "--unload-s", "0"], "'0' is not a number of seconds above 0"),
        (["{0}", "{1}", "--chat-template", "chatml"], "these models give vectors and know no chat"),
    ],
)
def test_what_cannot_be_is_said_before_anything_loads(
    words: list[str], problem: str, folders: tuple[Path, Path]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "octavo", "serve", *(word.format(*folders) for word in words), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 2 and problem in done.stderr

"""`octavo serve` of an encoder, as processes: ready line, vectors, a drain that lets a long list finish, a dead engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.engine.server.conftest import wait_until
from tests.golden import tiny_encoder_gguf, tiny_sentences

from octavo.engine.embedder import Embedder

ROOT = Path(__file__).resolve().parents[3]


class Served:
    """A server process of the tiny encoder."""

    def __init__(self, folder: Path) -> None:
        words = ["serve", str(folder), "--port", "0", "--json", "--offline", "--drain-s", "120"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo", *words, "--served-model-name", "tiny", "--allow-dimensions"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        assert self.process.stdout is not None
        self.ready: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.client = httpx.Client(base_url=self.ready["url"], trust_env=False, timeout=60)

    def embed(self, given: Any, **fields: Any) -> httpx.Response:
        return self.client.post("/v1/embeddings", json={"input": given, **fields})

    def end(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def gauge(served: Served, name: str) -> int:
    """A number of /metrics."""
    text = httpx.get(served.ready["url"] + "/metrics", trust_env=False).text
    found = [line.split()[-1] for line in text.splitlines() if line.startswith(f"octavo:{name}{{")]
    return int(found[0]) if found else 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sentences.write_case("mean", tmp_path_factory.mktemp("model"))


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    found = Served(folder)
    yield found
    found.end()


def test_vectors_from_a_process_are_the_embedders_and_a_drain_lets_them_come(served: Served, folder: Path) -> None:
    assert served.ready["model"] == "tiny" and "engine.weights" in served.ready["seconds"]
    texts = list(tiny_sentences.TEXTS) * 400
    embedder = Embedder(folder, platform="reference", num_threads=1, allows_dimensions=True)
    wanted = embedder.embed(list(tiny_sentences.TEXTS), dimensions=8)
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(served.embed(texts, dimensions=8)))
    thread.start()

    wait_until(lambda: gauge(served, "engine_items_total") > 50)
    served.process.send_signal(signal.SIGTERM)
    thread.join(120)
    assert answers[0].status_code == 200, answers[0].text
    found = np.array([item["embedding"] for item in answers[0].json()["data"]], np.float32)
    assert found.tobytes() == np.tile(wanted, (400, 1)).tobytes()
    assert served.process.wait(30) == 0


def test_an_engine_that_dies_is_said_at_once(served: Served) -> None:
    assert served.embed("the cat").status_code == 200
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(served.embed(["the cat sat on the mat"] * 20000)))
    thread.start()
    wait_until(lambda: gauge(served, "engine_tokens_waiting") > 0)
    os.kill(int(children[0]), signal.SIGKILL)
    thread.join(30)
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "engine_dead")
    assert httpx.get(served.ready["url"] + "/health", trust_env=False).status_code == 503


def test_options_of_the_other_kind_are_refused(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "octavo", "serve", str(folder), "--port", "0", "--chat-template", "chatml"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 2 and "this model gives vectors and knows no chat" in done.stderr


def test_a_gguf_file_of_an_encoder_is_served_as_its_folder_is(folder: Path, tmp_path: Path) -> None:
    file = tiny_encoder_gguf.write_folder(folder, tmp_path / "tiny.gguf")
    served = Served(file)
    try:
        texts = list(tiny_sentences.TEXTS)
        wanted = Embedder(folder, platform="reference", num_threads=1).embed(texts)
        answer = served.embed(texts)
        assert answer.status_code == 200, answer.text
        found = np.array([item["embedding"] for item in answer.json()["data"]], np.float32)
        assert found.tobytes() == wanted.tobytes()
    finally:
        served.end()

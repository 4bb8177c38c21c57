"""A server process from start to exit code: loading, ready, drain, second signal, taken ports, what the log holds."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.engine.server.conftest import is_listening, wait_until

from octavo.engine.errors import ConfigError
from octavo.engine.server.binding import bind_tcp, bind_unix

ROOT = Path(__file__).resolve().parents[3]
KEY = {"Authorization": "Bearer canary-key-4711"}
BODY = {"messages": [{"role": "user", "content": "canary-prompt-4712"}], "max_tokens": 400}
PATH = "/v1/chat/completions"


class Served:
    """The process under test."""

    def __init__(self, folder: Path, mode: str, drain_s: float, uds: bool = False) -> None:
        self.where = folder / ("s.sock" if uds else "port")
        command = [sys.executable, "-m", "tests.engine.server.served", str(self.where), mode, str(drain_s)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        wait_until(
            lambda: is_listening(self.where) if uds else self.where.exists() and bool(self.where.read_text()), 60
        )
        transport = httpx.HTTPTransport(uds=str(self.where)) if uds else None
        base = "http://x" if uds else f"http://127.0.0.1:{self.where.read_text()}"
        self.client = httpx.Client(base_url=base, transport=transport, headers=KEY, trust_env=False, timeout=10)
        wait_until(lambda: self.status("/live") == 200, 60)

    def status(self, path: str) -> int:
        try:
            return self.client.get(path).status_code
        except httpx.TransportError:
            return 0

    def wait_ready(self) -> None:
        wait_until(lambda: self.status("/ready") == 200, 60)

    def exit_code(self, timeout_s: float = 5.0) -> int:
        return self.process.wait(timeout_s)

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[list[Served]]:
    made: list[Served] = []
    yield made
    for served in made:
        served.close()


def test_drain_finishes_what_runs_and_refuses_what_is_new(start: list[Served], tmp_path: Path) -> None:
    served = Served(tmp_path, "fast", 5)
    start.append(served)
    served.wait_ready()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(served.client.post, PATH, json={**BODY, "stream": True})
        wait_until(lambda: "num_requests_running{" in served.client.get("/metrics").text)
        time.sleep(0.2)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        refused = served.client.post(PATH, json=BODY)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert int(refused.headers["retry-after"]) >= 1
        assert served.status("/ready") == 503
        assert served.status("/health") == 200
        text = running.result(5).text
    assert text.count(" and") == 10
    assert text.endswith("data: [DONE]\n\n")
    assert served.exit_code() == 0


def test_drain_that_takes_too_long_tells_every_client_that_the_server_shuts_down(
    start: list[Served], tmp_path: Path
) -> None:
    served = Served(tmp_path, "endless", 0.3)
    start.append(served)
    served.wait_ready()
    with ThreadPoolExecutor(2) as pool:
        stream = pool.submit(served.client.post, PATH, json={**BODY, "stream": True})
        whole = pool.submit(served.client.post, PATH, json=BODY)
        time.sleep(0.3)
        served.process.send_signal(signal.SIGTERM)
        *_, event, end = stream.result(5).text.split("\n\n")
        refused = whole.result(5)
    assert end == "" and event.startswith("data: ")
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    assert json.loads(event[6:]) == refused.json()
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "shutting_down")
    assert "the server is shutting down" in error["message"]
    assert served.exit_code() == 0


def test_second_signal_ends_at_once(start: list[Served], tmp_path: Path) -> None:
    served = Served(tmp_path, "endless", 60)
    start.append(served)
    served.wait_ready()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(served.client.post, PATH, json=BODY)
        time.sleep(0.3)
        served.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert served.process.poll() is None
        served.process.send_signal(signal.SIGINT)
        assert served.exit_code(3) == 1
        assert running.result(5).json()["error"]["code"] == "shutting_down"


def test_server_is_alive_but_not_ready_while_the_model_loads(start: list[Served], tmp_path: Path) -> None:
    served = Served(tmp_path, "slowload", 5, uds=True)
    start.append(served)
    assert stat.S_IMODE(served.where.stat().st_mode) == 0o600
    assert (served.status("/live"), served.status("/health"), served.status("/ready")) == (200, 200, 503)
    answer = served.client.post(PATH, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
    with pytest.raises(ConfigError, match="in use"):
        bind_unix(served.where)
    served.process.send_signal(signal.SIGTERM)
    assert served.exit_code() == 0
    assert not served.where.exists()


def test_log_holds_neither_prompts_nor_keys(start: list[Served], tmp_path: Path) -> None:
    served = Served(tmp_path, "fast", 5)
    start.append(served)
    served.wait_ready()
    client = served.client
    canary = "canary-prompt-4712"
    assert client.post(PATH, json=BODY).status_code == 200
    assert client.post(PATH, json={**BODY, canary: 1}).status_code == 400
    assert client.post(PATH, json={**BODY, "model": canary}).status_code == 404
    assert client.post(PATH, content=canary, headers={"content-type": "application/json"}).status_code == 400
    assert client.get(f"/{canary}?q={canary}").status_code == 404
    assert client.get(f"/v1/models/{canary}").status_code == 404
    assert client.get("/v1/models", headers={"Authorization": f"Bearer {canary}"}).status_code == 401
    served.process.send_signal(signal.SIGTERM)
    assert served.exit_code() == 0
    log = served.log.read_text()
    assert "/v1/chat/completions 200" in log
    assert "prompt=" in log
    assert "canary" not in log


def test_taken_port_is_found_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen"):
        bind_tcp("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="cannot listen"):
        bind_tcp("no.such.host.invalid", 0)


def test_dead_socket_file_is_replaced_but_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    bind_unix(path).close()
    bind_unix(path).close()
    plain = tmp_path / "file"
    plain.write_text("x")
    with pytest.raises(ConfigError):
        bind_unix(plain)
    assert plain.read_text() == "x"


def test_the_command_ends_without_taking_the_interpreter_apart(tmp_path: Path) -> None:
    script = (
        "import atexit, sys; sys.path[:0] = sys.argv.pop(1).split(':')\n"
        "from octavo.engine.server import cli\n"
        "atexit.register(print, 'interpreter taken apart')\n"
        "cli._run = lambda words: 3\n"
        "print('last words', end='')\n"
        "cli.entry()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, f"{ROOT / 'src'}:{ROOT}", "serve"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "last words", "")

"""`make run` that cannot go on ends with what the command said, or with one word; never with a traceback of its own."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from ci import demo


class Server:
    """A server that runs until it is told to end."""

    def __init__(self, *_: Any) -> None:
        self.signals: list[int] = []

    def poll(self) -> None:
        return None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self, timeout_s: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py"])


def test_model_that_cannot_be_fetched_ends_with_the_commands_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    with pytest.raises(SystemExit) as stop:
        demo.main()
    assert stop.value.code == 1


def test_interrupt_ends_the_server_and_says_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    monkeypatch.setattr(subprocess, "Popen", lambda *_: server)
    monkeypatch.setattr(demo, "wait_ready", interrupt)
    with pytest.raises(SystemExit, match="stopped"):
        demo.main()
    assert len(server.signals) == 1

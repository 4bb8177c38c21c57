"""Processes that benchmarks start and end: the server, peers that take commands, and what /proc says of them."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT

PEERS = ROOT / "benchmarks" / "peers"


def environment(**more: str) -> dict[str, str]:
    """This process's environment with the checkout on the path, so that children run the same sources.

    They may keep what Python compiles, as an installed package does: without it every start compiles a hundred modules again.
    """
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    rest = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**rest, "PYTHONPATH": path, **more}


def octavo(*words: str) -> list[str]:
    """The command line of `octavo ...` with this interpreter."""
    return [sys.executable, "-m", "octavo", *words]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """`octavo serve MODEL` on a loopback port. Use as a context manager; SIGTERM at the end."""

    def __init__(self, model: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.started = time.perf_counter()
        command = octavo("serve", model, "--port", str(self.port), "--log-level", "warning", *words)
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, env=environment(OCTAVO_LOG="warning", **(env or {}))
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_ready(self, deadline_s: float = 120.0) -> float:
        """Seconds from the start until /ready says yes. RuntimeError if it ends or takes too long."""
        while time.perf_counter() - self.started < deadline_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode} before it was ready")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/ready")[0] == 200:
                    return time.perf_counter() - self.started
            time.sleep(0.004)
        raise RuntimeError(f"the server was not ready within {deadline_s:.0f} s")

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = 120.0) -> tuple[int, Any]:
        """Status and the JSON answer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)) as connection:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def stream(self, path: str, body: Mapping[str, Any], timeout_s: float = 120.0) -> Iterator[dict[str, Any]]:
        """The JSON events of a streamed answer, as they come. RuntimeError for any status but 200."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)) as connection:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"{path}: status {answer.status}: {answer.read()[:300]!r}")
            for line in answer:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield json.loads(line[6:])

    def pids(self) -> dict[str, int]:
        """The API process and its engine process."""
        names = ("engine", *(f"child{i}" for i in range(2, 64)))
        return {"api": self.process.pid, **dict(zip(names, children(self.process.pid), strict=False))}


def labelled_metrics(text: str) -> dict[str, float]:
    """`name{labels}` -> value of a Prometheus text."""
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {key: float(value) for key, value in lines}


def children(parent: int) -> list[int]:
    """Processes whose parent this is."""
    out = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == parent:
                    out.append(int(entry))
    return sorted(out)


def memory_bytes(pid: int, what: str = "VmHWM") -> int:
    """A size line of /proc/PID/status: VmHWM (peak), VmRSS (now). OSError if the process is gone."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) << 10
    return 0


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _own_group() -> None:
    os.setpgrp()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class PeerProcess:
    """A program of benchmarks/peers under another Python: it prints its name and version, then answers JSON lines.

    It is a process group of its own, so that it can be put to sleep, threads that spin and all, while others are measured. It
    ends with the thread that started it: nobody else would wake it.
    """

    def __init__(self, python: str, script: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        command = [python, str(PEERS / script), *words]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=None if env is None else dict(env),
            preexec_fn=_own_group,
        )
        self.name = Path(script).stem
        try:
            hello = self._answer()
        except RuntimeError:
            self.close()
            raise
        self.name, self.version = str(hello["peer"]), str(hello["version"])

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets it end, or ends it."""
        self.wake()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def sleep(self) -> None:
        """Stops the whole group until `wake`."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Lets a stopped group go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def ask(self, **command: Any) -> dict[str, Any]:
        """One command, one answer. RuntimeError if the answer is an error or the program ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError(f"{self.process.args[1]} ended with status {self.process.wait()}")  # type: ignore[index]


def seconds_to_first_output(command: Sequence[str], env: Mapping[str, str] | None = None, marker: bytes = b"") -> float:
    """From the start of a process to the first byte on its stdout (or to `marker`); it is then waited for.

    RuntimeError if it fails or prints nothing.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(env or environment())
    )
    assert process.stdout is not None
    seen, seconds = b"", 0.0
    while piece := os.read(process.stdout.fileno(), 1 << 16):
        seen += piece
        if not seconds and marker in seen:
            seconds = time.perf_counter() - start
    process.stdout.close()
    if process.wait() or not seconds:
        raise RuntimeError(f"{' '.join(command)}: status {process.returncode}, output {seen[-300:]!r}")
    return seconds


def model_file(model: str) -> Path:
    """The file of a model, found (never fetched) by octavo's own resolver."""
    from octavo.engine.config import read_environment
    from octavo.engine.loading.source import resolve

    path = resolve(model, cache_dir=read_environment().cache, is_offline=True).path
    return path if path.is_file() else next(iter(sorted(path.glob("*.gguf"))), path)

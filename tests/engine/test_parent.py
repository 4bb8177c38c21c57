"""A process ends with its parent even when its main thread never looks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

BUSY = """
import os, socket, sys, time
from octavo.engine import parent
if sys.argv[3] == "old kernel":
    del os.pidfd_open
sock = socket.socket(fileno=int(sys.argv[1]))
parent.end_with_parent(int(sys.argv[2]), sock)
print("watching", flush=True)
time.sleep(60)
"""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A pair of sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def start(sock: socket.socket, parent: int, how: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BUSY, str(sock.fileno()), str(parent), how]
    return subprocess.Popen(
        command, pass_fds=(sock.fileno(),), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    )


@pytest.mark.parametrize("how", ["", "old kernel"])
def test_a_busy_process_ends_when_the_socket_closes_and_not_when_bytes_come(
    ends: tuple[socket.socket, socket.socket], how: str
) -> None:
    with start(ends[1], os.getpid(), how) as process:
        ends[1].close()
        assert process.stdout is not None and process.stdout.readline() == "watching\n"
        ends[0].sendall(b"nobody reads this")
        time.sleep(0.8)
        assert process.poll() is None
        ends[0].close()
        assert process.wait(3) == 1


def test_a_process_whose_parent_is_another_does_not_begin(ends: tuple[socket.socket, socket.socket]) -> None:
    with start(ends[1], os.getppid()) as process:
        out, errors = process.communicate(timeout=20)
        assert (process.returncode, out) == (1, "") and "the parent is gone" in errors

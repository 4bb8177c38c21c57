"""Starts an engine process. Imports next to nothing, so that the child is on its way before its parent loads anything slow.

The child is `python -m octavo.engine.process FD PARENT [LOG_LEVEL]`; it gets its configuration as the first frame: four bytes of
little-endian length, then JSON text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

from octavo.engine.config import EngineConfig

SOCKET_BUFFER_BYTES = 1 << 20


def spawn(config: EngineConfig, log_level: str | None = None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process and our end of its socket. `log_level`: instead of the environment's."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    command = [sys.executable, "-m", "octavo.engine.process", str(theirs.fileno()), str(os.getpid())]
    command += [log_level] if log_level else []
    with _unhurried():
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
    theirs.close()
    text = json.dumps(dataclasses.asdict(config), default=str).encode()
    with contextlib.suppress(ConnectionError):  # it has ended already: who attaches will be told so
        ours.sendall(len(text).to_bytes(4, "little") + text)
    return process, ours


@contextlib.contextmanager
def _unhurried() -> Iterator[None]:
    """Holds Ctrl-C and SIGTERM back in this thread, and for good in a child that is started meanwhile: its parent decides
    when it ends, from its first moment on, when it has not yet said so itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

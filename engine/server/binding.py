"""Sockets to listen on, bound before anything slow is loaded, so that a taken address is found at once.

No SO_REUSEPORT: two servers on one port would share its connections without a word. A Unix socket is made for its owner only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from octavo.engine.errors import ConfigError


def bind_tcp(host: str, port: int) -> socket.socket:
    """A bound, not yet listening, TCP socket; port 0 picks a free one. ConfigError when it cannot be had."""
    with contextlib.ExitStack() as stack:
        try:
            family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = stack.enter_context(socket.socket(family, kind, proto))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind(address)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"cannot listen on {host}:{port}: {why}; choose another --host or --port") from None
        stack.pop_all()
    return sock


def bind_unix(path: Path) -> socket.socket:
    """A bound Unix socket that only this user may open. A dead socket file is replaced, anything else is not."""
    with contextlib.ExitStack() as stack:
        try:
            if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
                if _is_served(path):
                    raise ConfigError(f"{path} is in use by a running server; choose another --uds")
                path.unlink()
            sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            old_mask = os.umask(0o177)
            try:
                sock.bind(str(path))
            finally:
                os.umask(old_mask)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"cannot listen on {path}: {why}; choose another --uds") from None
        stack.pop_all()
    return sock


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True

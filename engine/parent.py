"""Ends a process with its parent, whatever its main thread is doing.

Linux' own parent-death signal follows the *thread* that started the child, so an engine started from a short-lived thread
would die with that thread (prctl(2), PR_SET_PDEATHSIG). Watched instead are the parent process (a pidfd, which a copy of the
socket in a forked sibling cannot fool) and the hang-up of the socket (all there is where pidfds are unknown). Source:
pidfd_open(2), poll(2).
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time

log = logging.getLogger("octavo.engine")
GRACE_S = 0.5  # for the main thread, which sees the socket's end too, to go in good order


def end_with_parent(parent: int, sock: socket.socket) -> None:
    """Watches from a thread: once process `parent` has ended or the other end of `sock` is closed for good, this process
    has `GRACE_S` left. Ends it at once if `parent` is not (any more) its parent."""
    watched = select.poll()
    watched.register(sock, 0)  # a hang-up is always reported
    try:
        watched.register(os.pidfd_open(parent), select.POLLIN)
    except (OSError, AttributeError) as error:
        log.debug("the parent process cannot be watched, only its socket: %s", error)
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")
    threading.Thread(target=_wait, args=(watched,), name="octavo-parent", daemon=True).start()


def _wait(watched: select.poll) -> None:
    watched.poll()
    time.sleep(GRACE_S)
    os._exit(1)

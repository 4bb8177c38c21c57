"""A few seconds of a shared machine for one process tree: its threads run before everybody else's, then as before.

Real-time priority (SCHED_FIFO) keeps other people's work from a measurement, and starves them as long as it lasts, so it ends
by itself after `limit_s`. Needs root or CAP_SYS_NICE. The kernel leaves others 5 % of the time unless told otherwise.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from benchmarks.processes import children

PRIORITY = 10


def threads_of(pid: int) -> list[int]:
    """Thread ids of a process and of its descendants."""
    out: list[int] = []
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        with contextlib.suppress(OSError):
            out += [int(name) for name in os.listdir(f"/proc/{at}/task")]
            waiting += children(at)
    return out


def set_priority(thread_ids: list[int], priority: int) -> None:
    """SCHED_FIFO at a priority, or 0: back to normal. Threads that are gone are left out."""
    policy = os.SCHED_FIFO if priority else os.SCHED_OTHER
    for thread in thread_ids:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread, policy, os.sched_param(priority))


@contextlib.contextmanager
def first_in_line(pid: int, limit_s: float) -> Iterator[None]:
    """The tree of `pid` at real-time priority, for `limit_s` at most; 0: no change. PermissionError if not allowed."""
    if limit_s <= 0:
        yield
        return
    own = threading.get_native_id()
    set_priority([own], PRIORITY + 1)  # whoever ends it must be able to run
    timer = threading.Timer(limit_s, lambda: set_priority(threads_of(pid), 0))
    timer.start()  # a thread of the same priority as this one
    try:
        set_priority(threads_of(pid), PRIORITY)
        yield
    finally:
        timer.cancel()
        set_priority(threads_of(pid), 0)
        set_priority([own], 0)

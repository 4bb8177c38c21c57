"""Real-time priority reaches every thread of the tree and ends by itself; without the right to it that is an error."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from benchmarks.realtime import first_in_line, set_priority, threads_of

CODE = """
import subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("up", flush=True)
sys.stdin.read()
child.kill()
"""


def is_allowed() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


@pytest.fixture
def tree() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None and process.stdout.readline()
    yield process.pid
    process.communicate()


def policies(pid: int) -> set[int]:
    return {os.sched_getscheduler(thread) for thread in threads_of(pid)}


def test_threads_and_children_are_found(tree: int) -> None:
    assert len(threads_of(tree)) == 3
    assert threading.get_native_id() in threads_of(os.getpid())


@pytest.mark.skipif(not is_allowed(), reason="real-time priority is not allowed here")
def test_priority_is_given_and_taken_back(tree: int) -> None:
    with first_in_line(tree, 30.0):
        assert policies(tree) == {os.SCHED_FIFO}
    assert policies(tree) == {os.SCHED_OTHER} and os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.skipif(not is_allowed(), reason="real-time priority is not allowed here")
def test_priority_ends_by_itself(tree: int) -> None:
    with first_in_line(tree, 0.05):
        end = time.monotonic() + 10
        while policies(tree) != {os.SCHED_OTHER} and time.monotonic() < end:
            time.sleep(0.02)
        assert policies(tree) == {os.SCHED_OTHER}


def test_nothing_changes_without_a_limit(tree: int) -> None:
    with first_in_line(tree, 0.0):
        assert policies(tree) == {os.SCHED_OTHER}


def test_threads_that_are_gone_are_left_out() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    set_priority([process.pid], 0)
    assert threads_of(process.pid) == []

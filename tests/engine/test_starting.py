"""The cyclic collector waits while a process starts, then works as before on what is new; calls have room for their frames."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import gc
usual = gc.get_threshold()
import octavo
assert gc.get_threshold() == usual and gc.isenabled()
from octavo.engine.starting import STARTING, begin, settle
begin()
assert gc.get_threshold()[0] == STARTING and gc.isenabled()
before = len(gc.get_objects())
settle()
assert gc.get_threshold() == usual and gc.get_freeze_count() >= before and len(gc.get_objects()) < 100
"""


def test_thresholds_come_back_and_what_was_there_is_left_alone() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)


THREADS = """
from octavo.engine.starting import begin
begin()
import numpy, os
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_numpy_starts_no_threads_unless_the_user_wants_them() -> None:
    for given, expected in ((None, 1), ("2", 2)):
        env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        env |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
        num_threads = int(
            subprocess.run([sys.executable, "-c", THREADS], check=True, capture_output=True, env=env).stdout
        )
        assert num_threads <= expected  # fewer where numpy is built without OpenBLAS


CALLS = """
from time import process_time
from octavo.engine.starting import roomy

def leaf(a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0):
    return a

def down(depth):
    if depth:
        return down(depth - 1)
    start = process_time()
    for _ in range(2000):
        leaf()
    return process_time() - start

def spread():
    times = [min(down(depth) for _ in range(5)) for depth in range(150, 300)]
    return max(times) / min(times)

print(roomy(spread)())
"""


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="about CPython's frames")
def test_no_depth_of_calls_is_slow_under_a_roomy_function() -> None:
    """Without it a call at one of these depths crosses the end of a chunk, and takes a hundred times as long."""
    spread = subprocess.run([sys.executable, "-c", CALLS], check=True, capture_output=True).stdout
    assert float(spread) < 10

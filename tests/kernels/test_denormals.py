"""Denormals count as zero inside a run, on every thread of a team, and nowhere else."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.kernels.harness import FIXED, aligned, run, same_bits
from tests.kernels.harness import lowest as lowest_kernel
from tests.kernels.kv_case import eager, lowest

SMALLEST_NORMAL = np.float32(2.0**-126)


def added(a: np.ndarray, b: np.ndarray, threads: int) -> np.ndarray:
    y = aligned(a.shape, np.float32)
    y[:] = 77
    width = a.shape[1]
    fields = {
        "a": a, "lda": width, "b": b, "ldb": width, "y": y, "ldy": width, "width": width, "scale_a": 1.0, "scale_b": 1.0,
        "rows": (FIXED, len(a)),
    }  # fmt: skip
    run(lowest_kernel("add"), fields, threads=threads)
    return y


@pytest.mark.parametrize("threads", [1, 2], ids=["one", "two"])
def test_denormals_count_as_zero(threads: int) -> None:
    a = np.array([[1e-39, -1e-39, 1e-39, 1.5 * 2.0**-126, 1.0, -0.0]], np.float32)
    b = np.array([[1e-39, 0.0, 1.0, -(2.0**-126), -1.0, -0.0]], np.float32)
    # operands to zero; a result of 2^-127 to zero; the rest as ever
    assert same_bits(added(a, b, threads), np.array([[0.0, 0.0, 1.0, 0.0, 0.0, -0.0]], np.float32))


def test_every_thread_of_a_team_flushes() -> None:
    """Which thread takes which rows is open, so there are many rows, many times; all of them must be flushed."""
    a = np.full((4096, 64), SMALLEST_NORMAL * np.float32(1.5))
    b = np.full_like(a, -SMALLEST_NORMAL)
    for _ in range(200):
        assert not added(a, b, threads=2).any()


def test_the_caller_keeps_its_own_denormals() -> None:
    tiny = np.array([1e-39], np.float32)
    assert (tiny + tiny)[0] > 0
    eager(lowest()).softcap(np.ones((2, 8), np.float32), 3.0)
    assert (tiny + tiny)[0] > 0, "flush-to-zero outlived the run"


TRAPS = """
import ctypes, sys
import numpy as np
from tests.kernels.test_denormals import added
big = np.full((64, 64), np.inf, np.float32)
invalid, libm = 1, ctypes.CDLL("libm.so.6")
libm.feenableexcept(invalid)
found = added(big, -big, int(sys.argv[1]))
libm.fedisableexcept(invalid)
sys.exit(not np.isnan(found).all())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's feenableexcept")
@pytest.mark.parametrize("threads", ["1", "2"], ids=["one", "two"])
def test_a_caller_that_traps_invalid_operations_is_not_killed_by_ours(threads: str) -> None:
    libm = ctypes.CDLL("libm.so.6")
    if libm.feenableexcept(1) < 0:
        pytest.skip("this processor traps nothing")
    libm.fedisableexcept(1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", TRAPS, threads], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

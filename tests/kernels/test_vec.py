"""The vector headers give the reference's bits on every level that this machine can run, and compile on the rest."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.platforms.reference import f32

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {
    "scalar": (["-march=x86-64-v2"], 1, set()),
    "avx2": (["-march=x86-64-v2", "-mavx2", "-mfma", "-mf16c"], 8, {"avx2", "fma", "f16c"}),
    "avx512": (
        ["-march=x86-64-v2", "-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"],
        16,
        {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    ),
}
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "erf", "gelu", "gelu_tanh", "silu")


def cpu_flags() -> set[str]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def floats(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.fixture(scope="module", params=[(c, level) for c in COMPILERS for level in LEVELS], ids="-".join)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler, level = request.param
    flags, lanes, needed = LEVELS[level]
    if "sse4_2" not in cpu_flags():
        pytest.skip("an x86 vector header needs an x86 machine")
    target = tmp_path_factory.mktemp("vec") / f"probe_{compiler}_{level}.so"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    if compiler == "g++":
        warnings.append("-Wno-maybe-uninitialized")  # gcc 12 warns about its own AVX-512 header
    command = [compiler, "-std=c++17", "-O2", *warnings, "-ffp-contract=off", "-shared", "-fPIC"]
    source = ROOT / "tests/kernels/vec_probe.cpp"
    subprocess.run([*command, *flags, f"-I{ROOT / 'csrc_common'}", str(source), "-o", str(target)], check=True)
    missing = needed - cpu_flags()
    if missing:
        pytest.skip(f"compiled; this CPU lacks {', '.join(sorted(missing))}")
    loaded = ctypes.CDLL(str(target))
    loaded.run_sum16.restype = loaded.run_sum16_squares.restype = ctypes.c_float
    assert loaded.lanes() == lanes
    return loaded


def inputs() -> np.ndarray:
    """Every 65,003rd bit pattern (all exponents, NaN payloads, denormals), dense ranges and the edges of exp."""
    walk = np.arange(0, 2**32, 65003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(5)
    dense = [rng.uniform(-limit, limit, 30_000).astype(np.float32) for limit in (1.0, 5.0, 100.0)]
    edge = (np.array([f32.EXP_MIN, f32.EXP_MAX]).view(np.int32)[:, None] + np.arange(-3, 4)).astype(np.int32).ravel()
    return np.concatenate([walk, *dense, edge.view(np.float32), np.array([0.0, -0.0, np.inf, -np.inf], np.float32)])


def same_bits(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """True where the bits agree or both are NaN (payloads are outside the contract)."""
    return (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_has_the_reference_bits(library: ctypes.CDLL, name: str) -> None:
    x = inputs()
    got = np.zeros_like(x)
    getattr(library, f"run_{name}")(floats(x), floats(got), ctypes.c_long(x.size))
    reference: Callable[[np.ndarray], np.ndarray] = getattr(f32, name)
    same = same_bits(got, reference(x))
    assert same.all(), f"{name}: {(~same).sum()} of {x.size} differ, first at {x[~same][0].item().hex()}"


@pytest.mark.parametrize("entry", ["run_fma", "run_fma_vector"])
def test_fma_has_the_reference_bits(library: ctypes.CDLL, entry: str) -> None:
    rng = np.random.default_rng(6)
    n = 160_000
    a, b, c = (np.ldexp(rng.integers(-(2**24), 2**24, n), rng.integers(-60, 20, n)).astype(np.float32) for _ in "abc")
    c[::2] = -(a * b)[::2]  # cancellation
    odd = np.float32(1) + rng.integers(1, 2**10, n // 4).astype(np.float32) * np.float32(2.0**-12)
    a[1::4], b[1::4], c[1::4] = odd, odd, (2.0 ** rng.integers(-100, -20, n // 4)).astype(np.float32)  # ties
    got = np.zeros_like(a)
    getattr(library, entry)(floats(a), floats(b), floats(c), floats(got), ctypes.c_long(n))
    assert same_bits(got, f32.fma32(a, b, c)).all()


def test_half_formats_have_the_reference_bits(library: ctypes.CDLL) -> None:
    x = inputs()
    halves = np.zeros(x.size, np.uint16)
    library.run_to_bf16(floats(x), floats(halves), ctypes.c_long(x.size))
    assert np.array_equal(halves, f32.bf16_bits(x))
    library.run_to_f16(floats(x), floats(halves), ctypes.c_long(x.size))
    want = f32.to_f16(f32.flush(x))
    same = (halves == want.view(np.uint16)) | (np.isnan(halves.view(np.float16)) & np.isnan(want))
    assert same.all()
    every = np.arange(2**16, dtype=np.uint16)
    wide = np.zeros(every.size, np.float32)
    library.run_from_f16(floats(every), floats(wide), ctypes.c_long(every.size))
    assert same_bits(wide, every.view(np.float16).astype(np.float32)).all()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 15, 16, 17, 33, 576])
def test_sums_have_the_reference_bits(library: ctypes.CDLL, n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    for name in ("sum16", "sum16_squares"):
        got = np.array([getattr(library, f"run_{name}")(floats(x), ctypes.c_long(n))], np.float32)
        assert got.view(np.uint32)[0] == getattr(f32, name)(x[None]).view(np.uint32)[0]

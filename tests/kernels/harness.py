"""Runs one native kernel through a recorded program, as the engine does, and lists the variants that can run here.

A level this processor lacks runs from the emulated module (tests/emulated) where that was built; otherwise its variant is
skipped with the reason. Arrays are numpy; kernels get their addresses.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from octavo.platforms.cpu.module import native_module
from octavo.platforms.select import FAST_LEVELS

TOKENS, LOGITS, SEQUENCES, FIXED = range(4)


@dataclass(frozen=True)
class Kernel:
    """A row of kernels() with the module that runs it here; `why_not` says what is missing ('' = it runs)."""

    op: str
    name: str
    level: str
    module: Any
    why_not: str = ""


@cache
def module_named(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@cache
def kernels(is_fast: bool = False) -> dict[str, list[Kernel]]:
    """op -> its exact kernels, slowest level first, or those that only `--numerics fast` lets run."""
    native, emulated = module_named(native_module()), module_named("octavo._avx_emulated")
    out: dict[str, list[Kernel]] = {}
    if native is None:
        return out
    have = native.available_features()
    for op, name, level, required, _ in native.kernels():
        if (level in FAST_LEVELS) != is_fast:
            continue
        runs = not required & ~have
        module = native if runs else emulated
        why = "" if module else f"{name}: this processor lacks the level and octavo._avx_emulated is not built"
        out.setdefault(op, []).append(Kernel(op, name, level, module, why))
    return out


def variants(*ops: str, is_fast: bool = False) -> list[Any]:
    """Parameters for pytest, one per kernel of `ops`."""
    marks = lambda k: [pytest.mark.skip(reason=k.why_not)] if k.why_not else []  # noqa: E731
    return [pytest.param(k, id=k.name, marks=marks(k)) for op in ops for k in kernels(is_fast).get(op, [])]


def lowest(op: str) -> Kernel:
    """The kernel of an op that runs on every processor."""
    return kernels()[op][0]


def aligned(shape: int | Sequence[int], dtype: Any, align: int = 64) -> np.ndarray:
    """Zeros at an aligned address."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + count].view(dtype).reshape(shape)


@cache
def team(module: ModuleType, num_threads: int) -> Any:
    return module.Team(num_threads, 50)


def make_step(
    module: ModuleType, num_tokens: int = 0, token_ids: Any = None, positions: Any = None, token_types: Any = None
) -> Any:
    return module.Step(num_tokens, 0, 0, token_ids, positions, None, None, None, token_types, None, 0, [])


def run(kernel: Kernel, fields: dict[str, Any], *, step: Any = None, threads: int = 1) -> None:
    """Runs `kernel` once. Arrays among the fields become addresses; asserts that it, and nothing else, is in the program."""
    program = kernel.module.Program()
    values = {k: (v.ctypes.data if isinstance(v, np.ndarray) else 0 if v is None else v) for k, v in fields.items()}
    program.add([(0, kernel.name)], (FIXED, 1), values)
    assert program.bands == [[(0, kernel.name)]]
    program.run(team(kernel.module, threads), step or make_step(kernel.module), 0, 1)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, NaN equal to NaN whatever its payload."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype != np.float32:
        return np.array_equal(a, b)
    ua, ub = np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32)
    return bool(np.all((ua == ub) | (np.isnan(a) & np.isnan(b))))


def tile_counts(kernel: Kernel) -> tuple[int, int]:
    """Tile loads and products of this thread so far; only the emulation counts them."""
    loads, products = ctypes.c_uint64(), ctypes.c_uint64()
    ctypes.CDLL(kernel.module.__file__).octavo_emulated_tiles(ctypes.byref(loads), ctypes.byref(products))
    return loads.value, products.value

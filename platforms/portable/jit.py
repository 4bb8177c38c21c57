"""How the portable kernels are compiled: numba without fast-math, Python threads without the interpreter's lock, a disk cache.

Importing this imports numba, so only the chosen platform does. Invariants: every float operation below is float32 and rounded
alone; `fma` is LLVM's, one rounding on every chip; denormals are flushed by `flush` after each operation, because the
control register that does it elsewhere is not reachable from here. Constants must be np.float32: a Python float would widen
the expression to float64.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

# by name: type checks run where numba is not installed, too
_numba: Any = import_module("numba")
_config: Any = import_module("numba.core.config")
types: Any = import_module("numba.types")
intrinsic: Any = import_module("numba.extending").intrinsic
ir: Any = import_module("llvmlite.ir")

TINY = np.float32(2.0**-126)
ZERO = np.float32(0)
ONE = np.float32(1)
NUMBA_VERSION: str = _numba.__version__


def use_cache(folder: Path) -> None:
    """Compiled kernels are kept in `folder` (unless NUMBA_CACHE_DIR names another); call it before kernels are imported."""
    if not _config.CACHE_DIR:
        _config.CACHE_DIR = str(folder)


def kernel(function: Callable[..., None]) -> Callable[..., None]:
    """Compiled at first call, kept on disk, run without the interpreter's lock."""
    return cast(Callable[..., None], _numba.njit(cache=True, nogil=True, fastmath=False, error_model="numpy")(function))


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of kernels, inlined by LLVM."""
    return cast(Callable[..., Any], _numba.njit(forceinline=True, fastmath=False, error_model="numpy")(function))


def _fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32, rounded once; not flushed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        f32 = ir.FloatType()
        function = builder.module.declare_intrinsic("llvm.fma", [f32], ir.FunctionType(f32, [f32] * 3))
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


fma: Any = intrinsic(_fma)


def _bits_of(typingctx: Any, x: Any) -> Any:
    """The int32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


bits_of: Any = intrinsic(_bits_of)


def _from_bits(typingctx: Any, x: Any) -> Any:
    """The float32 of int32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


from_bits: Any = intrinsic(_from_bits)


@inline
def flush(x: Any) -> Any:
    """Denormals to zero of the same sign; all else, NaN included, unchanged."""
    return x * ZERO if abs(x) < TINY else x


@inline
def round_bf16(x: Any) -> Any:
    """float32 rounded to bfloat16, half to even, kept as float32; a flushed operand is due."""
    bits = bits_of(x)
    odd = (bits >> np.int32(16)) & np.int32(1)
    rounded = from_bits(np.int32((bits + odd + np.int32(0x7FFF)) & np.int32(-65536)))
    return rounded if x == x else x

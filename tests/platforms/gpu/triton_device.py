"""Kernels of platforms/gpu/triton without a GPU: Triton's interpreter runs them on numpy, over the memory of the host's fibers.

Those run all other kernels. For a Python that has Triton, where TRITON_INTERPRET=1 is set before the kernels are imported.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from ci.gpu import HOME, host_table
from ci.gpu import missing as missing_host
from ci.gpu_triton import KERNELS, SCRATCH_BYTES, Kernel, parameters, row_of, types_of
from tests.platforms.gpu.host_device import HostDevice

from octavo.platforms.gpu.native import GpuNative

WAVE = 64
NUMBERS = {"i64": ("<q", np.int64), "i32": ("<i", np.int32), "fp32": ("<f", np.float32), "pointer": ("<Q", np.uint64)}


def missing() -> str:
    """Why no kernel can be interpreted here ('' = all can)."""
    if find_spec("triton") is None:
        return "triton is not installed: ci/triton-env makes an environment that has it"
    return missing_host("host") or ("" if os.environ.get("TRITON_INTERPRET") == "1" else "TRITON_INTERPRET is not 1")


def folder() -> Path:
    """The host's table of kernels, with Triton's."""
    table = [{**row, "file": "host"} for row in host_table(WAVE)]
    ops = {row["op"]: row for row in table}
    made = HOME / "host/triton"
    made.mkdir(parents=True, exist_ok=True)
    (made / "host").touch()
    rows = [{**row_of(kernel, ops[kernel.op], WAVE), "file": "host"} for kernel in KERNELS]
    (made / "kernels.json").write_text(json.dumps(table + rows))
    return made


def prefer(native: GpuNative) -> None:
    """Lets Triton's kernels run whatever the number of rows, and exact ones where there is none of those."""
    exact = replace(native, is_fast=False).table
    for op, choice in native.table.choices.items():
        if choice.many.endswith("__triton"):
            native.table.choices[op] = replace(choice, bands=((0, choice.many),))
        elif op in exact:
            native.table.choices[op] = exact[op]


class InterpretedDevice(HostDevice):
    """See `HostDevice`."""

    def __init__(self) -> None:
        super().__init__(WAVE)
        self._kernels = {kernel.name: kernel for kernel in KERNELS}
        self._taken = {row["op"]: parameters(row["fields"]) for row in host_table(WAVE)}

    def launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, arguments: bytes, shared_bytes: int = 0
    ) -> None:
        kernel = self._kernels.get(function)
        if kernel is None:
            super().launch(function, grid, threads, arguments, shared_bytes)
            return

        def run() -> None:
            self.launched[function] = self.launched.get(function, 0) + grid[0] * grid[1] * grid[2]
            assert not any(arguments[-SCRATCH_BYTES:]), f"{function} was given scratch memory"
            interpret(kernel, self._taken[kernel.op], grid, arguments)

        self._do(run)


def interpret(kernel: Kernel, taken: list[tuple[str, int, str]], grid: tuple[int, int, int], arguments: bytes) -> None:
    """Runs a kernel on parameters as they lie in memory, typed as its code objects have them."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    types = types_of(kernel, taken)

    def given(name: str, offset: int) -> Any:
        pack, kind = NUMBERS["pointer" if types[name][0] == "*" else types[name]]
        of = tl.str_to_ty(types[name], None)
        value = np.array(struct.unpack_from(pack, arguments, 8 + offset), kind)
        return tl.tensor(TensorHandle(value, of), of)

    function = getattr(import_module(f"octavo.platforms.gpu.triton.{kernel.module}"), kernel.name)
    interpreter_builder.create_dot, interpreter_builder.create_fp_trunc = dot, narrow
    with np.errstate(all="ignore"):
        function[grid](*(given(name, offset) for name, offset, _ in taken), **kernel.constants)


def dot(a: Any, b: Any, c: Any, *_: Any) -> Any:
    """Triton's interpreter keeps bfloat16 as words of 16 bits, and multiplies those; here they are widened, which is exact."""
    from triton.runtime.interpreter import TensorHandle

    wide = [
        (x.data.astype(np.uint32) << 16).view(np.float32) if x.dtype.is_bf16() else x.data.astype(np.float32)
        for x in (a, b)
    ]
    return TensorHandle(np.matmul(*wide) + c.data, c.dtype.scalar)


def narrow(x: Any, to: Any) -> Any:
    """It also cuts float32 off where chips round to the nearest bfloat16, half to even."""
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    if not to.scalar.is_bf16():
        return interpreter_builder.cast_impl(x, to)
    word = x.data.astype(np.float32).view(np.uint32)
    rounded = np.where(np.isnan(x.data), word >> 16 | 0x40, (word + 0x7FFF + (word >> 16 & 1)) >> 16)
    return TensorHandle(rounded.astype(np.uint16), to.scalar)

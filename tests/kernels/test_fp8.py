"""vec/fp8.h gives the values of quant/fp8.py and quant/mx.py: by every compiler of the host, and as machine code of AMD."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ci.gpu import COMMON, HIP_FLAGS, ROOT, clang
from tests.platforms.gpu import emulated_device

from octavo.quant.fp8 import DIALECTS
from octavo.quant.mx import E2M1, E8M0

INCLUDES = (f"-I{ROOT / 'csrc_common'}", f"-I{ROOT / 'tests/kernels'}")
HOST = '#include "fp8_probe.inl.h"\nextern "C" void run(const octavo::Fp8ProbeArgs* a) {\n' + (
    "  for (int64_t i = 0; i < a->count; ++i) octavo::probe::all(i, *a);\n}\n"
)
HIP = '#include "gpu/shim.h"\n#include "fp8_probe.inl.h"\nOCTAVO_KERNEL(fp8_probe, simt, Fp8Probe, 256, 1, 256) {\n' + (
    "  (void)step_;\n  for (int64_t i = octavo::gpu::thread(); i < a.count; i += 256) octavo::probe::all(i, a);\n}\n"
)


@cache
def inputs() -> np.ndarray:
    """Every code's value, the middles between them and their neighbours, with both signs; infinities, NaN, denormals."""
    ladders = [np.unique(d.table[np.isfinite(d.table)]).astype(np.float64) for d in DIALECTS.values()]
    middles = np.concatenate([(x[1:] + x[:-1]) / 2 for x in ladders]).astype(np.float32)
    sides = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    odd = [
        448,
        464,
        np.nextafter(np.float32(464), np.float32(1e9)),
        480,
        61440,
        65536,
        np.inf,
        np.nan,
        1e-45,
        2.0**-126,
        0.0,
    ]
    given = np.concatenate([*ladders, middles, *sides, odd, np.negative(odd)]).astype(np.float32)
    kept: np.ndarray = given[~((np.abs(given) < 2.0**-126) & (given != 0) & (np.abs(given) > 1e-44))]
    return kept


def check(decoded: np.ndarray, encoded: np.ndarray) -> None:
    for i, dialect in enumerate(DIALECTS.values()):
        want = dialect.table
        assert np.array_equal(decoded[i], want, equal_nan=True), dialect.name
        assert np.array_equal(np.signbit(decoded[i][want == 0]), np.signbit(want[want == 0])), dialect.name
        for j, overflow in enumerate(("special", "saturate")):
            codes, found = dialect.encode(inputs(), overflow), encoded[2 * i + j]  # type: ignore[arg-type]
            wrong = np.flatnonzero((codes != found) & ~np.isnan(inputs()))
            assert not wrong.size, f"{dialect.name} {overflow}: {inputs()[wrong[:4]]}, {found[wrong[:4]]}"
            assert np.isnan(dialect.decode(found[np.isnan(inputs())])).all()
    within = np.abs(inputs()) <= 448
    codes = DIALECTS["e4m3fn"].encode(inputs()[within])
    assert np.array_equal(encoded[8][within], np.where(codes == 0x80, 0, codes)) and (encoded[8][~within] == 0xFF).all()
    assert np.array_equal(decoded[4].view(np.uint32)[:255], E8M0.view(np.uint32)[:255]) and np.isnan(decoded[4][255])
    assert np.array_equal(decoded[5].view(np.uint32), np.tile(E2M1, 16).view(np.uint32))


@pytest.mark.parametrize("compiler", [name for name in ("g++", "clang++") if shutil.which(name)])
def test_codes_on_the_host(compiler: str, tmp_path: Path) -> None:
    library = tmp_path / "probe.so"
    command = [
        compiler,
        "-x",
        "c++",
        "-",
        "-std=c++17",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        *INCLUDES,
    ]
    subprocess.run([*command, "-DOCTAVO_ISA_NS=host", "-o", str(library)], input=HOST, text=True, check=True)
    x, decoded = inputs(), np.zeros((6, 256), np.float32)
    encoded = np.zeros((9, x.size), np.uint8)
    arguments = struct.pack("<QqQQ", x.ctypes.data, x.size, decoded.ctypes.data, encoded.ctypes.data)
    ctypes.CDLL(str(library)).run(arguments)
    check(decoded, encoded)


@pytest.mark.parametrize("arch", emulated_device.ARCHS)
def test_codes_in_machine_code_of_amd(arch: str, tmp_path: Path) -> None:
    if reason := emulated_device.missing():
        pytest.skip(reason)
    (tmp_path / "probe.hip").write_text(HIP)
    code = tmp_path / "probe.co"
    names = [f"--offload-arch={arch}", *COMMON, *INCLUDES, f"-DOCTAVO_ISA_NS={arch}"]
    subprocess.run([str(clang()), *HIP_FLAGS, *names, str(tmp_path / "probe.hip"), "-o", str(code)], check=True)
    device = emulated_device.EmulatedDevice(arch, 1)
    x = inputs()
    sizes = (x.nbytes, 6 * 256 * 4, 9 * x.size)
    held = [device.alloc(size) for size in sizes]
    device.write(held[0], x.view(np.uint8))
    function = device.load(code.read_bytes()).function("fp8_probe__simt")
    device.launch(function, (1, 1, 1), 256, struct.pack("<QQqQQ", 0, held[0], x.size, held[1], held[2]))
    decoded, encoded = np.zeros(sizes[1], np.uint8), np.zeros(sizes[2], np.uint8)
    device.read(held[1], decoded)
    device.read(held[2], encoded)
    check(decoded.view(np.float32).reshape(6, 256), encoded.reshape(9, x.size))

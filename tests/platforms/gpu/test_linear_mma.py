"""Which linear kernel runs: on matrix units where there is one, for few rows and for many, and that its result is right there.

On the host for waves of both widths, on emulated AMD chips where an emulator is (`emulated_device`): a case of each kind. All
cases of all levels are the conformance suite's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from ci.gpu import Target, build
from tests.platforms.gpu import emulated_device
from tests.platforms.gpu.host_device import HostDevice, folder
from tests.platforms.test_conformance import case_of, expected_of_fast, reference_result

from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.gpu.selftest import GpuCell

#: kind of weight -> its level for few rows under exact and under fast numerics
KINDS = {
    **dict.fromkeys(("w8a8", "q4g32", "q5g32", "q8g32", "q2k", "q3k", "q4k", "q5k", "q6k"), ("mma", "mma")),
    "i4": ("mma", "mmafast"),
    **dict.fromkeys(("bf16", "f16", "f8row", "f8g128", "mxfp8", "mxfp4"), ("simt", "mmafast")),
}
FORMS = {
    "q4_0": "q4g32",
    "q4_1": "q4g32",
    "q5_0": "q5g32",
    "q5_1": "q5g32",
    "q8_0": "q8g32",
    **{f"q{bits}_k": f"q{bits}k" for bits in range(2, 7)},
}
DEVICES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "wave64": lambda: (HostDevice(64), folder(64)),
    "wave32": lambda: (HostDevice(32), folder(32)),
    **{
        arch: lambda arch=arch: (emulated_device.EmulatedDevice(arch, 2), build(Target("rocm", arch)))  # type: ignore[misc]
        for arch in emulated_device.ARCHS
    },
}
CASES = (
    *("bf16_100_33", "f16_576_48", "f16_64_32", "w8a8_200_33", "i4g64_200_33", "i4g32+f32_576_40"),
    *("q4_0_576_40", "q4_1_576_40", "q5_1_576_40", "q8_0_576_40"),
    *(f"q{bits}_k_768_40" for bits in range(2, 7)),
    *("w8a8_rows_17", "i4g64+z+f16_rows_17", "q4_0_rows_33", "q4_k_rows_33", "q6_k_rows_33"),
    *("q5_0_rows_130", "q2_k_rows_130", "bf16_rows_33"),
)
F8_CASES = (
    *("f8row_codes", "mxfp8_codes", "mxfp4_codes", "f8g128_200_33"),
    *(f"{form}_{side}_ends" for form in ("mxfp8", "mxfp4") for side in ("low", "high")),
    *(f"{form}_rows_17" for form in ("f8row+bf16", "f8g128", "mxfp8", "mxfp4")),
)


@cache
def platform(device: str, numerics: str) -> GpuPlatform:
    opened, code = DEVICES[device]()
    levels = ("simt", "mma", "mmawide", *(("mmafast", "mmafastwide") if numerics == "fast" else ()))
    return GpuPlatform(opened, code, levels, numerics)


class Watched(GpuCell):
    """Remembers its ops."""

    def ops(self, *given: Any, **named: Any) -> Any:
        self.made = super().ops(*given, **named)
        return self.made


def expected_kernel(form: str, rows: int, numerics: str) -> str:
    kind = FORMS.get(form, "i4" if form.startswith("i4") else form)
    level = KINDS.get(kind, ("simt", "simt"))[numerics == "fast"]
    return f"linear_{kind}__{level}{'wide' if rows > 16 and level != 'simt' else ''}"


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("device", list(DEVICES))
@pytest.mark.parametrize("name", (*CASES, *F8_CASES))
def test_products_run_on_matrix_units(name: str, device: str, numerics: str) -> None:
    if device in emulated_device.ARCHS and (reason := emulated_device.missing()):
        pytest.skip(reason)
    table = "linear_f8" if name in F8_CASES else "linear"
    module, case = case_of(table, name)
    cell = Watched(platform(device, numerics).native)
    got = np.asarray(module.run(cell, case))
    ran = cell.made.last_variant("linear")
    want = expected_of_fast(ran, module, case, reference_result(table, name))
    assert ran == expected_kernel(case.form.split("+")[0], case.rows, numerics)
    if "fast" in ran:
        gap = float(np.abs(got - want).max(initial=0)) / max(float(np.abs(want).max(initial=0)), 1e-30)
        assert gap <= case.tolerance, f"{ran}: off by {gap:.1e} of the largest value, {case.tolerance:.1e} allowed"
    else:
        differ = np.argwhere(got.view(np.uint32) != want.view(np.uint32))
        assert not len(differ), f"{ran}: {len(differ)} of {want.size} values differ, first at {differ[0].tolist()}"

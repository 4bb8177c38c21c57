"""On Intel's chips attention leaves VDPBF16PS, which is slow there, to float32 FMA; elsewhere, or where asked for, it runs."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from octavo.platforms.x86 import platform as x86

LEVELS = {"avx512": 1, "avx512bf16": 3}


class Module:
    """The x86 module of a chip with AVX-512 and VDPBF16PS, as far as a choice of kernels asks it."""

    platform = "x86"

    def available_features(self) -> int:
        return 3

    def levels(self) -> dict[str, int]:
        return LEVELS

    def kernels(self) -> list[tuple[str, str, str, int, int]]:
        ops = ("paged_attention_int8", "varlen_attention_bf16", "linear_bf16")
        return [(op, f"{op}__{level}", level, need, 0) for op in ops for level, need in LEVELS.items()]


@pytest.mark.parametrize(
    ("vendor", "isa", "expected"),
    [
        ("GenuineIntel", None, "avx512"),
        ("GenuineIntel", ("avx512bf16",), "avx512bf16"),
        ("AuthenticAMD", None, "avx512bf16"),
        ("", None, "avx512bf16"),
    ],
)
def test_attention_takes_the_faster_products(
    vendor: str, isa: tuple[str, ...] | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "octavo_x86", Module())
    monkeypatch.setattr(x86, "read_cpuinfo", lambda: {"vendor_id": vendor})
    native: Any = x86.X86Platform(1, isa, "octavo_x86").native
    assert native.table["linear_bf16"].few == "linear_bf16__avx512bf16"
    for op in ("paged_attention_int8", "varlen_attention_bf16"):
        assert native.table[op].few == f"{op}__{expected}"
        told = {one.name: one.reason for one in native.variants()}
        assert ("VDPBF16PS" in told[f"{op}__avx512bf16"]) == (expected == "avx512")
    assert not native.bad_levels

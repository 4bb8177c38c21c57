"""An SVE vector length that no kernel was verified at: one warning, NEON's levels, and the reason where levels are listed."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.platforms.arm.platform import ArmPlatform

ROOT = Path(__file__).resolve().parents[3]
SVE, BF16 = 8, 4
LEVELS = {"neon": 0, "dotprod": 1, "sve": SVE, "bf16": BF16, "svebf16": SVE | BF16}


class ArmModule:
    """The Arm module of a chip whose vectors have so many bits, as far as a choice of kernels asks it."""

    platform = "arm"

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def sve_bytes(self) -> int:
        return self.bits // 8

    def available_features(self) -> int:
        return 1 | BF16 | (SVE if self.bits in (128, 256, 512) else 0)

    def levels(self) -> dict[str, int]:
        return LEVELS

    def kernels(self) -> list[tuple[str, str, str, int, int]]:
        return [("add", f"add__{level}", level, need, 0) for level, need in LEVELS.items()]


def platform_of(bits: int, monkeypatch: pytest.MonkeyPatch, isa: tuple[str, ...] | None = None) -> Any:
    monkeypatch.setitem(sys.modules, "octavo_arm", ArmModule(bits))
    return ArmPlatform(1, isa, "octavo_arm")


def test_of_vectors_as_long_as_its_own_neon_takes_bf16_unless_sve_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    platform = platform_of(128, monkeypatch)
    assert platform.native.table["add"].many == "add__bf16" and platform.levels == ("neon", "dotprod", "sve", "bf16")
    told = {row["level"]: row["reason"] for row in platform.native.describe_levels()}
    assert "bf16's kernels take fewer cycles" in told["svebf16"] and told["sve"] == ""
    assert platform_of(128, monkeypatch, ("svebf16",)).native.table["add"].many == "add__svebf16"
    assert not caplog.records


@pytest.mark.parametrize("bits", [256, 512])
def test_a_verified_length_is_used_and_nothing_said(
    bits: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    platform = platform_of(bits, monkeypatch)
    assert platform.native.table["add"].many == "add__svebf16" and not caplog.records


@pytest.mark.parametrize("bits", [384, 1024, 2048])
def test_another_length_is_warned_of_once_and_neon_serves(
    bits: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "octavo.platforms"):
        platform = platform_of(bits, monkeypatch)
    assert platform.native.table["add"].many == "add__bf16" and platform.levels == ("neon", "dotprod", "bf16")
    lengths = f"its kernels are verified for SVE vectors of 128, 256 and 512 bits, and here they have {bits};"
    assert len(caplog.records) == 1 and f"level sve, svebf16 is not used: {lengths}" in caplog.text
    told = {row["level"]: row["reason"] for row in platform.native.describe_levels()}
    assert f"here they have {bits}" in told["sve"] and told["neon"] == ""


def test_a_chip_without_sve_is_told_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    platform = platform_of(0, monkeypatch)
    told = {row["level"]: row["reason"] for row in platform.native.describe_levels()}
    assert not caplog.records and told["sve"] == "the processor lacks what sve needs"


def test_the_lengths_are_those_that_the_module_takes() -> None:
    text = (ROOT / "csrc_neon/cpu_features.cpp").read_text()
    assert [8 * int(n) for n in re.findall(r"sve_bytes == (\d+)", text)] == [128, 256, 512]

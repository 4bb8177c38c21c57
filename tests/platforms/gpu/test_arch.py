"""Which code runs on which chip, by the vendors' rules of compatibility."""

from __future__ import annotations

import pytest
from tests.platforms.gpu.chips import CHIPS, TARGETS

from octavo.platforms.gpu.arch import GENERIC, fitting, float8, has_mx, is_older


@pytest.mark.parametrize("name", CHIPS)
def test_each_chip_gets_the_code_object_of_its_family(name: str) -> None:
    chip = CHIPS[name]
    arch = chip.facts().arch
    assert fitting(arch, TARGETS[chip.kind]) == chip.target
    assert (float8(arch), has_mx(arch)) == (chip.float8, chip.has_mx)


@pytest.mark.parametrize(
    ("arch", "targets", "expected"),
    [
        ("gfx942", ["gfx9-4-generic", "gfx942"], "gfx942"),  # the chip's own before its family's
        ("gfx950", ["gfx942"], ""),  # a chip's own code runs on it alone
        ("gfx90a", ["gfx9-generic", "gfx9-4-generic"], ""),  # gfx90a is in no family
        ("gfx1151", ["gfx1100"], ""),
        ("gfx1151", ["gfx11-generic"], "gfx11-generic"),
        ("gfx1034", ["gfx10-3-generic"], "gfx10-3-generic"),
        ("gfx1250", ["gfx12-generic"], ""),
        ("sm_89", ["sm_80", "sm_86", "sm_90"], "sm_86"),  # the nearest older of the same major
        ("sm_80", ["sm_86"], ""),  # not newer
        ("sm_90", ["sm_80", "sm_89"], ""),  # not another major
        ("sm_90", ["sm_90", "sm_90a"], "sm_90a"),
        ("sm_103", ["sm_100a"], ""),  # a: this chip alone
        ("sm_103", ["sm_100f"], "sm_100f"),  # f: the family
        ("sm_103", ["sm_100", "sm_100f"], "sm_100f"),
        ("sm_103", ["sm_100f", "sm_103"], "sm_103"),
        ("sm_100", ["sm_103f"], ""),
        ("sm_121", ["sm_120"], "sm_120"),
        ("sm_120", ["sm_100", "sm_100f"], ""),
        ("sm_87", ["sm_80", "sm_86"], ""),  # embedded: only its own
        ("sm_87", ["sm_87"], "sm_87"),
        ("sm_89", ["sm_87"], ""),
        ("sm_89", ["gfx1100"], ""),
        ("gfx1100", [], ""),
    ],
)
def test_code_runs_only_where_the_vendor_says_so(arch: str, targets: list[str], expected: str) -> None:
    assert fitting(arch, targets) == expected
    assert fitting(arch, reversed(targets)) == expected


def test_no_chip_is_in_two_families() -> None:
    every = [chip for family in GENERIC.values() for chip in family]
    assert len(every) == len(set(every))


def test_older_than_all_is_told_apart_from_left_out() -> None:
    assert is_older("sm_61", ["sm_80", "sm_90"]) and is_older("sm_75", ["sm_80"])
    assert not is_older("sm_120", ["sm_80", "sm_90"]) and not is_older("sm_87", ["sm_80"])
    assert not is_older("gfx1030", ["gfx1100"]) and not is_older("sm_61", [])


@pytest.mark.parametrize(
    ("arch", "dialect", "mx"),
    [("gfx1200", "OCP", False), ("gfx1250", "OCP", True), ("gfx908", "none", False), ("sm_86", "none", False),
     ("sm_120", "OCP", True), ("sm_103", "OCP", True), ("sm_87", "none", False)],
)  # fmt: skip
def test_float8_and_mx_of_other_chips(arch: str, dialect: str, mx: bool) -> None:
    assert (float8(arch), has_mx(arch)) == (dialect, mx)

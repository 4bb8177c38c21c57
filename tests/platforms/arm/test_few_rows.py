"""Few rows of bytes take SVE, several i8mm; packed codes i8mm throughout; BFDOT and BFMMLA run where bits may differ."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from octavo.platforms.select import Allowance, KernelRow, choose

ROOT = Path(__file__).resolve().parents[3]
LEVELS = {"neon": 0, "dotprod": 1, "sve": 8, "i8mm": 3}


def chosen(op: str, available: int) -> tuple[str, str, int]:
    rows = [KernelRow(op, f"{op}__{level}", level, need) for level, need in LEVELS.items()]
    choice = choose(rows, LEVELS, Allowance(available, available, {}))[op]
    return choice.few.rpartition("__")[2], choice.many.rpartition("__")[2], choice.many_from


@pytest.mark.parametrize("op", ["linear_w8a8", "linear_q8g32"])
def test_few_rows_of_bytes_take_sve_where_there_is_one(op: str) -> None:
    assert chosen(op, 11) == ("sve", "i8mm", 4)
    assert chosen(op, 3) == ("dotprod", "i8mm", 4)  # what i8mm's kernel does with few rows too
    assert chosen(op, 9) == ("sve", "sve", 0)


@pytest.mark.parametrize("op", ["linear_q4g32", "linear_q4k", "linear_i4"])
def test_packed_codes_take_i8mm_for_any_rows(op: str) -> None:
    assert chosen(op, 11) == ("i8mm", "i8mm", 0)


def test_several_rows_begin_where_i8mm_begins_to_pair_them() -> None:
    (few,) = re.findall(r"kFewRows = (\d+);", (ROOT / "csrc_common/linear/panels.inl.h").read_text())
    assert chosen("linear_w8a8", 11)[2] == int(few) + 1


@pytest.mark.parametrize(("is_fast", "level"), [(False, "svebf16"), (True, "bf16fast")])
def test_products_of_bfloat16_pairs_run_where_the_user_lets_last_bits_differ(is_fast: bool, level: str) -> None:
    text = (ROOT / "csrc_neon/cpu_features.h").read_text()
    levels = {name: i for i, name in enumerate(re.findall(r'^    {"(\w+)", ', text, re.MULTILINE))}
    rows = [KernelRow("linear_bf16", f"linear_bf16__{name}", name, 0) for name in levels]
    assert choose(rows, levels, Allowance(0, 0, {}, is_fast))["linear_bf16"].many == f"linear_bf16__{level}"

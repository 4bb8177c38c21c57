"""Bytes and operations of instructions are those of their shapes; shares are of the longer of both limits."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.profile import step_of
from benchmarks.roofline import Work, peak_of, shares, table, work_of

from octavo.platforms.recorded.symbols import Instruction
from octavo.platforms.selftest.values import batch, one_layer


def instruction(op: str, rows: str = "tokens", weight_bytes: int = 0, **fields: int) -> Instruction:
    return Instruction(op, rows, fields, (), (), weight_bytes)  # type: ignore[arg-type]


LINEAR = instruction("linear_q8g32", weight_bytes=1000, n=32, k=64, gate=0, residual=1)
STEP = batch([(5, 3), (9, 1)], logits_rows=[2])


def test_a_weight_is_read_once_and_every_row_is_multiplied() -> None:
    found = work_of(LINEAR, STEP, 1, None)
    assert found == Work(1000 + 4 * (64 + 2 * 4 * 32), 2 * 4 * 32 * 64)


def test_rows_of_the_head_are_those_of_logits() -> None:
    head = instruction("linear_f32", "logits", 256, n=8, k=8, gate=0, residual=0)
    assert work_of(head, STEP, 1, None) == Work(256 + 4 * 8 + 4 * 8, 2 * 8 * 8)


@pytest.mark.parametrize(("window", "keys", "pairs"), [(0, 8 + 10, 6 + 7 + 8 + 10), (4, 6 + 4, 4 * 4)])
def test_attention_reads_visible_keys_once_and_multiplies_pairs(window: int, keys: int, pairs: int) -> None:
    spec = one_layer("bf16", 2, 16)
    found = work_of(instruction("paged_attention_bf16", heads=4, window=window), STEP, 0, spec)
    assert found.num_ops == 4 * pairs * 4 * 16
    assert found.num_bytes == keys * 2 * 2 * 2 * 16 + 2 * 4 * 4 * 4 * 16


@pytest.mark.parametrize(
    ("op", "fields", "per_row"),
    [
        ("add", {"width": 8}, 96),
        ("rms_norm", {"width": 8, "heads": 3}, 192),
        ("rope", {"heads": 2, "head_dim": 8}, 128),
        ("kv_append_int8", {"kv_heads": 2, "head_dim": 8}, 2 * 16 * 5),
        ("kv_append_fp8", {"kv_heads": 2, "head_dim": 8}, 2 * 16 * 5),
        ("embedding_f16", {"row_bytes": 16, "width": 8}, 48),
        ("prepare_i8g32", {"k": 64}, 320),
        ("rms_norm_prepare_bf16", {"width": 8, "y": 0}, 48),
        ("rms_norm_prepare_i8row", {"width": 8, "y": 64}, 72),
        ("layer_norm_prepare_bf16", {"width": 8, "y": 0}, 48),
        ("rms_norm_add", {"width": 8}, 96),
        ("gated", {"width": 8}, 96),
        ("gated_prepare_bf16", {"k": 8}, 80),
        ("gated_prepare_i8g32", {"k": 8}, 72),
        ("gated_prepare_f16pair", {"k": 8}, 96),
        ("rope_append_int8", {"heads": 4, "kv_heads": 2, "head_dim": 8}, 8 * (8 * 4 + 2 * 14)),
    ],
)
def test_light_instructions_move_their_rows(op: str, fields: dict[str, int], per_row: int) -> None:
    assert work_of(instruction(op, **fields), STEP, 0, None) == Work(4 * per_row, 0)


def test_shares_are_of_the_longer_limit() -> None:
    limits = {"read": 1e9, "int8__avx2": 4e9, "f32__avx2": 1e9}
    found = shares(Work(1000, 8000), 4e-6, "linear_q8g32__avx2", limits)
    assert found["of_read"] == 0.25 and found["of_peak"] == 0.5 and found["of_limit"] == 0.5
    assert "of_peak" not in shares(Work(1000, 0), 4e-6, "add__avx2", limits)
    assert "of_limit" not in shares(Work(1000, 8000), 4e-6, "linear_q8g32__avx2", {})


def test_a_kernel_is_compared_with_its_own_numbers_at_its_level() -> None:
    limits = {"f32__avx512": 1.0, "int8__avx512vnni": 2.0, "bf16__avx512bf16": 3.0, "bf16__amx": 4.0}
    assert peak_of("linear_w8a8__avx512vnni", limits) == 2.0
    assert peak_of("linear_bf16__avx512bf16", limits) == 3.0
    assert peak_of("linear_bf16__avx512fast", limits) == 3.0
    assert peak_of("linear_bf16__amx", limits) == 4.0
    assert peak_of("linear_bf16__avx512", limits) == 1.0  # exact: multiplied as float32
    assert peak_of("linear_f32__scalar", limits) == 0.0


def test_a_table_has_a_row_per_kernel_and_dashes_for_what_is_not_known() -> None:
    lines = table("t", [{"kernel": "add__avx2", "calls": 2, "seconds": 1e-3, "share": 0.5, "bytes": 10}]).splitlines()
    assert lines[-1].startswith("| add__avx2 | 2 | 1.000 | 50.0 % |") and lines[-1].count("-") >= 4


def test_streams_have_pages_of_their_own() -> None:
    step = step_of(one_layer("bf16", 1, 16), 40, 1, 3)
    assert step.num_seqs == 3 and step.kv_len.tolist() == [41] * 3 and step.token_seq.tolist() == [0, 1, 2]
    assert len(np.unique(step.block_tables[0])) == step.block_tables[0].size

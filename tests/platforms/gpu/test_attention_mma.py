"""Attention on matrix units: within the case tables' tolerance of the reference, on every stand-in for a GPU that there is;
and what a row's result may not depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.cases import paged_attention as table
from tests.cases.paged_attention import Case
from tests.platforms.cells import reference_cell
from tests.platforms.gpu import emulated_device, host_device

from octavo.platforms.gpu.eager import GpuEagerOps
from octavo.platforms.gpu.grids import Sizes, grid_of
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.gpu.recorder import CUT, parts_bytes
from octavo.platforms.gpu.rows import bounded
from octavo.platforms.gpu.selftest import GpuCell
from octavo.platforms.platform import Capacity
from octavo.quant.fp8 import E4M3FN

LEVELS = ("simt", "mmafast", "mmafastwide")
LONG = ((1500, 1), (700, 2), (513, 1), (5, 1))
#: beside those of the table: several cuts, shared by blocks or not; groups that fill a tile, and those that do not
MORE = (
    *(
        Case(f"{d}_long_gqa_{h}_{k}", d, h, k, 64, LONG)
        for d in ("bf16", "int8", "fp8")
        for h, k in ((2, 2), (4, 1), (7, 1), (8, 1))
    ),
    Case("bf16_long_group_of_20", "bf16", 20, 1, 32, ((1100, 3),)),
    Case("bf16_long_dim_256", "bf16", 4, 2, 256, ((1030, 1), (600, 4))),
    *(Case(f"{d}_long_dim_192", d, 4, 2, 192, ((1030, 1), (600, 4))) for d in ("int8", "fp8")),
    Case("fp8_long_dim_256", "fp8", 4, 2, 256, ((1030, 1), (600, 4))),
    Case("bf16_window_over_cuts", "bf16", 4, 1, 64, ((2100, 3), (530, 1)), window=600),
    Case("bf16_window_of_one_cut_late", "bf16", 4, 1, 64, ((1600, 2),), window=20),
    Case("bf16_long_all_extras", "bf16", 8, 2, 80, ((1300, 2), (20, 1)), softcap=4.0, has_sinks=True, has_alibi=True),
    *(
        Case(f"{d}_long_all_extras", d, 8, 2, 80, ((1300, 2), (20, 1)), softcap=4.0, has_sinks=True, has_alibi=True)
        for d in ("int8", "fp8")
    ),
    Case("bf16_block_64_long", "bf16", 4, 1, 64, ((1000, 1),), block_tokens=64),
    Case("bf16_prompt_of_200", "bf16", 6, 2, 128, ((0, 200), (900, 17), (600, 1))),
    *(Case(f"{d}_prompt_of_200", d, 6, 2, 128, ((0, 200), (900, 17), (600, 1))) for d in ("int8", "fp8")),
    Case("bf16_prompt_dim_256", "bf16", 3, 1, 256, ((30, 70),), window=40, has_sinks=True),
    *(Case(f"{d}_prompt_dim_{n}", d, 3, 1, n, ((30, 40), (70, 2))) for d in ("bf16", "int8", "fp8") for n in (48, 144, 208)),
    *(
        Case(f"{d}_block_16", d, 4, 1, 64, ((600, 2), (0, 17), (5, 1)), block_tokens=16)
        for d in ("bf16", "int8", "fp8", "f16")
    ),
    Case("f16_prompt_of_200", "f16", 6, 2, 128, ((0, 200), (900, 17), (600, 1))),
    Case("f16_long_gqa_7_1", "f16", 7, 1, 128, LONG),
    Case("f16_garbage", "f16", 4, 1, 64, ((33, 2), (0, 18)), window=20),
    *(
        Case(f"{d}_block_48_window", d, 4, 1, 80, ((300, 2), (17, 20)), window=50, block_tokens=48)
        for d in ("bf16", "int8", "fp8")
    ),
    Case("fp8_garbage", "fp8", 4, 1, 64, ((33, 2), (0, 18)), window=20),
)  # fmt: skip
CASES = {case.name: case for case in (*table.CASES, *MORE) if case.dtype in ("bf16", "int8", "fp8", "f16")}
#: what the emulator, which is slow, runs of them
FEW = (
    "bf16_mixed", "int8_mixed", "bf16_dim_80", "bf16_dim_256", "gqa_9_3", "bf16_long_gqa_8_1", "int8_long_gqa_4_1",
    "bf16_window_over_cuts", "int8_long_all_extras", "bf16_prompt_dim_256", "bf16_block_16", "int8_block_16",
    "int8_prompt_dim_208", "bf16_prompt_dim_144", "f16_mixed", "f16_dim_80", "f16_block_16",
    "fp8_mixed", "fp8_long_gqa_4_1", "fp8_long_all_extras", "fp8_block_16", "fp8_prompt_dim_208", "fp8_garbage",
)  # fmt: skip


@cache
def platform(where: str) -> GpuPlatform:
    if where.startswith("wave"):
        wave = int(where.removeprefix("wave"))
        return GpuPlatform(host_device.HostDevice(wave), host_device.folder(wave), LEVELS, "fast")
    from ci.gpu import Target, build

    return GpuPlatform(emulated_device.EmulatedDevice(where, 8), build(Target("rocm", where)), LEVELS, "fast")


def places() -> Iterator[Any]:
    for wave in ("wave64", "wave32"):
        yield from (pytest.param(wave, name, id=f"{wave}-{name}") for name in CASES)
    reason = emulated_device.missing()
    for arch in emulated_device.ARCHS:
        marks = [pytest.mark.skipif(bool(reason), reason=reason)]
        yield from (pytest.param(arch, name, id=f"{arch}-{name}", marks=marks) for name in FEW)


class Cell(GpuCell):
    """Remembers its ops, to ask what ran."""

    made: GpuEagerOps

    def ops(self, *args: Any) -> GpuEagerOps:
        self.made = super().ops(*args)
        return self.made


def attend(where: str, case: Case) -> tuple[np.ndarray, str]:
    """The result, and the level that ran."""
    cell = Cell(platform(where).native)
    got = table.run(cell, case)
    return got, cell.made.last_variant("paged_attention").rsplit("__", 1)[1]


@pytest.mark.parametrize(("where", "name"), [*places()])
def test_results_are_within_tolerance_of_the_reference(where: str, name: str) -> None:
    case = CASES[name]
    got, level = attend(where, case)
    want = table.run(reference_cell(), case)
    fast = "mmafast" if max((n for _, n in case.seqs), default=0) < 16 else "mmafastwide"
    assert level == ("simt" if case.dtype == "f16" and case.head_dim > 128 else fast)
    gap = float(np.abs(got - want).max(initial=0)) / max(float(np.abs(want).max(initial=0)), 1e-30)
    assert got.shape == want.shape and gap <= case.tolerance, f"{name} on {where}: off by {gap:.1e}"


@pytest.mark.parametrize("where", ["wave64", "wave32"])
@pytest.mark.parametrize("dtype", ["bf16", "int8", "fp8"])
def test_blocks_that_share_a_sequence_change_nothing(where: str, dtype: str) -> None:
    case = Case(f"{dtype}_shared", dtype, 8, 2, 64, ((1700, 2), (40, 1)), has_sinks=True, window=1500)
    device = platform(where).device
    device.launched.clear()
    shared, level = attend(where, case)
    blocks = device.launched[f"paged_attention_{dtype}_d64__{level}"]
    device.launched.clear()
    try:
        device.facts = replace(device.facts, num_units=0)  # so that one block has all cuts
        alone, _ = attend(where, case)
    finally:
        device.facts = replace(device.facts, num_units=4)
    assert blocks == 4 * device.launched[f"paged_attention_{dtype}_d64__{level}"]
    assert (shared == alone).all()


@pytest.mark.parametrize("where", ["wave64", "wave32"])
def test_a_sequence_has_the_same_bits_beside_others(where: str) -> None:
    """Decoding alone, beside other sequences of other lengths, and beside a prompt (which another level serves)."""

    def rows(*others: tuple[int, int]) -> np.ndarray:
        case = Case("neighbours", "bf16", 8, 2, 64, ((1100, 1), *others))
        given = table.inputs(replace(case, seqs=((1100, 1),)))
        whole = table.inputs(case)
        for name in ("k", "v"):
            whole[name][: len(given[name])] = given[name]
        whole["q"][:1] = given["q"]
        table_inputs, table.inputs = table.inputs, lambda _: whole
        try:
            return attend(where, case)[0][0]
        finally:
            table.inputs = table_inputs

    alone = rows()
    assert (rows((30, 1), (700, 3)) == alone).all()
    assert (rows((0, 40)) == alone).all()
    assert (rows((2000, 20), (3, 1)) == alone).all()


@pytest.mark.parametrize("where", ["wave64", "wave32"])
def test_tokens_of_a_step_have_the_bits_of_steps_of_one(where: str) -> None:
    case = Case("drafts", "bf16", 12, 4, 64, ((509, 6),), has_alibi=True)
    given, together = table.inputs(case), attend(where, case)[0]
    for i in range(6):
        one = replace(case, seqs=((509 + i, 1),))
        mine = {name: x[: 510 + i] if name in "kv" else x for name, x in given.items()} | {"q": given["q"][i : i + 1]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table, "inputs", lambda _, mine=mine: mine)  # type: ignore[misc]
            assert (attend(where, one)[0][0] == together[i]).all(), i


@pytest.mark.parametrize("where", ["wave64", "wave32"])
def test_what_nobody_sees_may_be_no_number(where: str) -> None:
    """Memory of the host's stand-in is NaN until written; so are slots behind the last token, and pages behind a window."""
    for case in (
        Case("garbage", "bf16", 4, 1, 64, ((33, 2), (0, 18))),
        Case("old", "bf16", 4, 1, 64, ((90, 1),), window=20),
        Case("garbage_codes", "fp8", 4, 1, 64, ((33, 2), (0, 18))),
    ):
        assert np.isfinite(attend(where, case)[0]).all()


@pytest.mark.parametrize("where", ["wave64", "wave32", *emulated_device.ARCHS])
def test_every_code_of_fp8_is_widened_exactly(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are all finite numbers E4M3, in a step of both kernels: equal scores leave each value as it is."""
    if where in emulated_device.ARCHS and emulated_device.missing():
        pytest.skip(emulated_device.missing())
    numbers = E4M3FN.table[np.isfinite(E4M3FN.table)]
    values = np.concatenate([numbers, [0, 448]]).astype(np.float32) * np.float32(2.0**-5)
    case = Case("codes", "fp8", 1, 1, 256, ((0, 1), (0, 16)))
    given = table.inputs(case) | {"q": np.zeros((17, 256), np.float32), "v": np.tile(values, (17, 1))}
    monkeypatch.setattr(table, "inputs", lambda _: given)
    got, _ = attend(where, case)
    assert np.array_equal(got, given["v"])


def test_heads_that_do_not_fill_tiles_are_left_to_exact_kernels() -> None:
    case = Case("odd", "bf16", 2, 1, 40, ((70, 2),))
    got, level = attend("wave64", case)
    assert level == "simt" and (got == table.run(reference_cell(), case)).all()


def test_where_one_of_two_kernels_is_missing_neither_runs() -> None:
    made = GpuPlatform(host_device.HostDevice(64), host_device.folder(64), LEVELS, "fast")
    made.native.disable("mmafastwide", "it was found wrong")
    cell, case = Cell(made.native), Case("alone", "bf16", 2, 1, 64, ((70, 2),))
    table.run(cell, case)
    assert cell.made.last_variant("paged_attention") == "paged_attention_bf16__simt"


def test_a_step_with_a_prompt_and_decoding_runs_both_kernels() -> None:
    device = platform("wave64").device
    device.launched.clear()
    attend("wave64", Case("both", "bf16", 4, 2, 64, ((0, 40), (70, 1))))
    launched = {name for name in device.launched if name.startswith("paged_attention")}
    assert launched == {"paged_attention_bf16_d64__mmafast", "paged_attention_bf16_d64__mmafastwide"}
    device.launched.clear()
    attend("wave64", Case("decoding", "bf16", 4, 2, 64, tuple((i, 1) for i in range(20))))
    assert {name for name in device.launched if "attention" in name} == {"paged_attention_bf16_d64__mmafast"}


def test_the_op_with_the_least_room_to_spare_serves_a_size() -> None:
    ops = (
        "paged_attention_bf16",
        "paged_attention_bf16_d64",
        "paged_attention_bf16_d128",
        "paged_attention_bf16_draft",
    )
    assert bounded("paged_attention_bf16", 64, ops) == "paged_attention_bf16_d64"
    assert bounded("paged_attention_bf16", 65, ops) == "paged_attention_bf16_d128"
    assert bounded("paged_attention_bf16", 129, ops) == "paged_attention_bf16"


def test_cuts_are_shared_only_where_there_are_several() -> None:
    row = platform("wave64").native.module.rows["paged_attention_bf16_d128__mmafast"]
    from octavo.platforms.gpu.module import STEP_BYTES

    arguments = bytearray(STEP_BYTES + row.args_bytes)
    row.pack(arguments, {"heads": 32, "kv_heads": 8, "window": 0}, is_whole=False)
    assert grid_of(row, arguments, Sizes(1, 1, CUT), 100) == (1, 8, 1)
    assert grid_of(row, arguments, Sizes(1, 1, CUT + 1), 100) == (1, 8, 2)
    assert grid_of(row, arguments, Sizes(1, 1, 100 * CUT), 100) == (1, 8, 100)
    assert grid_of(row, arguments, Sizes(4096, 4096, 100 * CUT), 100)[2] == 1
    capacity = Capacity(max_tokens=8, max_seqs=4, max_logits=4, max_len=CUT, num_pages=1)
    assert parts_bytes(capacity, 32, 8, 128, 32, 0) == 0
    assert parts_bytes(replace(capacity, max_len=4 * CUT), 32, 8, 128, 32, 0) == (2 + 4) * 4 * 8 * 16 * 130 * 4


@pytest.mark.skipif(bool(emulated_device.missing()), reason=emulated_device.missing() or "-")
@pytest.mark.parametrize("arch", emulated_device.ARCHS)
@pytest.mark.parametrize("dtype", ["bf16", "int8", "fp8"])
def test_decoding_asks_for_lines_of_keys_and_values_once_for_all_query_heads(arch: str, dtype: str) -> None:
    device = platform(arch).device
    read = {}
    try:
        device.facts = replace(device.facts, num_units=0)  # one block, so that queries are read once
        for length in (512, 1024):
            device.stats.clear()
            attend(arch, Case("decode", dtype, 8, 1, 128, ((length - 1, 1),)))
            name, grid, stats = device.stats[-1]
            assert name == f"paged_attention_{dtype}_d128__mmafast" and grid == (1, 1, 1)
            read[length] = 64 * stats.lines["global_load"]
    finally:
        device.facts = replace(device.facts, num_units=8)
    once = 512 * (128 * 2 * 2 if dtype == "bf16" else 128 * 2 + 8)
    assert once <= read[1024] - read[512] <= 1.05 * once


@pytest.mark.skipif(bool(emulated_device.missing()), reason=emulated_device.missing() or "-")
@pytest.mark.parametrize("arch", emulated_device.ARCHS)
@pytest.mark.parametrize("dtype", ["bf16", "int8", "f16", "fp8"])
def test_a_prompt_asks_for_keys_and_values_once_for_all_waves_of_a_block(arch: str, dtype: str) -> None:
    device = platform(arch).device
    read = {}
    for past in (48, 112):
        device.stats.clear()
        attend(arch, Case("prompt", dtype, 8, 1, 128, ((past, 16),)))
        by_name = {name: stats for name, _, stats in device.stats}
        read[past] = 64 * by_name[f"paged_attention_{dtype}_d128__mmafastwide"].lines["global_load"]
    once = 64 * (128 * 2 + 8 if dtype in ("int8", "fp8") else 128 * 2 * 2)
    blocks = 2 if dtype == "f16" else 1  # which have 64 rows or 128
    assert blocks * once <= read[112] - read[48] <= 1.05 * blocks * once

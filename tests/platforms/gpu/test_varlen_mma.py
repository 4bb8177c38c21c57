"""varlen_attention on matrix units: within the case table's tolerance of the reference on every stand-in for a GPU that there is,
at any size of its inputs; and what a row's result may not depend on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases import varlen_attention as table
from tests.cases.varlen_attention import Case
from tests.platforms.cells import reference_cell
from tests.platforms.gpu import emulated_device
from tests.platforms.gpu.test_attention_mma import Cell, platform

from octavo.platforms.gpu.grids import Sizes, grid_of
from octavo.platforms.ops import VarlenDtype

WAVES = ("wave64", "wave32")
#: beside those of the table: more keys than waves have tiles of, groups that fill no tile, windows over tiles
MORE = (
    Case("long", 2, 1, 64, (300, 1, 140)),
    Case("group_of_20", 20, 1, 32, (70, 3)),
    Case("group_of_7", 7, 1, 128, (45,)),
    Case("narrow_window", 4, 2, 64, (200, 17), window=7),
    Case("window_of_tiles", 2, 1, 96, (150,), window=40, has_alibi=True),
    Case("dim_256_long", 2, 1, 256, (170, 33)),
)
TOLERANCE = {"f32": 2e-6, "bf16": 8e-3}
ROUNDED = tuple(replace(case, name=f"bf16_{case.name}", dtype="bf16", tolerance=TOLERANCE["bf16"]) for case in MORE)
CASES = {case.name: case for case in (*table.CASES, *MORE, *ROUNDED)}
#: what the emulator, which is slow, runs of them
FEW = (
    "mixed", "causal_window", "window_and_alibi", "dim_64", "dim_112", "dim_160", "dim_256", "narrow_window",
    "bf16_mixed", "bf16_alibi", "bf16_dim_64", "bf16_dim_96", "bf16_dim_192", "bf16_dim_256", "bf16_narrow_window",
    "bf16_group_of_7",
)  # fmt: skip
DTYPES: tuple[VarlenDtype, ...] = ("f32", "bf16")
PLACES = [
    *(pytest.param(wave, name, id=f"{wave}-{name}") for wave in WAVES for name in CASES),
    *(
        pytest.param(
            arch,
            name,
            id=f"{arch}-{name}",
            marks=pytest.mark.skipif(bool(emulated_device.missing()), reason=emulated_device.missing()),
        )
        for arch in emulated_device.ARCHS
        for name in FEW
    ),
]


def attend(where: str, case: Case) -> tuple[np.ndarray, str]:
    """The result, and the kernel that ran."""
    cell = Cell(platform(where).native)
    got = table.run(cell, case)
    return got, cell.made.last_variant("varlen_attention")


def kernel_of(case: Case) -> str:
    least = next(n for n in (64, 128, 192, 256) if n >= case.head_dim)
    op = "varlen_attention" if case.dtype == "f32" else f"varlen_attention_{case.dtype}"
    return f"{op}__simt" if case.head_dim % 16 or case.reach else f"{op}_d{least}__mmafast"


def off(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max(initial=0)) / max(float(np.abs(want).max(initial=0)), 1e-30)


@pytest.mark.parametrize(("where", "name"), PLACES)
def test_results_are_within_tolerance_of_the_reference(where: str, name: str) -> None:
    case = CASES[name]
    got, kernel = attend(where, case)
    want = table.run(reference_cell(), case)
    assert kernel == kernel_of(case)
    assert got.shape == want.shape and off(got, want) <= case.tolerance, (
        f"{name} on {where}: off by {off(got, want):.1e}"
    )


@pytest.mark.parametrize("where", WAVES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_inputs_of_any_size_keep_their_bits(
    where: str, dtype: VarlenDtype, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of one size, keys of its inverse, and values beyond what float16 has."""
    case, given = Case("sizes", 2, 1, 64, (70, 5), dtype=dtype, tolerance=TOLERANCE[dtype]), table.inputs

    def scaled(of: Case) -> Any:
        q, k, v, slopes = given(of)
        return q * np.float32(size), k / np.float32(size), v * np.float32(size), slopes

    monkeypatch.setattr(table, "inputs", scaled)
    got, kernel = attend(where, case)
    assert kernel == kernel_of(case) and off(got, table.run(reference_cell(), case)) <= case.tolerance


@pytest.mark.parametrize("where", WAVES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 256])
def test_a_neighbour_that_is_no_number_changes_nothing(
    where: str, dtype: VarlenDtype, head_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a key that is none of a row's window, nor which sequences are beside it."""
    case, given = Case("middle", 3, 1, head_dim, (20, 50, 9), window=30, dtype=dtype), table.inputs
    clean, kernel = attend(where, case)
    assert kernel == kernel_of(case)
    first = given(case)

    def dirty(of: Case) -> Any:
        arrays = [x.copy() for x in given(of)]
        for x in arrays[:3]:
            x[20:70] = np.nan
        return arrays

    monkeypatch.setattr(table, "inputs", dirty)
    got, _ = attend(where, case)
    assert (got[:20] == clean[:20]).all() and (got[70:] == clean[70:]).all() and np.isnan(got[20:70]).all()
    monkeypatch.setattr(table, "inputs", lambda _: (*(x[20:70] for x in first[:3]), first[3]))
    alone, _ = attend(where, replace(case, lengths=(50,)))
    assert (alone == clean[20:70]).all()


@pytest.mark.parametrize(
    ("op", "tile"),
    [("varlen_attention_d64", 32), ("varlen_attention_bf16_d64", 128), ("varlen_attention_bf16_d256", 64)],
)
def test_blocks_are_as_many_as_tiles_of_rows(op: str, tile: int) -> None:
    row = platform("wave64").native.module.rows[f"{op}__mmafast"]
    from octavo.platforms.gpu.module import STEP_BYTES

    arguments = bytearray(STEP_BYTES + row.args_bytes)
    row.pack(arguments, {"heads": 12, "kv_heads": 4, "window": 0}, is_whole=False)
    assert grid_of(row, arguments, Sizes(640, 3, 5000, 600), 100) == (640 * 3 // tile + 3, 4, 1)

"""linear_w8a8 and linear_i4: the reference's bits at every level, for every layout, shape, epilogue and extreme of codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.kernels import apart
from tests.kernels.harness import FIXED, Kernel, aligned, lowest, run, same_bits, tile_counts, variants
from tests.kernels.test_linear import ACTIVATIONS, epilogue, normal
from tests.kernels.test_prepare import prepare

from octavo.platforms.reference.products import integer_dot
from octavo.platforms.stored import parts_of
from octavo.platforms.types import RawTensor
from octavo.quant.formats import BY_NAME

OPS = ("linear_w8a8", "linear_i4")
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 33, 65, 130)
OUTPUTS = (48, 1, 15, 16, 17, 100)


@dataclass(frozen=True)
class Case:
    """A weight and what follows its product."""

    name: str
    raw: RawTensor
    scale: float = 1.0
    activation: str = "none"
    bias: np.ndarray | None = None
    gate: np.ndarray | None = None
    residual: np.ndarray | None = None


def names_of(kernel: Kernel) -> list[str]:
    return [name for name in apart.NAMES if f"linear_{apart.layout(name).op}" == kernel.op]


def inputs_of(name: str, x: np.ndarray) -> dict[str, Any]:
    """The prepared inputs' fields, by the scalar prepare kernel (tested on its own)."""
    q, scales, sums = prepare(lowest(apart.layout(name).prepare), x)
    return {"x": q, "ldx": q.strides[0], "scales": scales, "sums": sums, "lds": scales.strides[0] // 4}


def multiply(
    kernel: Kernel, case: Case, x: np.ndarray, threads: int = 1, inputs: dict[str, Any] | None = None
) -> np.ndarray:
    """[rows, n]; the kernel may write nothing around it, and may find the residual in y itself."""
    rows, (n, k) = len(x), case.raw.shape
    data = apart.panels(case.name, case.raw)
    packed = aligned(data.size, np.uint8)
    packed[:] = data
    y = aligned((rows + 1, n + 3), np.float32)
    y[:] = 77
    residual = case.residual
    if residual is not None and threads == 2:
        y[:rows, :n] = residual
        residual = y
    stride = lambda a: 0 if a is None else a.strides[0] // 4  # noqa: E731
    fields = {
        **(inputs or inputs_of(case.name, x)),
        "weight": packed, "n": n, "k": k, "bias": case.bias, "gate": case.gate, "ldgate": stride(case.gate),
        "residual": residual, "ldres": stride(residual), "y": y, "ldy": stride(y), "scale": case.scale,
        "activation": list(ACTIVATIONS).index(case.activation), "flags": apart.layout(case.name).flags,
        "rows": (FIXED, rows),
    }  # fmt: skip
    run(kernel, fields, threads=threads)
    assert (y[rows:] == 77).all() and (y[:, n:] == 77).all()
    return y[:rows, :n]


def reference(case: Case, x: np.ndarray) -> np.ndarray:
    return epilogue(case, integer_dot(x, parts_of(case.raw)))


@cache
def shape_case(name: str, n: int, k: int, rows: int = max(ROWS)) -> tuple[Case, np.ndarray, np.ndarray]:
    case = Case(name, apart.tensor(name, n, k, seed=n + k))
    x = normal(rows, k, seed=n)
    return case, x, reference(case, x)


@pytest.mark.parametrize("kernel", variants(*OPS))
@pytest.mark.parametrize("n", OUTPUTS)
def test_bits_of_the_reference_for_every_number_of_rows_and_outputs(kernel: Kernel, n: int) -> None:
    for name in names_of(kernel):
        case, x, want = shape_case(name, n, 136)
        for rows in ROWS if n in (48, 100) else (1, 5, 17, 33):
            threads = 1 + rows % 2
            assert same_bits(multiply(kernel, case, x[:rows], threads), want[:rows]), (name, rows)


@pytest.mark.parametrize("kernel", variants(*OPS))
@pytest.mark.parametrize("k", [8, 64, 72, 128, 520, 1024, 1088, 2056, 4160])
def test_bits_of_the_reference_for_any_number_of_inputs(kernel: Kernel, k: int) -> None:
    for name in names_of(kernel):
        case, x, want = shape_case(name, 70, k, 33)
        for rows in (1, 7, 33):
            assert same_bits(multiply(kernel, case, x[:rows], 2), want[:rows]), (name, rows)


@pytest.mark.parametrize("kernel", variants(*OPS))
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_epilogue_in_the_contracts_order(kernel: Kernel, activation: str) -> None:
    name, n, rows = names_of(kernel)[0], 37, 17
    wide = normal(rows, 2 * n, seed=7)
    parts = {"bias": normal(1, n, 8)[0], "gate": wide[:, :n], "residual": wide[:, n:], "scale": 0.37}
    x = normal(rows, 72)
    for some in ({}, {"bias"}, {"gate", "scale"}, {"residual"}, set(parts)):
        case = Case(name, apart.tensor(name, n, 72), activation=activation, **{p: parts[p] for p in some})
        for threads in (1, 2):  # with two threads the residual is y itself
            assert same_bits(multiply(kernel, case, x, threads), reference(case, x)), (some, threads)


@pytest.mark.parametrize("kernel", variants(*OPS))
def test_zero_rows_write_nothing(kernel: Kernel) -> None:
    case, x, _ = shape_case(names_of(kernel)[0], 17, 136)
    assert multiply(kernel, case, x[:0], inputs=inputs_of(case.name, x)).shape == (0, 17)


@pytest.mark.parametrize("kernel", variants(*OPS))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_stays_in_its_row(kernel: Kernel, bad: float) -> None:
    for rows in (5, 33):
        case, x, want = shape_case(names_of(kernel)[0], 33, 136)
        x = x[:rows].copy()
        x[2, 40] = bad
        y = multiply(kernel, case, x)
        assert np.isnan(y[2]).all()
        assert same_bits(np.delete(y, 2, axis=0), np.delete(want[:rows], 2, axis=0))


@pytest.mark.parametrize("kernel", variants(*OPS))
def test_an_infinite_scale_reaches_only_its_outputs(kernel: Kernel) -> None:
    for name in names_of(kernel):
        case = Case(name, apart.with_scale(apart.tensor(name, 33, 136), 20, 0, np.inf))
        x = normal(17, 136)
        y = multiply(kernel, case, x)
        assert same_bits(y, reference(case, x))
        assert not np.isfinite(y[:, 20]).any() and np.isfinite(np.delete(y, 20, axis=1)).all()


@pytest.mark.parametrize("kernel", variants(*OPS))
def test_denormal_and_negative_scales(kernel: Kernel) -> None:
    for name in names_of(kernel):
        raw = apart.tensor(name, 16, 136)
        for row, value in enumerate((1e-40, -1e-40, 2e-38, -0.0, 0.0, -3.0)):
            raw = apart.with_scale(raw, row, 0, value)
        case = Case(name, raw)
        x = normal(7, 136)
        x[3] *= np.float32(1e-30)
        x[4] = 0
        assert same_bits(multiply(kernel, case, x), reference(case, x)), name


def extremes(name: str, n: int, k: int, rng: np.random.Generator) -> RawTensor:
    """Codes at both ends of their range, scales of one, zero points at both ends."""
    raw = apart.tensor(name, n, k)
    ends = (0x80, 0x7F) if name.startswith("w8a8") else (0x00, 0xFF)
    codes = rng.choice(np.array(ends, np.uint8), raw.data.shape).reshape(n, -1)
    codes[0], codes[1] = ends
    for row in range(n):
        for group in range(raw.scales.shape[1]):
            raw = apart.with_scale(raw, row, group, 1.0)
    raw = replace(raw, data=codes.reshape(-1))
    if raw.zeros is None:
        return raw
    return replace(raw, zeros=replace(raw.zeros, data=rng.choice(np.array([0, 15], np.uint8), raw.zeros.data.shape)))


@pytest.mark.parametrize("kernel", variants(*OPS))
def test_integer_sums_never_saturate(kernel: Kernel) -> None:
    """Every mix of extreme codes and inputs; a 16-bit saturating product would stop at 32,767."""
    rng = np.random.default_rng(5)
    for name in names_of(kernel):
        raw = extremes(name, 19, 256, rng)
        x = rng.choice(np.array([-127, 127], np.float32), (33, 256))
        x[0], x[1] = 127, -127
        want = x.astype(np.int64) @ parts_of(raw).integers().astype(np.int64).T  # input scales are one
        assert np.array_equal(multiply(kernel, Case(name, raw), x).astype(np.int64), want), name


@pytest.mark.parametrize("kernel", variants("linear_w8a8"))
def test_the_longest_row_fits_int32(kernel: Kernel) -> None:
    k = BY_NAME["w8a8"].max_inputs
    raw = extremes("w8a8", 2, k, np.random.default_rng(5))
    for rows in (1, 17):
        x = np.full((rows, k), np.float32(127))
        x[rows // 2] = -127
        y = multiply(kernel, Case("w8a8", raw), x)
        want = np.where(x[:, :1] > 0, [-128 * 127 * k, 127 * 127 * k], [128 * 127 * k, -127 * 127 * k])
        assert np.array_equal(y, want.astype(np.float32))


@pytest.mark.parametrize("kernel", [p for p in variants(*OPS) if p.id.endswith("__amx")])
def test_tiles_are_loaded_about_once_per_product(kernel: Kernel) -> None:
    """Two loads per product would take all the time of a product, even from the first cache. Of weights in groups folding sets
    the pace: a group of 128 inputs takes two products of two loads each, and one of constants."""
    if kernel.module.__name__ != "octavo._avx_emulated":
        pytest.skip("only the emulation counts tiles")
    name, rows, n, k = names_of(kernel)[-1], 128, 64, 2048
    before = tile_counts(kernel)
    multiply(kernel, Case(name, apart.tensor(name, n, k)), normal(rows, k))
    loads, products = (after - at for after, at in zip(tile_counts(kernel), before, strict=True))
    groups = k // 128 if kernel.op == "linear_i4" else 0
    assert products == rows // 16 * (n // 16) * (k // 64 + groups)
    assert loads <= (1.34 if groups else 1.04) * products

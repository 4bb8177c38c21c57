"""linear_*: every level has the reference's bits, for every shape, epilogue, thread count and extreme of its inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.kernels.harness import FIXED, Kernel, aligned, kernels, lowest, run, same_bits, tile_counts, variants
from tests.kernels.panels import (
    BLOCKS,
    DENSE,
    HAS_MIN,
    NIBBLE_FLIP,
    PACKED,
    PLANES,
    ZERO8,
    nibbles,
    panels,
    planes,
    quads,
    stored,
)
from tests.kernels.test_prepare import INT8, prepare

from octavo.platforms.reference import f32
from octavo.platforms.reference.products import dot32, integer_dot
from octavo.quant import load

ACTIVATIONS = {
    "none": lambda y: y,
    "silu": f32.silu,
    "gelu": f32.gelu,
    "gelu_tanh": f32.gelu_tanh,
    "relu": lambda y: np.where(y > 0, y, np.float32(0)),
    "relu2": lambda y: np.where(y > 0, f32.mul(y, y), np.float32(0)),
    "tanh": f32.tanh,
    "sigmoid": f32.sigmoid,
}
ROWS = (1, 2, 3, 4, 5, 7, 16, 33)
OUTPUTS = (16, 1, 15, 17, 48, 100)
LINEAR = tuple(sorted({f"linear_{kind}" for kind, _ in PACKED.values()}))


@dataclass
class Case:
    """A weight of `name` [n, k] and what follows the product."""

    name: str
    n: int
    k: int
    raw: np.ndarray
    scale: float = 1.0
    activation: str = "none"
    bias: np.ndarray | None = None
    gate: np.ndarray | None = None
    residual: np.ndarray | None = None
    packed: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        data = panels(self.name, self.raw, self.k)
        self.packed = aligned(data.size, np.uint8)
        self.packed[:] = data


def inputs_of(case: Case, x: np.ndarray) -> dict[str, Any]:
    """The prepared inputs' fields, by the scalar prepare kernel (tested on its own)."""
    kind = PACKED[case.name][0]
    if kind in ("f16", "f32"):
        return {"x": x, "ldx": x.strides[0] // 4, "scales": None, "sums": None, "lds": 0}
    op = "prepare_bf16" if kind == "bf16" else "prepare_i8g32" if kind.endswith("g32") else "prepare_i8g256"
    q, scales, sums = prepare(lowest(op), x)
    entries = scales.strides[0] // 4
    return {"x": q, "ldx": q.strides[0] // q.itemsize, "scales": scales, "sums": sums, "lds": entries}


def multiply(
    kernel: Kernel, case: Case, x: np.ndarray, threads: int = 1, inputs: dict[str, Any] | None = None
) -> np.ndarray:
    """[rows, n]; the kernel may write nothing around it, and may find the residual in y itself."""
    rows = len(x)
    y = aligned((rows + 1, case.n + 3), np.float32)
    y[:] = 77
    in_place = case.residual is not None and threads == 2
    if in_place:
        y[:rows, : case.n] = case.residual
    stride = lambda a: 0 if a is None else a.strides[0] // 4  # noqa: E731
    residual = y if in_place else case.residual
    fields = {
        **(inputs or inputs_of(case, x)),
        "weight": case.packed, "n": case.n, "k": case.k, "bias": case.bias,
        "gate": case.gate, "ldgate": stride(case.gate), "residual": residual, "ldres": stride(residual),
        "y": y, "ldy": stride(y), "scale": case.scale, "activation": list(ACTIVATIONS).index(case.activation),
        "flags": PACKED[case.name][1], "rows": (FIXED, rows),
    }  # fmt: skip
    run(kernel, fields, threads=threads)
    assert (y[rows:] == 77).all() and (y[:, case.n :] == 77).all()
    return y[:rows, : case.n]


def reference(case: Case, x: np.ndarray) -> np.ndarray:
    if case.name in DENSE:
        values = load.unpack(case.name, np.ascontiguousarray(case.raw).reshape(-1), (case.n, case.k))
        y = dot32(f32.to_bf16(x) if case.name == "bf16" else x, values)
    else:
        y = integer_dot(x, load.codes(case.name, np.ascontiguousarray(case.raw).reshape(-1), (case.n, case.k)))
    return epilogue(case, y)


def epilogue(case: Any, y: np.ndarray) -> np.ndarray:
    """What follows the product, in the contract's order."""
    if case.scale != 1:
        y = f32.mul(y, np.float32(case.scale))
    if case.bias is not None:
        y = f32.add(y, case.bias)
    y = ACTIVATIONS[case.activation](y)
    if case.gate is not None:
        y = f32.mul(y, case.gate)
    return y if case.residual is None else f32.add(y, case.residual)


def normal(rows: int, k: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(np.float32)


def formats_of(kernel: Kernel) -> list[str]:
    return [name for name, (kind, _) in PACKED.items() if f"linear_{kind}" == kernel.op]


def depth_of(name: str) -> int:
    return 512 if name in BLOCKS and load.format_named(name).block_size == 256 else 96


@cache
def shape_case(name: str, n: int, k: int) -> tuple[Case, np.ndarray, np.ndarray]:
    case = Case(name, n, k, stored(name, n, k, seed=n + k))
    x = normal(max(ROWS), k, seed=n)
    return case, x, reference(case, x)


def test_every_level_of_this_processor_is_there() -> None:
    levels = {k.level for k in kernels()["linear_q4g32"] if not k.why_not}
    assert lowest("linear_q4g32").level in levels
    assert len(kernels()["linear_q4g32"]) == len({k.level for k in kernels()["linear_q4g32"]})


@pytest.mark.parametrize("kernel", variants(*LINEAR))
def test_bits_of_the_reference_for_every_number_of_rows_and_outputs(kernel: Kernel) -> None:
    for name in formats_of(kernel):
        for n in OUTPUTS:
            case, x, want = shape_case(name, n, depth_of(name))
            for rows in ROWS if n == 48 else (1, 5, 33):
                for threads in (1, 2):
                    assert same_bits(multiply(kernel, case, x[:rows], threads), want[:rows]), (name, n, rows, threads)


@pytest.mark.parametrize("kernel", variants(*(f"linear_{kind}" for kind in PLANES)))
def test_bits_of_the_reference_where_codes_go_through_scratch(kernel: Kernel) -> None:
    """Around the number of rows from which panels are unpacked, and past the rows of one unpacking."""
    for name in formats_of(kernel):
        case, k = shape_case(name, 17, depth_of(name))[0], depth_of(name)
        x = normal(131, k, seed=3)
        want = reference(case, x)
        for rows in (8, 9, 13, 131):
            assert same_bits(multiply(kernel, case, x[:rows], 2), want[:rows]), (name, rows)


@pytest.mark.parametrize("kernel", variants("linear_bf16", "linear_f16", "linear_f32"))
@pytest.mark.parametrize("k", [1, 31, 32, 33, 70, 1056, 2050])
def test_bits_of_the_reference_for_any_number_of_inputs(kernel: Kernel, k: int) -> None:
    case, x, want = shape_case(formats_of(kernel)[0], 33, k)
    for rows in (1, 2, 7):
        assert same_bits(multiply(kernel, case, x[:rows], 2), want[:rows]), rows


@cache
def block_case(name: str, rows: int, k: int) -> tuple[Case, np.ndarray, np.ndarray]:
    case, x = Case(name, 33, k, stored(name, 33, k, seed=k)), normal(rows, k, seed=rows)
    return case, x, reference(case, x)


@pytest.mark.parametrize("kernel", variants(*LINEAR))
def test_bits_of_the_reference_for_more_rows_than_a_block(kernel: Kernel) -> None:
    name = formats_of(kernel)[0]
    case, x, want = block_case(name, 193, depth_of(name))
    for threads in (1, 2):
        assert same_bits(multiply(kernel, case, x, threads), want), threads


@pytest.mark.parametrize("kernel", variants("linear_bf16", "linear_f16", "linear_f32"))
def test_bits_of_the_reference_for_inputs_in_pieces(kernel: Kernel) -> None:
    case, x, want = block_case(formats_of(kernel)[0], 96, 2050)
    assert same_bits(multiply(kernel, case, x, 2), want)


@pytest.mark.parametrize("kernel", variants("linear_bf16"))
@pytest.mark.parametrize(("rows", "n", "k"), [(40, 808, 300), (101, 808, 300), (2, 17, 16450)])
def test_bits_of_the_reference_for_more_outputs_or_inputs_than_a_unit(
    kernel: Kernel, rows: int, n: int, k: int
) -> None:
    case, x = Case("bf16", n, k, stored("bf16", n, k, seed=5)), normal(rows, k, seed=6)
    assert same_bits(multiply(kernel, case, x, 2), reference(case, x))


@pytest.mark.parametrize("kernel", variants("linear_q4g32", "linear_q8g32", "linear_q4k"))
@pytest.mark.parametrize("k", [163_840, 262_144])
def test_bits_of_the_reference_for_rows_that_fill_scratch_by_the_pair(kernel: Kernel, k: int) -> None:
    name, x = formats_of(kernel)[-1], normal(5, k)
    case = Case(name, 2, k, stored(name, 2, k), residual=normal(5, 2, seed=3))
    assert same_bits(multiply(kernel, case, x, 2), reference(case, x))


@pytest.mark.parametrize("kernel", variants(*(op for op in LINEAR if op[-1] in "2k" and op != "linear_f32")))
def test_bits_of_the_reference_for_one_and_many_groups(kernel: Kernel) -> None:
    for name in formats_of(kernel):
        block = load.format_named(name).block_size
        for blocks in (1, 3, 9):
            case, x, want = shape_case(name, 33, block * blocks)
            assert same_bits(multiply(kernel, case, x[:6], 2), want[:6]), (name, blocks)


@pytest.mark.parametrize("kernel", variants(*LINEAR))
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_epilogue_in_the_contracts_order(kernel: Kernel, activation: str) -> None:
    name, n, rows = formats_of(kernel)[0], 37, 5
    k = depth_of(name)
    wide = normal(rows, 2 * n, seed=7)
    parts = {"bias": normal(1, n, 8)[0], "gate": wide[:, :n], "residual": wide[:, n:], "scale": 0.37}
    x = normal(rows, k)
    for some in ({}, {"bias"}, {"gate", "scale"}, {"residual"}, set(parts)):
        case = Case(name, n, k, stored(name, n, k), activation=activation, **{p: parts[p] for p in some})
        for threads in (1, 2):  # with two threads the residual is y itself
            assert same_bits(multiply(kernel, case, x, threads), reference(case, x)), (some, threads)


@pytest.mark.parametrize("kernel", variants(*LINEAR))
def test_zero_rows_write_nothing(kernel: Kernel) -> None:
    name = formats_of(kernel)[0]
    case, x, _ = shape_case(name, 17, depth_of(name))
    assert multiply(kernel, case, x[:0], inputs=inputs_of(case, x)).shape == (0, 17)


@pytest.mark.parametrize("kernel", variants(*LINEAR))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_stays_in_its_row(kernel: Kernel, bad: float) -> None:
    name = formats_of(kernel)[0]
    case, x, want = shape_case(name, 33, depth_of(name))
    x = x[:5].copy()
    x[2, 40] = bad
    y = multiply(kernel, case, x)
    assert not np.isfinite(y[2]).any()
    keep = [0, 1, 3, 4]
    assert same_bits(y[keep], want[:5][keep])


@pytest.mark.parametrize("kernel", variants(*LINEAR))
def test_an_infinite_scale_reaches_only_its_outputs(kernel: Kernel) -> None:
    name = formats_of(kernel)[-1]
    k = depth_of(name)
    raw = stored(name, 33, k)
    if name in DENSE:
        raw.view(np.uint32 if name == "f32" else np.uint16)[20, 3] = {"f32": 0x7F800000, "bf16": 0x7F80, "f16": 0x7C00}[
            name
        ]
    else:
        from tests.kernels.panels import _HALVES

        raw[20, _HALVES[name][0] : _HALVES[name][0] + 2] = np.array([np.inf], np.float16).view(np.uint8)
    case, x = Case(name, 33, k, raw), normal(3, k)
    y = multiply(kernel, case, x)
    assert same_bits(y, reference(case, x))
    assert not np.isfinite(y[:, 20]).any() and np.isfinite(np.delete(y, 20, axis=1)).all()


def integer_case(kind: str, flags: int, codes: np.ndarray) -> np.ndarray:
    """Packed bytes of group-32 codes [n, k] (as packed: unsigned, of q8g32 int8) with scales of 1 and minima of 0."""
    n, k = codes.shape
    lanes = codes.reshape(n // 16, 16, k // 32, 32).transpose(0, 2, 1, 3).astype(np.int16)
    if kind in PLANES:
        body = planes(lanes, *PLANES[kind])
    elif kind == "q4g32":
        body = nibbles(lanes) ^ (NIBBLE_FLIP if flags & ZERO8 else np.uint8(0))
    else:
        body = quads(lanes)
    ones = np.broadcast_to(np.ones(16, np.float16).view(np.uint8), (*body.shape[:2], 32))
    fields = [body, ones, np.zeros_like(ones)] if flags & HAS_MIN else [body, ones]
    return np.concatenate(fields, axis=2).reshape(-1)


EXTREMES = {
    ("q8g32", 0): (-128, 127),
    ("q5g32", 0): (0, 31),
    ("q5g32", HAS_MIN): (0, 31),
    ("q4g32", ZERO8): (0, 15),
    ("q4g32", HAS_MIN): (0, 15),
}


@pytest.mark.parametrize("kernel", variants("linear_q4g32", "linear_q8g32", "linear_q5g32"))
def test_integer_sums_never_saturate(kernel: Kernel) -> None:
    """Every mix of extreme codes and inputs; a 16-bit saturating product would stop at 32,767."""
    kind = kernel.op.removeprefix("linear_")
    for (of, flags), (low, high) in EXTREMES.items():
        if of != kind:
            continue
        rng = np.random.default_rng(5)
        codes = rng.choice([low, high], (32, 64))
        codes[0], codes[1], codes[2] = high, low, rng.integers(low, high + 1, 64)
        q = rng.choice(np.array([-127, 127], np.int8), (6, 64))
        q[0], q[1], q[2] = 127, -127, rng.integers(-127, 128, 64)
        sums = np.ascontiguousarray(q.reshape(6, 2, 32).sum(axis=2, dtype=np.int32))
        data = integer_case(kind, flags, codes)
        packed, y = aligned(data.size, np.uint8), aligned((6, 32), np.float32)
        packed[:] = data
        fields = {
            "x": q, "ldx": 64, "scales": np.ones((6, 2), np.float32), "sums": sums, "lds": 2, "weight": packed, "n": 32,
            "k": 64, "bias": None, "gate": None, "ldgate": 0, "residual": None, "ldres": 0, "y": y, "ldy": 32,
            "scale": 1.0, "activation": 0, "flags": flags, "rows": (FIXED, 6),
        }  # fmt: skip
        run(kernel, fields)
        zero = 8 if flags & ZERO8 else 16 if (kind, flags) == ("q5g32", 0) else 0
        want = q.astype(np.int64) @ (codes.astype(np.int64) - zero).T
        assert np.array_equal(y.astype(np.int64), want), flags


@pytest.mark.parametrize("kernel", variants("linear_q8g32"))
def test_two_and_sixty_four_full_products(kernel: Kernel) -> None:
    """The sums that 16-bit saturation gets wrong on older x86 (microsoft/onnxruntime#6004): K = 2 and K = 64 of +-full range."""
    for count in (2, 64):
        codes, q = np.zeros((16, 64), np.int64), np.zeros((1, 64), np.int8)
        codes[:, :count], q[:, :count] = -128, -127
        data = integer_case("q8g32", 0, codes)
        packed, y = aligned(data.size, np.uint8), aligned((1, 16), np.float32)
        packed[:] = data
        fields = {
            "x": q, "ldx": 64, "scales": np.ones((1, 2), np.float32),
            "sums": np.ascontiguousarray(q.reshape(1, 2, 32).sum(axis=2, dtype=np.int32)), "lds": 2, "weight": packed,
            "n": 16, "k": 64, "bias": None, "gate": None, "ldgate": 0, "residual": None, "ldres": 0, "y": y, "ldy": 16,
            "scale": 1.0, "activation": 0, "flags": 0, "rows": (FIXED, 1),
        }  # fmt: skip
        run(kernel, fields)
        assert (y == count * 128 * 127).all()


@pytest.mark.parametrize("kernel", variants(*(f"linear_q{bits}k" for bits in (2, 3, 4, 5, 6))))
def test_k_quants_of_extreme_bytes(kernel: Kernel) -> None:
    """Blocks of one byte value (0xFF: largest codes, sub-scales and minima) with inputs at +-127."""
    for name in formats_of(kernel):
        form = load.format_named(name)
        raw = np.repeat(np.array([0, 255, 0x80, 0x7F, 0x0F, 0xF0] * 6, np.uint8)[:, None], form.block_bytes, axis=1)
        raw[30:] = np.random.default_rng(6).choice(np.array([0, 255], np.uint8), raw[30:].shape)
        one = np.array([0.5], np.float16).view(np.uint8)
        from tests.kernels.panels import _HALVES

        for at in _HALVES[name]:
            raw[:, at : at + 2] = one
        case = Case(name, len(raw), 256, raw)
        x = np.where(normal(6, 256) > 0, np.float32(127), np.float32(-127))
        x[0], x[1] = 127, -127
        assert same_bits(multiply(kernel, case, x), reference(case, x)), name


@pytest.mark.parametrize(
    "kernel", [p for p in variants(*(f"linear_{kind}" for kind in PLANES)) if p.id.endswith("__amx")]
)
def test_tiles_are_as_deep_as_the_scales_allow(kernel: Kernel) -> None:
    """K-quants fill the 64 inputs of a tile, once if a code times its sub-scale fits a byte, else twice, and take one product for
    the minima of 256 inputs. Q5_0 and Q5_1 fill half a tile, and take a second product, of constants, per group."""
    if kernel.module.__name__ != "octavo._avx_emulated":
        pytest.skip("only the emulation counts tiles")
    name, rows, n, k = formats_of(kernel)[0], 128, 64, 512
    before = tile_counts(kernel)
    multiply(kernel, Case(name, n, k, stored(name, n, k)), normal(rows, k))
    loads, products = (after - at for after, at in zip(tile_counts(kernel), before, strict=True))
    codes = k // (64 if name in ("q2_k", "q3_k") else 32)
    others = {"q2_k": k // 256, "q5_k": k // 256, "q5_0": k // 32}.get(name, 0)
    assert products == rows // 16 * (n // 16) * (codes + others)
    assert loads <= 1.06 * products


@pytest.mark.parametrize("kernel", variants("linear_bf16"))
def test_inputs_under_the_normal_range_count_as_zero(kernel: Kernel) -> None:
    raw = stored("bf16", 16, 64).view(np.uint16).reshape(16, 64).copy()
    raw[:, ::3] = 0x0040  # a denormal
    case = Case("bf16", 16, 64, raw.view(np.uint8))
    x = normal(3, 64)
    x[1] = np.float32(2.0**-120)
    x[2, ::2] = np.float32(1e-39)
    assert same_bits(multiply(kernel, case, x), reference(case, x))


def test_input_forms_are_those_of_prepare() -> None:
    assert set(INT8) == {"prepare_i8g32", "prepare_i8g64", "prepare_i8g128", "prepare_i8g256", "prepare_i8row"}

"""Microscaling formats: scales, both orders of nibbles, and what is refused."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.quant import load
from octavo.quant.fp8 import E4M3FN, E5M2
from octavo.quant.mx import E2M1, E8M0, mxfp4_of_blocks, mxfp4_of_pairs


def test_scales_are_powers_of_two() -> None:
    assert [float(E8M0[code]) for code in (0, 1, 127, 128, 254)] == [2.0**-127, 2.0**-126, 1.0, 2.0, 2.0**127]
    assert np.isnan(E8M0[255]) and np.isfinite(E8M0[:255]).all()


def test_a_block_holds_elements_sixteen_apart() -> None:
    block = np.zeros(17, np.uint8)
    block[:3] = 128, 0x21, 0x43
    want = np.zeros(32, np.float32)
    want[[0, 1, 16, 17]] = 1, 3, 2, 4
    assert np.array_equal(mxfp4_of_blocks(block), want)


def test_packed_tensors_hold_neighbours() -> None:
    packed = np.zeros((1, 16), np.uint8)
    packed[0, :2] = 0x21, 0x43
    got = mxfp4_of_pairs(packed, np.full((1, 1), 128, np.uint8))
    assert got.shape == (1, 32) and got[0, :4].tolist() == [1, 2, 3, 4] and not got[0, 4:].any()


def test_blocks_read_as_the_gguf_package_reads_them() -> None:
    raw = np.random.default_rng(1).integers(0, 256, (6, 5, 17)).astype(np.uint8)
    raw[..., 0] = raw[..., 0] % 200 + 20
    raw = raw.reshape(6, 85)
    want = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.MXFP4)
    assert np.array_equal(mxfp4_of_blocks(raw), want)


def test_every_code_in_both_halves_of_a_byte() -> None:
    packed = np.arange(16, dtype=np.uint8)[None] * 17  # both nibbles the same
    got = mxfp4_of_pairs(packed, np.full((1, 1), 127, np.uint8)).reshape(16, 2)
    assert np.array_equal(got, np.stack([E2M1, E2M1], axis=1)) and np.signbit(got[8]).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(ModelError, match="multiple of 17 bytes"):
        mxfp4_of_blocks(np.zeros((2, 16), np.uint8))
    with pytest.raises(ModelError, match="1 of 1 scales of MXFP4 are NaN"):
        mxfp4_of_blocks(np.full(17, 255, np.uint8))
    with pytest.raises(ModelError, match="needs a scale per 16 bytes"):
        mxfp4_of_pairs(np.zeros((2, 32), np.uint8), np.zeros((2, 1), np.uint8))


@pytest.mark.parametrize("exponent", [-126, -100, 0, 100, 120])
def test_packed_blocks_read_back_as_the_nearest_numbers(exponent: int) -> None:
    steps = np.array([0, 0.2, 0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.01, 6, -0.2, -0.3, -2.5, -6], np.float32)
    want = [0, 0, 0, 0.5, 1, 1, 2, 2, 4, 4, 6, 6, 0, -0.5, -2, -6]  # ties go to the even code
    values = np.ldexp(np.tile(steps, 2), exponent)[None]
    raw = load.pack("mxfp4", values)
    assert np.array_equal(
        load.unpack("mxfp4", raw.reshape(-1), (1, 32)), np.ldexp(np.tile(np.float32(want), 2), exponent)[None]
    )
    parts = load.codes("mxfp4", raw.reshape(-1), (1, 32))
    assert parts.d.tolist() == [[2.0**exponent]] and 8 not in parts.codes


def test_a_peak_above_six_takes_the_next_power_of_two() -> None:
    for peak, scale in ((6, 1), (6.01, 2), (12, 2), (3, 0.5), (2.0**-140, 2.0**-127), (0, 2.0**-127)):
        raw = load.pack("mxfp4", np.full((1, 32), peak, np.float32))
        assert load.codes("mxfp4", raw.reshape(-1), (1, 32)).d.tolist() == [[scale]]


@pytest.mark.parametrize(("form", "table"), [("f8_e4m3", E4M3FN.table), ("f8_e5m2", E5M2.table), ("f8_e8m0", E8M0)])
def test_stored_numbers_of_eight_bits_are_read_by_their_tables(form: str, table: np.ndarray) -> None:
    got = load.unpack(form, np.arange(256, dtype=np.uint8), (2, 128)).reshape(-1)
    assert np.array_equal(got.view(np.uint32), table.view(np.uint32))

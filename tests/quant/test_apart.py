"""Formats that keep scales apart: layout bit by bit, rounding, bounds, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from tests.quant.test_reference import tensors

from octavo.engine.errors import ModelError
from octavo.quant import load
from octavo.quant.formats import FORMATS

APART = [f.name for f in FORMATS if f.has_scales_apart]
INT4 = [name for name in APART if name.startswith("i4")]


def round_trip(name: str, values: np.ndarray) -> np.ndarray:
    stored = load.quantize(name, values)
    return load.unpack(name, stored.codes.reshape(-1), values.shape, stored.scales, stored.zeros)


def test_four_bit_codes_lie_in_words_of_eight_lowest_first() -> None:
    words = np.array([0x76543210, 0xFEDCBA98], "<u4").view(np.uint8)
    parts = load.codes("i4g32", words, (2, 8), np.ones((2, 1), np.float32))
    assert parts.codes.tolist() == [list(range(8)), list(range(8, 16))]


def test_weights_are_codes_less_zero_points_times_scales() -> None:
    words = np.full(12, 0x99999999, "<u4").view(np.uint8)  # every code is 9
    scales = np.array([[1, 2], [4, 8]], np.float32)
    zeros = np.array([[0, 15], [8, 9]], np.uint8)
    values = load.unpack("i4g32", words, (2, 48), scales, zeros)  # the second group has 16 inputs
    assert values[:, [0, 31, 32, 47]].tolist() == [[9, 9, -12, -12], [4, 4, 0, 0]]
    assert load.unpack("i4g32", words, (2, 48), scales)[:, [0, 47]].tolist() == [[1, 2], [4, 8]]  # without: 8


def test_int8_codes_take_minus_128_and_one_scale_a_row() -> None:
    codes = np.array([[-128, 127], [1, 0]], np.int8).view(np.uint8)
    assert load.unpack("w8a8", codes, (2, 2), np.array([0.5, -2], np.float32)).tolist() == [[-64, 63.5], [-2, 0]]


@pytest.mark.parametrize("name", APART)
def test_rounding_stays_within_its_documented_bound(name: str) -> None:
    relative, absolute = load.error_bound(name)
    group = load.format_named(name).group
    for values in tensors():
        size = group or values.shape[1]
        peak = np.repeat(np.abs(values.reshape(len(values), -1, size)).max(axis=2), size, axis=1)
        assert np.all(np.abs(round_trip(name, values) - values) <= relative * peak + absolute)


@pytest.mark.parametrize("name", APART)
def test_rounding_has_the_usual_error_on_a_normal_tensor(name: str) -> None:
    values = np.random.default_rng(6).standard_normal((32, 1024)).astype(np.float32)
    error = round_trip(name, values) - values
    usual = {
        "w8a8": 0.009,
        "i4g32": 0.09,
        "i4g64": 0.1,
        "i4g128": 0.11,
        "f8row": 0.027,
        "f8g128": 0.026,
        "mxfp8": 0.027,
    }
    assert np.sqrt(np.mean(error**2)) < usual[name]


@pytest.mark.parametrize("name", INT4)
def test_a_short_last_group_is_rounded_by_itself(name: str) -> None:
    values = np.random.default_rng(7).standard_normal((5, 168)).astype(np.float32)
    group = load.format_named(name).group
    whole = round_trip(name, values)
    for start in range(0, 168, group):
        part = values[:, start : start + group]
        assert round_trip(name, part).tobytes() == whole[:, start : start + group].tobytes()


@pytest.mark.parametrize("name", INT4)
def test_group_scales_are_bfloat16(name: str) -> None:
    stored = load.quantize(name, np.random.default_rng(8).standard_normal((4, 256)).astype(np.float32))
    assert not (stored.scales.view(np.uint32) & 0xFFFF).any()
    assert stored.zeros is None


@pytest.mark.parametrize("name", APART)
def test_rows_of_zeros_and_denormals_become_zeros(name: str) -> None:
    values = np.zeros((2, 128), np.float32)
    values[1] = 1e-40
    assert not round_trip(name, values).any()


@pytest.mark.parametrize("name", APART)
def test_values_that_are_not_finite_are_refused(name: str) -> None:
    values = np.ones((2, 64), np.float32)
    values[1, 3] = np.inf
    with pytest.raises(ModelError, match=f"cannot pack to {name}: .* not finite"):
        load.quantize(name, values)


def test_pack_sends_to_quantize() -> None:
    with pytest.raises(ModelError, match="keeps its scales apart: quantize"):
        load.pack("w8a8", np.ones((1, 8), np.float32))
    assert load.quantize("q8_0", np.ones((1, 32), np.float32)).scales is None


@pytest.mark.parametrize(
    ("scales", "zeros", "text"),
    [
        (None, None, r"needs scales \(2, 2\); none were given"),
        (np.ones((2, 3), np.float32), None, r"takes scales \(2, 2\); got \(2, 3\)"),
        (np.ones((2, 2), np.float32), np.zeros(2, np.uint8), r"takes zero points \(2, 2\)"),
        (np.ones((2, 2), np.float32), np.full((2, 2), 16, np.uint8), r"zero points lie in 0\.\.15; got 16"),
    ],
)
def test_scales_and_zero_points_must_fit(scales: np.ndarray | None, zeros: np.ndarray | None, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        load.codes("i4g32", np.zeros(64, np.uint8), (2, 64), scales, zeros)


def test_int8_weights_have_no_zero_points() -> None:
    with pytest.raises(ModelError, match="has no zero points"):
        load.codes("w8a8", np.zeros(8, np.uint8), (2, 4), np.ones(2, np.float32), np.zeros(2, np.uint8))


@pytest.mark.parametrize("name", INT4)
def test_rows_of_broken_words_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="blocks of 8"):
        load.quantize(name, np.zeros((2, 12), np.float32))

"""Scales of E4M3 weights as checkpoints hold them: per tensor, per row, per block of 128 x 128."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.quant import load
from octavo.quant.f8 import scales_by_row
from octavo.quant.formats import BY_NAME

ROW, GROUP = BY_NAME["f8row"], BY_NAME["f8g128"]


def test_scales_of_tensors_rows_and_blocks_become_those_of_rows() -> None:
    assert scales_by_row(np.float32(3), (2, 200), ROW).tolist() == [[3], [3]]
    assert scales_by_row(np.float32([3]), (2, 200), GROUP).tolist() == [[3, 3], [3, 3]]
    assert scales_by_row(np.float32([1, 2]), (2, 200), ROW).tolist() == [[1], [2]]
    blocks = np.float32([[1, 2], [3, 4]])
    rows = scales_by_row(blocks, (130, 200), GROUP)
    assert rows.shape == (130, 2) and rows[127].tolist() == [1, 2] and rows[128].tolist() == [3, 4]
    with pytest.raises(ModelError, match="blocks of 128 x 128"):
        scales_by_row(np.ones((3, 2), np.float32), (130, 200), GROUP)


def test_codes_that_are_nan_are_refused() -> None:
    with pytest.raises(ModelError, match="1 of 2 codes of f8row are NaN"):
        load.codes("f8row", np.array([0x7F, 0x7E], np.uint8), (1, 2), np.ones(1, np.float32))


def test_values_are_codes_times_scales() -> None:
    codes = np.array([0x38, 0x7E, 0x01, 0x80], np.uint8)
    assert load.unpack("f8row", codes, (2, 2), np.float32([2, 4])).tolist() == [[2, 896], [2.0**-7, 0]]


def test_the_peak_of_a_group_takes_the_largest_code() -> None:
    stored = load.quantize("f8g128", np.tile(np.float32([1, -3.5]), (1, 100)))
    assert stored.codes.max() == 0xFE and stored.scales is not None and stored.scales.shape == (1, 2)
    assert stored.scales[0, 1] == np.float32(3.5) / np.float32(448)

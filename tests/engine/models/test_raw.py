"""Cutting and reordering stored tensors moves whole rows and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.engine.models import raw
from octavo.platforms.types import RawTensor
from octavo.quant.load import pack, unpack


def tensor(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], form: str = "f32") -> RawTensor:
    stored = np.ascontiguousarray(pack(form, values)).view(np.uint8).reshape(-1)
    return RawTensor("w", form, values.shape, stored)


@pytest.mark.parametrize("form", ["f32", "bf16", "q8_0", "q4_1"])
def test_rows_are_cut_and_unpaired_in_their_own_format(form: str) -> None:
    values = np.random.default_rng(3).standard_normal((16, 64)).astype(np.float32)
    whole = unpack(form, tensor(values, form).data, (16, 64))
    cut = raw.rows_of(tensor(values, form), 4, 9, "part")
    assert cut.shape == (5, 64) and np.array_equal(raw.floats_of(cut), whole[4:9])
    paired = whole.reshape(2, 2, 4, 64).swapaxes(1, 2).reshape(16, 64)  # two heads, as llama.cpp stores them
    back = raw.unpair_rows(tensor(paired, "f32"), 2, 8)
    assert np.array_equal(raw.floats_of(back), whole)


def test_a_partial_rotation_leaves_the_rest_of_the_head_alone() -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert raw.floats_of(raw.unpair_rows(tensor(rows), 1, 4))[:, 0].tolist() == [0, 2, 1, 3, 4, 5, 6, 7]


def test_columns_and_joined_vectors() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(raw.floats_of(raw.columns_of(tensor(values), 1, 3, "mid")), values[:, 1:3])
    a, b = np.float32([1, 2]), np.float32([3])
    mixed = raw.joined([tensor(a), tensor(b, "bf16")])
    assert mixed.format == "f32" and raw.floats_of(mixed).tolist() == [1, 2, 3]


def test_a_part_that_is_no_vector_of_floats_is_not_read_as_one() -> None:
    flags = RawTensor("v.bias", "bool", (2,), np.ones(2, np.uint8))
    with pytest.raises(ModelError, match=r"v\.bias: vectors are f32, f16, bf16, found bool"):
        raw.joined([tensor(np.float32([1, 2])), flags])


def test_expanding_is_exact() -> None:
    values = np.random.default_rng(4).standard_normal((2, 32)).astype(np.float32)
    stored = tensor(values, "q4_0")
    assert np.array_equal(raw.floats_of(raw.expanded(stored)), unpack("q4_0", stored.data, stored.shape))

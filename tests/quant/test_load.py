"""Names to formats, functions and numpy types."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.quant import load
from octavo.quant.formats import BY_NAME


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("float32", "f32"), ("torch.bfloat16", "bf16"), ("half", "f16"), ("BF16", "bf16"), ("q4_k", "q4_k")],
)
def test_dtype_names_of_configurations_are_understood(dtype: str, name: str) -> None:
    assert load.from_dtype_name(dtype) is BY_NAME[name]


def test_an_unknown_dtype_is_one_clear_error() -> None:
    with pytest.raises(ModelError, match="'complex64'"):
        load.from_dtype_name("complex64")


def test_plain_number_types_become_arrays() -> None:
    values = np.arange(-3, 3, dtype=np.int32).reshape(2, 3)
    raw = values.view(np.uint8).reshape(-1)
    assert np.array_equal(load.as_array("i32", raw, (2, 3)), values)
    assert load.unpack("i32", raw, (2, 3)).tolist() == values.tolist()
    assert load.numpy_dtype(BY_NAME["i64"]) == np.dtype("<i8")
    assert load.numpy_dtype(BY_NAME["q4_0"]) is None
    with pytest.raises(ModelError, match="numpy type"):
        load.as_array("bf16", np.zeros(4, np.uint8), (2,))


def test_formats_known_by_size_only_say_which_ones_can_be_used() -> None:
    with pytest.raises(ModelError, match=r"iq4_nl.*q4_0"):
        load.unpack("iq4_nl", np.zeros(18, np.uint8), (32,))
    with pytest.raises(ModelError, match="no codes"):
        load.codes("f32", np.zeros(4, np.uint8), (1,))


def test_unaligned_bytes_are_read() -> None:
    raw = np.zeros(9, np.uint8)
    raw[1:] = np.array([1.5, -2.0], np.float32).view(np.uint8)
    assert load.unpack("f32", raw[1:], (2,)).tolist() == [1.5, -2.0]


def test_type_ids_of_both_file_formats_resolve() -> None:
    assert load.from_gguf_type(12) is BY_NAME["q4_k"]
    assert load.from_gguf_type(9999) is None
    assert load.from_safetensors_dtype("BF16") is BY_NAME["bf16"]
    assert load.from_safetensors_dtype("X") is None

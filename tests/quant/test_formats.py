"""The table of formats is consistent in itself and with every format file."""

from __future__ import annotations

from importlib import import_module

import gguf
import pytest

from octavo.engine.errors import ModelError
from octavo.quant.formats import BY_GGUF_TYPE, BY_NAME, BY_SAFETENSORS_DTYPE, FORMATS, format_named

COMPUTED = [f for f in FORMATS if f.is_supported and (f.is_quantized or f.name in ("f32", "f16", "bf16"))]


def test_names_and_ids_are_unique() -> None:
    assert len(BY_NAME) == len(FORMATS)
    assert len(BY_GGUF_TYPE) == sum(f.gguf_type is not None for f in FORMATS)
    assert len(BY_SAFETENSORS_DTYPE) == sum(f.safetensors_dtype is not None for f in FORMATS)


@pytest.mark.parametrize("form", [f for f in FORMATS if f.gguf_type is not None], ids=lambda f: f.name)
def test_gguf_sizes_agree_with_the_gguf_package(form) -> None:
    kind = gguf.GGMLQuantizationType(form.gguf_type)
    assert kind.name.lower() == form.name
    assert gguf.GGML_QUANT_SIZES[kind] == (form.block_size, form.block_bytes)


def test_every_gguf_type_of_a_weight_is_known_by_size() -> None:
    unknown = {kind.name for kind in gguf.GGML_QUANT_SIZES if kind.value not in BY_GGUF_TYPE}
    assert unknown <= {"Q8_1", "Q8_K", "Q1_0"}  # activation formats, and one without files in the wild


@pytest.mark.parametrize("form", COMPUTED, ids=lambda f: f.name)
def test_every_computed_format_has_its_file_and_formula(form) -> None:
    module = import_module(f"octavo.quant.{form.name}")
    assert module.FORMAT is form
    assert form.has_scales_apart or form.block_size % form.group == 0
    assert form.formula.startswith("w = ")
    if form.is_quantized:
        assert ("acc = fma(" in form.formula) == (form.group != 0)


def test_num_bytes_counts_whole_blocks() -> None:
    assert BY_NAME["q4_k"].num_bytes((3, 512)) == 3 * 2 * 144
    assert BY_NAME["f32"].num_bytes(()) == 4
    with pytest.raises(ModelError, match="rows of 255"):
        BY_NAME["q4_k"].num_bytes((256, 255))


def test_bits_per_weight_counts_scales() -> None:
    assert BY_NAME["q4_0"].bits_per_weight == 4.5
    assert BY_NAME["q6_k"].bits_per_weight == 6.5625


def test_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"'q9_z'.*q4_0"):
        format_named("q9_z")


def test_a_row_too_long_for_int32_sums_is_refused() -> None:
    form = BY_NAME["w8a8"]
    assert form.max_inputs * 128 * 127 < 1 << 31 <= (form.max_inputs + 2048) * 128 * 127
    assert form.num_bytes((1, form.max_inputs)) == form.max_inputs
    with pytest.raises(ModelError, match="at most 131072 elements, so that sums fit 32 bits"):
        form.num_bytes((3, form.max_inputs + 1))


def test_groups_of_a_row_count_a_short_one() -> None:
    assert [BY_NAME["i4g64"].num_groups(k) for k in (8, 64, 72, 576)] == [1, 1, 2, 9]
    assert BY_NAME["w8a8"].num_groups(4096) == 1
    assert BY_NAME["mxfp8"].bits_per_weight == 8.25 and BY_NAME["mxfp4"].bits_per_weight == 4.25
    assert BY_NAME["i4g128"].bits_per_weight == 4.125 and BY_NAME["w8a8"].bits_per_weight == 8

"""Weights taken into x86 panels: what is not finite or does not fit is refused by name; quantizing gives the bits of quant."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases.common import APART_FORMATS, FLOAT_FORMATS, GROUP_FORMATS, K_FORMATS, normal, stored
from tests.kernels.panels import _HALVES

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms import stored as reading
from octavo.platforms.cpu.module import load
from octavo.platforms.cpu.packed_cache import PackedCache
from octavo.platforms.cpu.weights import APART, PACKED, PackedWeights
from octavo.platforms.recorded.native import Native
from octavo.platforms.reference.weights import ReferenceWeights
from octavo.platforms.types import RawTensor

try:
    NATIVE = Native(load())
except PlatformError as error:
    pytest.skip(str(error), allow_module_level=True)
TEAM = NATIVE.module.Team(2, 100)
FORMATS = (*FLOAT_FORMATS, *GROUP_FORMATS, *K_FORMATS, *APART_FORMATS)


def weights(**more: Any) -> PackedWeights:
    return PackedWeights(NATIVE, TEAM, **more)


def damaged(form: str, bad: float, row: int = 4) -> RawTensor:
    """A tensor with one value or scale of `row` that is not finite."""
    raw = stored("w", normal("w", 20, 512), form)
    if raw.scales is not None:
        return replace(raw, scales=damaged_scale(raw.scales, row, bad))
    data = raw.data.copy().reshape(20, -1)
    if form in FLOAT_FORMATS:
        bits = {"f32": np.float32(bad).view(np.uint32), "f16": np.float16(bad).view(np.uint16)}
        bits["bf16"] = np.uint16(int(np.float32(bad).view(np.uint32)) >> 16)
        words = data.view(bits[form].dtype)
        words[row, 3] = bits[form]
    else:
        at = _HALVES[form][-1]
        data[row, at : at + 2] = np.array([bad], np.float16).view(np.uint8)
    return replace(raw, data=data.reshape(-1))


def damaged_scale(scales: RawTensor, row: int, bad: float) -> RawTensor:
    values = reading.values_of(scales).copy()
    values[row, -1] = bad
    return stored(scales.name, values, scales.format)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_by_name_and_place(form: str, bad: float) -> None:
    good, raw = stored("good", normal("g", 16, 512), form), damaged(form, bad)
    for taken in (weights(), ReferenceWeights()):
        with pytest.raises(ModelError, match=r"^w: (column|scale or minimum) \d+ of row 4 holds (nan|inf|-inf), and"):
            taken.linear([good, raw])


@pytest.mark.parametrize("form", FLOAT_FORMATS)
def test_a_transposed_tensor_says_how_its_place_counts(form: str) -> None:
    with pytest.raises(ModelError, match=r"w: stored \[in, out\], column 3 of row 4"):
        weights().linear([damaged(form, np.inf)], transpose=True)


@pytest.mark.parametrize("form", ["bf16", "q6_k"])
def test_tables_and_vectors_are_searched_too(form: str) -> None:
    for taken in (weights(), ReferenceWeights()):
        with pytest.raises(ModelError, match=r"w: .* of row 4 holds inf"):
            taken.embedding(damaged(form, np.inf))
        with pytest.raises(ModelError, match="b: place 2 holds nan"):
            taken.vector(stored("b", np.array([0, 1, np.nan], np.float32)))


def test_a_table_is_not_read_again_where_an_earlier_load_kept_the_model(tmp_path: Any) -> None:
    first = PackedCache(tmp_path, b"origin", b"identity")
    weights(cache=first).linear([stored("w", normal("w", 16, 64), "bf16")])
    first.save()
    table = damaged("bf16", np.nan)
    assert weights(cache=PackedCache(tmp_path, b"origin", b"identity")).embedding(table).num_rows == 20
    with pytest.raises(ModelError, match="w: "):
        weights(cache=PackedCache(tmp_path, b"origin", b"other")).embedding(table)


def test_a_table_that_was_packed_as_a_head_is_not_read_again() -> None:
    taken = weights()
    taken.linear([stored("w", normal("w", 16, 64), "bf16")])
    assert taken.embedding(damaged("bf16", np.nan)).num_rows == 20  # of the same name: taken to be what was searched
    with pytest.raises(ModelError, match="w: "):
        weights().embedding(damaged("bf16", np.nan))


def test_a_dry_run_reads_nothing() -> None:
    dry = weights(is_dry=True)
    assert dry.linear([damaged("bf16", np.nan)], quantize="w8a8").format == "w8a8"
    dry.embedding(damaged("bf16", np.nan))
    assert dry.packed_bytes == 2 * (512 * 16 + 64)


@pytest.mark.parametrize("form", [*PACKED, *APART])
@pytest.mark.parametrize("source", FLOAT_FORMATS)
def test_quantizing_on_the_way_gives_the_bits_of_quant(form: str, source: str) -> None:
    if form in FLOAT_FORMATS:
        return
    parts = [stored(f"part{i}", normal(f"part{i}", n, 512, scale=0.2), source) for i, n in enumerate((70, 33))]
    got = weights().linear(parts, quantize=form)
    want = weights().linear([reading.quantized(part, form) for part in parts])
    assert (got.format, got.packed) == (want.format, want.packed)
    assert np.array_equal(got.held, want.held)
    turned = [replace(p, shape=p.shape[::-1], data=_turned(p)) for p in parts]
    assert np.array_equal(weights().linear(turned, quantize=form, transpose=True).held, want.held)


def _turned(raw: RawTensor) -> np.ndarray:
    n, k = raw.shape
    return np.ascontiguousarray(raw.data.reshape(n, k, -1).transpose(1, 0, 2)).reshape(-1)


@pytest.mark.parametrize("transpose", [False, True])
def test_runs_that_threads_quantize_side_by_side_keep_their_places(transpose: bool) -> None:
    shape = (256, 1003) if transpose else (1003, 256)
    raw = stored("w", normal("w", *shape), "f32")
    found = {}
    for threads in (1, 3):
        runs = list(reading.quantized_rows(raw, "q8_0", transpose=transpose, elements=256 * 48, num_threads=threads))
        assert [start for start, _ in runs] == list(range(0, 1003, 48))
        found[threads] = np.concatenate([piece.data for _, piece in runs])
    assert np.array_equal(found[1], found[3])
    assert np.array_equal(found[1], reading.quantized(raw, "q8_0", transpose=transpose).data)


def test_quantizing_takes_runs_of_rows_not_the_whole_tensor() -> None:
    raw = stored("w", np.ones((1 << 13, 1 << 10), np.float32), "bf16")  # 16 MiB, 32 MiB as float32
    for form in ("w8a8", "i4g32", "q8_0", "q4_k"):
        taken = weights()
        taken.linear([stored("w", np.ones((16, 1 << 10), np.float32), "bf16")], quantize=form)  # the slab
        tracemalloc.start()
        taken.linear([raw], quantize=form)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30 << 20, (form, peak)


def test_only_floats_are_quantized() -> None:
    for taken in (weights(), ReferenceWeights()):
        with pytest.raises(ModelError, match=r"w: quantizing to w8a8 .* stored as q4_0; only f32, f16, bf16 tensors"):
            taken.linear([stored("w", normal("w", 16, 64), "q4_0")], quantize="w8a8")
        with pytest.raises(ModelError, match=r"w: column 3 of row 4 holds nan"):
            taken.linear([damaged("bf16", np.nan)], quantize="w8a8")
        same = stored("w", normal("w", 16, 64), "q8_0")
        assert taken.linear([same], quantize="q8_0").format == "q8_0"  # it is that already


def test_rows_that_a_format_cannot_hold_are_refused() -> None:
    for taken in (weights(), ReferenceWeights()):
        with pytest.raises(ModelError, match="blocks of 256"):
            taken.linear([stored("w", normal("w", 16, 64), "bf16")], quantize="q4_k")
        long = RawTensor("w", "bf16", (1, (1 << 17) + 64), np.zeros(2 * ((1 << 17) + 64), np.uint8))
        with pytest.raises(ModelError, match="at most 131072"):
            taken.linear([long], quantize="w8a8")


@pytest.mark.parametrize("form", [name for name in PACKED if name not in FLOAT_FORMATS])
def test_a_packed_weight_takes_the_bytes_of_its_file(form: str) -> None:
    raw = stored("w", normal("w", 32, 512), form)
    taken = weights()
    taken.linear([raw])
    assert taken.packed_bytes <= 1.04 * raw.data.nbytes  # six-bit sub-scales take bytes


def test_layouts_that_differ_cannot_be_stacked() -> None:
    parts = [stored("a", normal("a", 16, 64), "i4g32"), stored("b", normal("b", 16, 64), "i4g32+z")]
    with pytest.raises(PlatformError, match="differ in format: a is i4g32, b is i4g32"):
        weights().linear(parts)


def test_an_unknown_format_names_those_that_run() -> None:
    raw = RawTensor("w", "i8", (16, 64), np.zeros(1024, np.uint8))
    with pytest.raises(PlatformError, match=r"w: no x86 kernel runs format i8; it runs f32, .*, w8a8, i4g32"):
        weights().linear([raw])

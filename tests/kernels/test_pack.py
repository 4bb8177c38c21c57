"""pack_*: checkpoint rows to panels, byte for byte, at every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels import apart
from tests.kernels.harness import Kernel, aligned, run, variants
from tests.kernels.panels import _HALVES, BLOCKS, DENSE, packed_bytes, panels, stored

from octavo.platforms.stored import rows_of
from octavo.platforms.types import RawTensor

EMPTY_RECORD = 0xA5


def pack(kernel: Kernel, source: np.ndarray, n: int, k: int, packed: np.ndarray, **more: Any) -> bool:
    fields = {
        "source": source,
        "row_bytes": source.strides[0],
        "n": n,
        "k": k,
        "packed": packed,
        "first_row": more.get("first_row", 0),
        "total_n": more.get("total_n", n),
        "transposed": more.get("transposed", 0),
        "flags": more.get("flags", 0),
        "scales": more.get("scales"),
        "zeros": more.get("zeros"),
        "groups": more.get("groups", 0),
        "bad": (bad := np.zeros(1, np.int32)),
    }
    run(kernel, fields, threads=more.get("threads", 1))
    return bool(bad[0])


def pack_apart(kernel: Kernel, name: str, raw: RawTensor, packed: np.ndarray, **more: int) -> bool:
    zeros = None if raw.zeros is None else raw.zeros.data
    apart_fields = {"flags": apart.layout(name).flags, "scales": raw.scales.data, "zeros": zeros}
    source = raw.data.reshape(raw.shape[0], -1)
    return pack(kernel, source, *raw.shape, packed, groups=raw.scales.shape[1], **apart_fields, **more)


def apart_names(kernel: Kernel) -> list[str]:
    return [name for name in apart.NAMES if f"pack_{apart.layout(name).op}" == kernel.op]


def name_of(kernel: Kernel) -> str:
    return kernel.op.removeprefix("pack_")


@pytest.mark.parametrize("kernel", variants(*(f"pack_{name}" for name in (*DENSE, *BLOCKS))))
@pytest.mark.parametrize("n", [1, 15, 16, 17, 48])
def test_panels_hold_every_code_and_scale_of_the_rows(kernel: Kernel, n: int) -> None:
    name = name_of(kernel)
    k = 768 if name in BLOCKS else 96
    raw = stored(name, n, k, seed=n)
    packed = aligned(packed_bytes(name, n, k) + 64, np.uint8)
    packed[:] = EMPTY_RECORD
    pack(kernel, raw, n, k, packed, threads=2)
    assert np.array_equal(packed[:-64], panels(name, raw, k))
    assert (packed[-64:] == EMPTY_RECORD).all()


@pytest.mark.parametrize("kernel", variants("pack_bf16", "pack_f32", "pack_q4_1", "pack_q6_k"))
@pytest.mark.parametrize("parts", [(16, 16), (7, 20, 6), (40, 1, 1)])
def test_stacked_tensors_become_one_weight(kernel: Kernel, parts: tuple[int, ...]) -> None:
    name, k, total = name_of(kernel), 256, sum(parts)
    raw = stored(name, total, k, seed=3)
    packed = aligned(packed_bytes(name, total, k), np.uint8)
    packed[:] = EMPTY_RECORD
    first = 0
    for n in parts:
        pack(kernel, raw[first : first + n], n, k, packed, first_row=first, total_n=total)
        first += n
    assert np.array_equal(packed, panels(name, raw, k))


@pytest.mark.parametrize("kernel", variants(*(f"pack_{name}" for name in DENSE)))
@pytest.mark.parametrize(("n", "k"), [(16, 32), (17, 33), (5, 1), (33, 70)])
def test_dense_rows_of_any_length_and_transposed_sources(kernel: Kernel, n: int, k: int) -> None:
    name = name_of(kernel)
    raw = stored(name, n, k, seed=4)
    word = np.uint32 if name == "f32" else np.uint16
    turned = np.ascontiguousarray(raw.view(word).reshape(n, k).T).view(np.uint8)
    for source, transposed in ((raw, 0), (turned, 1)):
        packed = aligned(packed_bytes(name, n, k), np.uint8)
        packed[:] = EMPTY_RECORD
        pack(kernel, source, n, k, packed, transposed=transposed)
        assert np.array_equal(packed, panels(name, raw, k)), transposed


@pytest.mark.parametrize("kernel", variants("pack_w8a8", "pack_i4"))
@pytest.mark.parametrize(("n", "k"), [(1, 8), (15, 64), (16, 96), (17, 136), (48, 576), (33, 1000)])
def test_panels_hold_codes_scales_and_zero_points_kept_apart(kernel: Kernel, n: int, k: int) -> None:
    for name in apart_names(kernel):
        raw = apart.tensor(name, n, k, seed=n)
        want = apart.panels(name, raw)
        packed = aligned(want.size + 64, np.uint8)
        packed[:] = EMPTY_RECORD
        assert not pack_apart(kernel, name, raw, packed, threads=2)
        assert np.array_equal(packed[:-64], want), name
        assert (packed[-64:] == EMPTY_RECORD).all()


@pytest.mark.parametrize("kernel", variants("pack_w8a8", "pack_i4"))
@pytest.mark.parametrize("parts", [(16, 16), (7, 20, 6), (40, 1, 1)])
def test_stacked_tensors_with_scales_apart_become_one_weight(kernel: Kernel, parts: tuple[int, ...]) -> None:
    for name in apart_names(kernel):
        raw = apart.tensor(name, sum(parts), 200, seed=3)
        want = apart.panels(name, raw)
        packed = aligned(want.size, np.uint8)
        packed[:] = EMPTY_RECORD
        first = 0
        for n in parts:
            pack_apart(kernel, name, rows_of(raw, first, first + n), packed, first_row=first, total_n=sum(parts))
            first += n
        assert np.array_equal(packed, want), name


INFINITIES = {"f32": (np.uint32, 0x7F800000), "f16": (np.uint16, 0x7C00), "bf16": (np.uint16, 0x7F80)}


@pytest.mark.parametrize("kernel", variants(*(f"pack_{name}" for name in (*DENSE, *BLOCKS))))
@pytest.mark.parametrize("sign", [0, 1])
def test_what_is_not_finite_is_noted_wherever_it_stands(kernel: Kernel, sign: int) -> None:
    name, n, k = name_of(kernel), 19, 512
    clean = stored(name, n, k, seed=2)
    packed = aligned(packed_bytes(name, n, k), np.uint8)
    assert not pack(kernel, clean, n, k, packed)
    places = [(0, 0), (18, clean.shape[1] - 4)] if name in DENSE else [(0, at) for at in _HALVES[name]]
    if name not in DENSE:
        last = clean.shape[1] // (k // _inputs(name)) * (k // _inputs(name) - 1)
        places += [(18, last + at) for at in _HALVES[name]]
    word, infinity = INFINITIES[name if name in DENSE else "f16"]
    for row, at in places:
        for bits in (infinity, infinity | 1):  # an infinity and a NaN
            raw = clean.copy()
            size = np.dtype(word).itemsize
            value = bits | sign << (8 * size - 1)
            raw[row, at : at + size] = np.array([value], word).view(np.uint8)
            for threads in (1, 2):
                assert pack(kernel, raw, n, k, packed, threads=threads), (row, at, bits)
    largest = clean.copy()  # the largest finite value is no error
    largest[0, places[0][1] : places[0][1] + np.dtype(word).itemsize] = np.array([infinity - 1], word).view(np.uint8)
    assert not pack(kernel, largest, n, k, packed)


def _inputs(name: str) -> int:
    from octavo.quant.formats import format_named

    return format_named(name).block_size


@pytest.mark.parametrize("kernel", variants("pack_w8a8", "pack_i4"))
def test_a_scale_apart_that_is_not_finite_is_noted(kernel: Kernel) -> None:
    for name in apart_names(kernel):
        raw = apart.tensor(name, 19, 200)
        packed = aligned(apart.panels(name, raw).size, np.uint8)
        groups = raw.scales.shape[1]
        for row, group, value in ((0, 0, np.inf), (18, groups - 1, -np.inf), (5, groups // 2, np.nan)):
            assert pack_apart(kernel, name, apart.with_scale(raw, row, group, value), packed), (name, row)
        assert not pack_apart(kernel, name, apart.with_scale(raw, 3, 0, 60000.0), packed)

"""pack_*: checkpoint rows to panels, byte for byte, at every level."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.harness import Kernel, aligned, run, variants
from tests.kernels.panels import BLOCKS, DENSE, packed_bytes, panels, stored

EMPTY_RECORD = 0xA5


def pack(kernel: Kernel, source: np.ndarray, n: int, k: int, packed: np.ndarray, **more: int) -> None:
    fields = {
        "source": source,
        "row_bytes": source.strides[0],
        "n": n,
        "k": k,
        "packed": packed,
        "first_row": more.get("first_row", 0),
        "total_n": more.get("total_n", n),
        "transposed": more.get("transposed", 0),
    }
    run(kernel, fields, threads=more.get("threads", 1))


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

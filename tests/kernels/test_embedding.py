"""embedding_*: rows decoded exactly as `quant` unpacks them, at every level."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.harness import Kernel, aligned, make_step, run, same_bits, variants
from tests.kernels.panels import BLOCKS, DENSE, stored

from octavo.platforms.reference import f32
from octavo.quant import load

SOURCES = ("token_ids", "positions", "token_types")


def look_up(kernel: Kernel, raw: np.ndarray, width: int, ids: np.ndarray, **more: float) -> np.ndarray:
    y = aligned((len(ids), width + 5), np.float32)
    y[:] = 77
    source = int(more.get("source", 0))
    step = make_step(kernel.module, len(ids), **{SOURCES[source]: ids})
    fields = {
        "table": raw, "row_bytes": raw.shape[1], "num_rows": len(raw), "width": width, "y": y, "ldy": y.shape[1],
        "scale": more.get("scale", 1.0), "source": source,
    }  # fmt: skip
    run(kernel, fields, step=step, threads=2)
    assert (y[:, width:] == 77).all()
    return y[:, :width]


@pytest.mark.parametrize("kernel", variants(*(f"embedding_{name}" for name in (*DENSE, *BLOCKS))))
def test_rows_have_the_bits_of_unpack(kernel: Kernel) -> None:
    name = kernel.op.removeprefix("embedding_")
    for width in (768,) if name in BLOCKS else (1, 7, 8, 16, 33, 100):
        raw = stored(name, 11, width, seed=width)
        ids = np.array([10, 0, 3, 3, 7, 9, 1], np.int32)
        want = load.unpack(name, raw.reshape(-1), (11, width))[ids]
        for source in range(3):
            assert same_bits(look_up(kernel, raw, width, ids, source=source), want)
        scaled = look_up(kernel, raw, width, ids, scale=np.sqrt(640.0))
        assert same_bits(scaled, f32.mul(want, np.float32(np.sqrt(640.0))))

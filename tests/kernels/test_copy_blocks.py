"""copy_blocks moves whole pages in order, and a partly filled copy behaves like the original."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, batch_of, eager, kv_spec, levels, lowest, native, random_inputs

from octavo.platforms.recorded.symbols import page_bytes


def copy(ops: object, pairs: list[tuple[int, int]], size: int) -> None:
    flat = np.array([len(pairs), *(page for pair in pairs for page in pair)], np.int32)
    module = ops.native.module
    program = module.Program()
    name = f"copy_blocks__{lowest()}"
    program.add([(0, name)], (3, 1), {"pairs": flat.ctypes.data, "page_bytes": size})
    step = module.Step(0, 0, 0, None, None, None, None, None, None, None, ops.pages.address, [])
    program.run(ops.team, step, 0, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_pages_are_copied_in_order_and_no_other_is_touched(threads: int) -> None:
    spec = kv_spec("f32", 4, 128, layers=2)
    size = page_bytes(spec)
    assert size > 3 * (64 << 10) and size % (64 << 10) == 0
    ops = eager(lowest(), spec, 6, threads)
    pages = np.frombuffer(ops.pages, np.uint8).reshape(6, size)
    pages[:] = np.random.default_rng(1).integers(0, 256, pages.shape, np.uint8)
    wanted = pages.copy()
    wanted[4] = wanted[2]
    wanted[5] = wanted[4]
    wanted[2] = wanted[1]
    copy(ops, [(2, 4), (4, 5), (1, 2), (3, 3)], size)
    assert np.array_equal(pages, wanted)
    copy(ops, [], size)
    assert np.array_equal(pages, wanted)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "int8", "fp8"])
@pytest.mark.parametrize("level", levels("paged_attention_bf16"))
def test_a_partly_filled_copy_continues_like_the_original(level: str, dtype: str) -> None:
    """The source's later tokens, NaN from a neighbour among them, never show in the request that reuses 7 of its tokens."""
    spec = kv_spec(dtype, 2, 32)
    x = random_inputs([40], 4, 2, 32)
    alone = native(level, spec, 8, 4)
    tables = np.array([[1, 2]], np.int32)
    alone.step(batch_of([(0, 7)], tables), *x.step([(0, 7)]))
    wanted = alone.step(batch_of([(7, 5)], tables), *x.step([(7, 5)]))

    shared = native(level, spec, 8, 4)
    shared.step(batch_of([(0, 7)], np.array([[3]], np.int32)), *x.step([(0, 7)]))
    garbage = random_inputs([32], 4, 2, 32, seed=9)
    for rows in (garbage.k[0], garbage.v[0]):
        rows[7:] = np.nan
    q, k, v = garbage.step([(7, 25)])
    shared.step(batch_of([(7, 25)], np.array([[3]], np.int32)), q, k, v)
    copy(shared.ops, [(3, 5)], page_bytes(spec))
    assert_bits(shared.step(batch_of([(7, 5)], np.array([[5, 6]], np.int32)), *x.step([(7, 5)])), wanted)

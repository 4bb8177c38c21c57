"""kv_append puts every token where the page layout says, rounded as the reference rounds, and touches nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import batch_of, kv_spec, levels, native, random_inputs, tables_of, typed

from octavo.platforms.recorded.symbols import kv_head_bytes, page_bytes
from octavo.platforms.reference.kv import K, PagePool, V
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.types import KVSpec
from octavo.quant.fp8 import E4M3FN

DTYPES = {"f32": np.uint32, "bf16": np.uint16, "f16": np.uint16, "int8": np.uint8, "fp8": np.uint8}
CASES = typed("kv_append", tuple(DTYPES))


def unpack(raw: np.ndarray, spec: KVSpec, layer: int, which: int) -> tuple[np.ndarray, np.ndarray | None]:
    """([page, kv head, token, dim] bits, [page, kv head, token] scales) by the layout text of contract/attention.h."""
    block, dim, heads = spec.block_tokens, spec.head_dim, spec.num_kv_heads
    size = kv_head_bytes(spec)
    of_layer = raw.reshape(-1, page_bytes(spec))[:, layer * heads * size : (layer + 1) * heads * size]
    of_head = of_layer.reshape(-1, heads, size)
    width = np.dtype(DTYPES[spec.dtype]).itemsize
    share = block * dim * width
    tiles = np.ascontiguousarray(of_head[..., which * share : (which + 1) * share]).view(DTYPES[spec.dtype])
    if which == K:
        split = tiles.reshape(-1, heads, block // 32, dim // 2, 32, 2)
        found = np.moveaxis(split, 3, 4).reshape(-1, heads, block, dim)
    else:
        split = tiles.reshape(-1, heads, block // 32, 16, dim, 2)
        found = np.moveaxis(split, 5, 4).reshape(-1, heads, block, dim)
    if not spec.has_scales:
        return found, None
    scales = np.ascontiguousarray(of_head[..., 2 * share :]).view(np.uint32).reshape(-1, heads, 2, block)
    return found, scales[:, :, which]


@pytest.mark.parametrize("block_tokens", [32, 64])
@pytest.mark.parametrize(("dtype", "name", "level"), CASES)
def test_pages_hold_what_the_reference_holds(dtype: str, name: str, level: str, block_tokens: int) -> None:
    lengths = [(0, 70), (33, 1), (0, 1), (31, 2), (60, 10)]
    totals = [before + n for before, n in lengths]
    for dim in (2, 30, 64):
        spec = kv_spec(dtype, 3, dim, block_tokens)
        tables, pages = tables_of(totals, block_tokens)
        x = random_inputs(totals, 3, 3, dim)
        x.k[0][5], x.v[0][6], x.k[1][33, :2] = 0, 1e-39, (7e4, -3e38)
        wanted_pool = PagePool(spec, pages)
        ops = ReferenceOps(wanted_pool)
        mine = native(level, spec, pages, 3, threads=2)
        before = np.frombuffer(mine.ops.pages, np.uint8).copy()
        _, k, v = x.step(lengths)
        for platform in (ops, mine.ops):
            platform.begin(batch_of(lengths, tables))
            with np.errstate(all="ignore"):
                platform.kv_append(k, v, layer=1)
        raw = np.frombuffer(mine.ops.pages, np.uint8)
        for which in (K, V):
            found, scales = unpack(raw, spec, 1, which)
            untouched, old_scales = unpack(before, spec, 1, which)
            wanted = wanted_pool.data[:, 1, which].view(DTYPES[dtype])
            written = np.zeros(wanted.shape[:3], bool)
            for s, (start, n) in enumerate(lengths):
                for p in range(start, start + n):
                    written[tables[s, p // block_tokens], :, p % block_tokens] = True
            assert np.array_equal(found[written], wanted[written]), f"{name} dim {dim}: wrong bits"
            assert np.array_equal(found[~written], untouched[~written]), f"{name} dim {dim}: wrote beside its slots"
            if scales is not None and old_scales is not None and wanted_pool.scales is not None:
                assert np.array_equal(scales[written], wanted_pool.scales[:, 1, which].view(np.uint32)[written])
                assert np.array_equal(scales[~written], old_scales[~written])
        other, _ = unpack(raw, spec, 0, K)
        assert np.array_equal(other, unpack(before, spec, 0, K)[0]), "another layer was written"
        assert mine.ops.last_variant("kv_append") == name


@pytest.mark.parametrize(("dtype", "name", "level"), typed("kv_append", ("int8", "fp8")))
def test_a_nan_poisons_its_row_of_codes_only(dtype: str, name: str, level: str) -> None:
    spec = kv_spec(dtype, 1, 32)
    mine = native(level, spec, 2, 1)
    k = np.ones((3, 32), np.float32)
    k[1, 4] = np.nan
    mine.ops.begin(batch_of([(0, 3)], np.array([[1]], np.int32)))
    mine.ops.kv_append(k, np.ones_like(k), layer=1)
    _, scales = unpack(np.frombuffer(mine.ops.pages, np.uint8), spec, 1, K)
    assert scales is not None
    assert np.isnan(scales.view(np.float32)[1, 0, :3]).tolist() == [False, True, False]
    assert mine.ops.last_variant("kv_append") == name


@pytest.mark.parametrize("level", levels("kv_append_fp8"))
def test_e4m3_codes_are_the_nearest_and_never_nan_or_minus_zero(level: str) -> None:
    """Every number that a code stands for, what lies halfway between two and beside that; at scales from the least to large."""
    numbers = np.unique(np.abs(E4M3FN.table[np.isfinite(E4M3FN.table)]))
    halves = (numbers[1:] + numbers[:-1]) / 2
    beside = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    row = np.concatenate([numbers, -numbers, halves, -halves, *beside, [448] * 2, [0] * 14]).astype(np.float32)
    assert len(row) % 2 == 0 and (np.diff(numbers) > 0).all() and len(numbers) == 127
    scales = np.array([2.0**-110, 2.0**-20, 1, 2.0**100, 2.0**119], np.float32)
    k = row[None] * scales[:, None]
    k = np.concatenate([k, np.zeros((1, len(row)), np.float32), np.full((1, len(row)), 1e-44, np.float32), -k[2:3]])
    k[-1, :3] = np.inf, -np.inf, 1
    spec = kv_spec("fp8", 1, len(row))
    mine = native(level, spec, 2, 1)
    mine.ops.begin(batch_of([(0, len(k))], np.array([[1]], np.int32)))
    mine.ops.kv_append(k, -k, layer=1)
    raw = np.frombuffer(mine.ops.pages, np.uint8)
    for which, sign in ((K, 1), (V, -1)):
        codes, found = unpack(raw, spec, 1, which)
        assert found is not None
        codes, found = codes[1, 0, : len(k)], found[1, 0, : len(k)].view(np.float32)
        assert np.array_equal(found[:7], np.append(scales, [0, 0]).astype(np.float32)) and np.isinf(found[7])
        assert not np.isin(codes, (0x7F, 0xFF, 0x80)).any()
        wanted = E4M3FN.encode(sign * row)
        wanted[wanted == 0x80] = 0
        assert (codes[:5] == wanted).all() and not codes[5:7].any()
        if which == K:
            assert np.array_equal(E4M3FN.decode(codes[2][: len(numbers)]), numbers)

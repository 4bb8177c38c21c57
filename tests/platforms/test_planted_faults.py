"""The suite can fail: each classic kernel fault, planted into the reference, changes the bits of a named case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.platforms.cells import reference_cell
from tests.platforms.test_conformance import case_of, reference_result

from octavo.platforms.reference import attention, f32, kv, ops, products
from octavo.platforms.reference.f32 import F32

Patch = Callable[[pytest.MonkeyPatch], None]


def differs(table: str, name: str, patch: Patch) -> bool:
    """True if the case's bits change under a fault."""
    healthy = reference_result(table, name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch)
        module, case = case_of(table, name)
        faulty = np.asarray(module.run(reference_cell(), case))
    return not np.array_equal(faulty.view(np.uint32), healthy.view(np.uint32))


def halves_instead_of_even_and_odd(m: pytest.MonkeyPatch) -> None:
    def chains(x: F32) -> F32:
        parts = x.reshape(*x.shape[:-1], -1, 2, products.BLOCK // 2)
        return np.ascontiguousarray(np.moveaxis(parts, (-1, -2, -3), (0, 1, 2)))

    m.setattr(products, "_chains", chains)


def tail_of_k_dropped(m: pytest.MonkeyPatch) -> None:
    m.setattr(products, "_pad", lambda x: x[..., : x.shape[-1] // products.BLOCK * products.BLOCK])


def blocks_summed_backwards(m: pytest.MonkeyPatch) -> None:
    healthy = products._chains
    m.setattr(products, "_chains", lambda x: healthy(x)[:, :, ::-1])


def denormals_kept(m: pytest.MonkeyPatch) -> None:
    for module in (f32, products, ops, kv, attention):
        if hasattr(module, "flush"):
            m.setattr(module, "flush", lambda x: x)


def add_contracted(m: pytest.MonkeyPatch) -> None:
    def add(self: Any, a: F32, b: F32, *, scale_a: float = 1.0, scale_b: float = 1.0) -> F32:
        return f32.fma32(a, np.float32(scale_a), f32.mul(b, np.float32(scale_b)))

    m.setattr(ops.ReferenceOps, "add", add)


def norm_square_not_fused(m: pytest.MonkeyPatch) -> None:
    m.setattr(ops, "sum16_squares", lambda x: f32.sum16(f32.mul(x, x)))


def eight_lanes(m: pytest.MonkeyPatch) -> None:
    def lanes(x: F32) -> F32:
        pad = np.zeros((*x.shape[:-1], -x.shape[-1] % 8), np.float32)
        steps = np.concatenate([x, pad], axis=-1).reshape(*x.shape[:-1], (x.shape[-1] + 7) // 8, 8)
        return np.concatenate([steps, np.zeros_like(steps)], axis=-1)

    m.setattr(f32, "_lanes", lanes)


def window_one_too_wide(m: pytest.MonkeyPatch) -> None:
    healthy = ops.attend
    m.setattr(ops, "attend", lambda q, at, k, low, high, how: healthy(q, at, k, np.maximum(low - 1, 0), high, how))


def window_one_too_narrow(m: pytest.MonkeyPatch) -> None:
    healthy = ops.attend
    m.setattr(ops, "attend", lambda q, at, k, low, high, how: healthy(q, at, k, np.minimum(low + 1, high), high, how))


def bf16_cut_instead_of_rounded(m: pytest.MonkeyPatch) -> None:
    def cut(x: F32) -> F32:
        return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)

    m.setattr(f32, "to_bf16", cut)


def weights_not_rounded(m: pytest.MonkeyPatch) -> None:
    m.setattr(attention.f32, "to_bf16", lambda x: x)


def scales_applied_one_by_one(m: pytest.MonkeyPatch) -> None:
    """fma(isum * s_a, d, acc) instead of fma(isum, s_a * d, acc)."""

    def integer_dot(x: F32, w: Any) -> F32:
        q, scale = products.quantize_rows(x, 32)
        wide = q.reshape(len(q), -1, 32).astype(float)
        codes = products._integer_weights(w).reshape(len(w.codes), -1, 32)
        acc = np.zeros((len(q), len(codes)), np.float32)
        for g in range(scale.shape[1]):
            isum = (wide[:, g] @ codes[:, g].T).astype(np.float32)
            acc = f32.fma32(f32.mul(isum, scale[:, g, None]), w.d[None, :, g], acc)
        return acc

    m.setattr(ops, "integer_dot", integer_dot)


def groups_backwards(m: pytest.MonkeyPatch) -> None:
    healthy = ops.integer_dot

    def backwards(x: F32, w: Any) -> F32:
        from dataclasses import replace

        block = w.format.block_size
        flipped = w.codes.reshape(len(w.codes), -1, block)[:, ::-1].reshape(w.codes.shape)
        turned = x.reshape(len(x), -1, block)[:, ::-1].reshape(x.shape)
        return healthy(turned, replace(w, codes=flipped, d=w.d[:, ::-1]))

    m.setattr(ops, "integer_dot", backwards)


def segment_of_256(m: pytest.MonkeyPatch) -> None:
    m.setattr(attention, "ATTN_SEGMENT", 256)


def neighbour_row_read(m: pytest.MonkeyPatch) -> None:
    healthy = kv.PagePool.read

    def read(self: kv.PagePool, layer: int, which: int, pages: Any) -> Any:
        values, scales = healthy(self, layer, which, pages)
        return (np.roll(values, 1, axis=1), scales) if which == kv.V else (values, scales)

    m.setattr(kv.PagePool, "read", read)


def sink_left_out(m: pytest.MonkeyPatch) -> None:
    healthy = attention._finish
    m.setattr(attention, "_finish", lambda state, how: healthy(state, attention.Scoring(how.scale, rounds=how.rounds)))


FAULTS: list[tuple[Patch, str, str]] = [
    (halves_instead_of_even_and_odd, "linear", "bf16_64_32"),
    (halves_instead_of_even_and_odd, "paged_attention", "bf16_mixed"),
    (tail_of_k_dropped, "linear", "f32_33_17"),
    (blocks_summed_backwards, "linear", "f32_576_48"),
    (denormals_kept, "add", "denormal"),
    (denormals_kept, "linear", "f32_denormal"),
    (add_contracted, "add", "both"),
    (norm_square_not_fused, "rms_norm", "rows_33_wide"),
    (eight_lanes, "rms_norm", "width_576"),
    (eight_lanes, "paged_attention", "f32_mixed"),
    (window_one_too_wide, "paged_attention", "f32_window_16"),
    (window_one_too_narrow, "paged_attention", "bf16_window_16"),
    (window_one_too_wide, "varlen_attention", "window_4"),
    (bf16_cut_instead_of_rounded, "linear", "bf16_64_32"),
    (weights_not_rounded, "paged_attention", "bf16_mixed"),
    (scales_applied_one_by_one, "linear", "q8_0_256_33"),
    (groups_backwards, "linear", "q4_0_256_33"),
    (segment_of_256, "paged_attention", "bf16_borders"),
    (neighbour_row_read, "paged_attention", "f16_mixed"),
    (sink_left_out, "paged_attention", "f32_sinks"),
]


@pytest.mark.parametrize(("patch", "table", "name"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_fault_changes_the_bits_of_its_case(patch: Patch, table: str, name: str) -> None:
    assert differs(table, name, patch), f"{patch.__name__} went unseen by {table} {name}"


def test_no_fault_changes_nothing() -> None:
    assert not differs("linear", "bf16_64_32", lambda m: None)

"""Ops that run as one launch: the kernel that ran, the bits of the ops apart, and what is left apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ci.gpu import missing
from numpy.typing import NDArray
from tests.engine import bits
from tests.platforms.gpu.host_device import HostDevice, folder

from octavo.platforms import registry
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.registry import Entry
from octavo.platforms.rope import frequencies
from octavo.platforms.selftest.cases import cases
from octavo.platforms.selftest.digest import ReferenceCell, digest
from octavo.platforms.selftest.golden import GOLDEN
from octavo.platforms.selftest.joined import FORMS
from octavo.platforms.selftest.values import batch, one_layer, tensors, values
from octavo.platforms.types import Rope

pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
F32 = NDArray[np.float32]
JOINED = [case for case in cases() if case.name.startswith(("norm and", "layer norm and", "gated", "rope and append"))]
ROPE = Rope(tuple(frequencies("default", {"rope_theta": 10000.0}, 32, max_len=1, max_positions=1)[0]), 32, 1.0, False)


@pytest.fixture
def platform() -> GpuPlatform:
    return GpuPlatform(HostDevice(), folder(64), None, "exact")


@pytest.mark.parametrize("wave", [64, 32])
@pytest.mark.parametrize("case", JOINED, ids=lambda case: case.name)
def test_one_launch_gives_the_bits_of_the_reference(case: Any, wave: int) -> None:
    device = HostDevice(wave)
    platform = GpuPlatform(device, folder(wave), None, "exact")
    assert digest(case.run(platform.selftest.cell(platform.native))) == GOLDEN[case.name]
    if "f16" in case.name and "prepare" in case.covers[0]:
        return  # of products that exact numerics bring no such rows
    assert f"{case.covers[0]}__simt" in device.launched
    apart = ("rms_norm__", "layer_norm__", "rope__", "kv_append_", "prepare_", "gated__")
    once = ("prepare_",) if case.name.startswith("gated") else ()  # of the MLP's own input
    assert not [n for n in device.launched if n.startswith(apart) and not n.startswith((*once, f"{case.covers[0]}__"))]
    device.check()


def ran_together(platform: GpuPlatform, calls: Callable[..., Any], *arrays: F32, **how: Any) -> tuple[Any, list[str]]:
    """The result of a program, and its kernels."""
    cell: Any = platform.selftest.cell(platform.native)
    ops = cell.ops(*how.get("pages", ()))
    if "step" in how:
        ops.begin(how["step"])
    return ops.together(calls, *arrays), ops.ran


def special_rows(width: int) -> F32:
    """Rows of ordinary values, of zeros, of what is not finite, of values that are flushed to zero."""
    rows = values("special", 6, width)
    rows[1] = 0
    rows[2, width // 2], rows[3, width - 1] = np.inf, np.nan
    rows[4] *= np.float32(1e-38)
    rows[5] *= np.float32(1e18)
    return rows


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("width", [256, 9216])  # the second is longer than what shared memory keeps of a row
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_rows_of_any_length_and_content_are_those_of_the_ops_apart(form: str, norm: str, width: int) -> None:
    platform = GpuPlatform(HostDevice(), folder(64), None, "fast" if "f16" in form else "exact")
    native = platform.native
    weight = platform.selftest.cell(native).weights().linear([tensors("w", FORMS[form][0], 5, width)[0]])
    x, scales = special_rows(width), values("scales", width)
    ops: Any = platform.selftest.cell(native).ops()
    given = (scales, 1e-6) if norm == "rms_norm" else (scales, scales, 1e-6)
    apart = ops.linear(getattr(ops, norm)(x, *given), weight)
    together, ran = ran_together(platform, lambda ops, x: ops.linear(getattr(ops, norm)(x, *given), weight), x)
    assert ran[0] == f"{norm}_{form}__simt"
    is_number = ~np.isnan(apart)
    assert (np.isnan(together) == ~is_number).all() and is_number[[0, 1, 4, 5]].all() and not is_number[2:4].any()
    assert (together.view(np.uint32) == apart.view(np.uint32))[is_number].all()


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("name", ["together", "apart"])
def test_a_gated_mlp_of_any_rows_has_the_bits_of_a_cpu(form: str, name: str) -> None:
    """What is not finite, and what is flushed to zero, included; `apart`: kernels that a chip may lack."""
    platform = GpuPlatform(HostDevice(), folder(64), None, "exact")
    if name == "apart":
        for op in [op for op in platform.native.table.choices if op.startswith("gated_prepare_")]:
            del platform.native.table.choices[op]
    parts = [tensors(f"{part} {form}", FORMS[form][0], 256, 256)[0] for part in ("gate", "up", "down")]
    x = special_rows(256)
    cell: Any = platform.selftest.cell(platform.native)
    weights, reference = cell.weights(), ReferenceCell()
    ops = cell.ops()
    got = ops.gated_mlp(x, None, weights.linear(parts[:2]), weights.linear(parts[2:]), "silu", residual=x)
    want = reference.ops().gated_mlp(x, *(reference.weights().linear([part]) for part in parts), "silu", residual=x)
    fused = f"gated_{platform.selftest.cell(platform.native).weights().linear(parts[2:]).packed.prepare}"
    assert (f"{fused}__simt" in ops.ran) == (name == "together" and fused != "gated_")
    is_number = ~np.isnan(want)
    assert (np.isnan(got) == ~is_number).all() and is_number[[0, 1, 4]].all()
    assert (got.view(np.uint32) == want.view(np.uint32))[is_number].all()


def heads_of(ops: Any, x: Any, heads: int) -> Any:
    return ops.rope(x, ROPE, heads=heads)


def test_what_does_not_belong_together_stays_apart(platform: GpuPlatform) -> None:
    other = Rope(ROPE.inv_freq, 32, 2.0, False)
    spec, step = one_layer("bf16", 2, 32), batch([(0, 4)])
    q, k, v = values("q", 4, 128), values("k", 4, 64), values("v", 4, 64)
    weight = platform.selftest.cell(platform.native).weights().linear([tensors("w", "bf16", 5, 64)[0]])

    def attend(ops: Any, q: Any, k: Any, v: Any) -> Any:
        ops.kv_append(k, v, layer=0)
        return ops.paged_attention(q, layer=0, heads=4, scale=0.2)

    def two_tables(ops: Any, q: Any, k: Any, v: Any) -> Any:
        return attend(ops, heads_of(ops, q, 4), ops.rope(k, other, heads=2), v)

    def keys_alone(ops: Any, q: Any, k: Any, v: Any) -> Any:
        return attend(ops, q, heads_of(ops, k, 2), v)

    def a_mark_between(ops: Any, q: Any, k: Any, v: Any) -> Any:
        q, k = heads_of(ops, q, 4), heads_of(ops, k, 2)
        ops.segment("append")
        return attend(ops, q, k, v)

    def heads_of_keys_normed(ops: Any, q: Any, k: Any, v: Any) -> Any:
        return ops.linear(ops.rms_norm(k, None, 1e-6, heads=2), weight)

    for calls in (two_tables, keys_alone, a_mark_between):
        _, ran = ran_together(platform, calls, q, k, v, step=step, pages=(spec, 2))
        assert "kv_append_bf16__simt" in ran and "rope__simt" in ran
    _, ran = ran_together(platform, heads_of_keys_normed, q, k, v, step=step)
    assert ran[:2] == ["rms_norm__simt", "prepare_bf16__simt"]


@pytest.mark.parametrize(
    ("family", "before", "after"), [("llama", 15, 10), ("qwen3", 17, 10), ("gemma3", 21, 12), ("starcoder2", 14, 10)]
)
def test_launches_of_a_layer(
    family: str, before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> GpuPlatform:
        made.append(GpuPlatform(HostDevice(), folder(64), isa, numerics))
        return made[-1]

    monkeypatch.setattr(registry, "PLATFORMS", (Entry("host", lambda: "", make), *registry.PLATFORMS))
    model = bits.write_quantized(family, "bf16", tmp_path / "m.gguf")
    counts = []
    for is_joined in (True, False):
        if not is_joined:
            monkeypatch.setattr("octavo.platforms.gpu.recorder.fused", lambda tail, ops: None)
        recorded = bits.make_core(model, platform="host").runner.executable.recorded
        starts = dict(recorded.segments)
        counts.append(starts["layer 1 attention"] - starts["layer 0 attention"])
    assert counts == [after, before]

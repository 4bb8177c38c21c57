"""Kernels whose last bits differ run only under fast numerics, are tested by value, and never mix with exact results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine import bits
from tests.golden import tiny
from tests.platforms.cells import native_platform
from tests.platforms.recorded.test_selftest import FAULTS, FaultyModule, changed

from octavo.engine.build import fast_kernels
from octavo.engine.config import EngineConfig
from octavo.engine.errors import ConfigError, PlatformError
from octavo.platforms.cpu.module import load, native_module
from octavo.platforms.cpu.selftest import CpuSelfTest
from octavo.platforms.recorded.native import Native
from octavo.platforms.registry import choose_platform
from octavo.platforms.select import FAST_LEVELS


def module_with_fast_levels() -> Any:
    """The native module, or the emulated one, where kernels of fast levels run."""
    for name in (native_module(), "octavo._avx_emulated"):
        try:
            module = load(name)
        except PlatformError:
            continue
        if FAST_LEVELS & set(Native(module, is_fast=True).runnable_levels()):
            return module
    pytest.skip("this processor lacks the fast levels and octavo._avx_emulated is not built")


def fast_choices(native: Native) -> set[str]:
    names = {name for choice in native.table.choices.values() for name in choice.kernels}
    return {name for name in names if name.rsplit("__", 1)[1] in FAST_LEVELS}


def test_exact_numerics_refuse_fast_kernels_and_say_how_to_allow_them() -> None:
    native = Native(module_with_fast_levels())
    assert not fast_choices(native) and not FAST_LEVELS & set(native.runnable_levels())
    refused = [variant for variant in native.variants() if variant.level in FAST_LEVELS]
    assert refused and all("--numerics fast" in variant.reason for variant in refused)


def test_fast_kernels_pass_by_value_where_their_bits_differ() -> None:
    native = Native(module_with_fast_levels(), is_fast=True)
    test = CpuSelfTest(native)
    test.prove_all()
    assert not native.bad_levels and fast_choices(native)
    digests = {case.name: test._run(native, case) for case in test._wanted.values() if "linear_bf16" in case.covers}
    assert any(digest != test.golden[name] for name, digest in digests.items()), "no case tells the orders apart"


def test_wrong_fast_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, "linear_", changed("scale", lambda v: v * 1.001))  # a value, not a last bit
    module = module_with_fast_levels()
    wrong = next(iter(fast_choices(Native(module, is_fast=True))))
    faulty = FaultyModule(wrong)
    faulty.module = module
    native = Native(faulty, is_fast=True)
    CpuSelfTest(native).prove_all()
    assert set(native.bad_levels) == {wrong.rsplit("__", 1)[1]} and not fast_choices(native)


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_prefix_cache_identity_names_inexact_kernels_only(numerics: str) -> None:
    platform = native_platform()(1, numerics=numerics)
    runs_here = bool(FAST_LEVELS & set(Native(platform.native.module, is_fast=True).runnable_levels()))
    assert bool(fast_kernels(platform)) == (numerics == "fast" and runs_here)


def test_fast_answers_are_those_of_exact_but_for_rounding(tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "llama")
    own = bits.prompts((33,))
    exact, fast = (bits.run(bits.make_core(model, numerics=mode), own) for mode in ("exact", "fast"))
    first = min(exact.logits)
    a, b = (np.frombuffer(trace.logits[first], np.float32) for trace in (exact, fast))
    assert np.abs(a - b).max() <= 0.02 * np.abs(a).max()


def test_doctor_measures_what_exact_costs() -> None:
    found = choose_platform(native_platform().name, 1).platform.diagnose()["numerics"]
    assert found["mode"] == "exact"
    for row in found["cost"]:
        assert row["exact_kernel"] != row["fast_kernel"] and row["exact_gflops"] > 0 and row["fast_gflops"] > 0


def test_unknown_numerics_are_an_error() -> None:
    with pytest.raises(ConfigError, match="numerics=loose: allowed are exact, fast"):
        EngineConfig("m", numerics="loose")

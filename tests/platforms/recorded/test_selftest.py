"""A kernel with wrong bits is found at start, its level refused with the reason, and the model's logits stay right."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import make_selftest_golden, tiny
from tests.platforms.cells import native_platform

from octavo.engine.errors import PlatformError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_model
from octavo.platforms.cpu.module import load
from octavo.platforms.cpu.selftest import CpuSelfTest
from octavo.platforms.ops import NUMERICS_VERSION
from octavo.platforms.recorded.native import Native
from octavo.platforms.reference.platform import ReferencePlatform
from octavo.platforms.selftest.cases import cases
from octavo.platforms.selftest.golden import GOLDEN, VERSION

try:
    LEVELS = Native(load()).runnable_levels()
except PlatformError as error:
    pytest.skip(str(error), allow_module_level=True)
needs_two_levels = pytest.mark.skipif(len(LEVELS) < 2, reason="this processor runs the lowest level only")
Fault = Callable[[dict[str, Any]], dict[str, Any]]


def changed(name: str, by: Callable[[Any], Any]) -> Fault:
    return lambda fields: {**fields, name: by(fields[name])}


def swapped(a: str, b: str) -> Fault:
    return lambda fields: {**fields, a: fields[b], b: fields[a]}


#: op prefix -> what a wrong kernel of it does
FAULTS: dict[str, Fault] = {
    "add": changed("scale_a", lambda v: v * 1.0000002),
    "rms_norm": changed("eps", lambda v: v * 2),
    "layer_norm": changed("eps", lambda v: v * 2),
    "rope": changed("rotary_dim", lambda v: v - 2),
    "softcap": changed("cap", lambda v: v * 1.0000002),
    "pool": changed("normalize", lambda v: 1 - v),
    "embedding_": changed("scale", lambda v: v * 1.0000002),
    "kv_append_": swapped("k", "v"),
    "paged_attention_": changed("scale", lambda v: v * 1.001),
    "varlen_attention": changed("scale", lambda v: v * 1.001),
    "relative_attention": changed("scale", lambda v: v * 1.001),
    "linear_": changed("scale", lambda v: v * 1.0000002),
    "prepare_": changed("k", lambda v: v - 1),
    "pack_": changed("n", lambda v: v - 1),
    "gather_rows": changed("width", lambda v: v - 1),
    "copy_blocks": changed("page_bytes", lambda v: v // 2),
    "sample": changed("vocab", lambda v: v - 8),
    "greedy_head": changed("panel_bytes", lambda v: v // 2),
}


class FaultyProgram:
    """A program in which some kernels are wrong."""

    def __init__(self, program: Any, wrong: tuple[str, ...]) -> None:
        self.program = program
        self.wrong = wrong

    def add(self, bands: Any, rows: Any, fields: dict[str, Any]) -> None:
        few = bands[0][1]
        if few in self.wrong:
            fields = next(fault for prefix, fault in FAULTS.items() if few.startswith(prefix))(fields)
        self.program.add(bands, rows, fields)

    def __len__(self) -> int:
        return len(self.program)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


class FaultyModule:
    """The native module, some kernels of which are wrong."""

    def __init__(self, *wrong: str) -> None:
        self.module = load()
        self.wrong = wrong

    def Program(self) -> FaultyProgram:
        return FaultyProgram(self.module.Program(), self.wrong)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def best(op: str) -> str:
    return Native(load()).table[op].few


def above_lowest(*ops: str) -> list[str]:
    """Ops whose best kernel here has another below it: a level that can be refused."""
    return [op for op in ops if not best(op).endswith(f"__{LEVELS[0]}")]


def logits_of(platform: Any, model: Any) -> list[np.ndarray]:
    with Checkpoint.open(model) as checkpoint:
        decoder = load_model(checkpoint, platform.weights(), config=json.loads((model / "config.json").read_text()))
    return drive.run(platform, decoder, [tiny.prompt("llama", 21)], kv_dtype="bf16", block_tokens=32)


@needs_two_levels
@pytest.mark.parametrize("op", above_lowest("rms_norm", "linear_f32", "pack_f32", "rope", "paged_attention_bf16"))
def test_wrong_kernel_is_refused_and_logits_stay_right(
    op: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "llama")
    wrong = native_platform()(1).native.table[op].few  # which passes over what is slow here
    monkeypatch.setitem(sys.modules, "octavo_faulty", FaultyModule(wrong))
    platform = native_platform()(1, module="octavo_faulty")
    level = wrong.rsplit("__", 1)[1]
    assert level in platform.levels
    with caplog.at_level(logging.WARNING, "octavo.platforms"):
        found = logits_of(platform, model)
    expected = logits_of(ReferencePlatform(), model)
    assert [rows.tobytes() for rows in found] == [rows.tobytes() for rows in expected]
    assert set(platform.native.bad_levels) == {level} and level not in platform.levels
    assert len(caplog.records) == 1 and f"{platform.name} level {level} is not used" in caplog.text
    variant = next(v for v in platform.variants() if v.name == wrong)
    assert "self-test failed" in variant.reason and not variant.detail["chosen"]


@needs_two_levels
@pytest.mark.parametrize("op", sorted({row.op for row in Native(load()).rows}))
def test_a_fault_in_any_op_is_found(op: str) -> None:
    native = Native(FaultyModule(best(op)))
    test = CpuSelfTest(native)
    if best(op).endswith(f"__{LEVELS[0]}"):
        with pytest.raises(PlatformError, match="wrong results on this processor"):
            test.prove_all()
    else:
        test.prove_all()
        assert set(native.bad_levels) == {best(op).rsplit("__", 1)[1]}


@needs_two_levels
def test_kernels_of_a_refused_level_do_not_cost_the_others() -> None:
    """What was tested before is tested again as it is chosen once the level is gone, the innocent op too."""
    pairs = (("softcap", "rms_norm"), ("linear_q4g32", "linear_q8g32"))  # of one level, on x86 and on Arm
    wrong, innocent = next(pair for pair in pairs if above_lowest(*pair) == list(pair))
    native = Native(FaultyModule(best(wrong)))
    test = CpuSelfTest(native)
    test.prove({innocent})
    assert not native.bad_levels
    test.prove({wrong})
    assert native.bad_levels and native.table[innocent].few != best(innocent)
    tested = {kernel for _, kernels in test._passed for kernel in kernels}
    assert native.table[innocent].few in tested


def test_damaged_golden_bits_are_an_error_that_says_what_to_do() -> None:
    test = CpuSelfTest(Native(load()), golden={**GOLDEN, "rope": "0" * 16})
    with pytest.raises(PlatformError, match=r"rope fails at every level .*OCTAVO_PLATFORM=reference"):
        test.prove({"rope"})


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_that_runs_here_passes(level: str) -> None:
    native = Native(load(), (level,))
    test = CpuSelfTest(native)
    test.prove_all()
    assert not native.bad_levels and test.num_passed > 40


def test_every_op_of_the_module_has_a_case() -> None:
    covered = {op for case in cases() for op in case.covers}
    assert {row.op for row in Native(load()).rows} <= covered


def test_case_names_are_unique() -> None:
    names = [case.name for case in cases()]
    assert len(names) == len(set(names)) and set(names) == set(GOLDEN)


def test_golden_bits_are_the_references() -> None:
    assert VERSION == NUMERICS_VERSION
    assert make_selftest_golden.compute() == GOLDEN


def test_a_models_kernels_take_under_50_ms() -> None:
    seconds = []
    for _ in range(3):
        test = CpuSelfTest(Native(load()))
        start = time.process_time()
        test.prove_format("q4_1")
        test.prove_format("q8_0")
        test.prove(
            {"embedding_q4_1", "rms_norm", "rope", "kv_append_bf16", "paged_attention_bf16", "gather_rows", "sample"}
        )
        seconds.append(time.process_time() - start)
        assert test.num_passed >= 10
    assert min(seconds) < 0.05


def test_nothing_is_tested_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    test, runs = CpuSelfTest(Native(load())), []
    run = test._run
    monkeypatch.setattr(test, "_run", lambda *args: runs.append(args) or run(*args))
    test.prove({"rope"})
    test.prove({"rope"})
    assert len(runs) == test.num_passed == 1

"""A request's tokens and logits bytes do not depend on its neighbours, threads, chunks, cache hits or kernel level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine import bits
from tests.golden import tiny

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load
from octavo.platforms.limits import Limits
from octavo.platforms.recorded.native import Native

LENGTHS = [1, 31, 32, 33, 90]
MODELS = ["llama", "gemma3", "llama:q4_1", "llama:q8_0", "llama:bf16"]
KV_DTYPES = ["bf16", "int8", "fp8"]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, dense or quantized."""
    case, _, form = request.param.partition(":")
    folder = tmp_path_factory.mktemp(request.param.replace(":", "-"))
    return bits.write_quantized(case, form, folder / "m.gguf") if form else tiny.write_safetensors(case, folder)


@pytest.fixture(scope="module", autouse=True)
def native() -> Native:
    """These tests are about the native kernels."""
    try:
        return Native(load())
    except PlatformError as error:
        pytest.skip(str(error))


def alone(model: Path, **options: Any) -> tuple[Any, Any]:
    """Every prompt run by itself, one thread, the whole prompt at once, no cache."""
    whole = bits.Trace()
    core = bits.make_core(model, has_prefix_cache=False, **options)
    for seed, prompt in bits.prompts(LENGTHS).items():
        trace = bits.run(core, {seed: prompt})
        whole.tokens |= trace.tokens
        whole.logits |= trace.logits
    return whole.of(list(whole.tokens))


@pytest.fixture(scope="module", params=KV_DTYPES)
def kv_dtype(request: pytest.FixtureRequest) -> str:
    """Every KV dtype has its own bits."""
    return str(request.param)


@pytest.fixture(scope="module")
def expected(model: Path, kv_dtype: str) -> tuple[Any, Any]:
    """The bits to have."""
    return alone(model, kv_dtype=kv_dtype)


def test_a_batch_of_32_changes_nothing(model: Path, kv_dtype: str, expected: tuple[Any, Any]) -> None:
    core = bits.make_core(model, has_prefix_cache=False, kv_dtype=kv_dtype)
    own = bits.prompts(LENGTHS)
    trace = bits.run(core, {**bits.prompts(range(3, 30), 500), **own})
    assert trace.of(list(own)) == expected


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_change_nothing(
    model: Path, kv_dtype: str, expected: tuple[Any, Any], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "most_threads", threads)  # more than there are processors, too
    core = bits.make_core(model, has_prefix_cache=False, kv_dtype=kv_dtype, num_threads=threads)
    assert core.info.num_threads == threads
    own = bits.prompts(LENGTHS)
    assert bits.run(core, own).of(list(own)) == expected


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunked_prefill_changes_nothing(model: Path, kv_dtype: str, expected: tuple[Any, Any], chunk: int) -> None:
    core = bits.make_core(
        model, has_prefix_cache=False, kv_dtype=kv_dtype, max_batch_tokens=chunk, max_num_seqs=min(chunk, 8)
    )
    own = bits.prompts(LENGTHS)
    assert bits.run(core, own).of(list(own)) == expected


def test_a_cache_hit_gives_the_bits_of_a_miss(model: Path, kv_dtype: str, expected: tuple[Any, Any]) -> None:
    core = bits.make_core(model, kv_dtype=kv_dtype)
    own = bits.prompts(LENGTHS)
    assert bits.run(core, own).of(list(own)) == expected
    again = bits.run(core, own)
    assert again.num_cached[104] >= 64
    assert again.of(list(own)) == expected


def test_every_level_gives_the_same_bits(model: Path, kv_dtype: str, expected: tuple[Any, Any], native: Native) -> None:
    own = bits.prompts(LENGTHS)
    levels = native.runnable_levels()
    for at in range(len(levels)):
        core = bits.make_core(model, has_prefix_cache=False, kv_dtype=kv_dtype, isa=levels[: at + 1])
        ran = {variant.level for variant in _chosen(core)}
        assert levels[at] in ran, f"no kernel of {levels[at]} was chosen"
        assert bits.run(core, own).of(list(own)) == expected, levels[at]


def _chosen(core: Any) -> list[Any]:
    return [v for v in core.runner.executable.native.variants() if v.detail.get("chosen")]


def test_preemption_changes_nothing(model: Path, kv_dtype: str, expected: tuple[Any, Any]) -> None:
    core = bits.make_core(model, kv_dtype=kv_dtype)
    page = core.runner.executable.page_bytes  # type: ignore[attr-defined]
    groups = len(core.runner.spec.groups)
    core = bits.make_core(model, kv_dtype=kv_dtype, kv_bytes=page * (4 * groups + 3), max_model_len=120)
    own = bits.prompts(LENGTHS)
    assert bits.run(core, own).of(list(own)) == expected
    assert core.scheduler.stats().num_preemptions + core.scheduler.stats().num_evicted_blocks > 0


def test_the_reference_platform_gives_the_same_bits(model: Path, kv_dtype: str, expected: tuple[Any, Any]) -> None:
    own = bits.prompts(LENGTHS)
    core = bits.make_core(model, platform="reference", kv_dtype=kv_dtype)
    assert bits.run(core, own).of(list(own)) == expected

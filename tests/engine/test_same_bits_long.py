"""Prompts over several segments of attention: chunks, threads, neighbours and a paced prefill (--itl-ms) change no bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine import bits
from tests.golden import tiny

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load
from octavo.platforms.limits import Limits

LENGTHS = [515, 1100, 40]
MAX_LEN = 1200


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that takes long prompts; gemma3 has sliding windows beside full attention."""
    try:
        load()
    except PlatformError as error:
        pytest.skip(str(error))
    folder = tiny.write_safetensors(request.param, tmp_path_factory.mktemp(request.param))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = MAX_LEN
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module", params=["bf16", "int8"])
def kv_dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_core(model: Path, kv_dtype: str, **options: Any) -> Any:
    return bits.make_core(model, kv_dtype=kv_dtype, has_prefix_cache=False, max_model_len=MAX_LEN, **options)


@pytest.fixture(scope="module")
def expected(model: Path, kv_dtype: str) -> tuple[Any, Any]:
    """Every prompt by itself, at once, on one thread."""
    whole = bits.Trace()
    core = make_core(model, kv_dtype, max_batch_tokens=MAX_LEN)
    for seed, prompt in bits.prompts(LENGTHS).items():
        trace = bits.run(core, {seed: prompt})
        whole.tokens |= trace.tokens
        whole.logits |= trace.logits
    return whole.of(list(whole.tokens))


@pytest.mark.parametrize(("chunk", "threads"), [(64, 1), (500, 2), (256, 3)])
def test_chunks_and_threads_change_nothing_beyond_a_segment(
    model: Path, kv_dtype: str, expected: Any, chunk: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "most_threads", threads)
    core = make_core(model, kv_dtype, max_batch_tokens=chunk, num_threads=threads)
    own = bits.prompts(LENGTHS)
    assert bits.run(core, own).of(list(own)) == expected


def test_a_paced_prefill_beside_streams_changes_nothing(model: Path, kv_dtype: str, expected: Any) -> None:
    core = make_core(model, kv_dtype, max_batch_tokens=512, itl_ms=2.0)
    assert core.scheduler.pace is not None
    own = bits.prompts(LENGTHS)
    trace = bits.run(core, {**bits.prompts([3, 20], 500), **own}, num_tokens=6)
    assert trace.of(list(own)) == expected

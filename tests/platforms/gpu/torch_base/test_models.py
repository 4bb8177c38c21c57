"""Whole tiny models on torch's CPU: the reference's logits within bounds, however prompts are cut into steps, and its tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.engine import bits
from tests.engine.models import drive
from tests.golden import tiny

from octavo.engine.errors import PlatformError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Capacity, Platform
from octavo.platforms.registry import PLATFORMS, choose_platform
from octavo.platforms.types import Batch

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base.platform import TorchPlatform

LENGTHS = (33, 7)
#: KV dtype -> share of the largest logit: float32 sums in another order; keys, values and softmax weights that were rounded the
#: other way for it, a step of 2^-8 or 2^-7 each
BOUNDS = {"f32": 1e-5, "f16": 1e-2, "bf16": 3e-2, "int8": 5e-2, "fp8": 2e-1}


@pytest.fixture(scope="module")
def torch_cpu() -> Platform:
    return TorchPlatform("cpu", num_threads=1)


@pytest.fixture(scope="module")
def reference() -> Platform:
    return choose_platform("reference", 1).platform


def load(platform: Platform, case: str, folder: Path, quantize: str = "") -> Decoder:
    if not (folder / "config.json").exists():
        tiny.write_safetensors(case, folder)
    with Checkpoint.open(folder) as checkpoint:
        config = json.loads((folder / "config.json").read_text())
        return load_model(checkpoint, platform.weights(), config=config, quantize=quantize)


def furthest(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """Largest difference, as a share of the largest logit."""
    most = max(float(np.abs(rows).max()) for rows in want)
    return max(float(np.abs(a - b).max()) for a, b in zip(got, want, strict=True)) / most


@pytest.mark.parametrize("case", tiny.CASES)
def test_logits_are_near_the_references_for_every_family(
    case: str, torch_cpu: Platform, reference: Platform, tmp_path: Path
) -> None:
    mine, plain = load(torch_cpu, case, tmp_path), load(reference, case, tmp_path)
    prompts = [tiny.prompt(case, length) for length in LENGTHS]
    want = drive.run(reference, plain, prompts, chunk=20, kv_dtype="f32")
    for chunk in (20, 1):  # mixed steps; then every token decoded by itself
        got = drive.run(torch_cpu, mine, prompts, chunk=chunk, kv_dtype="f32")
        assert furthest(got, want) <= BOUNDS["f32"], f"{case} in steps of {chunk}"


@pytest.mark.parametrize("kv_dtype", BOUNDS)
@pytest.mark.parametrize("case", ["llama", "gemma3"])
def test_every_kv_dtype_is_near_the_reference(
    case: str, kv_dtype: str, torch_cpu: Platform, reference: Platform, tmp_path: Path
) -> None:
    mine, plain = load(torch_cpu, case, tmp_path), load(reference, case, tmp_path)
    prompts = [tiny.prompt(case, length) for length in LENGTHS]
    got, want = (
        drive.run(platform, decoder, prompts, chunk=20, kv_dtype=kv_dtype)
        for platform, decoder in ((torch_cpu, mine), (reference, plain))
    )
    assert furthest(got, want) <= BOUNDS[kv_dtype]
    decoded = drive.run(torch_cpu, mine, prompts, chunk=1, kv_dtype=kv_dtype)
    assert furthest(decoded, got) <= BOUNDS[kv_dtype]


@pytest.mark.parametrize("form", ["bf16", "q8_0", "q4_1", "w8a8", "i4g32"])
def test_quantized_models_are_near_the_reference(
    form: str, torch_cpu: Platform, reference: Platform, tmp_path: Path
) -> None:
    """An input that lies between two int8 codes may take the other one: a step of 1 / 127 of its group."""
    mine, plain = (load(platform, "llama", tmp_path, form) for platform in (torch_cpu, reference))
    assert form in mine.formats()
    prompts = [tiny.prompt("llama", 20)]
    got, want = (drive.run(p, d, prompts, kv_dtype="f32") for p, d in ((torch_cpu, mine), (reference, plain)))
    assert furthest(got, want) <= 2e-2
    assert (got[0].argmax(axis=1) == want[0].argmax(axis=1)).all()


def test_an_engine_draws_the_references_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "m")
    prompts = bits.prompts([1, 31, 90])
    found = {}
    for name in ("torch", "reference"):
        monkeypatch.setenv("OCTAVO_PLATFORM", name)
        core = bits.make_core(model, kv_dtype="f32", max_batch_tokens=64)
        found[name] = [bits.run(core, prompts, temperature=t).tokens for t in (0.0, 0.8)]
        again = bits.run(
            core, prompts, temperature=0.0
        )  # from the prefix cache: whole pages, and copies of parts of them
        assert again.tokens == found[name][0] and sum(again.num_cached.values()) >= 64
    assert found["torch"] == found["reference"]


def test_an_executable_answers_for_its_last_step_until_it_is_closed(torch_cpu: Platform, tmp_path: Path) -> None:
    decoder = load(torch_cpu, "llama", tmp_path)
    spec = decoder.kv_spec("bf16")
    executable = torch_cpu.build(decoder, spec, Capacity(8, 2, 8, 64, 4))
    rows = np.array([1, 4], np.int32)
    with pytest.raises(PlatformError, match="before any step ran"):
        executable.head(rows)
    step = Batch(
        token_ids=np.arange(5, dtype=np.int32),
        positions=np.arange(5, dtype=np.int32)[None],
        query_start=np.array([0, 5], np.int32),
        kv_len=np.array([5], np.int32),
        token_seq=np.zeros(5, np.int32),
        block_tables=[np.array([[2]], np.int32)],
        logits_rows=np.zeros(0, np.int32),
    )
    executable.run(step)
    logits = np.array(executable.head(rows))
    assert logits.shape == (2, tiny.VOCAB) and logits.dtype == np.float32
    assert np.array_equal(executable.head(rows[:1])[0].argmax(), logits[0].argmax())
    ids = executable.greedy(rows)
    assert ids.dtype == np.int32 and ids.tolist() == logits.argmax(axis=1).tolist()
    assert executable.head(rows[:0]).shape == (0, tiny.VOCAB)
    with pytest.raises(PlatformError, match="at most 8"):
        executable.run(Batch(**{**vars(step), "token_ids": np.zeros(9, np.int32)}))
    executable.close()
    with pytest.raises(PlatformError, match="was closed"):
        executable.run(step)

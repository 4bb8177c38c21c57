"""Quantization at load: the bits of a file that was quantized before, nothing else touched, and every contradiction refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine import bits
from tests.golden import tiny, tiny_gguf

from octavo.engine.build import Phases, model_identity, prepare, preview
from octavo.engine.config import CHOICES, EngineConfig, read_environment, weight_change
from octavo.engine.errors import ConfigError, ModelError
from octavo.engine.loading.config import open_model
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.quant.formats import BY_NAME, FORMATS
from octavo.quant.load import pack

GROUPED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
APART = ("w8a8", "i4g32", "i4g64", "i4g128")
WHOLE = {"token_embd.weight", "output.weight"}  # not layers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of float32 with a head of its own."""
    return tiny_gguf.write_gguf("llama", tmp_path_factory.mktemp("floats") / "m.gguf")


def requantized(plain: Path, form: str, path: Path, *, has_head: bool) -> Path:
    """The file with its layers' matrices (and its head) packed by `quant`; the token table stays."""
    source, writer = GGUFFile.open(plain), GGUFWriter()
    for key, value in source.metadata.items():
        writer.add(key, value)
    for name, info in source.tensors.items():
        values = source.data(name).view(np.float32).reshape(info.shape)
        is_packed = len(info.shape) == 2 and (name not in WHOLE or (has_head and name == "output.weight"))
        raw = pack(form, values) if is_packed else values.view(np.uint8)
        writer.add_tensor(name, form if is_packed else "f32", info.shape, np.ascontiguousarray(raw).view(np.uint8))
    writer.write(path)
    return path


def run(path: Path, **options: Any) -> tuple[Any, Any]:
    """Tokens and logits of some prompts."""
    core = bits.make_core(path, has_prefix_cache=False, **options)
    own = bits.prompts([1, 20, 33])
    return bits.run(core, own).of(list(own))


@pytest.mark.parametrize("has_head", [False, True], ids=["layers", "head"])
@pytest.mark.parametrize("form", GROUPED)
def test_loading_gives_the_bits_of_a_file_of_that_format(
    model: Path, form: str, has_head: bool, tmp_path: Path
) -> None:
    stored = requantized(model, form, tmp_path / "q.gguf", has_head=has_head)
    assert run(model, quantization=form, quantize_head=has_head) == run(stored)
    assert run(model, quantization=form, quantize_head=has_head) != run(model)


@pytest.mark.parametrize("form", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_k_quants_give_the_bits_of_a_file_too(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {**tiny.CASES["llama"], "hidden_size": 256, "intermediate_size": 512}
    monkeypatch.setitem(tiny.CASES, "wide", wide)
    monkeypatch.setitem(tiny_gguf.CASES, "wide", ("llama", {}))
    plain = tiny_gguf.write_gguf("wide", tmp_path / "wide.gguf")
    stored = requantized(plain, form, tmp_path / "q.gguf", has_head=False)
    assert run(plain, quantization=form) == run(stored) != run(plain)


@pytest.mark.parametrize("form", APART)
def test_formats_without_a_file_format_run_with_the_references_bits(model: Path, form: str) -> None:
    found = run(model, quantization=form, quantize_head=True)
    assert found == run(model, quantization=form, quantize_head=True, platform="reference")
    assert found != run(model)


@pytest.mark.parametrize(("has_head", "formats"), [(False, ["f32", "q8_0"]), (True, ["q8_0"])])
def test_only_what_was_asked_for_is_quantized(model: Path, has_head: bool, formats: list[str]) -> None:
    core = bits.make_core(model, quantization="q8_0", quantize_head=has_head)
    assert core.info.weight_formats == formats


def test_norms_biases_and_the_token_table_stay_as_they_are(tmp_path: Path) -> None:
    folder = tiny.write_safetensors("qwen2", tmp_path / "qwen2")  # has biases, and ties its head to the table
    made = prepare(EngineConfig(str(folder), quantization="q8_0", quantize_head=True, num_threads=1), Phases())
    plain = prepare(EngineConfig(str(folder), num_threads=1), Phases())
    weights, stored = made.decoder.weights, plain.decoder.weights
    assert weights.head.format == "q8_0" and weights.tokens.format == stored.tokens.format == "f32"  # type: ignore[attr-defined]
    assert np.array_equal(weights.final_norm.weight, stored.final_norm.weight)
    for block, other in zip(weights.blocks, stored.blocks, strict=True):
        for mine, theirs in zip(block.attention.qkv, other.attention.qkv, strict=True):
            assert mine.format == "q8_0" and np.array_equal(mine.bias, theirs.bias)  # type: ignore[attr-defined]


def test_the_environment_quantizes_unless_the_option_says_none(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_QUANTIZATION", "Q4_0")
    assert bits.make_core(model).info.weight_formats == ["f32", "q4_0"]
    assert bits.make_core(model, quantization="q8_0").info.weight_formats == ["f32", "q8_0"]
    assert bits.make_core(model, quantization="none").info.weight_formats == ["f32"]


def test_every_format_that_can_be_packed_is_allowed_and_no_other() -> None:
    packed = [f.name for f in FORMATS if f.is_quantized and f.is_supported and not f.is_gpu_only]
    assert set(CHOICES["quantization"]) == {"none", "bf16", *packed}
    assert {*GROUPED, *APART, "q4_k", "q6_k"} < set(CHOICES["quantization"])
    for name in ("q9_9", "f16", "mxfp4"):
        with pytest.raises(ConfigError, match=rf"quantization={name}: allowed are none, bf16, q4_0"):
            EngineConfig("m", quantization=name)
        with pytest.raises(ConfigError, match=rf"OCTAVO_QUANTIZATION={name}: allowed are none, bf16, q4_0"):
            read_environment({"OCTAVO_QUANTIZATION": name})


@pytest.mark.parametrize(
    ("options", "variable", "text"),
    [
        ({"expand_weights": True, "quantization": "q8_0"}, "", r"expand_weights and quantization=q8_0 .*leave one out"),
        ({"expand_weights": True}, "q4_1", r"expand_weights and quantization=q4_1"),
        ({"quantize_head": True}, "", r"quantize_head \(--quantize-head\) was asked for without a format"),
        ({"quantize_head": True, "quantization": "none"}, "q8_0", r"without a format"),
    ],
)
def test_contradictions_are_refused_before_anything_is_loaded(options: Any, variable: str, text: str) -> None:
    environment = read_environment({"OCTAVO_QUANTIZATION": variable})
    with pytest.raises(ConfigError, match=text):
        weight_change(EngineConfig("m", **options), environment)


def test_quantized_tensors_are_refused_by_name_and_those_of_the_format_stay(model: Path, tmp_path: Path) -> None:
    stored = requantized(model, "q4_0", tmp_path / "q.gguf", has_head=False)
    with pytest.raises(
        ModelError, match=r"blk\.0\.\w+\.weight: quantization q8_0 .* stored as q4_0; .*--quantization none"
    ):
        bits.make_core(stored, quantization="q8_0")
    assert run(stored, quantization="q4_0") == run(stored)
    core = bits.make_core(stored, quantization="q4_0", quantize_head=True)
    assert core.info.weight_formats == ["q4_0"]


def test_rows_that_are_not_whole_blocks_are_refused_by_name_with_what_fits(model: Path) -> None:
    text = r"blk\.0\.\w+\.weight: quantization q4_k .* rows of 64 values; .* blocks of 256; .*q4_0.*q8_0"
    with pytest.raises(ModelError, match=text):
        bits.make_core(model, quantization="q4_k")


def test_caches_of_keys_and_costs_are_kept_apart(model: Path) -> None:
    files = open_model(model, needs_tokenizer=False)
    spec = prepare(EngineConfig(str(model), num_threads=1), Phases()).spec
    changes = [
        str(weight_change(EngineConfig("m", **options), read_environment({})))
        for options in (
            {}, {"expand_weights": True}, {"quantization": "q8_0"}, {"quantization": "q8_0", "quantize_head": True},
            {"quantization": "q4_0"}, {"quantization": "none"},
        )
    ]  # fmt: skip
    identities = {model_identity(files, spec, [], None, change) for change in changes}
    assert changes[0] == changes[-1] == "" and len(identities) == len(set(changes)) == 5


def test_packed_copies_of_other_quantizations_are_not_taken(model: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"cache_dir": str(tmp_path), "packed_cache": "on"}
    wanted, found = {}, {}
    ways: list[dict[str, Any]] = [{}, {"quantization": "q8_0"}, {"quantization": "q8_0", "quantize_head": True}]
    for load in (wanted, found):
        for index, way in enumerate(ways):
            core = bits.make_core(model, has_prefix_cache=False, **way, **options)
            assert core.keeper is not None
            core.keeper.keep()
            own = bits.prompts([9])
            load[index] = bits.run(core, own).of(list(own))
    assert found == wanted and len({json.dumps(w[0][100]) + str(hash(str(w[1]))) for w in wanted.values()}) == 3
    assert len(list((tmp_path / "packed").glob("*.packed"))) == 3


def test_the_memory_plan_counts_weights_as_they_run(model: Path) -> None:
    def planned(**options: Any) -> int:
        return preview(EngineConfig(str(model), num_threads=1, **options)).weights_bytes

    stored, layers = planned(), planned(quantization="q8_0")
    values = sum(
        int(np.prod(info.shape))
        for name, info in GGUFFile.open(model).tensors.items()
        if len(info.shape) == 2 and name not in WHOLE
    )
    assert stored - layers == values * 4 - values * BY_NAME["q8_0"].block_bytes // 32
    assert planned(quantization="q8_0", quantize_head=True) < layers
    assert bits.make_core(model, quantization="q8_0").info.weights_bytes == layers

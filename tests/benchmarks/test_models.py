"""Every form of a model holds the same numbers: files are read back, codes are within their bounds, rows are put in pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import models
from benchmarks.model_files import (
    bf16_bits,
    check_gguf,
    compressed_config,
    gguf_format,
    group_of,
    padded_tokens,
    w4a16_codes,
    w8a8_codes,
    write_folder,
    write_gguf,
)
from benchmarks.shapes import SHAPES, RandomWeights, Shape, paired, slices, to_bf16, unpaired

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.quant.load import unpack

TINY = Shape("tiny", "", "llama", 256, 512, 1, 4, 2, 64, 300, 1e4, 1e-5)
QWEN = Shape("tinyq", "", "qwen3", 64, 96, 1, 2, 1, 64, 300, 1e4, 1e-6)
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab"]
TOKENIZER: dict[str, Any] = {
    "general.name": "left out",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": np.array([3, 3, 3, 1, 1, 1], np.int32),
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": "{{ messages }}",
}


def values_of(weights: RandomWeights, name: str) -> np.ndarray[Any, Any]:
    tensor = next(t for t in weights.shape.tensors() if name in (t.hf, t.gguf))
    return np.concatenate([weights.rows(tensor, *part) for part in slices(tensor.shape)])


@pytest.mark.parametrize(
    "form", [form.removeprefix("gguf-") for form, what in models.FORMS.items() if what.startswith("GGUF")]
)
def test_gguf_holds_the_numbers_in_pairs(form: str, tmp_path: Path) -> None:
    weights = RandomWeights(TINY, seed=3)
    write_gguf(tmp_path / "m.gguf", weights, form, TOKENIZER, 2)
    with Checkpoint.open(tmp_path / "m.gguf") as found:
        names = {tensor.gguf: tensor for tensor in TINY.tensors()}
        assert set(found) == set(names)
        for name, tensor in names.items():
            kind, shape, raw = found.raw(name)
            assert (kind, shape) == (gguf_format(tensor, form), tensor.shape)
            wanted = paired(values_of(weights, name), tensor.paired_heads)
            assert np.abs(unpack(kind, raw, shape) - wanted).max() <= (0 if kind in ("f32", "bf16") else 0.03)


def test_folders_hold_the_numbers(tmp_path: Path) -> None:
    weights = RandomWeights(QWEN)
    write_folder(tmp_path / "bf16", weights, "bf16", TOKENIZER)
    with Checkpoint.open(tmp_path / "bf16") as found:
        assert set(found) == {tensor.hf for tensor in QWEN.tensors()}
        kind, shape, raw = found.raw("model.layers.0.mlp.down_proj.weight")
        assert np.array_equal(unpack(kind, raw, shape), values_of(weights, "model.layers.0.mlp.down_proj.weight"))
    assert json.loads((tmp_path / "bf16/config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
    assert json.loads((tmp_path / "bf16/tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"


@pytest.mark.parametrize(("form", "parts"), [("w8a8", {"", "_scale"}), ("w4a16", {"_packed", "_scale", "_shape"})])
def test_compressed_folders_name_parts_and_say_what_they_are(form: str, parts: set[str], tmp_path: Path) -> None:
    write_folder(tmp_path, RandomWeights(QWEN), form, TOKENIZER)
    with Checkpoint.open(tmp_path) as found:
        at = "model.layers.0.mlp.up_proj.weight"
        assert {name.removeprefix(at) for name in found if name.startswith(at)} == parts
        assert found.raw("model.embed_tokens.weight")[0] == "bf16"
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config == compressed_config(form, 32)


def test_int8_rows_are_within_half_a_step() -> None:
    values = np.random.default_rng(0).standard_normal((5, 48)).astype(np.float32)
    codes, scale = w8a8_codes(values)
    assert codes.dtype == np.int8 and np.abs(codes.astype(int)).max() == 127
    assert (np.abs(codes * scale - values) <= scale / 2 + 1e-6).all()


def test_int4_codes_are_lowest_first_with_eight_added() -> None:
    values = np.array([[-7, 7, 0, 1, 2, 3, 4, 5] * 4], np.float32)
    packed, scale = w4a16_codes(values, 32)
    assert scale.tolist() == [[1.0]]
    assert [int(packed.view(np.uint32)[0, 0]) >> 4 * i & 15 for i in range(8)] == [1, 15, 8, 9, 10, 11, 12, 13]


def test_zero_rows_have_finite_scales() -> None:
    zeros = np.zeros((2, 64), np.float32)
    assert not w8a8_codes(zeros)[0].any()
    assert np.isfinite(w4a16_codes(zeros, 32)[1]).all()


def test_pairs_are_undone() -> None:
    rows = np.arange(24).reshape(12, 2)
    assert paired(rows[:, 0], 2).tolist()[:6] == [0, 6, 2, 8, 4, 10]
    assert np.array_equal(unpaired(paired(rows, 3), 3), rows) and paired(rows, 0) is rows


def test_bfloat16_rounds_to_even() -> None:
    values = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
    assert bf16_bits(to_bf16(values)).tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_random_weights_are_the_same_every_time_and_finite() -> None:
    first, second = (values_of(RandomWeights(TINY), "blk.0.ffn_up.weight") for _ in range(2))
    assert np.array_equal(first, second) and np.isfinite(first).all() and 0.015 < first.std() < 0.025
    assert not np.array_equal(first, values_of(RandomWeights(TINY, seed=1), "blk.0.ffn_up.weight"))


def test_unused_tokens_fill_the_vocabulary() -> None:
    keys = padded_tokens(TOKENIZER, 8)
    assert keys["tokenizer.ggml.tokens"] == [*TOKENS, "<unused_0>", "<unused_1>"]
    assert keys["tokenizer.ggml.token_type"].tolist() == [3, 3, 3, 1, 1, 1, 5, 5] and "general.name" not in keys
    with pytest.raises(ValueError, match="6 tokens, the model 5"):
        padded_tokens(TOKENIZER, 5)


def test_formats_that_do_not_fit_are_refused_with_the_reason() -> None:
    assert "blk.0.attn_q.weight has rows of 576" in check_gguf(SHAPES["smollm2"], "q4_k")
    assert not check_gguf(SHAPES["llama1b"], "q4_k") and not check_gguf(SHAPES["smollm2"], "q4_0")
    assert {name: group_of(shape) for name, shape in SHAPES.items()} == {"smollm2": 64, "llama1b": 128, "qwen06b": 128}


def test_places_of_forms_differ() -> None:
    places = {models.place(Path("/m"), "x", form) for form in models.FORMS}
    assert len(places) == len(models.FORMS)
    assert models.place(Path("/m"), "x", "gguf-bf16") == Path("/m/x-bf16.gguf")

"""An encoder's weights from a GGUF file and from safetensors give the same bits; what such a file leaves open is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.models import encoder_drive
from tests.golden import tiny, tiny_encoder_gguf, tiny_encoders, tiny_gguf

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import registry
from octavo.engine.models.load import load_model
from octavo.engine.models.text_load import load_text_encoder
from octavo.platforms.platform import Platform
from octavo.quant.load import pack, unpack

LENGTHS = (33, 1, 7, 130)
#: fields in which the two may differ: positions counted from 0 in a table that was cut, names, numbers stored as float32
_OTHER = ("family", "norm_eps", "num_learned_positions", "position_offset", "position_pad_id")


def opened(platform: Platform, path: Path, **options: Any) -> Any:
    with Checkpoint.open(path) as checkpoint:
        return load_text_encoder(checkpoint, platform.weights(), **options)


def plain(platform: Platform, case: str, folder: Path) -> Any:
    tiny_encoders.write_safetensors(case, folder)
    with Checkpoint.open(folder) as checkpoint:
        return load_text_encoder(checkpoint, platform.weights(), config=tiny_encoder_gguf.config_of(case))


def described(spec: Any) -> dict[str, object]:
    return {name: value for name, value in dataclasses.asdict(spec).items() if name not in _OTHER}


def bits(platform: Platform, encoder: Any, case: str) -> list[bytes]:
    return [rows.tobytes() for rows in encoder_drive.run(platform, encoder, *encoder_drive.texts_of(case, LENGTHS))]


@pytest.mark.parametrize("case", tiny_encoder_gguf.CASES)
def test_gguf_and_safetensors_give_the_same_bits(case: str, reference: Platform, tmp_path: Path) -> None:
    wanted = plain(reference, case, tmp_path / "folder")
    found = opened(reference, tiny_encoder_gguf.write_gguf(case, tmp_path / "model.gguf", pooling="mean"))
    assert described(found.spec) == described(wanted.spec)
    assert bits(reference, found, case) == bits(reference, wanted, case)


def test_every_gguf_architecture_has_a_case() -> None:
    assert set(tiny_encoder_gguf.CASES.values()) == set(registry.GGUF_ENCODERS)


def test_gate_and_up_apart_are_the_same(reference: Platform, tmp_path: Path) -> None:
    """Older converters of JinaBERT cut the product that newer ones leave whole."""
    config, state = tiny_encoder_gguf.config_of("jina_bert"), tiny_encoders.state_dict("jina_bert")
    found = []
    for splits in (False, True):
        tensors = tiny_encoder_gguf.renamed("jina-bert-v2", config, state, splits=splits)
        assert ("blk.0.ffn_gate.weight" in tensors) is splits
        path = tiny_encoder_gguf.write(tmp_path / f"{splits}.gguf", "jina-bert-v2", config, tensors)
        found.append(bits(reference, opened(reference, path), "jina_bert"))
    assert found[0] == found[1]


def test_quantized_matrices_run_as_stored(reference: Platform, tmp_path: Path) -> None:
    """q, k, v of two formats, an MLP of a third, a quantized token table: the formats run, and the values are theirs."""
    formats = {"attn_q": "q8_0", "attn_k": "q8_0", "attn_v": "q5_0", "ffn_up": "q4_0", "token_embd": "q8_0"}
    stored = opened(reference, tiny_encoder_gguf.write_gguf("bert", tmp_path / "stored.gguf", formats=formats))
    assert stored.formats() == ["f32", "q4_0", "q5_0", "q8_0"]
    config, exact = tiny_encoder_gguf.config_of("bert"), {}
    for name, values in tiny_encoder_gguf.renamed("bert", config, tiny_encoders.state_dict("bert")).items():
        form = formats.get(name.split(".")[-2], "f32") if name.endswith(".weight") else "f32"
        exact[name] = unpack(form, pack(form, values), values.shape)
    expanded = opened(reference, tmp_path / "stored.gguf", expand=True)
    wanted = opened(reference, tiny_encoder_gguf.write(tmp_path / "exact.gguf", "bert", config, exact))
    assert bits(reference, expanded, "bert") == bits(reference, wanted, "bert")
    assert bits(reference, stored, "bert") != bits(reference, wanted, "bert")  # products of rounded rows


def test_modern_berts_without_the_second_base_are_refused(reference: Platform, tmp_path: Path) -> None:
    """Its windowed layers have a base of their own, which no default could stand for."""
    path = tiny_encoder_gguf.write_gguf("modernbert", tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes().replace(b"modern-bert.rope.freq_base_swa", b"modern-bert.rope.freq_base_sww"))
    with pytest.raises(ModelError, match=r"modern-bert\.rope\.freq_base_swa is missing; it must be a finite number"):
        opened(reference, path)


def changed(tmp_path: Path, case: str, *, drop: str = "", add: dict[str, Any] | None = None, extra: str = "") -> Path:
    """A case's file without a tensor, with keys of metadata, or with a tensor more."""
    config = tiny_encoder_gguf.config_of(case)
    architecture = tiny_encoder_gguf.CASES[case]
    tensors = tiny_encoder_gguf.renamed(architecture, config, tiny_encoders.state_dict(case))
    tensors.pop(drop, None)
    if extra:
        tensors[extra] = np.ones(64, np.float32)
    return tiny_encoder_gguf.write(tmp_path / "model.gguf", architecture, config, tensors, more=add)


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("bert", {"drop": "position_embd.weight"}, "BERT has learned positions"),
        ("bert", {"drop": "blk.1.attn_k.weight"}, "blk.1.attn_k.weight"),
        ("bert", {"extra": "blk.0.attn_norm_3.weight"}, "1 tensors that the model does not use: blk.0.attn_norm_3"),
        ("bert", {"add": {"bert.rope.freq_base": 10000.0}}, "not understood for this family: bert.rope.freq_base"),
        ("bert", {"add": {"bert.attention.head_count_kv": 2}}, "bert.attention.head_count_kv is 2; it must be 4"),
        ("jina_bert", {"extra": "blk.0.attn_q_norm.weight"}, "JinaBERT of the code model"),
        ("jina_bert", {"add": {"jina-bert-v2.attention.max_alibi_bias": 4.0}}, "max_alibi_bias is 4.0; it must be 8.0"),
        ("nomic_bert", {"add": {"nomic-bert.rope.dimension_count": 8}}, "rope.dimension_count is 8; it must be 16"),
    ],
)
def test_what_is_not_understood_is_refused(
    case: str, change: dict[str, Any], message: str, reference: Platform, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        opened(reference, changed(tmp_path, case, **change))


def test_causal_files_of_encoders_are_refused(reference: Platform, tmp_path: Path) -> None:
    path = tiny_encoder_gguf.write_gguf("bert", tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes().replace(b"bert.attention.causal", b"bert.attention.casual"))
    with pytest.raises(ModelError, match=r"bert\.attention\.causal is missing; it must be false"):
        opened(reference, path)


def test_encoders_and_embedders_are_no_generators(reference: Platform, tmp_path: Path) -> None:
    encoder = tiny_encoder_gguf.write_gguf("bert", tmp_path / "encoder.gguf")
    with (
        Checkpoint.open(encoder) as checkpoint,
        pytest.raises(ModelError, match=r"bert is an encoder.*octavo\.Embedder"),
    ):
        load_model(checkpoint, reference.weights())
    embedder = tiny_gguf.write_tensors("qwen3", _f32("qwen3"), tmp_path / "e.gguf", more={"qwen3.pooling_type": 3})
    with (
        Checkpoint.open(embedder) as checkpoint,
        pytest.raises(ModelError, match=r"qwen3\.pooling_type is 3: .*Embedder"),
    ):
        load_model(checkpoint, reference.weights())


def test_architectures_that_are_not_served_are_named(reference: Platform, tmp_path: Path) -> None:
    config = tiny_encoder_gguf.config_of("bert")
    tensors = {"token_embd.weight": np.ones((4, 64), np.float32)}
    path = tiny_encoder_gguf.write(tmp_path / "model.gguf", "neo-bert", config, tensors)
    with pytest.raises(ModelError, match="architecture 'neo-bert' is not served; served are bert, nomic-bert"):
        opened(reference, path)


def test_decoders_as_embedders_have_the_bits_of_safetensors(reference: Platform, tmp_path: Path) -> None:
    config = tiny_gguf.config_of("qwen3")
    tiny.write_safetensors("qwen3", tmp_path / "folder")
    with Checkpoint.open(tmp_path / "folder") as checkpoint:
        wanted = load_text_encoder(checkpoint, reference.weights(), config=config)
    path = tiny_gguf.write_tensors("qwen3", _f32("qwen3"), tmp_path / "e.gguf", more={"qwen3.pooling_type": 3})
    assert bits(reference, opened(reference, path), "qwen3_causal") == bits(reference, wanted, "qwen3_causal")


def _f32(case: str) -> dict[str, Any]:
    return {name: ("f32", values) for name, values in tiny_gguf.tensors_of(case).items()}

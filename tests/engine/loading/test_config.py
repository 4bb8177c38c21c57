"""A model folder or file is read into one neutral form, or refused with everything that is missing."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading import config
from octavo.engine.loading.config import open_model
from octavo.engine.loading.gguf_writer import GGUFWriter


def _folder(path: Path, **files: Any) -> Path:
    """A small safetensors model; keyword `name` writes name.json."""
    path.mkdir(exist_ok=True)
    safetensors.numpy.save_file({"w": np.zeros((2, 2), np.float32)}, path / "model.safetensors")
    contents = {"config": {"architectures": ["LlamaForCausalLM"], "eos_token_id": 7}, "tokenizer": {}, **files}
    for name, value in contents.items():
        if value is not None:
            (path / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def _gguf(path: Path, keys: dict[str, Any]) -> Path:
    writer = GGUFWriter()
    for key, value in keys.items():
        writer.add(key, value)
    writer.add_tensor("w", "f32", (4,), np.zeros(16, np.uint8))
    writer.write(path)
    return path


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path / "m",
        generation_config={"eos_token_id": [3, 4, 3]},
        tokenizer_config={"chat_template": "hello", "add_bos_token": True},
    )
    files = open_model(folder)
    assert (files.kind, files.architecture, files.chat_template) == ("safetensors", "LlamaForCausalLM", "hello")
    assert files.eos_token_ids == (3, 4)
    assert set(files.tokenizer_files) == {"tokenizer.json", "tokenizer_config.json"}
    assert files.tokenizer_config["add_bos_token"] is True
    assert list(files.checkpoint) == ["w"]
    assert open_model(folder / "model.safetensors").architecture == "LlamaForCausalLM"


def test_end_ids_fall_back_to_the_configuration(tmp_path: Path) -> None:
    assert open_model(_folder(tmp_path / "a")).eos_token_ids == (7,)
    nested = {"architectures": ["X"], "text_config": {"eos_token_id": [1, 106]}}
    assert open_model(_folder(tmp_path / "b", config=nested)).eos_token_ids == (1, 106)
    assert open_model(_folder(tmp_path / "c", config={"eos_token_id": None})).eos_token_ids == ()
    odd = {"eos_token_id": [True, -1, "x", 5]}
    assert open_model(_folder(tmp_path / "d", config=odd)).eos_token_ids == (5,)


def test_template_files_win_over_the_tokenizer_configuration(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "T"}, {"name": 3}, "x"]
    folder = _folder(tmp_path / "m", tokenizer_config={"chat_template": named})
    assert open_model(folder).chat_templates == {"default": "A", "tool_use": "T"}
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "B"}))
    assert open_model(folder).chat_template == "B"
    (folder / "chat_template.jinja").write_text("C")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("R")
    assert open_model(folder).chat_templates == {"default": "C", "tool_use": "T", "rag": "R"}


def test_everything_missing_is_named_in_one_message(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing: config\.json; weights .*; a tokenizer"):
        open_model(tmp_path)
    _folder(tmp_path, tokenizer=None)
    with pytest.raises(ModelError, match=r"missing: a tokenizer \(") as caught:
        open_model(tmp_path)
    assert "config.json" not in str(caught.value)
    assert open_model(tmp_path, needs_tokenizer=False).architecture == "LlamaForCausalLM"
    with pytest.raises(ModelError, match="does not exist"):
        open_model(tmp_path / "none")
    (tmp_path / "README.md").write_text("text")
    with pytest.raises(ModelError, match=r"README\.md is neither a \.gguf nor a \.safetensors file"):
        open_model(tmp_path / "README.md")


def test_a_folder_with_pickles_only_says_so(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled checkpoint"):
        open_model(folder)


def test_python_files_and_auto_map_are_never_executed(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m", config={"architectures": ["X"], "auto_map": {"AutoModel": "modeling.X"}})
    (folder / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    open_model(folder)
    assert not (tmp_path / "ran").exists()


def test_reading_a_local_model_opens_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a local model reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    open_model(_folder(tmp_path / "m"))


@pytest.mark.parametrize("text", ["", "[1]", "3", "{", "\x00", "[" * 200_000])
def test_a_configuration_that_is_no_json_object_is_a_format_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"config\.json"):
        open_model(_folder(tmp_path / "m", config=text))


def test_infinity_in_a_configuration_is_read(tmp_path: Path) -> None:
    files = open_model(_folder(tmp_path / "m", config='{"time_step_limit": [0.0, Infinity]}'))
    assert files.config["time_step_limit"][1] == math.inf


def test_an_oversized_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MAX_JSON_BYTES", 100)
    with pytest.raises(FormatError, match="larger than 100"):
        open_model(_folder(tmp_path / "m", config={"x": "y" * 200}))


def test_a_configuration_without_architecture_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json: architectures"):
        _ = open_model(_folder(tmp_path / "m", config={})).architecture


def test_a_gguf_file_is_read_from_its_metadata(tmp_path: Path) -> None:
    keys = {
        "general.architecture": "llama",
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 9,
        "tokenizer.chat_template": "T",
        "tokenizer.chat_template.tool_use": "U",
    }
    path = _gguf(tmp_path / "m.gguf", keys)
    for given in (path, tmp_path):
        files = open_model(given)
        assert (files.kind, files.architecture, files.eos_token_ids) == ("gguf", "llama", (2, 9))
        assert files.chat_templates == {"default": "T", "tool_use": "U"}
        assert files.metadata["general.architecture"] == "llama" and list(files.checkpoint) == ["w"]
    with pytest.raises(ModelError, match=r"general\.architecture"):
        _ = open_model(_gguf(tmp_path / "n.gguf", {})).architecture


def test_only_a_given_folder_lends_its_tokenizer_to_a_gguf(tmp_path: Path) -> None:
    path = _gguf(tmp_path / "m.gguf", {"general.architecture": "llama"})
    (tmp_path / "tokenizer.json").write_text("{}")
    assert open_model(path).tokenizer_files == {}
    assert set(open_model(tmp_path).tokenizer_files) == {"tokenizer.json"}

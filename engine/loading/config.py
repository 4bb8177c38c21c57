"""Everything read from a model's folder or file before its weights: configuration, tokenizer files, chat templates.

`open_model` reads a Hugging Face folder (config.json, generation_config.json, tokenizer files, safetensors) or a GGUF
file (its metadata) into one `ModelFiles`; what the values mean is for the model and tokenizer code.

Invariants: nothing here touches the network or runs code from the folder (`auto_map` is only text); a file is read once
and only up to a size cap; all missing files are named in one message. Paths are local, sizes bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from octavo.engine.errors import FormatError, ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.loading.gguf import GGUFFile

MAX_JSON_BYTES = 64 << 20
MAX_TEMPLATE_BYTES = 1 << 20
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tekken.json",
)
# one of the others must be there
_NO_VOCABULARY = ("_config.json", "_map.json", "_tokens.json", "merges.txt")
_VOCABULARIES = tuple(name for name in TOKENIZER_FILES if not name.endswith(_NO_VOCABULARY))


@dataclass(frozen=True)
class ModelFiles:
    """What a model's files say, unread weights included. `kind` is "gguf" or "safetensors"; close the checkpoint."""

    kind: str
    path: Path
    checkpoint: Checkpoint
    config: Mapping[str, Any] = field(default_factory=dict)  # config.json; empty for GGUF
    metadata: Mapping[str, Any] = field(default_factory=dict)  # GGUF keys; empty for safetensors
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_files: Mapping[str, Path] = field(default_factory=dict)  # file name -> path; may be empty for GGUF
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    chat_templates: Mapping[str, str] = field(default_factory=dict)  # name -> Jinja text; the usual one is "default"

    @property
    def architecture(self) -> str:
        """The Hugging Face architecture name or the GGUF architecture key. ModelError if the files do not say."""
        if self.kind == "gguf":
            name = self.metadata.get("general.architecture")
            where = "general.architecture"
        else:
            listed = self.config.get("architectures")
            name = listed[0] if isinstance(listed, list) and listed else None
            where = "config.json: architectures"
        if not isinstance(name, str) or not name:
            raise ModelError(f"{self.path} does not say its architecture ({where})")
        return name

    @property
    def chat_template(self) -> str | None:
        """The default chat template's Jinja text."""
        return self.chat_templates.get("default")

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a generation, in the files' order, without repeats; may be empty."""
        if self.kind == "gguf":
            keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
            found: list[Any] = [self.metadata.get(key) for key in keys]
        else:
            stated = self.generation_config.get("eos_token_id")
            if stated is None:
                stated = self.config.get("eos_token_id")
            if stated is None and isinstance(self.config.get("text_config"), dict):
                stated = self.config["text_config"].get("eos_token_id")
            found = stated if isinstance(stated, list) else [stated]
        ids = (value for value in found if isinstance(value, int) and not isinstance(value, bool) and value >= 0)
        return tuple(dict.fromkeys(ids))


def open_model(path: str | os.PathLike[str], *, needs_tokenizer: bool = True) -> ModelFiles:
    """Read a model folder, a .gguf file or a .safetensors file (its folder holds the rest).

    ModelError naming every missing file at once, FormatError for a file that breaks its format.
    """
    path = Path(path)
    if not path.exists():
        raise ModelError(f"{path} does not exist; give a model folder or a .gguf file")
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".gguf" or (path.is_dir() and not (path / "config.json").exists() and _has_gguf(path)):
        return _open_gguf(path)
    if path.is_file() and path.suffix != ".safetensors":
        raise ModelError(f"{path} is neither a .gguf nor a .safetensors file; give one, or the model's folder")
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if path.is_dir() and not any(_weights(folder)):
        missing.append("weights (model.safetensors, model.safetensors.index.json or a .gguf file)")
    if needs_tokenizer and not any((folder / name).is_file() for name in _VOCABULARIES):
        missing.append("a tokenizer (tokenizer.json, tokenizer.model or vocab files)")
    if missing:
        if path.is_dir():
            _refuse_only_pickles(folder)
        raise ModelError(f"{folder} is not a complete model folder; missing: {'; '.join(missing)}")
    tokenizer_config = read_json(folder / "tokenizer_config.json", is_optional=True)
    return ModelFiles(
        kind="safetensors",
        path=path,
        config=read_json(folder / "config.json"),
        generation_config=read_json(folder / "generation_config.json", is_optional=True),
        tokenizer_files=_tokenizer_files(folder),
        tokenizer_config=tokenizer_config,
        chat_templates=_folder_templates(folder, tokenizer_config),
        checkpoint=Checkpoint.open(path),
    )


def _open_gguf(path: Path) -> ModelFiles:
    """A .gguf file, or a folder holding one; only a folder's tokenizer files are taken to belong to the model."""
    checkpoint = Checkpoint.open(path)
    first = checkpoint.files[0]
    metadata = first.metadata if isinstance(first, GGUFFile) else {}
    return ModelFiles(
        kind="gguf",
        path=path,
        checkpoint=checkpoint,
        metadata=metadata,
        tokenizer_files=_tokenizer_files(path) if path.is_dir() else {},
        chat_templates=_gguf_templates(metadata),
    )


def _has_gguf(folder: Path) -> bool:
    return any(entry.suffix == ".gguf" for entry in folder.iterdir())


def _weights(folder: Path) -> Iterable[Path]:
    return (p for p in folder.iterdir() if p.suffix in (".safetensors", ".gguf") or p.name.endswith(".index.json"))


def _refuse_only_pickles(folder: Path) -> None:
    """When the weights that are missing are there as pickles, say that instead."""
    if not any(_weights(folder)):
        with_pickles = any(entry.suffix in (".bin", ".pt", ".pth", ".ckpt") for entry in folder.iterdir())
        if with_pickles:
            Checkpoint.open(folder)


def _tokenizer_files(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in TOKENIZER_FILES if (folder / name).is_file()}


def tokenizer_paths(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a tokenizer at `path` (a folder, a tokenizer.json, a .gguf or .safetensors file) is made of; empty if
    there are none."""
    path = Path(path)
    if path.suffix == ".gguf":
        return [path] if path.is_file() else []
    folder = path if path.is_dir() else path.parent
    found = list(_tokenizer_files(folder).values()) or sorted(folder.glob("*.gguf"))
    return found if path.suffix != ".json" or path in found or not path.is_file() else [path, *found]


def _read_bytes(path: Path, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    if len(raw) > most:
        raise FormatError(f"{path} is larger than {most} bytes", field=path.name, offset=most)
    return raw


def read_json(path: Path, *, is_optional: bool = False) -> dict[str, Any]:
    """A JSON object. Infinity and NaN, which some configurations hold, are read too."""
    if is_optional and not path.is_file():
        return {}
    value = _read_value(path)
    if not isinstance(value, dict):
        raise FormatError(f"{path} holds a JSON {type(value).__name__}, not an object", field=path.name)
    return value


def read_json_list(path: Path) -> list[Any]:
    """A JSON array."""
    value = _read_value(path)
    if not isinstance(value, list):
        raise FormatError(f"{path} holds a JSON {type(value).__name__}, not an array", field=path.name)
    return value


def _read_value(path: Path) -> Any:
    raw = _read_bytes(path, MAX_JSON_BYTES)
    try:
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not JSON: {error}", field=path.name) from None


def _folder_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name: `chat_template.jinja` wins over `chat_template.json` over `tokenizer_config.json`."""
    found = _named_templates(tokenizer_config.get("chat_template"))
    found |= _named_templates(read_json(folder / "chat_template.json", is_optional=True).get("chat_template"))
    extra = folder / "additional_chat_templates"
    files = [folder / "chat_template.jinja", *(sorted(extra.glob("*.jinja")) if extra.is_dir() else ())]
    for file in files:
        if file.is_file():
            name = "default" if file.parent == folder else file.stem
            found[name] = _read_bytes(file, MAX_TEMPLATE_BYTES).decode("utf-8", "replace")
    return found


def _named_templates(value: Any) -> dict[str, str]:
    """A template text, or a list of {"name": ..., "template": ...}."""
    if isinstance(value, str):
        return {"default": value}
    found: dict[str, str] = {}
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("template"), str):
            found[item["name"]] = item["template"]
    return found


def _gguf_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    found = {key[len(prefix) + 1 :]: text for key, text in metadata.items() if key.startswith(prefix + ".")}
    if prefix in metadata:
        found["default"] = metadata[prefix]
    return {name: text for name, text in found.items() if isinstance(text, str)}

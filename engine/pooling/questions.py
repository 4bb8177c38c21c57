"""Rerankers made of generators: how such a model is asked about a pair of texts, and which words' logits are its answer.

Folders of sentence-transformers say it themselves: LogitScore has the words' ids, the tokenizer's chat template has messages of
the roles query and document. Qwen3-Reranker and bge-reranker-v2-gemma are published as plain generators; they are known by their
folder's name and asked as their model cards do. A generator that neither says is no reranker. Sources: Zhang et al. 2025 (Qwen3
Embedding); FlagEmbedding's decoder-only rerankers; sentence-transformers 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import ModelFiles, read_json, tokenizer_paths
from octavo.engine.models.kind import pair_style_of
from octavo.engine.models.reader import Description
from octavo.engine.models.registry import HF, LAYERWISE, SCORED
from octavo.engine.pooling.modules import TEXT_CONFIGS, description, listed_modules

#: the answers' words, the one that speaks for a document first
_WORDS = {"qwen3": ("yes", "no"), "bge-gemma": ("Yes",)}
_ROLES = tuple(re.compile(rf"""["']{role}["']""") for role in ("query", "document"))


@dataclass(frozen=True)
class Question:
    """`style`: "template" (the chat template's roles), "qwen3", "bge-gemma", or "" for pairs as the tokenizer makes them. `rows`:
    ids of the words whose logits are compared, of generators; `options`: what the template is given besides."""

    style: str = ""
    rows: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def question_of(folder: Path, files: ModelFiles, tokenizer: str | None = None) -> Question | None:
    """How the decoder in `folder` is asked for scores; None: it is no decoder, or gives none. ModelError for files that
    contradict each other. `tokenizer`: a path to take it from instead of the model's own."""
    if files.kind == "gguf":
        return None
    name = files.architecture
    if name in LAYERWISE:
        raise ModelError(
            f"{files.path}: {name} is a reranker that ends in one of its middle layers, by code of its own, which is never run; "
            "of the same series bge-reranker-v2-gemma and bge-reranker-v2-m3 are served"
        )
    listed = [kind for kind, _ in listed_modules(folder)] if (folder / "modules.json").is_file() else []
    has_words = "LogitScore" in listed
    if has_words and name not in HF:
        raise ModelError(f"{folder / 'modules.json'}: LogitScore compares logits of a generator, and {name} is none")
    if name in SCORED:
        return _asked(folder, files, ())
    if has_words:
        return _asked(folder, files, _logit_score(folder))
    style = "" if listed else pair_style_of(folder, name)
    return _asked(folder, files, _ids_of(tokenizer or str(files.path), _WORDS[style])) if style else None


def _asked(folder: Path, files: ModelFiles, rows: tuple[int, ...]) -> Question:
    """The style, which follows from what the folder says of messages, and from the template."""
    has_modules = (folder / "modules.json").is_file()
    inner = files.path if files.path.is_dir() else files.path.parent
    file = next((inner / name for name in TEXT_CONFIGS if (inner / name).is_file()), None)
    said = {} if file is None else read_json(file)
    named = pair_style_of(folder, files.architecture)
    template = files.chat_templates.get("default", "")
    modalities = said.get("modality_config")
    if has_modules and (not template or (isinstance(modalities, Mapping) and "message" not in modalities)):
        return Question("", rows)
    if all(role.search(template) for role in _ROLES):
        return Question("template", rows, _options(said, str(file)))
    if named:
        return Question(named, rows)
    if rows:
        raise ModelError(
            f"{files.path}: the chat template has no messages of the roles query and document, so it cannot ask about a pair; "
            "give the folder the template of its reranker (chat_template.jinja)"
        )
    return Question(
        "", rows, notes=(f"{files.path} says no question: query and document are put together as they are",)
    )


def _options(said: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`processing_kwargs` as far as they concern the template. Limits are read elsewhere; padding changes nothing here."""
    given = said.get("processing_kwargs") or {}
    if not isinstance(given, Mapping) or not all(isinstance(part, Mapping) for part in given.values()):
        raise ModelError(f"{where}: processing_kwargs is {given!r}; it must be options by name")
    text = Description(given.get("text", {}), f"{where}: processing_kwargs.text")
    text.expect("truncation", True, "longest_first")
    text.expect("logits_to_keep", 1)
    text.skip("padding")
    text.finish()
    own = dict(given.get("chat_template", {}))
    if own.pop("restore_suffix", True) is not True:
        raise ModelError(f"{where}: restore_suffix is off, so that a long pair loses its question; it must be left on")
    if not all(isinstance(value, (bool, int, float, str)) for value in own.values()):
        raise ModelError(
            f"{where}: processing_kwargs.chat_template is {own!r}; served are texts, numbers, true and false"
        )
    return {"add_generation_prompt": False, **own}


def _logit_score(folder: Path) -> tuple[int, ...]:
    """`1_LogitScore/config.json`."""
    listed = listed_modules(folder)
    if [kind for kind, _ in listed] != ["Transformer", "LogitScore"]:
        others = ", ".join(kind for kind, _ in listed if kind != "LogitScore")
        raise ModelError(
            f"{folder / 'modules.json'}: LogitScore stands beside {others}; it is served behind a Transformer alone"
        )
    cfg = description(listed[1][1] / "config.json")
    true, false = cfg.whole("true_token_id"), cfg.get("false_token_id")
    rows = (true,) if false is None else (true, cfg.whole("false_token_id"))
    cfg.expect("module_input_name", "causal_logits")
    cfg.finish()
    return rows


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[Any] = {}


class _Vocabulary(msgspec.Struct):
    model: _Model


def _ids_of(path: str, words: tuple[str, ...]) -> tuple[int, ...]:
    """Ids of words in a tokenizer's vocabulary, without building it."""
    file = next((one for one in tokenizer_paths(path) if one.name == "tokenizer.json"), None)
    if file is None:
        raise ModelError(f"{path} has no tokenizer.json, which says the ids of {' and '.join(words)}")
    try:
        vocab = msgspec.json.decode(file.read_bytes(), type=_Vocabulary).model.vocab
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"{file}: {error}") from None
    ids = vocab if isinstance(vocab, dict) else {entry[0]: place for place, entry in enumerate(vocab) if entry}
    missing = [word for word in words if word not in ids]
    if missing:
        raise ModelError(
            f"{file} has no token {' and none '.join(missing)}; it is not the tokenizer of such a reranker"
        )
    return tuple(ids[word] for word in words)

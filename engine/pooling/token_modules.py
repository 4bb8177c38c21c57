"""Folders of models that give sparse vectors or a vector per token: what their files say, read in full.

- sentence-transformers' SparseEncoder: Transformer (or MLMTransformer) of a masked language model, then SpladePooling;
- its MultiVectorEncoder: Transformer, Dense layers, MultiVectorMask and Normalize, all over tokens;
- PyLate's ColBERT: Transformer and Dense, the rest in config_sentence_transformers.json;
- Stanford's ColBERT (`HF_ColBERT`): a linear layer in the checkpoint, the rest in artifact.metadata.

bge-m3 is a folder of dense vectors with two files beside it (`joined`). Every key is read or known to change nothing.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import read_json
from octavo.engine.models.reader import Description
from octavo.engine.pooling.modules import Pipeline, Reader, description, listed_modules, transformer_folder
from octavo.engine.pooling.outputs import ROLES, Expansion, Joined, Late, Role, Splade

_SPARSE = ("sparse_linear.safetensors", "sparse_linear.pt")
_VECTORS = ("colbert_linear.safetensors", "colbert_linear.pt")
_LENGTH = 32  # of queries, where a file does not say
_STANFORD = "HF_ColBERT"


def needs_head(folder: Path, architecture: str) -> bool:
    """Whether vectors of this folder are made by the checkpoint's own head."""
    if architecture == _STANFORD:
        return True
    return (folder / "modules.json").is_file() and any(kind == "SpladePooling" for kind, _ in listed_modules(folder))


def gives_tokens(folder: Path, architecture: str) -> bool:
    """Whether the folder is one of those above."""
    if not (folder / "modules.json").is_file():
        return architecture == _STANFORD
    kinds = {kind for kind, _ in listed_modules(folder)}
    return "Pooling" not in kinds and bool(kinds & {"SpladePooling", "MultiVectorMask", "Dense"})


def joined(folder: Path) -> Joined | None:
    """bge-m3's layers, if the folder has them."""
    found = [
        next((folder / name for name in names if (folder / name).is_file()), None) for names in (_SPARSE, _VECTORS)
    ]
    return Joined(*found) if any(found) else None


def read_token_pipeline(
    folder: Path,
    *,
    config: Mapping[str, Any],
    hidden: int,
    vocab: int,
    head_width: int,
    max_tokens: int,
    tokenizer_config: Mapping[str, Any],
) -> Pipeline:
    """The pipeline of such a folder; `head_width`: values that the checkpoint's own head gives, 0 without one."""
    reader = _TokenReader(folder, hidden, max_tokens)
    architecture = next(iter(config.get("architectures") or [""]))
    if architecture == _STANFORD and not (folder / "modules.json").is_file():
        return reader.stanford(config, tokenizer_config, head_width)
    return reader.tokens(config, tokenizer_config, vocab)


class _TokenReader(Reader):
    """Reads one folder of these."""

    def tokens(self, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any], vocab: int) -> Pipeline:
        """modules.json."""
        listed = listed_modules(self.folder)
        found: dict[str, Any] = {"modes": (), "dense": (), "width": self.hidden, "normalizes": False}
        masks: dict[str, Any] | None = None
        for kind, at in listed[1:]:
            if kind == "SpladePooling" and len(listed) == 2:
                found |= {"splade": self.splade(at), "width": vocab}
            elif kind == "Dense" and "splade" not in found:
                dense = self.dense(at, found["width"], "token_embeddings")
                found |= {"dense": (*found["dense"], dense), "width": dense.num_out}
            elif kind == "MultiVectorMask" and masks is None:
                masks = self.masks(at)
            elif kind == "Normalize" and "splade" not in found:
                self.over_tokens(at)
                found["normalizes"] = True
            else:
                raise ModelError(
                    f"{self.folder / 'modules.json'}: {kind} at {at.name} is not served there; served are Transformer and "
                    "SpladePooling, or Transformer, Dense, MultiVectorMask and Normalize over tokens"
                )
        is_masked = "splade" in found
        at, task = transformer_folder(self.folder), "fill-mask" if is_masked else "feature-extraction"
        lengths: dict[str, Any] = {}
        found |= self.text(at, tokenizer_config, task, more=lengths)
        if is_masked:
            return self.done(found | self.usage(config, "SparseEncoder", "dot"))
        older: dict[str, Any] = {}
        usage = self.usage(config, "MultiVectorEncoder", "maxsim", more=older)
        late: dict[str, Any] = {"normalizes": found.pop("normalizes") or masks is None}
        if older.get("model_type") == "ColBERT" or masks is None:
            late |= self.pylate(older)
        else:
            late |= self.roles(lengths, usage["prompts"]) | masks
        return self.done(found | usage | {"late": Late(**late), "normalizes": False})

    def stanford(self, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any], width: int) -> Pipeline:
        """artifact.metadata, of which all keys but these are of training and indexing."""
        file = self.folder / "artifact.metadata"
        if not file.is_file():
            self.notes.append(f"{file} is missing: markers are [unused0] and [unused1], queries of {_LENGTH} tokens")
        cfg = Description(read_json(file, is_optional=True), str(file))
        cfg.expect("similarity", "cosine")
        dim = cfg.whole("dim", width)
        if dim != width:
            raise cfg.bad("dim", dim, f"the width of the checkpoint's linear layer, {width}")
        late = Late(
            has_head=True,
            prefixes=(
                ("query", cfg.text("query_token_id", "[unused0]")),
                ("document", cfg.text("doc_token_id", "[unused1]")),
            ),
            lengths=(("document", cfg.whole("doc_maxlen")),) if cfg.get("doc_maxlen") is not None else (),
            expansion=Expansion(cfg.whole("query_maxlen", _LENGTH), cfg.flag("attend_to_mask_tokens", False)),
            skip_words=tuple(string.punctuation) if cfg.flag("mask_punctuation", True) else (),
        )
        found = self.text(self.folder, tokenizer_config) | self.usage(config, "MultiVectorEncoder", "maxsim")
        return self.done({"modes": (), "width": width, "late": late, **found})

    def done(self, found: dict[str, Any]) -> Pipeline:
        """The pipeline, its notes logged."""
        self.log_notes()
        return Pipeline(**found, notes=tuple(self.notes))

    def splade(self, at: Path) -> Splade:
        """`1_SpladePooling/config.json`."""
        cfg = description(at / "config.json")
        pooling = cfg.text("pooling_strategy", "max")
        activation = cfg.text("activation_function", "relu")
        cfg.expect("pooling_strategy", "max", "sum")
        cfg.expect("activation_function", "relu", "log1p_relu")
        cfg.skip("embedding_dimension", "word_embedding_dimension", "chunk_size")  # the vocabulary's; how it computes
        cfg.finish()
        return Splade("max" if pooling == "max" else "sum", activation == "log1p_relu")

    def over_tokens(self, at: Path) -> None:
        """A Normalize module behind vectors of tokens."""
        cfg = Description(read_json(at / "config.json", is_optional=True), str(at / "config.json"))
        for key in ("module_input_name", "module_output_name"):
            cfg.expect(key, "token_embeddings")
        cfg.finish()

    def masks(self, at: Path) -> dict[str, Any]:
        """`MultiVectorMask/config.json`: which tokens give no vector."""
        cfg = description(at / "config.json")
        words, roles = cfg.get("skiplist_words", []), cfg.get("skiplist_tasks", ["document"])
        roles = [roles] if isinstance(roles, str) else roles
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise cfg.bad("skiplist_words", words, "a list of words")
        if not isinstance(roles, list) or not set(roles) <= set(ROLES):
            raise cfg.bad("skiplist_tasks", roles, " or ".join(ROLES))
        cfg.expect("keep_only_token_ids")
        cfg.finish()
        return {"skip_words": tuple(words), "skip_roles": tuple(roles)}

    def roles(self, lengths: Mapping[str, Any], prompts: Mapping[str, str]) -> dict[str, Any]:
        """Markers (the model's prompts), lengths and expansion as MultiVectorEncoder writes them beside the Transformer."""
        where = f"{self.folder}: query_expansion"
        own = lengths.get("query_expansion")
        expansion = None
        if own is not None:
            cfg = Description(own if isinstance(own, dict) else {}, where)
            cfg.expect("strategy", "fixed", "min")
            token = None if cfg.get("token") is None else cfg.text("token")
            is_fixed = cfg.text("strategy") == "fixed"
            expansion = Expansion(cfg.whole("length"), cfg.flag("attend", False), token, is_fixed)
            cfg.finish()
        return {
            "prefixes": tuple((role, prompts[role]) for role in ROLES if prompts.get(role)),
            "lengths": self.capped(lengths),
            "expansion": expansion,
        }

    def capped(self, said: Mapping[str, Any]) -> tuple[tuple[Role, int], ...]:
        """`query_length` and `document_length`, where they are said."""
        cfg = Description(said, f"{self.folder}")
        return tuple((role, cfg.whole(f"{role}_length")) for role in ROLES if cfg.get(f"{role}_length") is not None)

    def pylate(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """The same as PyLate writes it into config_sentence_transformers.json."""
        cfg = Description(said, f"{self.folder / 'config_sentence_transformers.json'}")
        words = cfg.get("skiplist_words", list(string.punctuation))
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise cfg.bad("skiplist_words", words, "a list of words")
        lengths = dict(self.capped(said))
        expansion = None
        if cfg.flag("do_query_expansion", True):
            attends = cfg.flag("attend_to_expansion_tokens", False)
            expansion = Expansion(lengths.pop("query", _LENGTH), attends)
        prefixes = ((role, cfg.text(f"{role}_prefix", "")) for role in ROLES)
        return {
            "prefixes": tuple((role, text) for role, text in prefixes if text),
            "lengths": tuple(lengths.items()),
            "expansion": expansion,
            "skip_words": tuple(words),
        }

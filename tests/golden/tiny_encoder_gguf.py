"""The tiny encoders of tiny_encoders.py, and sentence-transformers folders, written as GGUF files.

Names come from the `gguf` package's own map, so that they do not depend on Octavo's. Conventions, from llama.cpp's conversion
scripts: word pieces that begin a word have a visible space in front, others have lost their `##`; RoBERTa's table of positions
begins behind the padding row; BERT's pooler and masked heads are left out; the pooling is a number in the metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_encoders

from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.quant.load import pack

Tensors = dict[str, NDArray[np.float32]]

#: case of tiny_encoders.py -> architecture
CASES = {
    "bert": "bert",
    "bert_masked": "bert",
    "roberta": "bert",
    "xlm_roberta": "bert",
    "distilbert": "bert",
    "nomic_bert": "nomic-bert",
    "jina_bert": "jina-bert-v2",
    "modernbert": "modern-bert",
}
#: changes of config.json where GGUF cannot say what the case says
CHANGES: dict[str, dict[str, Any]] = {"bert_masked": {"hidden_act": "gelu"}}
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
_PREFIXES = ("bert.", "roberta.", "distilbert.")
_LEFT_OUT = ("pooler.", "cls.predictions", "embeddings.position_ids")


def config_of(case: str) -> dict[str, Any]:
    """The case's config.json with the changes that make it expressible in GGUF."""
    return {**tiny_encoders.CASES[case], **CHANGES.get(case, {})}


def write_gguf(case: str, path: Path, *, pooling: str | None = None, formats: dict[str, str] | None = None) -> Path:
    """Writes the case to `path`; `formats`: of matrices by the last part of their names, others are f32."""
    tensors = renamed(CASES[case], config_of(case), tiny_encoders.state_dict(case))
    return write(path, CASES[case], config_of(case), tensors, pooling=pooling, formats=formats)


def renamed(architecture: str, config: dict[str, Any], tensors: Tensors, *, splits: bool = False) -> Tensors:
    """Tensors under their GGUF names. `splits`: JinaBERT's gate and up apart, as older converters wrote them."""
    import gguf

    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.get("num_hidden_layers", config.get("n_layers", 0)))
    offset = config["pad_token_id"] + 1 if config["model_type"] in ("roberta", "xlm-roberta") else 0
    found: Tensors = {}
    for name, values in tensors.items():
        short = name
        for prefix in _PREFIXES:
            short = short.removeprefix(prefix)
        if short.startswith(_LEFT_OUT):
            continue
        parts = {short: values}
        if splits and "gated_layers" in short:
            gate, up = np.split(values, 2)
            parts = {
                short.replace("gated_layers", "gated_layers_w"): gate,
                short.replace("gated_layers", "gated_layers_v"): up,
            }
        for part, rows in parts.items():
            target = names.get_name(part, try_suffixes=(".weight", ".bias"))
            if target is None:
                raise KeyError(f"{architecture} has no GGUF name for {part}")
            found[target] = rows[offset:] if target == "position_embd.weight" else rows
    return found


def write(
    path: Path,
    architecture: str,
    config: dict[str, Any],
    tensors: Tensors,
    *,
    pooling: str | None = None,
    formats: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> Path:
    """A file of `tensors`; `more`: further keys of metadata, the tokenizer's among them. Matrices of one row are vectors there,
    as llama.cpp's own writer has them."""
    writer = GGUFWriter()
    writer.add("general.architecture", architecture)
    for key, value in {**_metadata(architecture, config), "attention.causal": False}.items():
        writer.add(f"{architecture}.{key}", value)
    if pooling is not None:
        writer.add(f"{architecture}.pooling_type", POOLING[pooling])
    for key, value in (more or {}).items():
        writer.add(key, value)
    for name, values in tensors.items():
        form = (formats or {}).get(name.split(".")[-2], "f32") if name.endswith(".weight") else "f32"
        shape = values.shape[1:] if values.ndim == 2 and values.shape[0] == 1 else values.shape
        packed = pack(form, np.ascontiguousarray(values))
        writer.add_tensor(name, form, shape, np.ascontiguousarray(packed).view(np.uint8))
    writer.write(path)
    return path


def _metadata(architecture: str, config: dict[str, Any]) -> dict[str, Any]:
    is_distil = config["model_type"] == "distilbert"
    has_offset = config["model_type"] in ("roberta", "xlm-roberta")
    found = {
        "block_count": config["n_layers" if is_distil else "num_hidden_layers"],
        "context_length": config["max_position_embeddings"] - (config["pad_token_id"] + 1 if has_offset else 0),
        "embedding_length": config["dim" if is_distil else "hidden_size"],
        "feed_forward_length": config["hidden_dim" if is_distil else "intermediate_size"],
        "attention.head_count": config["n_heads" if is_distil else "num_attention_heads"],
        "attention.layer_norm_epsilon": config.get("layer_norm_eps", config.get("norm_eps", 1e-12)),
    }
    if architecture == "modern-bert":
        found |= {
            "attention.sliding_window": config["local_attention"],
            "attention.sliding_window_pattern": config["global_attn_every_n_layers"],
            "rope.freq_base": float(config["global_rope_theta"]),
            "rope.freq_base_swa": float(config["local_rope_theta"]),
            "rope.scaling.type": "none",
            "hidden_act": config["hidden_activation"],
        }
    if architecture == "nomic-bert":
        found["rope.freq_base"] = float(config["rope_parameters"]["rope_theta"])
    return found


def word_pieces(folder: Path) -> dict[str, Any]:
    """The keys of a folder's word-piece tokenizer.json."""
    said = json.loads((folder / "tokenizer.json").read_text())
    assert said["model"]["type"] == "WordPiece"
    special = {entry["content"] for entry in said["added_tokens"] if entry["special"]}
    tokens = sorted(said["model"]["vocab"], key=said["model"]["vocab"].__getitem__)
    ids = {name: said["model"]["vocab"][f"[{name}]"] for name in ("CLS", "SEP", "PAD", "UNK", "MASK")}
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "jina-v2-en",
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.tokens": [text if text in special else _phantom(text) for text in tokens],
        "tokenizer.ggml.token_type": np.array([3 if text in special else 1 for text in tokens], np.int32),
        "tokenizer.ggml.bos_token_id": ids["CLS"],
        "tokenizer.ggml.cls_token_id": ids["CLS"],
        "tokenizer.ggml.seperator_token_id": ids["SEP"],
        "tokenizer.ggml.eos_token_id": ids["SEP"],
        "tokenizer.ggml.padding_token_id": ids["PAD"],
        "tokenizer.ggml.unknown_token_id": ids["UNK"],
        "tokenizer.ggml.mask_token_id": ids["MASK"],
    }


def _phantom(text: str) -> str:
    return text[2:] if text.startswith("##") else "\u2581" + text


def write_folder(
    folder: Path,
    path: Path,
    *,
    pooling: str | None = "mean",
    formats: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> Path:
    """A sentence-transformers folder of BERT's as a GGUF file, with its tokenizer and weights; `more`: keys of metadata."""
    from octavo.engine.loading.checkpoint import Checkpoint
    from octavo.engine.models.raw import floats_of
    from octavo.engine.models.source import raw_tensor

    config = json.loads((folder / "config.json").read_text())
    with Checkpoint.open(folder) as checkpoint:
        tensors = {
            name: np.array(floats_of(raw_tensor(checkpoint, name))) for name in checkpoint if "position_ids" not in name
        }
    return write(
        path,
        "bert",
        config,
        renamed("bert", config, tensors),
        pooling=pooling,
        formats=formats,
        more={**word_pieces(folder), **(more or {})},
    )

"""Tiny sentence-transformers folders: an encoder of tiny_encoders.py, a word-piece tokenizer, and modules as asked for.

`CASES` have golden vectors (make_sentence_golden.py): how the folder is written, and what `encode` is asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.golden import tiny, tiny_encoders

MODULE = "sentence_transformers.models."
WORDS = (
    *("the", "cat", "dog", "sat", "ran", "on", "under", "a", "mat", "tree", "river", "house", "green", "old", "small"),
    *("query", "passage", ":", "##s", "##ly", "kanto", "cafe", "東", "京", ",", "."),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

TEXTS = (
    "The cat sat on the mat.",
    "a small dog ran under the old tree, the river , a house",
    "Kant\u014d",
    " ",
    "green green green house: dogs ran on the mat. " * 3,
)
_PROMPTS = {"prompts": {"query": "query : ", "passage": "passage: "}}
_LEFT_OUT = {"pooling_mode_mean_tokens": True, "include_prompt": False}
_LEFT_OUT_WEIGHTED = {"pooling_mode": "weightedmean", "include_prompt": False}
_TANH = {"out_features": 48}
_WIDE = {"out_features": 256, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
_PLAIN = {"out_features": 24, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mean": ({}, {}),
    "mean_plain": ({"normalizes": False}, {}),
    "cls": ({"pooling": {"pooling_mode_cls_token": True}}, {}),
    "last": ({"pooling": {"pooling_mode": "lasttoken"}, "case": "roberta"}, {}),
    "max": ({"pooling": {"pooling_mode_max_tokens": True}, "normalizes": False}, {}),
    "sqrt": ({"pooling": {"pooling_mode_mean_sqrt_len_tokens": True}, "normalizes": False}, {}),
    "weighted": ({"pooling": {"pooling_mode_weightedmean_tokens": True}, "case": "distilbert"}, {}),
    "joined": ({"pooling": {"pooling_mode": ["cls", "mean", "max"]}}, {}),
    "dense": ({"dense": (_TANH, _PLAIN)}, {}),
    "dense_joined": ({"pooling": {"pooling_mode": ["max", "mean"]}, "dense": (_TANH,)}, {}),
    "prompt": ({"usage": {**_PROMPTS, "default_prompt_name": "passage"}}, {"prompt_name": "query"}),
    "default_prompt": ({"usage": {**_PROMPTS, "default_prompt_name": "passage"}}, {}),
    "prompt_left_out": ({"usage": _PROMPTS, "pooling": _LEFT_OUT}, {"prompt_name": "query"}),
    "prompt_weighted": ({"usage": _PROMPTS, "pooling": _LEFT_OUT_WEIGHTED}, {"prompt_name": "query"}),
    "qwen3_embedding": (
        {
            "case": "qwen3_causal",
            "pooling": {"pooling_mode_lasttoken": True, "include_prompt": True},
            "usage": _PROMPTS,
        },
        {"prompt_name": "query"},
    ),
    "e5_mistral": ({"case": "mistral_bare", "pooling": {"pooling_mode_lasttoken": True}}, {}),
    "embedding_gemma": (
        {"case": "gemma3_bare", "dense": (_WIDE, _PLAIN), "usage": _PROMPTS},
        {"prompt_name": "passage"},
    ),
    "cut": ({"text": {"max_seq_length": 12}}, {}),
}


def write_case(name: str, folder: Path) -> Path:
    """The folder of a case."""
    return write(folder, **CASES[name][0])


def write_tokenizer(folder: Path) -> None:
    """A lower-casing word-piece tokenizer that puts [CLS] and [SEP] around a text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocab = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
    rust = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    rust.normalizer = normalizers.BertNormalizer(lowercase=True)
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece()
    rust.add_special_tokens(list(SPECIAL))
    rust.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    rust.save(str(folder / "tokenizer.json"))
    names = {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    }
    inputs = ["input_ids", "attention_mask"]
    said = {**names, "tokenizer_class": "BertTokenizer", "model_input_names": inputs}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))


def write(
    folder: Path,
    *,
    case: str = "bert",
    pooling: dict[str, Any] | None = None,
    dense: tuple[dict[str, Any], ...] = (),
    normalizes: bool = True,
    text: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """A model folder. `pooling`: keys of 1_Pooling/config.json; `dense`: of each Dense (out_features, activation_function, ...);
    `text`, `usage`, `config`: keys of the other three files."""
    from safetensors.numpy import save_file

    tiny_encoders.write_safetensors(case, folder)
    (folder / "config.json").write_text(json.dumps({**tiny_encoders.ALL[case], **(config or {})}))
    write_tokenizer(folder)
    hidden = 64
    listed = [("", "Transformer"), ("1_Pooling", "Pooling")]
    keys = {"word_embedding_dimension": hidden, **({"pooling_mode_mean_tokens": True} if pooling is None else pooling)}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(keys))
    mode = keys.get("pooling_mode")
    width = hidden * max(1, sum(v is True for k, v in keys.items() if k.startswith("pooling_mode_")))
    width = hidden * len(mode) if isinstance(mode, list) else width
    for place, layer in enumerate(dense, 2):
        at = folder / f"{place}_Dense"
        at.mkdir(exist_ok=True)
        full = {"in_features": width, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh", **layer}
        (at / "config.json").write_text(json.dumps(full))
        tensors = {"linear.weight": (full["out_features"], full["in_features"])}
        if full["bias"]:
            tensors["linear.bias"] = (full["out_features"],)
        made = {
            name: (0.2 * tiny.random_values(f"{case}{place}", name).standard_normal(shape)).astype("float32")
            for name, shape in tensors.items()
        }
        save_file(made, at / "model.safetensors")
        listed.append((at.name, "Dense"))
        width = full["out_features"]
    if normalizes:
        listed.append((f"{len(listed)}_Normalize", "Normalize"))
    modules = [{"idx": i, "name": str(i), "path": path, "type": MODULE + kind} for i, (path, kind) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, **(text or {})}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(usage or {}))
    return folder

"""Tiny cross-encoder folders: a checkpoint of tiny_heads.py, the word-piece tokenizer of tiny_sentences.py, and the files that
say what scores become. `CASES` have golden scores (make_pair_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.golden import tiny_heads, tiny_sentences

PAIRS = (
    ("the cat", "The cat sat on the mat."),
    ("a small dog", "a house"),
    ("green house : query", "the river"),
    ("a small dog ran under the old tree", "the old tree, the river , a house"),
    ("the cat", "green green green house: dogs ran on the mat. " * 6),
    ("green green green house: dogs ran on the mat. " * 6, "cat sat on a mat, " * 5),
)
_IDENTITY = "torch.nn.modules.linear.Identity"
_MODULE = "sentence_transformers.base.modules.transformer.Transformer"
_SEGMENTS = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
_ONE_SEGMENT = {"model_input_names": ["input_ids", "attention_mask"]}

#: case -> options of `write`
CASES: dict[str, dict[str, Any]] = {
    "one": {"case": "bert_one"},
    "identity": {
        "case": "bert_one",
        "config": {"sentence_transformers": {"activation_fn": _IDENTITY, "version": "4.0.0"}},
    },
    "older": {"case": "bert_one", "config": {"sbert_ce_default_activation_function": _IDENTITY}},
    "newer": {
        "case": "bert_one",
        "config": {"sentence_transformers": {"activation_fn": _IDENTITY}},
        "usage": {"activation_fn": "torch.nn.modules.activation.Tanh", "model_type": "CrossEncoder"},
    },
    "prompt": {
        "case": "bert_one",
        "usage": {"prompts": {"query": "query : "}, "default_prompt_name": "query", "model_type": "CrossEncoder"},
    },
    "cut": {"case": "bert_one", "most": 21},
    "cut_even": {"case": "bert_one", "most": 22},
    "labels": {"case": "bert_sequence"},
    "no_segments": {"case": "bert_one", "tokenizer": _ONE_SEGMENT},
    "xlm": {"case": "xlm_sequence", "tokenizer": _ONE_SEGMENT},
    "distilbert": {"case": "distilbert_sequence", "tokenizer": _ONE_SEGMENT},
    "modernbert": {"case": "modernbert_cls", "tokenizer": _ONE_SEGMENT},
    "modernbert_mean": {"case": "modernbert_mean", "tokenizer": _ONE_SEGMENT},
}


def write_case(name: str, folder: Path) -> Path:
    """The folder of a case."""
    return write(folder, **CASES[name])


def write(
    folder: Path,
    *,
    case: str = "bert_one",
    config: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
    most: int = 100,
) -> Path:
    """A folder. `config`, `usage`, `tokenizer`: keys of config.json, config_sentence_transformers.json, tokenizer_config.json;
    `most`: tokens of a pair at most."""
    tiny_heads.write_safetensors(case, folder)
    (folder / "config.json").write_text(json.dumps({**tiny_heads.config(case), **(config or {})}))
    tiny_sentences.write_tokenizer(folder)
    file = folder / "tokenizer_config.json"
    said = {**json.loads(file.read_text()), "model_max_length": most, **_SEGMENTS, **(tokenizer or {})}
    file.write_text(json.dumps(said))
    if usage is not None:  # as newer versions write a whole folder
        (folder / "config_sentence_transformers.json").write_text(json.dumps(usage))
        (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": _MODULE}]))
        text = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
        (folder / "sentence_bert_config.json").write_text(json.dumps(text))
    return folder

"""Tiny random checkpoints with a head: an encoder of tiny_encoders.py in the form that has a prefix, and a head's tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny, tiny_encoders

LENGTHS = (1, 7, 33)
_LABELS = {"id2label": {"0": "no", "1": "maybe", "2": "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
_ONE = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
_HEADS = ("cls.", "lm_head.", "vocab_", "head.", "decoder.")  # of masked language models

#: case -> (case of tiny_encoders.py, what its config.json says otherwise)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert_masked": ("bert_masked", {}),
    "bert_untied": ("bert_masked", {"tie_word_embeddings": False}),
    "bert_sequence": ("bert_masked", {"architectures": ["BertForSequenceClassification"], **_LABELS}),
    "bert_one": ("bert_masked", {"architectures": ["BertForSequenceClassification"], **_ONE}),
    "bert_token": ("bert_masked", {"architectures": ["BertForTokenClassification"], **_LABELS}),
    "roberta_masked": ("roberta_masked", {}),
    "roberta_sequence": ("roberta_masked", {"architectures": ["RobertaForSequenceClassification"]}),
    "roberta_token": ("roberta_masked", {"architectures": ["RobertaForTokenClassification"], **_LABELS}),
    "xlm_masked": ("xlm_roberta_masked", {}),
    "xlm_sequence": ("xlm_roberta_masked", {"architectures": ["XLMRobertaForSequenceClassification"], **_ONE}),
    "xlm_token": ("xlm_roberta_masked", {"architectures": ["XLMRobertaForTokenClassification"], **_LABELS}),
    "distilbert_masked": ("distilbert_masked", {}),
    "distilbert_sequence": (
        "distilbert_masked",
        {"architectures": ["DistilBertForSequenceClassification"], "activation": "gelu", **_LABELS},
    ),
    "distilbert_token": ("distilbert_masked", {"architectures": ["DistilBertForTokenClassification"], **_LABELS}),
    "modernbert_masked": ("modernbert_masked", {}),
    "modernbert_cls": (
        "modernbert_masked",
        {"architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "cls", **_ONE},
    ),
    "modernbert_mean": (
        "modernbert_masked",
        {
            "architectures": ["ModernBertForSequenceClassification"],
            **_LABELS,
            "classifier_pooling": "mean",
            "classifier_bias": True,
            "classifier_activation": "silu",
        },
    ),
    "deberta_masked": ("deberta_masked", {}),
    "deberta_sequence": (
        "deberta_masked",
        {"architectures": ["DebertaV2ForSequenceClassification"], **_LABELS, "pooler_hidden_act": "tanh"},
    ),
    "deberta_one": ("deberta_masked", {"architectures": ["DebertaV2ForSequenceClassification"], **_ONE}),
    "deberta_token": ("deberta_masked", {"architectures": ["DebertaV2ForTokenClassification"], **_LABELS}),
    "modernbert_token": ("modernbert_masked", {"architectures": ["ModernBertForTokenClassification"], **_LABELS}),
}


def config(case: str) -> dict[str, Any]:
    """config.json of a case."""
    base, changes = CASES[case]
    return {**tiny_encoders.CASES[base], **changes}


def state_dict(case: str) -> dict[str, NDArray[np.float32]]:
    """Every tensor of a case in float32."""
    base = tiny_encoders.state_dict(CASES[case][0])
    architecture = config(case)["architectures"][0]
    if architecture.endswith("ForMaskedLM"):
        if "untied" not in case:
            return base
        own = {"cls.predictions.decoder.weight": (256, 64), "cls.predictions.decoder.bias": (256,)}
        return base | {name: _values(case, name, shape) for name, shape in own.items()}
    kept = {name: values for name, values in base.items() if not name.startswith(_HEADS)}
    return kept | {name: _values(case, name, shape) for name, shape in _shapes(case, architecture).items()}


def write_safetensors(case: str, folder: Path) -> Path:
    """config.json and model.safetensors of a case."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(case)))
    save_file(state_dict(case), folder / "model.safetensors")
    return folder


def _shapes(case: str, architecture: str) -> dict[str, tuple[int, ...]]:
    """A classification's tensors."""
    hidden, num_labels, is_sequence = 64, len(config(case).get("id2label", "ab")), "Sequence" in architecture
    layers = {
        "bert": [("bert.pooler.dense", hidden)] * is_sequence + [("classifier", num_labels)],
        "roberta": (
            [("classifier.dense", hidden), ("classifier.out_proj", num_labels)]
            if is_sequence
            else [("classifier", num_labels)]
        ),
        "deberta-v2": [("pooler.dense", hidden)] * is_sequence + [("classifier", num_labels)],
        "distilbert": [("pre_classifier", hidden)] * is_sequence + [("classifier", num_labels)],
        "modernbert": [("head.dense", hidden), ("classifier", num_labels)],
    }[config(case)["model_type"].removeprefix("xlm-")]
    found: dict[str, tuple[int, ...]] = {}
    for name, num_out in layers:
        found[f"{name}.weight"] = (num_out, hidden)
        if name != "head.dense" or config(case).get("classifier_bias"):
            found[f"{name}.bias"] = (num_out,)
    if "Modern" in architecture:
        found |= {"head.norm.weight": (hidden,), "head.norm.bias": (hidden,)}
    return found


def _values(case: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    noise = tiny.random_values(case, name).standard_normal(shape)
    mean, spread = (0.9 if name.endswith("norm.weight") else 0.0), 0.18 if len(shape) == 2 else 0.3
    return (mean + spread * noise).astype(np.float32)

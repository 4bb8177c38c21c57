"""Tiny folders of models that give sparse vectors or a vector per token, as each library writes them. `CASES` have golden values
(make_token_golden.py)."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
from tests.golden import tiny, tiny_encoders, tiny_heads, tiny_sentences

TEXTS = (
    "The cat sat on the mat.",
    "a small dog ran under the old tree, the river , a house",
    "Kant\u014d",
    "green green green house: dogs ran on the mat.",
)
_TYPE = "sentence_transformers."
_DIM = 24
_EXPANSION = {"strategy": "fixed", "attend": False, "token": None, "length": 20}
_MARKERS = {"prompts": {"query": "[Q] ", "document": "[D] "}}
_PYLATE = {
    "model_type": "ColBERT",
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 20,
    "document_length": 40,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [",", ".", ":", "the"],
    "similarity_fn_name": "MaxSim",
}
_STANFORD = {
    "query_token_id": "[unused0]",
    "doc_token_id": "[unused1]",
    "query_token": "[Q]",
    "dim": _DIM,
    "similarity": "cosine",
    "query_maxlen": 20,
    "doc_maxlen": 40,
    "attend_to_mask_tokens": False,
    "mask_punctuation": True,
    "nbits": 2,
}

#: case -> (how it is written, options)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "splade": ("sparse", {"case": "bert_masked"}),
    "splade_sum": ("sparse", {"case": "bert_masked", "pooling": {"pooling_strategy": "sum"}}),
    "splade_doubled": ("sparse", {"case": "distilbert_masked", "pooling": {"activation_function": "log1p_relu"}}),
    "splade_modern": ("sparse", {"case": "modernbert_masked"}),
    "late": ("late", {"text": {"query_expansion": _EXPANSION, "document_length": 40}, "usage": _MARKERS}),
    "late_attends": ("late", {"text": {"query_expansion": {**_EXPANSION, "attend": True}}, "usage": _MARKERS}),
    "late_min": ("late", {"text": {"query_expansion": {**_EXPANSION, "strategy": "min", "length": 9}}}),
    "late_plain": ("late", {"mask": {"skiplist_words": ["the"], "skiplist_tasks": ["query", "document"]}}),
    "pylate": ("pylate", {"usage": _PYLATE}),
    "pylate_plain": ("pylate", {"usage": {**_PYLATE, "do_query_expansion": False, "query_length": 32}}),
    "stanford": ("stanford", {"metadata": _STANFORD}),
    "stanford_attends": (
        "stanford",
        {"metadata": {**_STANFORD, "attend_to_mask_tokens": True, "mask_punctuation": False}},
    ),
}


def write_case(name: str, folder: Path) -> Path:
    """The folder of a case."""
    how, options = CASES[name]
    return {"sparse": write_sparse, "late": write_late, "pylate": write_pylate, "stanford": write_stanford}[how](
        folder, **options
    )


def write_sparse(folder: Path, *, case: str, pooling: dict[str, Any] | None = None) -> Path:
    """A SparseEncoder."""
    tiny_heads.write_safetensors(case, folder)
    _tokenizer(folder, has_types=case.startswith("bert"))
    usual = {"pooling_strategy": "max", "activation_function": "relu"}
    _json(folder / "1_SpladePooling" / "config.json", usual | (pooling or {}))
    _json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "transformer_task": "fill-mask"})
    _json(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder", "similarity_fn_name": "dot"})
    return _modules(
        folder,
        ("base.modules.transformer.Transformer", ""),
        ("sparse_encoder.modules.splade_pooling.SpladePooling", "1_SpladePooling"),
    )


def write_late(
    folder: Path,
    *,
    text: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    mask: dict[str, Any] | None = None,
) -> Path:
    """A MultiVectorEncoder."""
    tiny_encoders.write_safetensors("bert", folder)
    _tokenizer(folder)
    own = {
        "in_features": 64,
        "out_features": _DIM,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    over = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    _dense(folder / "1_Dense", {**own, **over})
    _json(
        folder / "2_MultiVectorMask" / "config.json",
        mask or {"skiplist_words": [",", "."], "skiplist_tasks": ["document"]},
    )
    _json(folder / "3_Normalize" / "config.json", over)
    _json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": 64, "transformer_task": "feature-extraction", **(text or {})},
    )
    known = {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim", **(usage or {})}
    _json(folder / "config_sentence_transformers.json", known)
    return _modules(
        folder,
        ("base.modules.transformer.Transformer", ""),
        ("base.modules.dense.Dense", "1_Dense"),
        ("multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", "2_MultiVectorMask"),
        ("base.modules.normalize.Normalize", "3_Normalize"),
    )


def write_pylate(folder: Path, *, usage: dict[str, Any]) -> Path:
    """A ColBERT of PyLate."""
    tiny_encoders.write_safetensors("bert", folder)
    _tokenizer(folder)
    own = {
        "in_features": 64,
        "out_features": _DIM,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _dense(folder / "1_Dense", own)
    _json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    _json(folder / "config_sentence_transformers.json", usage)
    _modules(folder, ("models.Transformer", ""), ("models.Dense", "1_Dense"))
    file = folder / "modules.json"
    file.write_text(file.read_text().replace("sentence_transformers.models.Dense", "pylate.models.Dense.Dense"))
    return folder


def write_stanford(folder: Path, *, metadata: dict[str, Any]) -> Path:
    """A ColBERT of Stanford's."""
    from safetensors.numpy import save_file

    tensors = tiny_encoders.state_dict("bert_masked")
    tensors = {name: values for name, values in tensors.items() if name.startswith("bert.")}
    tensors["linear.weight"] = _values("stanford", (_DIM, 64))
    config = {**tiny_encoders.CASES["bert_masked"], "architectures": ["HF_ColBERT"]}
    _json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors")
    _tokenizer(folder)
    _json(folder / "artifact.metadata", metadata)
    return folder


def write_joined(folder: Path, suffix: str) -> Path:
    """bge-m3's form: dense vectors by the first token, and two linear layers beside."""
    from safetensors.numpy import save_file

    tiny_sentences.write(folder, case="xlm_roberta", pooling={"pooling_mode_cls_token": True})
    for name, width in (("sparse_linear", 1), ("colbert_linear", 64)):
        tensors = {"weight": _values(name, (width, 64)), "bias": _values(name + "b", (width,))}
        if suffix == ".pt":
            _write_pt(folder / f"{name}.pt", tensors)
        else:
            save_file(tensors, folder / f"{name}.safetensors")
    return folder


def _write_pt(file: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    """What torch.save writes of a state dict, opcode by opcode."""
    import zipfile

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    def whole(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    data = b"\x80\x02ccollections\nOrderedDict\n)R("
    for key, (name, values) in enumerate(tensors.items()):
        storage = text("storage") + b"ctorch\nFloatStorage\n" + text(str(key)) + text("cpu") + whole(values.size)
        shape = b"".join(whole(n) for n in values.shape)
        strides = b"".join(whole(n // 4) for n in values.strides)
        data += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage + b"tQ" + whole(0)
        data += b"(" + shape + b"t(" + strides + b"t" + b"\x89" + b"ccollections\nOrderedDict\n)RtR"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{file.stem}/data.pkl", data + b"u.")
        for key, values in enumerate(tensors.values()):
            archive.writestr(f"{file.stem}/data/{key}", values.tobytes())


def _tokenizer(folder: Path, *, has_types: bool = True) -> None:
    """Of tiny_sentences.py, with two unused entries, the markers, and all punctuation."""
    tiny_sentences.write_tokenizer(folder)
    file = folder / "tokenizer.json"
    found = json.loads(file.read_text())
    vocab = found["model"]["vocab"]
    for word in ("[unused0]", "[unused1]", *string.punctuation):
        vocab.setdefault(word, len(vocab))
    for marker in ("[Q] ", "[D] "):
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        found["added_tokens"].append({"id": len(vocab), "content": marker, **flags, "special": True})
        vocab[marker] = len(vocab)
    file.write_text(json.dumps(found))
    if not has_types:
        config = folder / "tokenizer_config.json"
        names = {"model_input_names": ["input_ids", "attention_mask"]}
        config.write_text(json.dumps({**json.loads(config.read_text()), **names}))


def _dense(at: Path, keys: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    _json(at / "config.json", keys)
    save_file(
        {"linear.weight": _values("token dense", (keys["out_features"], keys["in_features"]))}, at / "model.safetensors"
    )


def _modules(folder: Path, *listed: tuple[str, str]) -> Path:
    rows = [{"idx": i, "name": str(i), "path": path, "type": _TYPE + kind} for i, (kind, path) in enumerate(listed)]
    _json(folder / "modules.json", rows)
    return folder


def _json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (0.2 * tiny.random_values("tokens", name).standard_normal(shape)).astype(np.float32)

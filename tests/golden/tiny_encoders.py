"""Tiny random encoders for every family, made like the decoders of tiny.py: a config.json, and tensors from a seed.

`shapes` gives every tensor under its Hugging Face name. Lengths are in tokens; the longest is the longest that every case takes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import encoder_shapes, tiny
from tests.golden.encoder_shapes import Shapes

from octavo.platforms.types import I32

VOCAB = 256
LENGTHS = (1, 2, 7, 33, 130)
MAX_POSITIONS = 136

_BERT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
    "dtype": "float32",
}
_ROBERTA: dict[str, Any] = {**_BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
_DISTIL: dict[str, Any] = {
    "model_type": "distilbert",
    "vocab_size": VOCAB,
    "dim": 64,
    "hidden_dim": 96,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    "activation": "gelu",
    "sinusoidal_pos_embds": False,
    "pad_token_id": 0,
    "dtype": "float32",
}
_MODERN: dict[str, Any] = {
    "model_type": "modernbert",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    "local_attention": 16,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "hidden_activation": "gelu",
    "norm_eps": 1e-5,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
    "dtype": "float32",
}
_NOMIC: dict[str, Any] = {
    **_BERT,
    "hidden_act": "silu",
    "max_position_embeddings": MAX_POSITIONS,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
}
_JINA: dict[str, Any] = {
    "model_type": "bert",
    **_BERT,
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "emb_pooler": "mean",
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
}
_MPNET: dict[str, Any] = {
    "model_type": "mpnet",
    **{key: value for key, value in _ROBERTA.items() if key != "type_vocab_size"},
    "max_position_embeddings": 212,
    "relative_attention_num_buckets": 32,
}
_T5: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": VOCAB,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "n_positions": 512,
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 64,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "is_encoder_decoder": True,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "dtype": "float32",
}
_DEBERTA: dict[str, Any] = {
    "model_type": "deberta-v2",
    **_BERT,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_buckets": 32,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "pooler_hidden_act": "gelu",
}
_GTE: dict[str, Any] = {
    **_BERT,
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "logn_attention_clip1": False,
    "pack_qkv": True,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "rope_theta": 20000.0,
}

CASES: dict[str, dict[str, Any]] = {
    "bert": {"architectures": ["BertModel"], "model_type": "bert", **_BERT},
    "bert_masked": {"architectures": ["BertForMaskedLM"], "model_type": "bert", **_BERT, "hidden_act": "gelu_new"},
    "roberta": {"architectures": ["RobertaModel"], "model_type": "roberta", **_ROBERTA},
    "roberta_masked": {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", **_ROBERTA},
    "xlm_roberta": {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", **_ROBERTA},
    "xlm_roberta_masked": {"architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", **_ROBERTA},
    "distilbert": {"architectures": ["DistilBertModel"], **_DISTIL},
    "distilbert_masked": {"architectures": ["DistilBertForMaskedLM"], **_DISTIL, "activation": "relu"},
    "modernbert": {"architectures": ["ModernBertModel"], **_MODERN},
    "modernbert_masked": {
        "architectures": ["ModernBertForMaskedLM"],
        **_MODERN,
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "nomic_bert": {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", **_NOMIC},
    "jina_bert": {"architectures": ["JinaBertModel"], **_JINA},
    "jina_bert_masked": {  # six heads: no power of two
        "architectures": ["JinaBertForMaskedLM"],
        **_JINA,
        "num_attention_heads": 6,
        "hidden_size": 48,
        "feed_forward_type": "reglu",
    },
    "jina_bert_code": {"architectures": ["JinaBertForMaskedLM"], **_JINA},
    "mpnet": {"architectures": ["MPNetModel"], **_MPNET},
    "mpnet_masked": {"architectures": ["MPNetForMaskedLM"], **_MPNET, "hidden_act": "gelu_new"},
    "t5": {"architectures": ["T5EncoderModel"], **_T5},
    "t5_gated": {"architectures": ["T5EncoderModel"], **_T5, "feed_forward_proj": "gated-gelu", "d_kv": 24},
    "deberta": {"architectures": ["DebertaV2Model"], **_DEBERTA},
    "deberta_own": {  # as version 2 may be: tables of its own, distances clamped well before the longest text
        "architectures": ["DebertaV2Model"],
        **_DEBERTA,
        "share_att_key": False,
        "position_buckets": -1,
        "max_relative_positions": 40,
        "norm_rel_ebd": "none",
        "position_biased_input": True,
        "type_vocab_size": 2,
        "embedding_size": 48,
    },
    "deberta_c2p": {
        "architectures": ["DebertaV2Model"],
        **_DEBERTA,
        "pos_att_type": "c2p",
        "position_buckets": 16,
        "max_relative_positions": 64,
    },
    "deberta_p2c": {"architectures": ["DebertaV2Model"], **_DEBERTA, "pos_att_type": "p2c", "share_att_key": False},
    "deberta_absolute": {
        "architectures": ["DebertaV2Model"],
        **_DEBERTA,
        "relative_attention": False,
        "position_biased_input": True,
    },
    "deberta_masked": {
        "architectures": ["DebertaV2ForMaskedLM"],
        **_DEBERTA,
        "pos_att_type": "c2p|p2c",
        "legacy": True,
    },
    "gte": {"architectures": ["GteModel"], "model_type": "gte", **_GTE},
    "gte_masked": {
        "architectures": ["GteForMaskedLM"],
        "model_type": "gte",
        **_BERT,
        "type_vocab_size": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0},
    },
    "new": {
        "architectures": ["NewModel"],
        "model_type": "new",
        **_GTE,
        "type_vocab_size": 0,
        "rope_scaling": {"type": "ntk", "factor": 8.0},
    },
    "new_masked": {
        "architectures": ["NewForMaskedLM"],
        "model_type": "new",
        **_GTE,
        "rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6},
        "pack_qkv": False,
    },
}

#: decoders that serve as embedders, most saved without their head and without the prefix of its module
BARE: dict[str, dict[str, Any]] = {
    "llama_bare": {**tiny.CASES["llama3"], "architectures": ["LlamaModel"]},
    "mistral_bare": {**tiny.CASES["mistral"], "architectures": ["MistralModel"]},
    "qwen2_bare": {**tiny.CASES["qwen2_sliding"], "architectures": ["Qwen2Model"]},
    "qwen3_bare": {**tiny.CASES["qwen3"], "architectures": ["Qwen3Model"]},
    "qwen3_causal": tiny.CASES["qwen3"],
    "gemma_bare": {**tiny.CASES["gemma"], "architectures": ["GemmaModel"]},
    "gemma3_bare": {
        **tiny.CASES["gemma3"],
        "architectures": ["Gemma3TextModel"],
        "use_bidirectional_attention": True,
    },
}
ALL = {**CASES, **BARE}


def prompt(case: str, length: int) -> I32:
    """Token ids [length] int32 of a case's text; the same tokens begin every length. None of them is padding."""
    return tiny.random_values(case, "prompt").integers(3, VOCAB, LENGTHS[-1]).astype(np.int32)[:length]


def token_types(case: str, length: int) -> I32:
    """Segment ids [length] int32: a second segment from the middle on, where the case has two."""
    last = ALL[case].get("type_vocab_size", 1) - 1
    return (np.arange(length) >= (length + 1) // 2).astype(np.int32) * min(last, 1)


def golden_rows(length: int) -> list[int]:
    """Tokens whose hidden states are stored."""
    return sorted({row for row in (0, 1, 5, 31, 32, 64, length - 1) if row < length})


def shapes(config: dict[str, Any]) -> Shapes:
    """Every tensor of a case: Hugging Face name -> shape."""
    if config in BARE.values():
        kept = {name: shape for name, shape in tiny.shapes(config).items() if not name.startswith("lm_head")}
        has_prefix = config["architectures"][0].endswith("ForCausalLM")
        return kept if has_prefix else {name.removeprefix("model."): shape for name, shape in kept.items()}
    return encoder_shapes.shapes(config, has_qk_norm=has_qk_norm(config))


def state_dict(case: str) -> dict[str, NDArray[np.float32]]:
    """Every tensor of a case in float32."""
    return {name: _values(case, name, shape) for name, shape in shapes(ALL[case]).items()}


def write_safetensors(case: str, folder: Path) -> Path:
    """config.json and model.safetensors of a case."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(ALL[case]))
    save_file(state_dict(case), folder / "model.safetensors")
    return folder


def _values(case: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    noise = tiny.random_values(case, name).standard_normal(shape)
    if case.startswith("gemma") and len(shape) == 1:
        return (-0.1 + 0.3 * noise).astype(np.float32)  # such norms store the weight less 1
    if len(shape) == 1:
        is_scale = name.endswith("weight")  # of norms: there is no other of one dimension
        mean, spread = (0.9, 0.3) if is_scale else (0.0, 0.3)
    else:
        mean, spread = 0.0, 0.5 if any(word in name for word in ("embed", "relative", "shared")) else 0.18
    if name.endswith("SelfAttention.q.weight"):
        spread = 0.045  # T5 does not scale scores: its queries are small; with large ones float32 itself is 4e-5 off
    return (mean + spread * noise).astype(np.float32)


def has_qk_norm(config: dict[str, Any]) -> bool:
    """Whether a JinaBERT is of the code that norms q and k, which its config.json does not say."""
    return config is CASES["jina_bert_code"]

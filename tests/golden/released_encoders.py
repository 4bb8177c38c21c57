"""Hidden states by formula, in float64, of models whose code lies beside their weights and not in transformers: JinaBERT (both
releases) and GTE's NewModel. Written from the papers and from what the released code computes; `CASES` of tiny_encoders.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_encoders as tiny

F64 = NDArray[np.float64]
CASES = ("jina_bert", "jina_bert_masked", "jina_bert_code", "new", "new_masked")

#: of twelve heads and fewer, as the released code lists them: 1/2, 1/4, ... of eight heads, and what lies between
_SLOPES = {4: (-2, -4, -6, -8), 6: (-2, -4, -6, -8, -1, -3)}


class _Tensors:
    """A case's tensors in float64, without the prefix of a masked language model."""

    def __init__(self, case: str) -> None:
        self.values = {
            name.removeprefix("bert.").removeprefix("new."): values.astype(np.float64)
            for name, values in tiny.state_dict(case).items()
        }

    def linear(self, x: F64, name: str) -> F64:
        found: F64 = x @ self.values[f"{name}.weight"].T + self.values.get(f"{name}.bias", 0.0)
        return found

    def norm(self, x: F64, name: str, eps: float) -> F64:
        apart = x - x.mean(-1, keepdims=True)
        scaled = apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + eps)
        found: F64 = scaled * self.values[f"{name}.weight"] + self.values[f"{name}.bias"]
        return found


def hidden(case: str, length: int) -> NDArray[np.float32]:
    """float32 [length, hidden] of a case's text."""
    config, tensors = tiny.CASES[case], _Tensors(case)
    eps = config["layer_norm_eps"]
    x = tensors.values["embeddings.word_embeddings.weight"][tiny.prompt(case, length)]
    if config["type_vocab_size"]:
        x = x + tensors.values["embeddings.token_type_embeddings.weight"][tiny.token_types(case, length)]
    x = tensors.norm(x, "embeddings.LayerNorm", eps)
    layer: Callable[..., F64] = _new_layer if config["model_type"] == "new" else _jina_layer
    for index in range(config["num_hidden_layers"]):
        x = layer(tensors, config, x, f"encoder.layer.{index}.")
    return x.astype(np.float32)


def _jina_layer(t: _Tensors, config: dict[str, Any], x: F64, at: str) -> F64:
    eps, heads, ffn = config["layer_norm_eps"], config["num_attention_heads"], config["intermediate_size"]
    is_code = tiny.has_qk_norm(config)
    q, k, v = (t.linear(x, f"{at}attention.self.{name}") for name in ("query", "key", "value"))
    if is_code:
        q, k = t.norm(q, f"{at}attention.self.layer_norm_q", eps), t.norm(k, f"{at}attention.self.layer_norm_k", eps)
    apart = np.abs(np.subtract.outer(np.arange(len(x)), np.arange(len(x))))
    bias = -(2.0 ** np.array(_SLOPES[heads], np.float64))[:, None, None] * apart
    mixed = _attention(q, k, v, heads, bias)
    x = t.norm(
        x + t.linear(mixed, f"{at}attention.output.dense"),
        f"{at}{'layer_norm_1' if is_code else 'attention.output.LayerNorm'}",
        eps,
    )
    both = t.linear(x, f"{at}mlp.{'up_gated_layer' if is_code else 'gated_layers'}")
    gate, up = (both[:, ffn:], both[:, :ffn]) if is_code else (both[:, :ffn], both[:, ffn:])
    acted = np.maximum(gate, 0.0) if config["feed_forward_type"] == "reglu" else _gelu(gate)
    down = t.linear(acted * up, f"{at}mlp.{'down_layer' if is_code else 'wo'}")
    return t.norm(x + down, f"{at}{'layer_norm_2' if is_code else 'mlp.layernorm'}", eps)


def _new_layer(t: _Tensors, config: dict[str, Any], x: F64, at: str) -> F64:
    eps, heads, ffn = config["layer_norm_eps"], config["num_attention_heads"], config["intermediate_size"]
    if config["pack_qkv"]:
        q, k, v = np.split(t.linear(x, f"{at}attention.qkv_proj"), 3, axis=1)
    else:
        q, k, v = (t.linear(x, f"{at}attention.{name}_proj") for name in "qkv")
    q, k = (_turned(rows, heads, config) for rows in (q, k))
    x = t.norm(x + t.linear(_attention(q, k, v, heads, 0.0), f"{at}attention.o_proj"), f"{at}attn_ln", eps)
    both = t.linear(x, f"{at}mlp.up_gate_proj")
    return t.norm(x + t.linear(_gelu(both[:, ffn:]) * both[:, :ffn], f"{at}mlp.down_proj"), f"{at}mlp_ln", eps)


def _turned(rows: F64, heads: int, config: dict[str, Any]) -> F64:
    dim = rows.shape[1] // heads
    factor, power = config["rope_scaling"]["factor"], config["rope_scaling"].get("mixed_b")
    place, half = np.arange(0, dim, 2) / dim, dim // 2
    if power is None:
        frequency = (config["rope_theta"] * factor) ** -place / factor ** (2 / dim)
    else:
        frequency = config["rope_theta"] ** -place / np.exp(
            np.log(factor) / half**power * np.arange(1, half + 1) ** power
        )
    angle = np.multiply.outer(np.arange(len(rows)), frequency)[:, None]
    low, high = np.split(rows.reshape(len(rows), heads, dim), 2, axis=2)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=2).reshape(rows.shape)


def _attention(q: F64, k: F64, v: F64, heads: int, bias: F64 | float) -> F64:
    q, k, v = (rows.reshape(len(rows), heads, -1) for rows in (q, k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[2]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: F64 = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v).reshape(len(q), -1)
    return found


def _gelu(x: F64) -> F64:
    found: F64 = x * 0.5 * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0)))
    return found

"""Every tensor of a tiny encoder, Hugging Face name -> shape, from its config.json: one function for each spelling of names."""

from __future__ import annotations

from typing import Any

Shapes = dict[str, tuple[int, ...]]


def shapes(config: dict[str, Any], *, has_qk_norm: bool = False) -> Shapes:
    """Of a config.json; `has_qk_norm`: of JinaBERT's code model, which does not say so there."""
    if config["architectures"][0].startswith("Jina"):
        return _jina_shapes(config, has_qk_norm)
    makers = {
        "distilbert": _distilbert_shapes,
        "modernbert": _modernbert_shapes,
        "nomic_bert": _nomic_shapes,
        "mpnet": _mpnet_shapes,
        "t5": _t5_shapes,
        "deberta-v2": _deberta_shapes,
        "gte": _gte_shapes,
        "new": _gte_shapes,
    }
    return makers.get(config["model_type"], _bert_shapes)(config)


def _with_bias(found: Shapes, name: str, *shape: int) -> None:
    found[f"{name}.weight"] = shape
    found[f"{name}.bias"] = shape[:1]


def _bert_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    is_masked = config["architectures"][0].endswith("ForMaskedLM")
    prefix = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta."}[config["model_type"]] * is_masked
    found: Shapes = {
        f"{prefix}embeddings.word_embeddings.weight": (vocab, hidden),
        f"{prefix}embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        f"{prefix}embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    }
    _with_bias(found, f"{prefix}embeddings.LayerNorm", hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            _with_bias(found, f"{at}attention.self.{name}", hidden, hidden)
        _with_bias(found, f"{at}attention.output.dense", hidden, hidden)
        _with_bias(found, f"{at}attention.output.LayerNorm", hidden)
        _with_bias(found, f"{at}intermediate.dense", ffn, hidden)
        _with_bias(found, f"{at}output.dense", hidden, ffn)
        _with_bias(found, f"{at}output.LayerNorm", hidden)
    if not is_masked:
        _with_bias(found, "pooler.dense", hidden, hidden)
    elif prefix == "bert.":
        found["cls.predictions.bias"] = (vocab,)
        _with_bias(found, "cls.predictions.transform.dense", hidden, hidden)
        _with_bias(found, "cls.predictions.transform.LayerNorm", hidden)
    else:
        found["lm_head.bias"] = (vocab,)
        _with_bias(found, "lm_head.dense", hidden, hidden)
        _with_bias(found, "lm_head.layer_norm", hidden)
    return found


def _distilbert_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn, vocab = config["dim"], config["hidden_dim"], config["vocab_size"]
    is_masked = config["architectures"][0].endswith("ForMaskedLM")
    prefix = "distilbert." * is_masked
    found: Shapes = {
        f"{prefix}embeddings.word_embeddings.weight": (vocab, hidden),
        f"{prefix}embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
    }
    _with_bias(found, f"{prefix}embeddings.LayerNorm", hidden)
    for layer in range(config["n_layers"]):
        at = f"{prefix}transformer.layer.{layer}."
        for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
            _with_bias(found, f"{at}attention.{name}", hidden, hidden)
        _with_bias(found, f"{at}sa_layer_norm", hidden)
        _with_bias(found, f"{at}ffn.lin1", ffn, hidden)
        _with_bias(found, f"{at}ffn.lin2", hidden, ffn)
        _with_bias(found, f"{at}output_layer_norm", hidden)
    if is_masked:
        _with_bias(found, "vocab_transform", hidden, hidden)
        _with_bias(found, "vocab_layer_norm", hidden)
        found["vocab_projector.bias"] = (vocab,)
    return found


def _modernbert_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    is_masked = config["architectures"][0].endswith("ForMaskedLM")
    prefix = "model." * is_masked
    found: Shapes = {f"{prefix}embeddings.tok_embeddings.weight": (vocab, hidden)}

    def add(name: str, *shape: int, key: str) -> None:
        if config.get(key):
            _with_bias(found, name, *shape)
        else:
            found[f"{name}.weight"] = shape

    add(f"{prefix}embeddings.norm", hidden, key="norm_bias")
    add(f"{prefix}final_norm", hidden, key="norm_bias")
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}layers.{layer}."
        if layer:
            add(f"{at}attn_norm", hidden, key="norm_bias")
        add(f"{at}attn.Wqkv", 3 * hidden, hidden, key="attention_bias")
        add(f"{at}attn.Wo", hidden, hidden, key="attention_bias")
        add(f"{at}mlp_norm", hidden, key="norm_bias")
        add(f"{at}mlp.Wi", 2 * ffn, hidden, key="mlp_bias")
        add(f"{at}mlp.Wo", hidden, ffn, key="mlp_bias")
    if is_masked:
        found["head.dense.weight"] = (hidden, hidden)
        add("head.norm", hidden, key="norm_bias")
        found["decoder.bias"] = (vocab,)
    return found


def _nomic_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    found: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    }
    _with_bias(found, "emb_ln", hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layers.{layer}."
        found[f"{at}attn.Wqkv.weight"] = (3 * hidden, hidden)
        found[f"{at}attn.out_proj.weight"] = (hidden, hidden)
        for name in ("fc11", "fc12"):
            found[f"{at}mlp.{name}.weight"] = (ffn, hidden)
        found[f"{at}mlp.fc2.weight"] = (hidden, ffn)
        for name in ("norm1", "norm2"):
            _with_bias(found, at + name, hidden)
    return found


def _jina_shapes(config: dict[str, Any], has_qk_norm: bool) -> Shapes:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    is_masked, is_code = config["architectures"][0].endswith("ForMaskedLM"), has_qk_norm
    prefix = "bert." * is_masked
    found: Shapes = {
        f"{prefix}embeddings.word_embeddings.weight": (vocab, hidden),
        f"{prefix}embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    }
    _with_bias(found, f"{prefix}embeddings.LayerNorm", hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            _with_bias(found, f"{at}attention.self.{name}", hidden, hidden)
        _with_bias(found, f"{at}attention.output.dense", hidden, hidden)
        norms = ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2")
        for name in norms if is_code else ("attention.output.LayerNorm", "mlp.layernorm"):
            _with_bias(found, at + name, hidden)
        found[f"{at}mlp.{'up_gated_layer' if is_code else 'gated_layers'}.weight"] = (2 * ffn, hidden)
        _with_bias(found, f"{at}mlp.{'down_layer' if is_code else 'wo'}", hidden, ffn)
    if is_masked:
        found["cls.predictions.bias"] = (vocab,)
        _with_bias(found, "cls.predictions.transform.dense", hidden, hidden)
    else:
        _with_bias(found, "pooler.dense", hidden, hidden)
    return found


def _gte_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    is_masked, packs = config["architectures"][0].endswith("ForMaskedLM"), config.get("pack_qkv")
    prefix = f"{config['model_type']}." * is_masked
    is_released = packs is not None  # else spelled as transformers does
    found: Shapes = {f"{prefix}embeddings.word_embeddings.weight": (config["vocab_size"], hidden)}
    if config["type_vocab_size"]:
        found[f"{prefix}embeddings.token_type_embeddings.weight"] = (config["type_vocab_size"], hidden)
    _with_bias(found, f"{prefix}embeddings.LayerNorm", hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}encoder.layer.{layer}." if is_released else f"{prefix}layers.{layer}."
        attention = at + ("attention" if is_released else "self_attn")
        if packs:
            _with_bias(found, f"{attention}.qkv_proj", 3 * hidden, hidden)
        for name in "o" if packs else "qkvo":
            _with_bias(found, f"{attention}.{name}_proj", hidden, hidden)
        for name in ("attn_ln", "mlp_ln") if is_released else ("post_attention_layernorm", "post_mlp_layernorm"):
            _with_bias(found, at + name, hidden)
        if is_released:
            found[f"{at}mlp.up_gate_proj.weight"] = (2 * ffn, hidden)
        else:
            found |= {f"{at}mlp.{name}_proj.weight": (ffn, hidden) for name in ("gate", "up")}
        _with_bias(found, f"{at}mlp.down_proj", hidden, ffn)
    if is_masked:
        _with_bias(found, "lm_head.dense", hidden, hidden)
    return found


def _mpnet_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    is_masked = config["architectures"][0].endswith("ForMaskedLM")
    prefix = "mpnet." * is_masked
    found: Shapes = {
        f"{prefix}embeddings.word_embeddings.weight": (vocab, hidden),
        f"{prefix}embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        f"{prefix}encoder.relative_attention_bias.weight": (32, config["num_attention_heads"]),
    }
    _with_bias(found, f"{prefix}embeddings.LayerNorm", hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}encoder.layer.{layer}."
        for name in "qkvo":
            _with_bias(found, f"{at}attention.attn.{name}", hidden, hidden)
        _with_bias(found, f"{at}attention.LayerNorm", hidden)
        _with_bias(found, f"{at}intermediate.dense", ffn, hidden)
        _with_bias(found, f"{at}output.dense", hidden, ffn)
        _with_bias(found, f"{at}output.LayerNorm", hidden)
    if is_masked:
        _with_bias(found, "lm_head.dense", hidden, hidden)
        _with_bias(found, "lm_head.layer_norm", hidden)
        found["lm_head.bias"] = (vocab,)
    else:
        _with_bias(found, "pooler.dense", hidden, hidden)
    return found


def _t5_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn, width = config["d_model"], config["d_ff"], config["num_heads"] * config["d_kv"]
    buckets = (config["relative_attention_num_buckets"], config["num_heads"])
    found: Shapes = {
        "shared.weight": (config["vocab_size"], hidden),
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": buckets,
        "encoder.final_layer_norm.weight": (hidden,),
    }
    for layer in range(config["num_layers"]):
        at = f"encoder.block.{layer}.layer."
        found |= {f"{at}{part}.layer_norm.weight": (hidden,) for part in (0, 1)}
        found |= {f"{at}0.SelfAttention.{name}.weight": (width, hidden) for name in "qkv"}
        found[f"{at}0.SelfAttention.o.weight"] = (hidden, width)
        for name in ("wi",) if config["feed_forward_proj"] == "relu" else ("wi_0", "wi_1"):
            found[f"{at}1.DenseReluDense.{name}.weight"] = (ffn, hidden)
        found[f"{at}1.DenseReluDense.wo.weight"] = (hidden, ffn)
    return found


def _deberta_shapes(config: dict[str, Any]) -> Shapes:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    width, is_masked = config.get("embedding_size", hidden), config["architectures"][0].endswith("ForMaskedLM")
    prefix = "deberta." * (config["architectures"][0] != "DebertaV2Model")
    found: Shapes = {f"{prefix}embeddings.word_embeddings.weight": (vocab, width)}
    if config["position_biased_input"]:
        found[f"{prefix}embeddings.position_embeddings.weight"] = (config["max_position_embeddings"], width)
    if config["type_vocab_size"]:
        found[f"{prefix}embeddings.token_type_embeddings.weight"] = (config["type_vocab_size"], width)
    if width != hidden:
        found[f"{prefix}embeddings.embed_proj.weight"] = (hidden, width)
    _with_bias(found, f"{prefix}embeddings.LayerNorm", hidden)
    is_relative, terms = config["relative_attention"], config["pos_att_type"]
    if is_relative:
        spans = (config["position_buckets"], config["max_relative_positions"], config["max_position_embeddings"])
        found[f"{prefix}encoder.rel_embeddings.weight"] = (2 * next(span for span in spans if span > 0), hidden)
    if config["norm_rel_ebd"] == "layer_norm":
        _with_bias(found, f"{prefix}encoder.LayerNorm", hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}encoder.layer.{layer}."
        own = [name for name, term in (("pos_key", "c2p"), ("pos_query", "p2c")) if term in terms]
        for name in ("query", "key", "value", *(own if is_relative and not config["share_att_key"] else ())):
            _with_bias(found, f"{at}attention.self.{name}_proj", hidden, hidden)
        _with_bias(found, f"{at}attention.output.dense", hidden, hidden)
        _with_bias(found, f"{at}attention.output.LayerNorm", hidden)
        _with_bias(found, f"{at}intermediate.dense", ffn, hidden)
        _with_bias(found, f"{at}output.dense", hidden, ffn)
        _with_bias(found, f"{at}output.LayerNorm", hidden)
    if is_masked:
        found["cls.predictions.bias"] = (vocab,)
        _with_bias(found, "cls.predictions.transform.dense", hidden, hidden)
        _with_bias(found, "cls.predictions.transform.LayerNorm", hidden)
    return found

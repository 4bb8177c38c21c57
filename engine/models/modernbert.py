"""ModernBERT: norms before the branches (none before the first attention), gated MLPs, rotation by two bases, and layers that see
a window among those that see all.

`local_attention` counts both directions: a token of such a layer sees half of it on either side. Sources: Warner et al. 2024;
transformers `modernbert`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.engine.errors import ModelError
from octavo.engine.models import rope
from octavo.engine.models.activation import activation
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec, layer_window
from octavo.engine.models.family import EncoderFamily, Source, gguf_encoder
from octavo.engine.models.head_kinds import HeadKind
from octavo.engine.models.heads import HeadSpec, classification
from octavo.engine.models.names import GGUF_ENCODER, Names
from octavo.engine.models.reader import Description
from octavo.platforms.types import Rope

_LAYER = "model.layers.{layer}."
_ROLES = {
    "tokens": "model.embeddings.tok_embeddings",
    "embedding_norm": "model.embeddings.norm",
    "final_norm": "model.final_norm",
    "pre_attn": _LAYER + "attn_norm",
    "qkv": _LAYER + "attn.Wqkv",
    "o": _LAYER + "attn.Wo",
    "pre_ffn": _LAYER + "mlp_norm",
    "gate_up": _LAYER + "mlp.Wi",
    "down": _LAYER + "mlp.Wo",
    **{f"{kind}_{part}": f"head.{part}" for kind in ("masked", "sequence", "token") for part in ("dense", "norm")},
    "masked_out": "decoder",
    "masked_decoder": "decoder",
    "sequence_out": "classifier",
    "token_out": "classifier",
}
_KINDS = ("full_attention", "sliding_attention")


def from_hf(src: Source) -> EncoderSpec:
    """ModernBertModel."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.skip("position_embedding_type", "layer_norm_eps", "tie_word_embeddings")  # of BERT: not used here
    cfg.skip("classifier_pooling", "classifier_bias", "classifier_activation", "decoder_bias")  # of heads
    cfg.skip("sparse_prediction", "sparse_pred_ignore_index", "initializer_cutoff_factor")  # of training
    cfg.skip("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad")  # how others compute the same
    max_positions = src.max_len(cfg.whole("max_position_embeddings", 8192))
    has_bias, has_mlp_bias = cfg.flag("attention_bias", False), cfg.flag("mlp_bias", False)
    window = layer_window(cfg.whole("local_attention", 128) // 2, max_positions)
    kinds = _kinds(src)
    ropes = {kind: _rope(src, kind, hidden // heads, max_positions) for kind in set(kinds)}
    return EncoderSpec(
        family="modernbert",
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("intermediate_size"),
        vocab=cfg.whole("vocab_size"),
        max_positions=max_positions,
        scale=(hidden // heads) ** -0.5,
        layers=tuple(
            EncoderLayerSpec(ropes[kind], window if kind == "sliding_attention" else 0, has_pre_attn_norm=index > 0)
            for index, kind in enumerate(kinds)
        ),
        norm_place="pre",
        norm_eps=cfg.number("norm_eps", 1e-5),
        has_norm_bias=cfg.flag("norm_bias", False),
        activation=activation(cfg, "hidden_activation", "gelu"),
        is_gated=True,
        has_qkv_bias=has_bias,
        has_o_bias=has_bias,
        has_up_bias=has_mlp_bias,
        has_down_bias=has_mlp_bias,
    )


def _kinds(src: Source) -> list[str]:
    """What every layer sees: `layer_types`, or all in each third layer from the first on."""
    cfg = src.cfg
    num_layers, period = cfg.whole("num_hidden_layers"), cfg.whole("global_attn_every_n_layers", 3)
    if period < 1:
        raise cfg.bad("global_attn_every_n_layers", period, "1 or more")
    listed = cfg.get("layer_types", [_KINDS[bool(i % period)] for i in range(num_layers)])
    if not isinstance(listed, list) or len(listed) != num_layers or not set(listed) <= set(_KINDS):
        raise cfg.bad("layer_types", listed, f"{num_layers} of {' and '.join(_KINDS)}")
    return listed


def _rope(src: Source, kind: str, head_dim: int, max_positions: int) -> Rope:
    """The rotation of one kind of layers; older files have a base for each under a key of its own."""
    cfg = src.cfg
    key, usual = ("global_rope_theta", 160000.0) if kind == "full_attention" else ("local_rope_theta", 10000.0)
    params = rope.hf_params(cfg, theta=cfg.number(key, usual), layer_type=kind)
    most = cfg.whole("max_position_embeddings", 8192)
    return rope.build(params, head_dim=head_dim, max_len=max_positions, max_positions=most, where=cfg.where)


def from_gguf(src: Source) -> EncoderSpec:
    """GGUF `modern-bert`. Its window is that of `local_attention`, its pattern how many layers there are to one that sees all."""
    meta = src.cfg
    if src.has("token_embd_norm.bias"):
        raise ModelError(f"{meta.where}: norms with biases are not served from GGUF files; use safetensors")
    spec = gguf_encoder(
        src,
        "modernbert",
        norm_place="pre",
        has_norm_bias=False,
        is_gated=True,
        activation=activation(meta, "hidden_act", "gelu"),
    )
    meta.expect("rope.dimension_count", spec.head_dim)
    period = meta.whole("attention.sliding_window_pattern", 3)
    if period < 1:
        raise meta.bad("attention.sliding_window_pattern", period, "1 or more")
    window = layer_window(meta.whole("attention.sliding_window") // 2, spec.max_positions)
    params = rope.gguf_params(meta, theta=160000.0)
    by_kind = (params, {**params, "rope_theta": meta.number("rope.freq_base_swa")})
    most = meta.whole("context_length")
    ropes = [
        rope.build(one, head_dim=spec.head_dim, max_len=spec.max_positions, max_positions=most, where=meta.where)
        for one in by_kind
    ]
    slides = [bool(index % period) for index in range(len(spec.layers))]
    layers = tuple(
        EncoderLayerSpec(ropes[slid], window if slid else 0, has_pre_attn_norm=index > 0)
        for index, slid in enumerate(slides)
    )
    return replace(spec, layers=layers)


def head(cfg: Description, kind: HeadKind) -> HeadSpec:
    """All heads of ModernBERT have a dense layer and a norm; a sequence is its first token or the mean of all."""
    common: dict[str, Any] = {
        "activation": activation(cfg, "classifier_activation", "gelu"),
        "has_dense_bias": cfg.flag("classifier_bias", False),
        "norm_eps": cfg.number("norm_eps", 1e-5),
        "has_norm_bias": cfg.flag("norm_bias", False),
    }
    if kind == "masked":
        has_bias, is_tied = cfg.flag("decoder_bias", True), cfg.flag("tie_word_embeddings", True)
        return HeadSpec(kind, cfg.whole("vocab_size"), has_out_bias=has_bias, is_tied=is_tied, **common)
    cfg.expect("classifier_pooling", "cls", "mean")
    return classification(cfg, kind, pooling=cfg.text("classifier_pooling", "cls"), **common)


_GGUF = {name: GGUF_ENCODER[name] for name in ("tokens", "embedding_norm", "qkv", "o", "down")} | {
    "final_norm": "output_norm",
    "pre_attn": "blk.{layer}.attn_norm",
    "pre_ffn": "blk.{layer}.ffn_norm",
    "gate_up": "blk.{layer}.ffn_up",
}
MODERNBERT = EncoderFamily(
    "modernbert",
    from_hf,
    Names(_ROLES, optional_prefix="model.", harmless=("head.*", "decoder.*")),
    head=head,
    from_gguf=from_gguf,
    gguf=(Names(_GGUF),),
)

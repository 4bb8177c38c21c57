"""GTE of version 1.5 and multilingual (`NewModel` of the code beside them, `GteModel` of transformers), and Snowflake's Arctic
Embed M v2, which is one: BERT with rotation instead of learned positions, gated MLPs, biases but for gate and up.

Released files fuse q, k and v, and up with gate, in this order; transformers writes the parts. Those of the multilingual models
hold a head for token weights as well. Sources: Zhang et al. 2024 (mGTE); Peng et al. 2023 (NTK); transformers `gte`.
"""

from __future__ import annotations

from octavo.engine.errors import ModelError
from octavo.engine.models import rope
from octavo.engine.models.activation import activation
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source
from octavo.engine.models.names import Names

_TABLES = {
    "tokens": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
}
_LAYER = "encoder.layer.{layer}."
_RELEASED = {
    **_TABLES,
    "qkv": _LAYER + "attention.qkv_proj",
    "q": _LAYER + "attention.q_proj",
    "k": _LAYER + "attention.k_proj",
    "v": _LAYER + "attention.v_proj",
    "o": _LAYER + "attention.o_proj",
    "after_attn": _LAYER + "attn_ln",
    "up_gate": _LAYER + "mlp.up_gate_proj",
    "down": _LAYER + "mlp.down_proj",
    "after_ffn": _LAYER + "mlp_ln",
}
_PARTS = {
    **_TABLES,
    "q": "layers.{layer}.self_attn.q_proj",
    "k": "layers.{layer}.self_attn.k_proj",
    "v": "layers.{layer}.self_attn.v_proj",
    "o": "layers.{layer}.self_attn.o_proj",
    "after_attn": "layers.{layer}.post_attention_layernorm",
    "gate": "layers.{layer}.mlp.gate_proj",
    "up": "layers.{layer}.mlp.up_proj",
    "down": "layers.{layer}.mlp.down_proj",
    "after_ffn": "layers.{layer}.post_mlp_layernorm",
}


def from_hf(src: Source) -> EncoderSpec:
    """NewModel, GteModel."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.expect("position_embedding_type", "rope")
    cfg.expect("layer_norm_type", "layer_norm")
    cfg.expect("logn_attention_scale", False)
    cfg.skip("logn_attention_clip1")  # of that scale
    cfg.skip("pack_qkv")  # which the names of the tensors say as well
    cfg.skip(
        "unpad_inputs", "use_memory_efficient_attention", "tie_word_embeddings"
    )  # how others compute, and of heads
    params = rope.hf_params(cfg, theta=0.0)
    if not params["rope_theta"]:  # the two codes assume different ones
        raise cfg.bad("rope_theta", None, "given")
    positions = cfg.whole("max_position_embeddings")
    max_positions = src.max_len(positions)
    turn = rope.build(params, head_dim=hidden // heads, max_len=max_positions, max_positions=positions, where=cfg.where)
    return EncoderSpec(
        family="gte",
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("intermediate_size"),
        vocab=cfg.whole("vocab_size"),
        max_positions=max_positions,
        scale=(hidden // heads) ** -0.5,
        layers=(EncoderLayerSpec(turn),) * cfg.whole("num_hidden_layers"),
        norm_eps=cfg.number("layer_norm_eps", 1e-12),
        num_token_types=cfg.whole("type_vocab_size"),
        activation=activation(cfg, "hidden_act", "gelu"),
        is_gated=True,
        has_up_bias=False,
    )


def _names(prefix: str, roles: dict[str, str]) -> Names:
    harmless = ("pooler.dense.*", "*.pooler.dense.*", "lm_head.*", "classifier.*")
    return Names({role: prefix + name for role, name in roles.items()}, optional_prefix=prefix, harmless=harmless)


NEW = EncoderFamily("gte", from_hf, _names("new.", _RELEASED))
GTE = EncoderFamily("gte", from_hf, _names("gte.", _RELEASED), (_names("gte.", _PARTS), _names("new.", _RELEASED)))

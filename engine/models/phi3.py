"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: fused q, k, v and fused gate, up; longrope; partial rotation in Phi-4-mini.

Long factors are chosen when the engine serves more tokens than the original length, for every request alike (the
oracle chooses by the longest sequence of a call). Sources: Abdin et al. 2024; transformers `phi3`; llama.cpp's GGUF
`phi3`, whose `ffn_up` holds gate and up.
"""

from __future__ import annotations

from octavo.engine.models import rope
from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, full_window, gguf_base, hf_base
from octavo.engine.models.names import HF_HARMLESS, Names, gguf_names, hf_names
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def from_hf(src: Source) -> DecoderSpec:
    """Phi3ForCausalLM. `yarn` and `su` are old names of longrope here."""
    cfg = src.cfg
    base = hf_base(src, "phi3", eps=1e-5, tied=False)
    params = rope.hf_params(cfg)
    if params["rope_type"] in ("su", "yarn"):
        params["rope_type"] = "longrope"
    if params["rope_type"] == "longrope":
        params.setdefault("original_max_position_embeddings", cfg.whole("original_max_position_embeddings", 4096))
    else:
        params.pop("original_max_position_embeddings", None)
    cfg.skip("original_max_position_embeddings")  # longrope alone uses it
    cfg.expect("attention_bias", False)
    cfg.expect("mlp_bias", False)
    cfg.expect("lm_head_bias", False)
    cfg.expect("full_attn_mod", 1)
    cfg.expect("interpolate_factor", 1)
    one = rope.build(
        params,
        head_dim=base["head_dim"],
        max_len=base["max_positions"],
        max_positions=cfg.whole("max_position_embeddings"),
        where=cfg.where,
    )
    window = full_window(cfg.get("sliding_window"), base["max_positions"])
    layer = LayerSpec(one, base["head_dim"] ** -0.5, window)
    return DecoderSpec(
        **base, layers=(layer,) * cfg.whole("num_hidden_layers"), activation=activation(cfg, "hidden_act", "silu")
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `phi3`: factors are tensors, the factor of cos and sin is a key. A window of 0 means none."""
    meta = src.cfg
    base = gguf_base(src, "phi3")
    max_positions = meta.whole("context_length")
    original = meta.whole("rope.scaling.original_context_length", max_positions)
    long, short = src.floats("rope_factors_long.weight"), src.floats("rope_factors_short.weight")
    params = rope.gguf_params(meta)
    if long:
        params["rope_type"] = "longrope"
        params |= {"long_factor": long, "short_factor": short, "original_max_position_embeddings": original}
        params["attention_factor"] = meta.number("rope.scaling.attn_factor", 1.0)
    params["partial_rotary_factor"] = meta.whole("rope.dimension_count", base["head_dim"]) / base["head_dim"]
    one = rope.build(
        params, head_dim=base["head_dim"], max_len=base["max_positions"], max_positions=max_positions, where=meta.where
    )
    window = full_window(meta.whole("attention.sliding_window", 0), base["max_positions"])
    layer = LayerSpec(one, base["head_dim"] ** -0.5, window)
    return DecoderSpec(**base, layers=(layer,) * meta.whole("block_count"))


FAMILY = Family(
    "phi3",
    from_hf,
    Names(hf_names(qkv=".self_attn.qkv_proj", gate_up=".mlp.gate_up_proj"), harmless=HF_HARMLESS),
    from_gguf,
    Names(gguf_names(gate_up=".ffn_up", gate="", up="")),
)

"""Gemma, Gemma 2 and Gemma 3 (text): norms that store w - 1, token rows scaled by sqrt(hidden). Since Gemma 2 norms stand before
and after both branches, with sliding layers among full ones; Gemma 2 caps scores and logits, Gemma 3 norms q and k and rotates
local layers apart.

The token scale is rounded to the checkpoint's type, as the oracle does (sqrt(640) is 25.25 in bfloat16); GGUF files
carry no such type and use float32. GGUF norm weights hold the 1 already. Sources: Gemma Team 2024, 2024, 2025; transformers
`gemma`, `gemma2`, `gemma3_text`; llama.cpp's GGUF architectures `gemma`, `gemma2`, `gemma3`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.engine.models import rope
from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, full_window, gguf_base, hf_base, layer_windows
from octavo.engine.models.llama import gguf_rope, hf_rope
from octavo.engine.models.names import GGUF, HF_HARMLESS, Names, hf_names
from octavo.engine.models.reader import Description, round_to
from octavo.engine.models.spec import DecoderSpec, LayerSpec
from octavo.platforms.types import Rope

_DTYPES = ("float32", "bfloat16", "float16")


def _hf_common(src: Source, family: str) -> dict[str, Any]:
    cfg = src.cfg
    if cfg.get("head_dim") is None:
        raise cfg.bad("head_dim", None, "given (256 in the released models)")
    base = hf_base(src, family, tied=True)
    dtype = str(cfg.get("dtype", cfg.get("torch_dtype", "float32"))).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise cfg.bad("dtype", dtype, "one of " + ", ".join(_DTYPES))
    has_bias = cfg.flag("attention_bias", False)
    cfg.expect("hidden_act", cfg.get("hidden_activation"), "gelu", "gelu_pytorch_tanh")  # older spelling, not used
    return {
        **base,
        "norm_add": 1.0,
        "has_post_norm": True,
        "activation": activation(cfg, "hidden_activation", "gelu_pytorch_tanh"),
        "has_qkv_bias": has_bias,
        "has_o_bias": has_bias,
        "embedding_scale": round_to(base["hidden"] ** 0.5, dtype),
    }


def gemma_from_hf(src: Source) -> DecoderSpec:
    """GemmaForCausalLM, whose files say `gelu` and mean its tanh form, as the oracle reads them."""
    cfg = src.cfg
    cfg.expect("use_bidirectional_attention", False)
    cfg.expect("hidden_activation", "gelu_pytorch_tanh")
    base = {**_hf_common(src, "gemma"), "has_post_norm": False}
    layer = LayerSpec(hf_rope(src, base), base["head_dim"] ** -0.5)
    return DecoderSpec(**base, layers=(layer,) * cfg.whole("num_hidden_layers"))


def gemma2_from_hf(src: Source) -> DecoderSpec:
    """Gemma2ForCausalLM. A null cap means none; absent ones are 50 and 30."""
    cfg = src.cfg
    cfg.expect("use_bidirectional_attention", False)
    base = _hf_common(src, "gemma2")
    num_layers, scale = cfg.whole("num_hidden_layers"), cfg.number("query_pre_attn_scalar", 256) ** -0.5
    window = cfg.whole("sliding_window", 4096)
    windows = layer_windows(src, num_layers, lambda i: i % 2 == 0, window, base["max_positions"])
    cfg.expect("cache_implementation", "hybrid")
    one = hf_rope(src, base)
    return DecoderSpec(
        **base,
        attn_softcap=_cap(cfg, "attn_logit_softcapping", 50.0),
        final_softcap=_cap(cfg, "final_logit_softcapping", 30.0),
        layers=tuple(LayerSpec(one, scale, window) for window in windows),
    )


def gemma3_from_hf(src: Source) -> DecoderSpec:
    """Gemma3ForCausalLM (text)."""
    src.cfg.expect("use_bidirectional_attention", False)
    return gemma3_text_from_hf(src)


def gemma3_text_from_hf(src: Source) -> DecoderSpec:
    """Gemma3TextModel, which EmbeddingGemma is: where tokens see both directions, half a window lies on either side."""
    cfg = src.cfg
    is_bidirectional = cfg.flag("use_bidirectional_attention", False)
    base = _hf_common(src, "gemma3")
    cfg.expect("attn_logit_softcapping")  # the oracle reads it and does nothing with it
    num_layers, scale = cfg.whole("num_hidden_layers"), cfg.number("query_pre_attn_scalar", 256) ** -0.5
    pattern = cfg.whole("sliding_window_pattern", cfg.whole("_sliding_window_pattern", 6))
    window = cfg.whole("sliding_window", 4096)
    window = window // 2 + 1 if is_bidirectional else window
    windows = layer_windows(src, num_layers, lambda i: bool((i + 1) % pattern), window, base["max_positions"])
    kinds = cfg.get("layer_types") or [
        "sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(num_layers)
    ]
    ropes = _hf_ropes(src, base)
    layers = tuple(LayerSpec(ropes[kind], scale, window) for kind, window in zip(kinds, windows, strict=True))
    cap = cfg.number("final_logit_softcapping", 0.0)
    return DecoderSpec(**base, qk_norm="head", final_softcap=cap, layers=layers, is_bidirectional=is_bidirectional)


def _hf_ropes(src: Source, base: dict[str, Any]) -> dict[str, Rope]:
    """Full layers take `rope_theta` and `rope_scaling`, sliding ones `rope_local_base_freq`, in the older spelling."""
    cfg = src.cfg
    full = rope.hf_params(cfg, theta=1000000.0, layer_type="full_attention")
    local: rope.Params = {"rope_type": "default", "rope_theta": cfg.number("rope_local_base_freq", 10000.0)}
    if cfg.get("rope_parameters"):
        local = rope.hf_params(cfg, theta=10000.0, layer_type="sliding_attention")
    limit = {"head_dim": base["head_dim"], "max_len": base["max_positions"], "where": cfg.where}
    limit["max_positions"] = cfg.whole("max_position_embeddings")
    return {"full_attention": rope.build(full, **limit), "sliding_attention": rope.build(local, **limit)}


def _gguf_common(src: Source, family: str) -> dict[str, Any]:
    base = gguf_base(src, family)
    return {
        **base,
        "has_post_norm": True,
        "activation": "gelu_tanh",
        "embedding_scale": round_to(base["hidden"] ** 0.5, "float32"),
    }


def _gguf_layers(
    src: Source, base: dict[str, Any], *, period: int, window: int, ropes: tuple[Rope, Rope], widest: int
) -> Any:
    """`ropes`: (full, sliding). The largest model of each generation scales by width over heads, not by head_dim."""
    num_layers = src.cfg.whole("block_count")
    pattern = src.cfg.get("attention.sliding_window_pattern", period)
    if isinstance(pattern, np.ndarray):
        slides = [bool(x) for x in pattern]
    else:
        slides = [bool(window) and i % int(pattern) < int(pattern) - 1 for i in range(num_layers)]
    width = base["hidden"] // base["heads"] if num_layers == widest else base["head_dim"]
    cut = full_window(window, base["max_positions"])
    return tuple(LayerSpec(ropes[int(slides[i])], width**-0.5, cut if slides[i] else 0) for i in range(num_layers))


def gemma_from_gguf(src: Source) -> DecoderSpec:
    """GGUF `gemma`."""
    base = {**_gguf_common(src, "gemma"), "has_post_norm": False}
    layer = LayerSpec(gguf_rope(src, base), base["head_dim"] ** -0.5)
    return DecoderSpec(**base, layers=(layer,) * src.cfg.whole("block_count"))


def gemma2_from_gguf(src: Source) -> DecoderSpec:
    """GGUF `gemma2`: layers 0, 2, 4, ... slide."""
    meta = src.cfg
    base = _gguf_common(src, "gemma2")
    one = gguf_rope(src, base)
    window = meta.whole("attention.sliding_window", 4096)
    layers = _gguf_layers(src, base, period=2, window=window, ropes=(one, one), widest=46)
    caps: dict[str, Any] = {
        "attn_softcap": meta.number("attn_logit_softcapping", 50.0),
        "final_softcap": meta.number("final_logit_softcapping", 30.0),
    }
    return DecoderSpec(**base, **caps, layers=layers)


def gemma3_from_gguf(src: Source) -> DecoderSpec:
    """GGUF `gemma3`: five sliding layers, then a full one; sliding layers rotate by their own base, unscaled."""
    meta = src.cfg
    base = _gguf_common(src, "gemma3")
    full = gguf_rope(src, base, theta=1000000.0)
    local = rope.build(
        {"rope_type": "default", "rope_theta": meta.number("rope.freq_base_swa", 10000.0)},
        head_dim=base["head_dim"],
        max_len=base["max_positions"],
        max_positions=meta.whole("context_length"),
        where=meta.where,
    )
    window = meta.whole("attention.sliding_window", 0)
    meta.skip("mm.tokens_per_image")  # of the image half, which is another file
    layers = _gguf_layers(src, base, period=6, window=window, ropes=(full, local), widest=62)
    cap = meta.number("final_logit_softcapping", 0.0)
    return DecoderSpec(**base, qk_norm="head", final_softcap=cap, layers=layers)


_HF = Names(
    hf_names(
        post_attn=".post_attention_layernorm",
        pre_ffn=".pre_feedforward_layernorm",
        post_ffn=".post_feedforward_layernorm",
    ),
    harmless=HF_HARMLESS,
    optional_prefix="model.",
)

_HF_FIRST = Names(hf_names(), harmless=HF_HARMLESS, optional_prefix="model.")

GEMMA = Family("gemma", gemma_from_hf, _HF_FIRST, gemma_from_gguf, Names(GGUF))
GEMMA2 = Family("gemma2", gemma2_from_hf, _HF, gemma2_from_gguf, Names(GGUF))
GEMMA3 = Family("gemma3", gemma3_from_hf, _HF, gemma3_from_gguf, Names(GGUF))
GEMMA3_TEXT = Family("gemma3", gemma3_text_from_hf, _HF)


def _cap(cfg: Description, key: str, usual: float) -> float:
    """A cap of config.json; null is none, absence the usual one."""
    return 0.0 if cfg.optional(key, usual) is None else cfg.number(key, usual)

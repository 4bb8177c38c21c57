"""Rotary settings of a checkpoint, from config.json (old and new spelling) or GGUF metadata, as `Rope` data.

Both spellings of Hugging Face are read: `rope_parameters` (one table, or one per layer type) and `rope_theta` with
`rope_scaling`. Frequencies are computed in float64 by `octavo.platforms.rope`. Choices that depend on length (longrope,
dynamic) are made once per model from its length limit, so that one request's bits never depend on another's length.
Unknown kinds and unknown keys are refused. Sources: Su et al. 2021 (RoPE); Peng et al. 2023 (YaRN); Ding et al. 2024
(LongRoPE); the rope_parameters page of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.models.reader import Description
from octavo.platforms.rope import MAX_ANGLE, frequencies
from octavo.platforms.types import Rope

Params = dict[str, Any]

_KNOWN: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "ntk": ("factor", "mixed_b"),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"),
}
_LISTS = ("short_factor", "long_factor", "divisors")
_MAY_BE_ZERO = ("mscale", "mscale_all_dim", "beta_fast", "beta_slow")  # then as if they were not there
_ALWAYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


def hf_params(
    cfg: Description, *, theta: float = 10000.0, partial: float = 1.0, layer_type: str | None = None
) -> Params:
    """One flat table of rotary parameters for a layer type (or for all), every default filled in."""
    new = cfg.get("rope_parameters")
    old = cfg.get("rope_scaling")
    for key, value in (("rope_parameters", new), ("rope_scaling", old)):
        if value is not None and not isinstance(value, Mapping):
            raise cfg.bad(key, value, "a table")
    params: Params = dict(new or {})
    nested = [key for key, value in params.items() if isinstance(value, Mapping)]
    if nested:
        if layer_type not in nested:
            raise cfg.bad("rope_parameters", params, f"one table, or a table for {layer_type or 'all layers'}")
        params = dict(params[layer_type])
    elif old is not None:
        params |= dict(old)
    params.setdefault("rope_theta", cfg.number("rope_theta", theta))
    params.setdefault("partial_rotary_factor", cfg.number("partial_rotary_factor", partial))
    kind = params.setdefault("rope_type", params.get("type", "default"))
    original = cfg.get("original_max_position_embeddings")
    if original is not None and kind in ("yarn", "llama3", "longrope", "su"):
        params["original_max_position_embeddings"] = original
    return params


def gguf_params(
    meta: Description, *, theta: float = 10000.0, divisors: Sequence[float] = (), layer_type: str | None = None
) -> Params:
    """The same table from GGUF metadata. `divisors` are the file's per-frequency factors (`rope_freqs.weight`)."""
    base = meta.number("rope.freq_base", theta)
    kind = str(meta.get("rope.scaling.type", "none"))
    factor = meta.number("rope.scaling.factor", meta.number("rope.scale_linear", 1.0))
    if kind == "none" and factor != 1.0:
        kind = "linear"
    params: Params = {"rope_type": "default" if kind == "none" else kind, "rope_theta": base}
    if kind in ("linear", "yarn"):
        params["factor"] = factor
    meta.skip("rope.scaling.finetuned")  # says how the model was trained
    if kind in ("yarn", "longrope"):
        params["original_max_position_embeddings"] = meta.whole("rope.scaling.original_context_length")
        for key, name in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
            if meta.get(f"rope.scaling.{key}") is not None:
                params[name] = meta.number(f"rope.scaling.{key}")
    else:
        meta.skip("rope.scaling.original_context_length")  # information only
    factor_key = "rope.scaling.yarn_attn_factor" if kind == "yarn" else "rope.scaling.attn_factor"
    if meta.get(factor_key) is not None and kind in ("yarn", "longrope"):
        params["attention_factor"] = meta.number(factor_key)
    if len(divisors):
        params |= {"rope_type": "divided", "divisors": [float(x) for x in divisors]}
    return params


def build(
    params: Params, *, head_dim: int, max_len: int, max_positions: int, where: str, is_interleaved: bool = False
) -> Rope:
    """The `Rope` of a parameter table. `max_len`: tokens this engine will serve; `max_positions`: the model's limit."""
    kind = "longrope" if params["rope_type"] == "su" else str(params["rope_type"])
    known = {**_KNOWN, "divided": ("divisors",)}.get(kind)
    if known is None:
        raise ModelError(f"{where}: rope kind {kind!r} is not served; served are {', '.join(_KNOWN)}")
    unknown = [key for key, value in params.items() if key not in (*known, *_ALWAYS) and value is not None]
    if unknown:
        raise ModelError(f"{where}: rope kind {kind} has keys that are not understood: {', '.join(unknown)}")
    for key in (*known, "rope_theta", "partial_rotary_factor"):
        _check(key, params.get(key), where)
    rotary_dim = int(head_dim * float(params.get("partial_rotary_factor", 1.0)))
    inv_freq, attention_factor = frequencies(kind, params, rotary_dim, max_len=max_len, max_positions=max_positions)
    if not all(0 <= frequency < MAX_ANGLE for frequency in inv_freq) or not 0 < attention_factor < math.inf:
        raise ModelError(
            f"{where}: rope kind {kind} with {_short(params)} turns by {max(inv_freq):g} per token, scaled by "
            f"{attention_factor:g}; allowed are finite angles below {MAX_ANGLE:g}"
        )
    factor = float(np.float32(attention_factor))  # as the oracle multiplies, and as GGUF stores it
    return Rope(inv_freq, rotary_dim, factor, is_interleaved, max_len)


def _check(key: str, value: Any, where: str) -> None:
    """ModelError for a parameter that nobody can compute with."""
    is_list = key in _LISTS
    if value is None and not is_list:
        return
    if key == "truncate":
        if not isinstance(value, bool):
            raise ModelError(f"{where}: rope {key} is {_short(value)}; it must be true or false")
        return
    numbers = value if is_list and isinstance(value, list) else [value]
    least = -math.ulp(0.0) if key in _MAY_BE_ZERO else 0.0
    if not numbers or not all(_is_number(number) and least < number < math.inf for number in numbers):
        wanted = "a list of finite numbers" if is_list else "a finite number"
        raise ModelError(f"{where}: rope {key} is {_short(value)}; it must be {wanted} above 0")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

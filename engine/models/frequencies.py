"""Inverse frequencies of every rotary kind, in float64, from a parameter table of `rope.py`.

Formulas follow transformers' modeling_rope_utils (the oracle); sources: Peng et al. 2023 (YaRN, NTK), Ding et al.
2024 (LongRoPE), Llama 3.1's published scaling. Invariant: a result depends on the table and the model's length limit
only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def frequencies(
    kind: str, params: dict[str, Any], dim: int, *, max_len: int, max_positions: int
) -> tuple[tuple[float, ...], float]:
    """(inverse frequencies [dim / 2], factor of cos and sin)."""
    theta = float(params["rope_theta"])
    exponents = np.arange(0, dim, 2, dtype=np.float64) / dim
    plain: NDArray[np.float64] = 1.0 / theta**exponents
    attention = 1.0
    if kind == "linear":
        plain = plain / float(params["factor"])
    elif kind == "dynamic":
        factor, length = float(params["factor"]), max(max_len, max_positions)
        base = theta * ((factor * length / max_positions) - (factor - 1)) ** (dim / (dim - 2))
        plain = 1.0 / base**exponents
    elif kind == "divided":
        plain = plain / np.asarray(params["divisors"], np.float64)
    elif kind == "llama3":
        plain = _llama3(plain, params)
    elif kind == "yarn":
        plain, attention = _yarn(plain, params, theta, dim, max_positions)
    elif kind == "longrope":
        original = int(params["original_max_position_embeddings"])
        name = "long_factor" if max_len > original else "short_factor"
        plain = plain / np.asarray([np.float32(x) for x in params[name]], np.float64)
        attention = _longrope_attention(params, max_positions, original)
    return tuple(float(x) for x in plain), attention


def _llama3(plain: NDArray[np.float64], params: dict[str, Any]) -> NDArray[np.float64]:
    factor, original = float(params["factor"]), float(params["original_max_position_embeddings"])
    low, high = float(params["low_freq_factor"]), float(params["high_freq_factor"])
    wave = 2 * math.pi / plain
    smooth = np.clip((original / wave - low) / (high - low), 0.0, 1.0)
    divisors = 1.0 / ((1 - smooth) / factor + smooth)
    return plain / divisors.astype(np.float32).astype(np.float64)  # files store these divisors as float32


def _yarn(
    plain: NDArray[np.float64], params: dict[str, Any], theta: float, dim: int, max_positions: int
) -> tuple[NDArray[np.float64], float]:
    original = float(params.get("original_max_position_embeddings") or max_positions)
    factor = float(params.get("factor") or max_positions / original)

    def mscale(scale: float, weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(scale) + 1.0 if scale > 1 else 1.0

    def correction(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    attention = params.get("attention_factor")
    if attention is None:
        first, second = params.get("mscale"), params.get("mscale_all_dim")
        attention = mscale(factor, first) / mscale(factor, second) if first and second else mscale(factor)
    low, high = correction(params.get("beta_fast") or 32), correction(params.get("beta_slow") or 1)
    if params.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / ((high if high != low else high + 0.001) - low), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp), float(attention)


def _longrope_attention(params: dict[str, Any], max_positions: int, original: int) -> float:
    if params.get("attention_factor") is not None:
        return float(params["attention_factor"])
    factor = float(params.get("factor") or max_positions / original)
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0

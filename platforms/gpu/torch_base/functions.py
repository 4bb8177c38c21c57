"""Elementwise functions and roundings of the contract on torch tensors.

Formulas are the contract's (platforms/ops.py); exp, tanh and erf are torch's own, within the bounds of the case tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octavo.platforms.gpu.torch_base.runtime import TINY, Tensor, torch
from octavo.platforms.types import Activation

LARGEST = 3.4028234663852886e38
_SQRT_HALF = math.sqrt(0.5)
_GELU_A, _GELU_B = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)


def _gelu(x: Tensor) -> Tensor:
    half = x * 0.5
    return half * torch.erf(x * _SQRT_HALF) + half


def _gelu_tanh(x: Tensor) -> Tensor:
    half = x * 0.5
    return half * torch.tanh(x * (x * x * _GELU_B + _GELU_A)) + half


def _relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.0)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "silu": lambda x: x * torch.sigmoid(x),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": _relu,
    "relu2": lambda x: torch.where(x > 0, x * x, 0.0),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def to_bf16(x: Tensor) -> Tensor:
    """Rounded to bfloat16, half to even, as float32."""
    return x.to(torch.bfloat16).float()


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 codes (as float32 [..., n]) and scales [...] of the last axis: s = amax / 127, q = half-even(x / s), 0 for s = 0."""
    if x.shape[-1] == 0:
        return x, x.new_zeros(x.shape[:-1])
    scale = x.abs().amax(-1) / 127.0
    scale = torch.where(scale < TINY, 0.0, scale)
    ratio = torch.round(x / scale.unsqueeze(-1)).clamp_(-127, 127)
    return torch.where(scale.unsqueeze(-1) == 0, 0.0, ratio), scale


def quantize_e4m3(x: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 codes (uint8 [..., n]) and scales [...] of the last axis: s = amax / 448, q = e4m3(x / s), none of them -0 or NaN,
    0 for s = 0."""
    if x.shape[-1] == 0:
        return x.to(torch.uint8), x.new_zeros(x.shape[:-1])
    scale = x.abs().amax(-1) / 448.0
    scale = torch.where(scale < TINY, 0.0, scale)
    ratio = torch.nan_to_num(x / scale.unsqueeze(-1), nan=-448.0).clamp_(-448, 448)
    codes = torch.where(scale.unsqueeze(-1) > 0, ratio, 0.0).to(torch.float8_e4m3fn).view(torch.uint8)
    return torch.where(codes == 0x80, 0, codes), scale


def best_ids(logits: Tensor) -> Tensor:
    """int32 [rows, 1]: what greedy sampling takes (`Ops.greedy_head`)."""
    candidates = torch.where(logits > -math.inf, logits.clamp(max=LARGEST), -math.inf)
    top = candidates.amax(-1, keepdim=True)
    vocab = logits.shape[-1]
    ids = torch.arange(vocab, device=logits.device, dtype=torch.int32)
    first = torch.where(candidates == top, ids, vocab).amin(-1, keepdim=True)
    return torch.where(top == -math.inf, -1, first).to(torch.int32)

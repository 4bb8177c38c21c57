"""Functions of the op contract on the host, bit for bit, for few values that have left a platform: scores of a classification."""

from __future__ import annotations

from octavo.platforms.reference.f32 import div, exp, gelu, log, sigmoid, silu, sqrt, sum16_squares, tanh

__all__ = ["div", "exp", "gelu", "log", "sigmoid", "silu", "sqrt", "sum16_squares", "tanh"]

"""Activations, close to docs/numerics.md section 2: its polynomials in decimals, but `exp` is the chip's own."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    a = tl.abs(x)
    z = x * x
    p = -0.00566696515 * z + 0.0206061639
    p = p * z - 0.0537300035
    p = p * z + 0.133313313
    p = p * z - 0.333332777
    large = 1.0 - 2.0 / (tl.exp(a + a) + 1.0)
    return tl.where(a < 0.625, x * z * p + x, tl.where(x < 0.0, -large, large))


@triton.jit
def erf(x):
    a = tl.abs(x)
    z = x * x
    p = 7.85385637e-05 * z - 0.000801019196
    p = p * z + 0.00518832775
    p = p * z - 0.0268538110
    p = p * z + 0.112835854
    p = p * z - 0.376126260
    p = p * z + 0.128379166
    t = tl.minimum(a, 4.0)
    q = -0.000185574332 * t + 0.00293961051
    q = q * t - 0.0218053311
    q = q * t + 0.103037395
    q = q * t + 0.638225615
    q = q * t + 1.12703996
    q = q * t + 0.000353714597
    large = 1.0 - tl.exp(-q)
    return tl.where(a < 1.0, x * p + x, tl.where(x < 0.0, -large, large))


@triton.jit
def activate(x, kind):
    """`kind`: ActivationKind of csrc_common/contract/linear.h."""
    if kind == 1:
        x = x * sigmoid(x)
    elif kind == 2:
        h = x * 0.5
        x = h * erf(x * 0.707106769) + h
    elif kind == 3:
        h = x * 0.5
        x = h * tanh(x * (x * x * 0.0356774069 + 0.797884583)) + h
    elif kind == 4:
        x = tl.maximum(x, 0.0)
    elif kind == 5:
        x = tl.where(x > 0.0, x * x, 0.0)
    elif kind == 6:
        x = tanh(x)
    elif kind == 7:
        x = sigmoid(x)
    return x

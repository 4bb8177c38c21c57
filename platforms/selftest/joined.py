"""Cases of ops that a program may run as one (platforms/gpu/fusion.py): what they give together is what they give apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.rope import frequencies
from octavo.platforms.selftest.values import batch, one_layer, tensors, values
from octavo.platforms.types import Activation, KVDtype, Rope

#: input form -> a weight format that takes it, and inputs: a short last group, more than sixteen groups
FORMS = {
    "prepare_bf16": ("bf16", 328), "prepare_i8g32": ("q8_0", 608), "prepare_i8g64": ("i4g64", 168),
    "prepare_i8g128": ("i4g128", 168), "prepare_i8g256": ("q4_k", 512), "prepare_i8row": ("w8a8", 328),
    "prepare_f16row": ("i4g32", 328), "prepare_f16pair": ("f16", 328),  # of fast numerics
}  # fmt: skip


def joined(ops: Any, calls: Callable[..., Any], *arrays: NDArray[np.float32]) -> Any:
    """`calls(ops, *arrays)`, as one program where the platform records any."""
    together = getattr(ops, "together", None)
    return calls(ops, *arrays) if together is None else together(calls, *arrays)


def layer_norm_prepare(form: str, cell: Any) -> list[NDArray[Any]]:
    """A product of rows of a layer norm with weight and bias, and with either; then rows that are read once more."""
    name, width = FORMS[form]
    weight = cell.weights().linear([tensors(f"normed {name}", name, 33, width)[0]])
    again = cell.weights().linear([tensors("normed again", "f32", 33, width)[0]])
    x, scales, shifts = values(f"layer normed {form}", 3, width), values("norm w", width), values("norm b", width)

    def product(ops: Any, x: Any, w: Any, b: Any) -> Any:
        return ops.linear(ops.layer_norm(x, w, b, 1e-5), weight)

    def twice(ops: Any, x: Any) -> Any:
        y = ops.layer_norm(x, None, None, 1e-6)
        return ops.linear(y, again, residual=ops.linear(y, weight))

    some = ((scales, shifts), (scales, None), (None, shifts))
    found = [joined(cell.ops(), lambda ops, x, w=w, b=b: product(ops, x, w, b), x) for w, b in some]
    return [*found, joined(cell.ops(), twice, x)]


def norm_prepare(form: str, cell: Any) -> list[NDArray[Any]]:
    """A product of normed rows; then rows that are read once more."""
    name, width = FORMS[form]
    weight = cell.weights().linear([tensors(f"normed {name}", name, 33, width)[0]])
    again = cell.weights().linear([tensors("normed again", "f32", 33, width)[0]])
    x, scales = values(f"normed {form}", 3, width), values("norm w", width)

    def twice(ops: Any, x: Any) -> Any:
        y = ops.rms_norm(x, None, 1e-6)
        return ops.linear(y, again, residual=ops.linear(y, weight))

    return [
        joined(cell.ops(), lambda ops, x: ops.linear(ops.rms_norm(x, scales, 1e-5), weight), x),
        joined(cell.ops(), twice, x),
    ]


def gated(name: str, cell: Any) -> list[NDArray[Any]]:
    """A gated MLP of weights of a format, gate and up as one weight where the platform asks for that; every activation in one."""
    weights, width = cell.weights(), {"q4_k": 256, "q8_0": 160}.get(name, 168)
    parts = [tensors(f"gated {part} {name}", name, width, width)[0] for part in ("gate", "up")]
    gate, up = (None, weights.linear(parts)) if weights.stacks_gated else (weights.linear([part]) for part in parts)
    down = weights.linear([tensors(f"gated down {name}", name, 35, width)[0]])
    x, ops = values(f"gated {name}", 3, width), cell.ops()
    activations = get_args(Activation) if name == "bf16" else ("silu", "gelu_tanh")
    return [ops.gated_mlp(x, gate, up, down, activation, scale=0.5) for activation in activations]


def norm_add(cell: Any) -> list[NDArray[Any]]:
    """A branch's norm before its sum; then a norm that is read once more."""
    x, base, scales = values("norm add x", 3, 328), values("norm add", 3, 328), values("norm w", 328)

    def twice(ops: Any, x: Any, base: Any) -> Any:
        y = ops.rms_norm(x, None, 1e-6)
        return ops.add(y, ops.add(base, y, scale_a=0.7))

    return [
        joined(cell.ops(), lambda ops, x, base: ops.add(base, ops.rms_norm(x, scales, 1e-5), scale_b=0.3), x, base),
        joined(cell.ops(), twice, x, base),
    ]


def rope_append(dtype: KVDtype, cell: Any) -> list[NDArray[Any]]:
    """Attention over keys that were rotated and stored with its queries; with norms of heads and without."""
    heads, kv_heads, head_dim = 4, 2, 48
    inv_freq, _ = frequencies("default", {"rope_theta": 10000.0}, 40, max_len=1, max_positions=1)
    step = batch([(0, 21), (0, 1)])
    q, k, v = (
        values(f"joined {name}", 22, n * head_dim) for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    )
    q_weight, k_weight = values("joined qw", head_dim), values("joined kw", head_dim)
    out = []
    for is_interleaved, has_norm in ((False, False), (True, True), (False, True)):
        rope = Rope(tuple(inv_freq), 40, 1.1, is_interleaved)
        ops = cell.ops(one_layer(dtype, kv_heads, head_dim), 1 + int(step.block_tables[0].max()))
        ops.begin(step)

        def attend(ops: Any, q: Any, k: Any, v: Any, rope: Rope = rope, has_norm: bool = has_norm) -> Any:
            if has_norm:
                q, k = ops.rms_norm(q, q_weight, 1e-5, heads=heads), ops.rms_norm(k, k_weight, 1e-6, heads=kv_heads)
            q, k = ops.rope(q, rope, heads=heads), ops.rope(k, rope, heads=kv_heads)
            ops.kv_append(k, v, layer=0)
            return ops.paged_attention(q, layer=0, heads=heads, scale=0.2)

        out.append(joined(ops, attend, q, k, v))
    return out

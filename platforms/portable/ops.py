"""The op contract with compiled kernels for what takes the time: linear, attention, norms, activations, softcap.

Everything else is the reference's numpy, and so are checks and shapes; results have the reference's bits either way.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.portable import attention, functions, norms, products
from octavo.platforms.portable.weights import LANES, PortableLinear
from octavo.platforms.reference import f32
from octavo.platforms.reference.attention import Keys, Relative, Scoring
from octavo.platforms.reference.f32 import F32
from octavo.platforms.reference.kv import PagePool
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.products import BLOCK, padded, quantize_rows
from octavo.platforms.types import Activation
from octavo.quant.formats import format_named

LEVEL = "numba"
COMPILED = frozenset(
    {
        "linear",
        "gated_mlp",
        "lm_head",
        "greedy_head",
        "rms_norm",
        "layer_norm",
        "softcap",
        "paged_attention",
        "varlen_attention",
        "relative_attention",
    }
)
_NOTHING = np.zeros((1, 0, 0), np.float32)
_NO_VECTOR = np.zeros(0, np.float32)
_NO_ROWS = np.zeros(1, np.int32)


class PortableOps(ReferenceOps):
    """Implements `octavo.platforms.ops.Ops`; `threads` runs kernels side by side (None: one thread)."""

    def __init__(
        self, pages: PagePool | None = None, threads: ThreadPoolExecutor | None = None, num_threads: int = 1
    ) -> None:
        super().__init__(pages)
        self._threads = threads
        self._num_threads = num_threads

    def _note(self, op: str, detail: str = "") -> None:
        super()._note(op, detail)
        if op in COMPILED:
            self._ran[op] = self._ran[op].replace("__reference", f"__{LEVEL}")

    def _share(self, count: int, body: Callable[[int, int], None]) -> None:
        """Calls body(first, last) over [0, count), cut among the threads."""
        parts = min(self._num_threads, count)
        if self._threads is None or parts < 2:
            body(0, count)
            return
        cuts = [count * i // parts for i in range(parts + 1)]
        list(self._threads.map(body, cuts[:-1], cuts[1:]))

    # -- linear --------------------------------------------------------------------------------------------------------
    def linear(  # type: ignore[override]
        self,
        x: F32,
        weight: PortableLinear,
        *,
        activation: Activation = "none",
        gate: F32 | None = None,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        self._note("linear", weight.format)
        if x.shape[1] != weight.num_in:
            raise PlatformError(f"linear: rows of {x.shape[1]} values meet a weight of {weight.num_in} inputs")
        y = self._product(x, weight)
        if scale != 1:
            y = f32.mul(y, np.float32(scale))
        if weight.bias is not None:
            y = f32.add(y, f32.flush(weight.bias))
        if activation != "none":
            y = np.ascontiguousarray(y)
            functions.activate(y, functions.ACTIVATIONS.index(activation))
        if gate is not None:
            y = f32.mul(y, f32.flush(gate))
        return y if residual is None else f32.add(y, f32.flush(residual))

    def _product(self, x: F32, w: PortableLinear) -> F32:
        out = np.empty((len(x), len(w.panels) * LANES), np.float32)
        run: Callable[[int, int], None]
        if w.block == 0:
            rows = f32.flush(np.ascontiguousarray(np.pad(x, ((0, 0), (0, -x.shape[1] % BLOCK)))))
            if w.format == "bf16":
                rows = f32.to_bf16(rows)
            dot = products.dot_bf16 if w.format == "bf16" else products.dot_f32
            run = lambda first, last: dot(rows, w.panels, first, last, out)  # noqa: E731
        else:
            run = self._integer_product(x, w, out)
        self._share(len(w.panels), run)
        return out[:, : w.num_out]

    def _integer_product(self, x: F32, w: PortableLinear, out: F32) -> Callable[[int, int], None]:
        q, s = quantize_rows(padded(x, w.block), w.block)
        if format_named(w.format).has_scales_apart and not format_named(w.format).group:
            return lambda first, last: products.dot_rows(q, s, w.panels, w.d, first, last, out)
        per_sum = w.block if w.mins is None else w.group
        sums = q.reshape(len(q), q.shape[1] // per_sum, per_sum).sum(axis=-1, dtype=np.int32)
        if w.mins is None:
            m = _NOTHING if w.m is None else w.m
            return lambda first, last: products.dot_integer(
                q, s, sums, w.panels, w.d, m, w.m is not None, first, last, out
            )
        return lambda first, last: products.dot_sub_minima(q, s, sums, w.panels, w.mins, w.d, w.dmin, first, last, out)

    # -- norms ---------------------------------------------------------------------------------------------------------
    def rms_norm(self, x: F32, weight: F32 | None, eps: float, *, heads: int = 1) -> F32:
        self._note("rms_norm")
        rows = np.ascontiguousarray(x).reshape(x.shape[0] * heads, x.shape[1] // heads)
        y = np.empty_like(rows)
        norms.rms_norm(rows, _NO_VECTOR if weight is None else weight, weight is not None, np.float32(eps), y)
        return y.reshape(x.shape)

    def layer_norm(self, x: F32, weight: F32 | None, bias: F32 | None, eps: float) -> F32:
        self._note("layer_norm")
        y = np.empty(x.shape, np.float32)
        w, b = (_NO_VECTOR if v is None else v for v in (weight, bias))
        norms.layer_norm(np.ascontiguousarray(x), w, b, weight is not None, bias is not None, np.float32(eps), y)
        return y

    def softcap(self, x: F32, cap: float) -> F32:
        self._note("softcap")
        y = np.array(x, np.float32, order="C")
        functions.softcap(y, np.float32(cap))
        return y

    # -- attention -----------------------------------------------------------------------------------------------------
    def _attend(
        self,
        q: F32,
        positions: NDArray[np.int32],
        keys: Keys,
        low: NDArray[np.int32],
        high: NDArray[np.int32],
        how: Scoring,
    ) -> F32:
        q = np.ascontiguousarray(q)
        out = np.empty(q.shape, np.float32)
        k = f32.flush(np.ascontiguousarray(np.swapaxes(keys.k, 1, 2)))
        v = f32.flush(np.ascontiguousarray(keys.v))
        rel = how.relative or Relative(_NO_ROWS)
        has = (
            *(keys.k_scale is not None, bool(how.softcap), how.alibi is not None, how.sinks is not None, how.rounds),
            how.bias is not None,
            *(how.relative is not None and table is not None for table in (rel.rel_k, rel.rel_q)),
        )
        flags = sum(1 << bit for bit, value in enumerate(has) if value)
        ks, vs = (_NOTHING[0] if s is None else np.ascontiguousarray(s) for s in (keys.k_scale, keys.v_scale))
        bias = _NOTHING[0] if how.bias is None else np.ascontiguousarray(how.bias)
        heads = q.shape[1]
        none = np.zeros((heads, 0, 0), np.float32)
        tables = [
            none if table is None else f32.flush(np.ascontiguousarray(np.swapaxes(table, 1, 2)))
            for table in (rel.rel_k, rel.rel_q)
        ]
        repeat = heads // k.shape[0]
        scale, cap = np.float32(how.scale), np.float32(how.softcap)

        def some(first: int, last: int) -> None:
            for head in range(first, last):
                slope, sink = (np.float32(0) if a is None else np.float32(a[head]) for a in (how.alibi, how.sinks))
                attention.attend(
                    q,
                    positions,
                    k,
                    v,
                    ks,
                    vs,
                    keys.start,
                    low,
                    high,
                    head,
                    head // repeat,
                    scale,
                    cap,
                    slope,
                    sink,
                    bias,
                    tables[0],
                    tables[1],
                    rel.by_distance,
                    flags,
                    out,
                )

        self._share(heads, some)
        return out

"""The op contract: what a model may ask of a platform.

Model code is written once against `Ops`; `platforms/reference` is the executable specification, every other platform
gives the same bits on CPUs and stays within the case tables' bounds on GPUs. Rules for all ops (docs/numerics.md):

- Activations are float32 [rows, width]; every result is float32 unless an op says otherwise.
- No FMA contraction, no reassociation: each formula below is rounded operation by operation; `fma` is written where meant.
- Denormal float32 inputs and results count as zero (FTZ and DAZ); bf16 rounding is half to even, NaN to quiet NaN.
- `dot32`: the float product. For each block of 32 k-values: e = chain of fma over even k from +0, o = the same over odd k,
  acc = acc + (e + o), acc from +0, the last block padded with zeros. It is what TDPBF16PS computes.
- `sum16`: 16 lanes, lane j takes values j, j+16, ... in order (from +0); then lanes fold 8, 4, 2, 1 apart: v[i] += v[i + half].
- exp, tanh, sigmoid, erf, log, gelu, silu are those of `platforms/reference/f32.py` (csrc_common/vec/math.inl.h), bit for bit.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from octavo.platforms.types import Activation, Array, Embedding, LinearWeight, RawTensor, Rope, Rows, VarlenDtype


class Weights(Protocol):
    """Takes checkpoint tensors into a platform's memory, in its own layout. `stacks_gated`: gate and up of a gated MLP are wanted
    as one weight, gate's outputs first (`Ops.gated_mlp`), where both have one `layout`."""

    stacks_gated: ClassVar[bool]

    def linear(
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> LinearWeight:
        """One linear weight [sum of num_out, num_in] from tensors stacked along the outputs, all of one `layout`.

        (Tensors of different layouts are loaded apart.) `bias` is float32/f16/bf16 [num_out], or one per part. `transpose`
        says the tensors are stored [in, out] (GPT-2). `quantize` names a format that float tensors are rounded to on the way,
        as `quant.load.quantize` does. Formats: those of `quant.formats` that this platform runs; others raise PlatformError
        naming the tensor. A tensor that holds an infinity or NaN, in values or scales, is a ModelError naming it, here as in
        `embedding` and `vector`.
        """
        ...

    def embedding(self, table: RawTensor) -> Embedding:
        """A table [num_rows, width]; rows are decoded exactly as `quant` unpacks the format, to float32."""
        ...

    def vector(self, tensor: RawTensor, *, add: float = 0.0) -> Any:
        """A float32 vector [n] (norm weights, biases): widened exactly, then `add` is added in float32 (Gemma stores w - 1)."""
        ...

    def save(self) -> None:
        """Keeps on disk what had to be packed, where a cache was given; slow, so called off the start path."""
        ...

    def settle(self) -> None:
        """Does what makes later steps faster and would hold up the first; called once, while steps may run."""
        ...


class Ops(Protocol):
    """About thirty ops in six groups; the ones served today are here, each later one enters with its reference first."""

    # -- tokens ------------------------------------------------------------------------------------------------------
    def embedding(self, table: Embedding, *, ids: str = "token_ids", scale: float = 1.0) -> Array:
        """[T, width]: rows of `table` for the batch's ids (`token_ids`, `positions`, `token_types`), times `scale` if not 1."""
        ...

    def add(self, a: Array, b: Array, *, scale_a: float = 1.0, scale_b: float = 1.0) -> Array:
        """a * scale_a + b * scale_b, each product rounded (skipped where the scale is 1), then the sum."""
        ...

    def rms_norm(self, x: Array, weight: Any | None, eps: float, *, heads: int = 1) -> Array:
        """Per row, or per head where heads > 1 (width / heads values each; weight [width / heads] shared by the heads).

        s = sum16 of x*x by fma(x, x, lane); r = 1 / sqrt(s / n + eps) (true divisions and root); y = (x * r) * w, w
        skipped if None. Zhang & Sennrich 2019.
        """
        ...

    def layer_norm(self, x: Array, weight: Any | None, bias: Any | None, eps: float) -> Array:
        """mean = sum16(x) / n; d = x - mean; var = sum16 by fma(d, d, lane) / n; y = fma((d * (1 / sqrt(var + eps))), w, b).

        Without bias: the product only; without weight: plus bias only; without both: d * (1 / sqrt(..)). Ba et al. 2016.
        """
        ...

    def rope(self, x: Array, rope: Rope, *, heads: int) -> Array:
        """Rotates each head's first rotary_dim values by the row's position: y1 = fma(x1, c, -(x2 * s)), y2 = fma(x2, c, x1 * s).

        c, s: float32 of float64 cos/sin(position * inv_freq) * attention_factor. Su et al. 2021.
        """
        ...

    # -- linear ------------------------------------------------------------------------------------------------------
    def linear(
        self,
        x: Array,
        weight: LinearWeight,
        *,
        activation: Activation = "none",
        gate: Array | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """[rows, num_out]. Product by the weight's format (quant.formats holds each formula), then in this order, each rounded
        alone: times scale (if not 1), plus bias, activation, times gate, plus residual.

        bf16 weights: inputs rounded to bf16, dot32. f16 and f32 weights: float32 inputs, dot32 (f16 widened).
        Grouped integers (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0; group 32): inputs int8 per (row, 32): s_a = amax / 127,
        q = half-even(x / s_a) in [-127, 127] (s_a 0, also by flushing: zeros); per group in order
        acc = fma(float(isum - zero * asum), s_a * d, acc), and with a float minimum m: acc = fma(float(asum), s_a * m, acc).
        K-quants (Q2_K..Q6_K): inputs int8 per (row, 256); isum = sum of sub_scale * (sub-block sum) in int32;
        acc = fma(float(isum), s_a * d, acc); with minima msum = sum of sub_min * (sub-block sum of q):
        acc = fma(float(msum), -(s_a * dmin), acc).
        Scales apart, groups of G (i4g32, i4g64, i4g128): inputs int8 per (row, G), the last group of a row may be short; per
        group in order acc = fma(float(isum - z * asum), s_a * s, acc), z the group's zero point (8 where none is kept).
        One scale per output (w8a8; at most 131,072 inputs): inputs int8 per row, s_a = amax / 127 over all of it;
        y = float(isum) * (s_a * s), two products, no fma.
        """
        ...

    def gated_mlp(
        self,
        x: Array,
        gate: LinearWeight | None,
        up: LinearWeight,
        down: LinearWeight,
        activation: Activation,
        *,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """linear(linear(x, gate, activation) * linear(x, up), down, residual, scale): the product is act(gate) * up. `gate` is
        None where `up` has gate's outputs before its own, which platforms get that ask for it (`Weights.stacks_gated`)."""
        ...

    # -- attention ---------------------------------------------------------------------------------------------------
    def kv_append(self, k: Array, v: Array, *, layer: int) -> None:
        """Stores this step's keys and values [T, num_kv_heads * head_dim] of `layer` in its pages, rounded to the KV dtype.

        int8, fp8: per (token, head) s = amax / 127 or amax / 448 (flushed), q = half-even(x / s) or e4m3(x / s) without -0 and
        NaN, zeros where s is 0; s kept as float32.
        """
        ...

    def paged_attention(
        self,
        q: Array,
        *,
        layer: int,
        heads: int,
        scale: float,
        softcap: float = 0.0,
        sinks: Any | None = None,
        alibi: Any | None = None,
    ) -> Array:
        """[T, heads * head_dim]: causal attention of every query over its sequence's pages (window of the layer's group).

        Query at position p sees j iff max(0, p - window + 1) <= j <= p. Keys and values are read as stored, also this
        step's. ATTN_SEGMENT = 512 absolute positions are the softmax unit. Within a segment, over its visible keys:
        score = dot32(q, k) over head_dim, * scale (int8, fp8 KV: (dot * s_k) * scale), then softcap: cap * tanh(score / cap),
        then + alibi_h * -|j - p|; m = max; e = exp(score - m); l = lanes: lane (j mod 16) += e in order, folded as sum16;
        bf16, int8, fp8 KV: q is rounded to bf16 before, weights are bf16(e) (int8, fp8: bf16(e * s_v)); f16, f32: float32;
        out = dot32 of weights and values over positions (blocks of 32 absolute positions, even and odd positions, masked = +0).
        Segments fold left from acc = 0, l = 0, M = -inf: M' = max(M, m); a = exp(M - M'); b = exp(m - M');
        acc = fma(acc, a, out * b); l = fma(l, a, l_seg * b); the first visible segment is taken as it is; wholly masked
        segments are skipped. A sink joins at the end: M' = max(M, sink), l = fma(l, exp(M - M'), exp(sink - M')), acc * a.
        Result acc / l. Milakov & Gimelshein 2018; Dao et al. 2022; Kwon et al. 2023.
        """
        ...

    def varlen_attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        window: int = 0,
        alibi: Any | None = None,
        bias: Any | None = None,
        reach: int = 0,
        is_causal: bool = False,
        dtype: VarlenDtype = "f32",
    ) -> Array:
        """Attention inside each packed sequence, both ways (encoders) or causal; touches no pages. `window` w > 0: |i - j| <= w;
        `is_causal`: and j <= i. `bias`, a vector of heads * (2 * reach + 1): score + bias[h, reach + j - i], of keys further away
        than `reach` as of those at that distance. Keys are a sequence's first kv_len tokens: those behind see them and are not
        seen (not where it is causal, and not on GPUs, whose batches have no such tokens).

        Same arithmetic as paged_attention with keys and values of `dtype` ("bf16": q, k, v and the weights are rounded to it);
        the bias is added last; positions count from the sequence's start.
        """
        ...

    def relative_attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        heads: int,
        scale: float,
        by_distance: tuple[int, ...],
        rel_k: Any | None = None,
        rel_q: Any | None = None,
        dtype: VarlenDtype = "f32",
    ) -> Array:
        """Disentangled attention inside each packed sequence, both ways: varlen_attention that asks, too, how far apart keys are.

        `rel_k` and `rel_q`, of which one may be None, are vectors of heads * buckets * head_dim: a row for each bucket of
        distances. `by_distance`, 2 * reach + 1 whole numbers, names the bucket of key j for query i at reach + j - i, of keys
        further away than `reach` as of those at that distance; it begins with 0, ends with buckets - 1, and each value is the one
        before or one more. With b the bucket: score = dot32(q_i, k_j) * scale
        + (dot32(q_i, rel_k[h, b]) + dot32(k_j, rel_q[h, b])) * scale, each product and sum rounded alone. "bf16": rows of the
        tables are rounded to it, too. Keys that are not seen: as there. He et al. 2020.
        """
        ...

    # -- output ------------------------------------------------------------------------------------------------------
    def gather_rows(self, x: Array) -> Array:
        """[R, width]: the rows named by the batch's logits_rows."""
        ...

    def softcap(self, x: Array, cap: float) -> Array:
        """cap * tanh(x / cap), rounded step by step."""
        ...

    def lm_head(self, x: Array, weight: LinearWeight, *, scale: float = 1.0, softcap: float = 0.0) -> Array:
        """[R, vocab] logits: linear, then softcap if not 0."""
        ...

    def greedy_head(self, x: Array, weight: LinearWeight, *, scale: float = 1.0, softcap: float = 0.0) -> Array:
        """[R, 1] int32: of each row of `lm_head`'s logits the id that greedy sampling takes; no logits need to be in memory.

        NaN and -inf are no candidates, +inf counts as the largest float32, the lowest id of equals wins, -1 if there is none.
        Models call `lm_head`; `Executable.greedy` puts this in its place.
        """
        ...

    def pool(self, x: Array, mode: str, *, normalize: bool = False) -> Array:
        """[S, width]: cls, last or mean of each sequence's rows (mean: tokens added in order, then divided by the count).

        normalize: y = x / max(sqrt(sum16 of x*x by fma), 1e-12).
        """
        ...

    # -- shape -------------------------------------------------------------------------------------------------------
    def split(self, x: Array, widths: list[int]) -> list[Array]:
        """Column views of x."""
        ...

    def segment(self, name: str) -> None:
        """Marks a seam (layer, attention | FFN): recorded programs are cut here; the reference ignores it."""
        ...


#: ops whose `rows` follow the batch's tokens unless a gather or pool changed them
ROWS: dict[str, Rows] = {"gather_rows": "logits", "pool": "sequences"}

ATTN_SEGMENT = 512
"""Absolute positions per softmax block, split unit and context-parallel unit."""

NUMERICS_VERSION = 1
"""Part of model identity, packed-cache headers and golden files; any change of a formula above raises it."""

"""Cases of the self-test, for any CPU platform: small enough to run at every start, wide enough to meet every kernel.

A case names the native ops it exercises (`covers`) and gives arrays whose bits every platform must share. Where kernels
for few and for many rows may differ, both counts run. The tables under tests/cases are the thorough ones; these find a
kernel that does not fit this processor, a broken build, or a compiler's liberty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.rope import frequencies
from octavo.platforms.selftest.joined import FORMS, gated, layer_norm_prepare, norm_add, norm_prepare, rope_append
from octavo.platforms.selftest.values import (
    APART,
    FORMATS,
    GPU_FORMATS,
    LINEAR_FORMATS,
    batch,
    one_layer,
    tensor,
    tensors,
    values,
    words,
)
from octavo.platforms.types import Activation, KVDtype, KVSpec, Rope, SampleBatch, SampleResult, VarlenDtype
from octavo.quant.formats import format_named

Result = NDArray[Any]
FEW, MANY = 2, 18
TILES = (70, 300)  # rows and outputs of more than one tile of every kernel of CPUs
GROUP = 8  # query heads of a kv head, where many rows are wanted
WIDE = (130, 35)  # the same for rows of GPUs' kernels
_KINDS = {
    "f32": "f32", "f16": "f16", "bf16": "bf16", "q4_0": "q4g32", "q4_1": "q4g32", "q5_0": "q5g32", "q5_1": "q5g32",
    "q8_0": "q8g32", "q2_k": "q2k", "q3_k": "q3k", "q4_k": "q4k", "q5_k": "q5k", "q6_k": "q6k", "w8a8": "w8a8",
    "i4g32": "i4", "i4g64": "i4", "i4g128": "i4", **{form: form for form in GPU_FORMATS},
}  # fmt: skip
_PREPARE = {"bf16": "prepare_bf16", "w8a8": "prepare_i8row", "f8row": "prepare_f8row", "f8g128": "prepare_f8g128"}
_PREPARE |= dict.fromkeys(("mxfp8", "mxfp4"), "prepare_f8g32")
_PREPARE |= dict.fromkeys(("q4g32", "q5g32", "q8g32"), "prepare_i8g32")
_PREPARE |= {f"q{bits}k": "prepare_i8g256" for bits in (2, 3, 4, 5, 6)}
#: more than one pass over the inputs, a short last group
_DEPTHS = {"w8a8": 1104, "i4g64": 168, "i4g128": 168, "f8g128": 168, "mxfp8": 168}


class Cell(Protocol):
    """A platform as the cases see it: `Ops` on numpy arrays, weights, a sampler, copies of whole pages."""

    def ops(self, spec: KVSpec | None = None, num_pages: int = 1) -> Any: ...
    def weights(self) -> Any: ...
    def sample(self, logits: NDArray[np.float32], rows: SampleBatch) -> SampleResult: ...
    def copy_blocks(self, ops: Any, pairs: list[tuple[int, int]]) -> None: ...


@dataclass(frozen=True)
class Case:
    """`run` gives the arrays that are compared; `covers` names the op it is there for first, then those it needs."""

    name: str
    covers: tuple[str, ...]
    run: Callable[[Cell], Sequence[Result]]


def cases() -> list[Case]:
    """All of them; names are unique."""
    return [*_CASES]


def common() -> list[Case]:
    """Those that every platform runs: formats whose kernels are GPUs' alone are left out."""
    alone = tuple(f"linear {form} " for form in GPU_FORMATS)
    return [case for case in _CASES if not case.name.removeprefix("wide ").startswith(alone)]


def for_format(form: str) -> list[Case]:
    """Those of a linear weight format: packing, preparing inputs, product."""
    return [case for case in _CASES if case.name.startswith(f"linear {form} ")]


def wide(form: str) -> list[Case]:
    """Of a linear weight format, those for GPUs, whose tiles have up to 128 rows."""
    return [case for case in _CASES if case.name.startswith(f"wide linear {form} ")]


def covering(ops: Iterable[str]) -> list[Case]:
    """Those that are there for any of these ops."""
    wanted = set(ops)
    return [case for case in _CASES if case.covers[0] in wanted]


# -- tokens ------------------------------------------------------------------------------------------------------------
def _add(cell: Cell) -> list[Result]:
    a, b = values("add a", 3, 37), values("add b", 3, 37)
    ops = cell.ops()
    return [ops.add(a, b), ops.add(a, b, scale_a=0.7, scale_b=1.3)]


def _embedding(form: str, cell: Cell) -> list[Result]:
    ops = cell.ops()
    ops.begin(batch([(0, 7)]))
    return [ops.embedding(cell.weights().embedding(tensor(f"embedding {form}", form, 7, 256)), scale=1.5)]


def _norm(op: str, cell: Cell) -> list[Result]:
    x, weight, bias = values("norm x", 3, 72), values("norm w", 72), values("norm b", 72)
    ops = cell.ops()
    if op == "layer_norm":
        return [ops.layer_norm(x, weight, bias, 1e-5), ops.layer_norm(x, None, None, 1e-5)]
    return [ops.rms_norm(x, weight, 1e-5), ops.rms_norm(x, weight[:36], 1e-6, heads=2), ops.rms_norm(x, None, 1e-5)]


def _rope(cell: Cell) -> list[Result]:
    inv_freq, _ = frequencies("default", {"rope_theta": 10000.0}, 32, max_len=1, max_positions=1)
    x = values("rope", 4, 2 * 48)
    out = []
    for is_interleaved in (False, True):
        ops = cell.ops()
        ops.begin(batch([(300, 3), (0, 1)]))
        out.append(ops.rope(x, Rope(tuple(inv_freq), 32, 1.1, is_interleaved), heads=2))
    return out


def _rows(op: str, cell: Cell) -> list[Result]:
    x = values(op, 6, 50)
    ops = cell.ops()
    ops.begin(batch([(0, 4), (0, 2)], logits_rows=(1, 3, 5)))
    if op == "softcap":
        return [ops.softcap(x, 1.5)]
    if op == "gather_rows":
        return [ops.gather_rows(x)]
    return [ops.pool(x, "cls"), ops.pool(x, "last"), ops.pool(x, "mean", normalize=True)]


# -- linear ------------------------------------------------------------------------------------------------------------
def _linear(form: str, rows: int, cell: Cell) -> list[Result]:
    name, num_in, num_out = f"linear {form}", _DEPTHS.get(form, 256 if form.endswith("_k") else 96), 35
    ops, bias = cell.ops(), tensor("bias", "f32", 1, num_out)
    x, side = values(name, rows, num_in), values(name + " side", rows, num_out)
    out = []
    for stored in tensors(name, form, num_out, num_in):
        weight = cell.weights().linear([stored], bias)
        how = {} if rows == FEW else {"activation": "silu", "gate": side, "residual": side, "scale": 0.6}
        out.append(ops.linear(x, weight, **how))
    return out


def _tiles(form: str, size: tuple[int, int], cell: Cell) -> list[Result]:
    """A tile too many or too few leaves values that nobody wrote."""
    rows, num_out = size
    num_in = 256 if form.endswith("_k") else 128
    weight = cell.weights().linear([tensors(f"tiles {form}", form, num_out, num_in)[0]])
    return [cell.ops().linear(values("tiles x", rows, num_in), weight)]


def _whole(form: str, cell: Cell) -> list[Result]:
    """Inputs that are whole numbers with a peak of 127 in every group: exact in every form of inputs that kernels take, so that
    kernels of other forms must give the same but for the order of additions."""
    num_in, num_out, group = 256, 35, format_named(form).group
    x = (words(f"whole {form}", MANY * num_in) % np.uint32(255)).astype(np.float32).reshape(MANY, -1) - np.float32(127)
    x[:, ::group] = 127
    weights = [cell.weights().linear([stored]) for stored in tensors(f"whole {form}", form, num_out, num_in)]
    return [cell.ops().linear(np.ascontiguousarray(x[:rows]), weight) for weight in weights for rows in (FEW, MANY)]


def _activations(form: str, cell: Cell) -> list[Result]:
    weight = cell.weights().linear([tensor("activations", form, 33, 64)])
    x = values("activations", 3, 64)
    return [cell.ops().linear(x, weight, activation=name) for name in get_args(Activation)]


# -- attention ---------------------------------------------------------------------------------------------------------
def _attend(cell: Cell, spec: KVSpec, seqs: Sequence[tuple[int, int]], group: int = 2, **how: Any) -> Result:
    """Stored tokens first, then the step's own, then attention over both."""
    heads, width = group * spec.num_kv_heads, spec.num_kv_heads * spec.head_dim
    step, stored = batch(seqs), batch([(0, past) for past, _ in seqs])
    stored.block_tables = step.block_tables
    ops = cell.ops(spec, 1 + int(step.block_tables[0].max()))
    for tag, rows in (("past", stored), ("new", step)):
        if rows.num_tokens:
            ops.begin(rows)
            ops.kv_append(
                values(f"k {tag}", rows.num_tokens, width), values(f"v {tag}", rows.num_tokens, width), layer=0
            )
    q = values("q", step.num_tokens, heads * spec.head_dim)
    result: Result = ops.paged_attention(q, layer=0, heads=heads, scale=spec.head_dim**-0.5, **how)
    return result


def _paged(dtype: KVDtype, cell: Cell) -> list[Result]:
    sinks, slopes = values("sinks", 4), np.abs(values("slopes", 4)) / np.float32(64)
    return [
        _attend(cell, one_layer(dtype, 2, 64), ((40, 1), (0, 7))),
        _attend(cell, one_layer(dtype, 1, 32), ((511, 2),)),
        _attend(cell, one_layer(dtype, 2, 32, window=16), ((20, 3),), softcap=3.0, sinks=sinks, alibi=slopes),
    ]


def _many_rows(dtype: KVDtype, cell: Cell) -> list[Result]:
    """Enough rows for kernels that treat few of them in another way; over a segment's border, head_dim no multiple of 32."""
    return [_attend(cell, one_layer(dtype, 1, 80), ((507, 8),))]


def _heads(dtype: KVDtype, head_dim: int, cell: Cell) -> list[Result]:
    """Kernels that GPUs have for a class of head sizes: for few tokens of a sequence, for many, and both in a step."""
    spec = one_layer(dtype, 1, head_dim)
    return [_attend(cell, spec, seqs) for seqs in (((40, 1), (0, 7)), ((20, 30), (70, 1)))]


def _head_tiles(dtype: KVDtype, head_dim: int, cell: Cell) -> list[Result]:
    """More rows than two of their tiles have, of 16 for few tokens and of up to 128 for many: a grid has a block to spare for
    every sequence, so that one tile too few is missed only behind two."""
    spec = one_layer(dtype, 1, head_dim)
    return [_attend(cell, spec, seqs, GROUP) for seqs in (((20, 5),), ((0, 33),))]


def _varlen_heads(
    dtype: VarlenDtype, head_dim: int, group: int, seqs: Sequence[tuple[int, int]], cell: Cell
) -> list[Result]:
    """Kernels that GPUs have for a class of head sizes."""
    ops, rows = cell.ops(), sum(n for _, n in seqs)
    ops.begin(batch(seqs))
    q, k, v = values("vhq", rows, group * head_dim), values("vhk", rows, head_dim), values("vhv", rows, head_dim)
    return [ops.varlen_attention(q, k, v, heads=group, kv_heads=1, scale=head_dim**-0.5, dtype=dtype)]


_VARLEN: tuple[tuple[str, str, VarlenDtype], ...] = (
    ("varlen_attention", "", "f32"),
    ("varlen_attention_bf16", "bf16 ", "bf16"),
)


def _varlen(dtype: VarlenDtype, cell: Cell) -> list[Result]:
    ops = cell.ops()
    ops.begin(batch([(0, 33), (0, 4)]))
    q, k, v = values("vq", 37, 128), values("vk", 37, 64), values("vv", 37, 64)
    how = {"heads": 4, "kv_heads": 2, "scale": 0.2, "dtype": dtype}
    return [ops.varlen_attention(q, k, v, **how), ops.varlen_attention(q, k, v, window=5, **how)]


def _relative(dtype: VarlenDtype, cell: Cell) -> list[Result]:
    """Distances with a bucket of their own and such that share one; both tables, and either alone."""
    ops = cell.ops()
    ops.begin(batch([(0, 45), (0, 4)]))
    q, k, v = values("rq", 49, 96), values("rk", 49, 96), values("rv", 49, 96)
    by_distance = (*(0, 0, 0, 1, 1, 1, 2, 2, 2), *range(3, 42), *(42, 42, 42, 43, 43, 43, 44, 44, 44))
    tables = {"rel_k": values("rrk", 45, 96).reshape(-1), "rel_q": values("rrq", 45, 96).reshape(-1)}
    how = {"heads": 2, "scale": 0.1, "by_distance": by_distance, "dtype": dtype}
    return [ops.relative_attention(q, k, v, **how, **some) for some in (tables, *({n: t} for n, t in tables.items()))]


def _copy(cell: Cell) -> list[Result]:
    spec = one_layer("bf16", 1, 32)
    step = batch([(20, 1)])
    ops = cell.ops(spec, 3)
    ops.begin(batch([(0, 21)]))
    ops.kv_append(values("copy k", 21, 32), values("copy v", 21, 32), layer=0)
    cell.copy_blocks(ops, [(1, 2)])
    step.block_tables = [np.array([[2]], np.int32)]
    ops.begin(step)
    return [ops.paged_attention(values("copy q", 1, 64), layer=0, heads=2, scale=0.2)]


def _greedy_head(cell: Cell) -> list[Result]:
    """More panels than are computed at a time, the last one short; capped logits are equal in part."""
    weight = cell.weights().linear([tensor("greedy head", "f32", 1995, 20)])
    x, ops = values("greedy head x", 19, 20), cell.ops()
    return [ops.greedy_head(x, weight), ops.greedy_head(x[:2], weight, scale=40.0, softcap=2.0)]


# -- sampling ----------------------------------------------------------------------------------------------------------
def _sample(cell: Cell) -> list[Result]:
    num_rows, vocab = 6, 4200

    def column(dtype: Any, *cells: float) -> Any:
        return np.array(cells, dtype)

    each, none = np.arange(num_rows + 1, dtype=np.int32), np.zeros(num_rows + 1, np.int32)
    ids = (words("ids", num_rows) % np.uint32(vocab)).astype(np.int32)
    rows = SampleBatch(
        temperature=column(np.float32, 0, 1, 0.7, 1, 1.5, 1),
        top_k=column(np.int32, 0, 0, 40, 0, 5, 0),
        top_p=column(np.float32, 1, 1, 0.9, 0.5, 1, 1),
        min_p=column(np.float32, 0, 0, 0, 0.1, 0, 0),
        typical_p=column(np.float32, 1, 1, 1, 1, 1, 0.8),
        presence=column(np.float32, 0, 0, 0.5, 0, 0, 0),
        frequency=column(np.float32, 0, 0, 0.2, 0, 0, 0),
        repetition=column(np.float32, 1, 1, 1.3, 1, 0.8, 1),
        seed=words("seed", num_rows).astype(np.uint64) << np.uint64(29),
        choice=np.arange(num_rows, dtype=np.uint32),
        position=np.arange(num_rows, dtype=np.int64) * 1000,
        num_logprobs=column(np.int32, 3, 3, 3, 0, 0, 3),
        count_start=each,
        count_ids=ids,
        count_output=np.ones(num_rows, np.int32),
        bias_start=each,
        bias_ids=ids,
        bias_values=values("bias values", num_rows),
        banned_start=none,
        banned_ids=np.zeros(0, np.int32),
        mask_row=column(np.int32, -1, 0, -1, -1, 0, -1),
        masks=words("masks", -(-vocab // 32)).reshape(1, -1),
    )
    found = cell.sample(values("logits", num_rows, vocab) * np.float32(3), rows)
    return [found.ids, found.ranks, found.logprobs, found.best_ids[:3], found.best_logprobs[:3]]


def _linear_case(form: str, rows: int) -> Case:
    kind = _KINDS[form]
    prepare = f"prepare_i8g{form.removeprefix('i4g')}" if kind == "i4" else _PREPARE.get(kind)
    covers = [f"linear_{kind}", f"pack_{kind if form in APART else form}", *([prepare] if prepare else [])]
    if rows in (TILES[0], WIDE[0]):
        size, name = (TILES, "") if rows == TILES[0] else (WIDE, "wide ")
        return Case(f"{name}linear {form} tiles", tuple(covers), partial(_tiles, form, size))
    return Case(f"linear {form} {'few' if rows == FEW else 'many'}", tuple(covers), partial(_linear, form, rows))


_CASES: tuple[Case, ...] = (
    Case("add", ("add",), _add),
    *(Case(f"embedding {f}", (f"embedding_{f}",), partial(_embedding, f)) for f in FORMATS),
    *(Case(op, (op,), partial(_norm, op)) for op in ("rms_norm", "layer_norm")),
    Case("rope", ("rope",), _rope),
    *(Case(op, (op,), partial(_rows, op)) for op in ("softcap", "gather_rows", "pool")),
    *(_linear_case(form, rows) for form in (*LINEAR_FORMATS, *GPU_FORMATS) for rows in (FEW, MANY)),
    *(_linear_case(form, rows) for rows in (TILES[0], WIDE[0]) for form in (*LINEAR_FORMATS, *GPU_FORMATS)),
    *(Case(f"linear {f} whole", _linear_case(f, FEW).covers, partial(_whole, f)) for f in ("i4g32", "i4g64", "i4g128")),
    *(
        Case(f"linear {f} activations", (f"linear_{_KINDS[f]}", f"pack_{f}"), partial(_activations, f))
        for f in ("f32", "f16", "bf16", "q4_1", "q8_0")
    ),
    *(
        Case(
            f"attention {d}", (f"paged_attention_{d}", f"kv_append_{d}", f"paged_attention_{d}_d64"), partial(_paged, d)
        )
        for d in get_args(KVDtype)
    ),
    *(
        Case(
            f"attention of many rows {d}",
            (f"paged_attention_{d}", f"kv_append_{d}", f"paged_attention_{d}_d128"),
            partial(_many_rows, d),
        )
        for d in ("bf16", "int8", "fp8")
    ),
    *(
        Case(f"norm and {f}", (f"rms_norm_{f}", *_linear_case(FORMS[f][0], FEW).covers), partial(norm_prepare, f))
        for f in FORMS
    ),
    *(
        Case(
            f"layer norm and {f}",
            (f"layer_norm_{f}", *_linear_case(FORMS[f][0], FEW).covers),
            partial(layer_norm_prepare, f),
        )
        for f in FORMS
    ),
    *(
        Case(f"gated and {f}", (f"gated_{f}", *_linear_case(name, FEW).covers), partial(gated, name))
        for f, (name, _) in FORMS.items()
    ),
    Case("gated", ("gated", "linear_f32", "pack_f32"), partial(gated, "f32")),
    Case("norm and add", ("rms_norm_add",), norm_add),
    *(
        Case(
            f"rope and append {d}",
            (f"rope_append_{d}", f"paged_attention_{d}", f"paged_attention_{d}_d64"),
            partial(rope_append, d),
        )
        for d in get_args(KVDtype)
    ),
    *(
        Case(
            f"attention {d} {what} of {n}",
            (f"paged_attention_{d}_d{n}", f"paged_attention_{d}", f"kv_append_{d}"),
            partial(run, d, n),
        )
        for what, run in (("heads", _heads), ("tiles of heads", _head_tiles))
        for d in ("bf16", "int8", "fp8", "f16")
        for n in ((64, 128) if d == "f16" else (64, 128, 192, 256))
    ),
    Case("varlen attention", ("varlen_attention", "varlen_attention_d64"), partial(_varlen, "f32")),
    Case("varlen attention bf16", ("varlen_attention_bf16", "varlen_attention_bf16_d64"), partial(_varlen, "bf16")),
    *(
        Case(f"varlen attention {of}{what} of {n}", (f"{op}_d{n}", op), partial(_varlen_heads, dtype, n, group, seqs))
        for op, of, dtype in _VARLEN
        for n in (64, 128, 192, 256)
        for what, group, seqs in (("heads", 2, ((0, 40), (0, 3))), ("tiles of heads", GROUP, ((0, 33),)))
    ),
    Case("relative attention", ("relative_attention",), partial(_relative, "f32")),
    Case("relative attention bf16", ("relative_attention_bf16",), partial(_relative, "bf16")),
    Case("copy_blocks", ("copy_blocks", "kv_append_bf16", "paged_attention_bf16", "paged_attention_bf16_d64"), _copy),
    Case("sample", ("sample",), _sample),
    Case("greedy head", ("greedy_head", "linear_f32", "pack_f32"), _greedy_head),
)

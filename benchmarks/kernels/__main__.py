"""Every op and kernel variant at a small model's shapes: time, bytes, share of the read bandwidth, arithmetic per second.

    octavo bench kernels -- [--only PREFIX] [--levels all|LEVEL,...] [--cases] [--threads N]

kernels.KERNEL.SHAPE  seconds of one call (the best of the repetitions is `min`). bytes: rows in and out, weights, keys and
                      values as stored, each once; gb_per_s and of_read compare them with a read of memory measured in the
                      same run; gflop_per_s counts two per multiply-add of products and attention, of_peak compares it with
                      the measured peak of the level's best instruction (limits.py; without a C++ compiler it is left out).
Weights and keys are pushed out of the caches before a repetition at few rows, because a model's are never there. --cases times
the conformance tables (tests/cases) instead: odd sizes, all formats, everything warm.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from benchmarks.common import OtherLoad, Samples, parser, read_bandwidth, report, row
from benchmarks.limits import measured
from benchmarks.roofline import peak_of
from benchmarks.sampling import KINDS, logits_of, rows_of

from octavo.platforms.cpu.module import load
from octavo.platforms.cpu.weights import PackedFormat, PackedLinear, PackedWeights, StoredTable, pack_op
from octavo.platforms.recorded.eager import EagerOps
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.recorder import kv_head_bytes
from octavo.platforms.recorded.sampling import NativeSampler
from octavo.platforms.rope import frequencies
from octavo.platforms.select import of_rows
from octavo.platforms.selftest.values import FORMATS, LINEAR_FORMATS, batch, one_layer, tensor, tensors, values
from octavo.platforms.types import Batch, KVSpec, RawTensor, Rope

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 576, 9, 3, 64, 1536, 49152
FLUSH_BYTES = 96 << 20
COLD_ROWS = 4
TABLES = (
    *("add", "embedding", "rms_norm", "layer_norm", "rope", "linear", "gated_mlp", "paged_attention"),
    *("varlen_attention", "relative_attention", "softcap", "lm_head", "greedy_head", "pool"),
)


@dataclass(frozen=True)
class Timing:
    """One kernel's calls: seconds and loads of the repetitions, and what a call moves and computes."""

    kernel: str
    samples: Samples
    num_bytes: int
    flops: int


class TimedOps(EagerOps):
    """Ops that time their kernels instead of running once."""

    def __init__(self, *args: Any, repeats: int, may_flush: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timings: list[Timing] = []
        self.repeats = repeats
        self.flush = np.ones(FLUSH_BYTES // 4, np.float32) if may_flush else None
        self._work: tuple[str, int, int, int] = ("", 0, 0, 0)

    def _call(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._work = (op, *work_of(op, (*args, *kwargs.values()), kwargs, self._batch, self.spec))
        return super()._call(op, args, kwargs)

    def _execute(self, program: Any, step: Any) -> None:
        op, num_bytes, flops, num_rows = self._work
        program.run(self.team, step, 0, len(program))
        found = [Samples() for _ in range(len(program))]
        load = OtherLoad()
        for _ in range(self.repeats):
            if self.flush is not None and num_rows <= COLD_ROWS:
                self.flush.max()
            for samples, seconds in zip(found, program.profile(self.team, step), strict=True):
                samples.values.append(seconds)
        for samples in found:  # a kernel is far shorter than a tick of /proc/stat: one share for all
            samples.other = [load.share()] * self.repeats
        for bands, samples in zip(program.bands, found, strict=True):
            kernel = of_rows(bands, num_rows)
            is_main = kernel.startswith(op)
            self.timings.append(Timing(kernel, samples, num_bytes if is_main else 0, flops if is_main else 0))


def work_of(
    op: str, given: tuple[Any, ...], kwargs: dict[str, Any], step: Batch | None, spec: KVSpec | None
) -> tuple[int, int, int]:
    """(bytes, flops, rows) of one call."""
    rows = [a for a in given if isinstance(a, np.ndarray) and a.ndim == 2]
    num_rows = len(rows[0]) if rows else 0 if step is None else step.num_tokens
    num_bytes = sum(a.nbytes for a in rows)
    flops = 0
    for weight in given:
        if isinstance(weight, PackedLinear):
            num_bytes += weight.packed.num_bytes(weight.num_out, weight.num_in)
            num_bytes += 4 * num_rows * weight.num_out
            flops += 2 * num_rows * weight.num_out * weight.num_in
        if isinstance(weight, StoredTable):
            num_bytes += num_rows * (weight.row_bytes + 4 * weight.width)
    if op == "paged_attention" and step is not None and spec is not None:
        window = spec.groups[0].window
        reach = np.minimum(step.kv_len, window) if window else step.kv_len
        num_bytes += int(reach.sum()) * spec.num_kv_heads * kv_head_bytes(spec) // spec.block_tokens + rows[0].nbytes
        visible = np.minimum(step.positions[0] + 1, window) if window else step.positions[0] + 1
        flops = 4 * int(visible.sum()) * kwargs["heads"] * spec.head_dim
    elif op not in ("linear", "gated_mlp", "lm_head", "greedy_head", "embedding", "kv_append"):
        num_bytes += rows[0].nbytes if rows else 0  # written back
    return num_bytes, flops, num_rows


class TimedWeights(PackedWeights):
    """Weights that time their packing."""

    repeats = 3
    timings: ClassVar[list[Timing]] = []

    def _pack(self, part: RawTensor, form: PackedFormat, *args: Any, **kwargs: Any) -> None:
        samples, load = Samples(), OtherLoad()
        for _ in range(self.repeats):
            start = time.perf_counter()
            super()._pack(part, form, *args, **kwargs)
            samples.values.append(time.perf_counter() - start)
        samples.other = [load.share()] * self.repeats
        self.timings.append(Timing(self.native.table[pack_op(part.format)].many, samples, part.data.nbytes, 0))


def sampling(cell: TimedCell) -> Iterator[tuple[str, Timing]]:
    """Drawing tokens; benchmarks/sampling.py has more kinds of rows and larger vocabularies."""
    sampler = NativeSampler(cell.native, cell.team)
    for rows in (1, 16):
        logits = logits_of(rows, VOCAB)
        for name, more in KINDS.items():
            given = rows_of(rows, VOCAB, **more)
            samples, load = Samples(), OtherLoad()
            sampler.sample(logits, given)
            for _ in range(cell.repeats):
                start = time.perf_counter()
                sampler.sample(logits, given)
                samples.values.append(time.perf_counter() - start)
            samples.other = [load.share()] * cell.repeats
            yield f"{name}.{rows}x{VOCAB}", Timing(cell.native.table["sample"].many, samples, logits.nbytes, 0)


Job = tuple[str, Callable[[TimedOps], Any], "KVSpec | None", "Batch | None"]


def jobs(weights: PackedWeights) -> Iterator[Job]:
    """(shape, call, paged memory, step) of every op."""
    rope = Rope(tuple(frequencies("default", {"rope_theta": 1e5}, HEAD_DIM, max_len=1, max_positions=1)[0]), HEAD_DIM)
    norm = values("norm", HIDDEN)
    for rows in (1, 128):
        x, wide = values("x", rows, HIDDEN), values("wide", rows, FFN)
        step = batch([(100, rows)], logits_rows=range(rows))
        yield f"{rows}x{HIDDEN}", lambda ops, x=x: ops.add(x, x), None, None
        yield f"{rows}x{HIDDEN}", lambda ops, x=x: ops.rms_norm(x, norm, 1e-5), None, None
        yield f"{rows}x{HIDDEN}", lambda ops, x=x: ops.layer_norm(x, norm, norm, 1e-5), None, None
        yield f"{rows}x{FFN}", lambda ops, x=wide: ops.softcap(x, 30.0), None, None
        yield f"{rows}x{HEADS}x{HEAD_DIM}", lambda ops, x=x: ops.rope(x, rope, heads=HEADS), None, step
        yield f"{rows}x{HIDDEN}", lambda ops, x=x: ops.gather_rows(x), None, step
        yield f"{rows}x{HIDDEN}", lambda ops, x=x: ops.pool(x, "mean", normalize=True), None, step
        for form in LINEAR_FORMATS:
            width = 512 if form.endswith("_k") else HIDDEN
            if form in FORMATS:
                yield f"{form}.{rows}x{width}", partial(_embedding, weights, form, width), None, step
            yield f"{form}.{rows}x{FFN}x{width}", partial(_linear, weights, form, rows, width), None, None
    for dtype in ("f32", "bf16", "f16", "int8", "fp8"):
        spec = one_layer(dtype, KV_HEADS, HEAD_DIM)  # type: ignore[arg-type]
        for past, new in ((1000, 1), (0, 128)):
            step = batch([(past, new)])
            yield f"{new}of{past + new}", partial(_append_and_attend, new), spec, step
    packed = batch([(0, 128)])
    q, k = values("vq", 128, HEADS * HEAD_DIM), values("vk", 128, KV_HEADS * HEAD_DIM)
    how = {"heads": HEADS, "kv_heads": KV_HEADS, "scale": 0.125}
    yield "128", lambda ops: ops.varlen_attention(q, k, k, **how), None, packed
    rows = values("rel", 255, HEADS * HEAD_DIM).reshape(-1)
    near = {"heads": HEADS, "scale": 0.072, "by_distance": tuple(range(255)), "rel_k": rows, "rel_q": rows}
    yield "128", lambda ops: ops.relative_attention(q, q, q, **near), None, packed


def _embedding(weights: PackedWeights, form: str, width: int, ops: TimedOps) -> Any:
    return ops.embedding(weights.embedding(tensor("table", form, 512, width)))


def _linear(weights: PackedWeights, form: str, rows: int, width: int, ops: TimedOps) -> Any:
    return ops.linear(values("x", rows, width), weights.linear(tensors("w", form, FFN, width)[:1]))


def _append_and_attend(new: int, ops: TimedOps) -> Any:
    k = values("k", new, KV_HEADS * HEAD_DIM)
    ops.kv_append(k, k, layer=0)
    return ops.paged_attention(values("q", new, HEADS * HEAD_DIM), layer=0, heads=HEADS, scale=0.125)


class TimedCell:
    """The timed ops as the conformance tables want them."""

    def __init__(self, native: Native, team: Any, repeats: int) -> None:
        self.native, self.team, self.repeats = native, team, repeats
        self.made: list[TimedOps] = []

    def ops(self, spec: KVSpec | None = None, num_pages: int = 1, *, may_flush: bool = False) -> TimedOps:
        made = TimedOps(self.native, self.team, spec, num_pages, repeats=self.repeats, may_flush=may_flush)
        self.made.append(made)
        return made

    def weights(self) -> TimedWeights:
        return TimedWeights(self.native, self.team)


def timings(cell: TimedCell, *, has_cases: bool) -> Iterator[tuple[str, Timing]]:
    """(shape or case, timing) of everything asked for."""
    if has_cases:
        for table in TABLES:
            module = import_module(f"tests.cases.{table}")
            for case in module.CASES:
                cell.made.clear()
                module.run(cell, case)
                yield from ((f"{table}_{case.name}", timing) for ops in cell.made for timing in ops.timings)
        return
    for shape, call, spec, step in jobs(cell.weights()):
        pages = 1 if step is None else 1 + int(step.block_tables[0].max())
        ops = cell.ops(spec, pages, may_flush=True)
        if step is not None:
            ops.begin(step)
        call(ops)
        found = [*TimedWeights.timings, *ops.timings]
        TimedWeights.timings.clear()
        yield from ((shape, timing) for timing in found)
    yield from sampling(cell)


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    module = load()
    team = module.Team(args.threads, 2000)
    read = read_bandwidth(args.threads)
    yield row("kernels.read_bandwidth", "GB/s", [read / 1e9], better="higher", threads=args.threads)
    try:
        limits = measured(args.threads)
    except RuntimeError:
        limits = {}
    whole = Native(module)
    levels = whole.runnable_levels() if args.levels == "all" else tuple(filter(None, args.levels.split(",")))
    num_timed = 0
    for native in [Native(module, (level,)) for level in levels] or [whole]:
        allowed = set(native.isa or ())
        seen: set[tuple[str, str]] = set()
        for shape, timing in timings(TimedCell(native, team, args.repeats), has_cases=args.cases):
            level = timing.kernel.rsplit("__", 1)[1]
            if (
                not timing.kernel.startswith(args.only)
                or (allowed and level not in allowed)
                or (timing.kernel, shape) in seen
            ):
                continue
            seen.add((timing.kernel, shape))
            num_timed += 1
            best = max(min(timing.samples.values), 1e-9)
            more: dict[str, Any] = {}
            if timing.num_bytes:
                rate = timing.num_bytes / best
                more |= {"bytes": timing.num_bytes, "gb_per_s": round(rate / 1e9, 2), "of_read": round(rate / read, 3)}
            if timing.flops:
                more["gflop_per_s"] = round(timing.flops / best / 1e9, 2)
                if peak := peak_of(timing.kernel, limits):
                    more["of_peak"] = round(timing.flops / best / peak, 3)
            yield row(f"kernels.{timing.kernel}.{shape}", "s", timing.samples, threads=args.threads, **more)
    if not num_timed:
        raise SystemExit(f"no kernel that begins with {args.only!r} was chosen here or runs at the levels asked for")


def main() -> None:
    options = parser(__doc__, repeats=7)
    options.add_argument("--only", default="", metavar="PREFIX", help="kernels whose name starts so")
    options.add_argument("--levels", default="", help="all, or a comma list; default: the kernels that are chosen here")
    options.add_argument("--cases", action="store_true", help="the conformance tables instead of a model's shapes")
    args = options.parse_args()
    report(results(args), args, "kernels")


if __name__ == "__main__":
    main()

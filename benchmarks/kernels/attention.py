"""Times attention over synthetic pages: decode steps over short and long contexts, prefills of several lengths, encoders.

    PYTHONPATH=src:. python -m benchmarks.kernels.attention [--threads 2] [--only paged_attention_bf16__avx2] [--shape 9/3/64]
        [--case long,128k]

Shapes are heads / kv heads / head_dim. Cases: `decode` is one token after 1,024 (its pages stay in the caches), `cold` the same
for as many sequences as make 48 MiB of pages, `long` and `128k` one token after 32,768 and 131,072; `prefill`, `prefill2048`
and `prefill8192` (its last 2,048) are tokens of one prompt; `encode200`, `encode` and `encode2048` one sequence of
varlen_attention, or of relative_attention, whose multiply-adds are counted alike and whose keys are those of all heads. One row
each: seconds of the fastest call, GB/s of keys and values as stored, GMAC/s over visible keys, and their shares of what the
machine can do at most: a memory read, and float32 FMA of the kernel's level (benchmarks/limits.py), measured in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks.common import parser, report, row
from benchmarks.kernels.linear import best
from benchmarks.limits import measured

from octavo.engine.models.disentangled import distances
from octavo.platforms.cpu.module import load
from octavo.platforms.platform import Capacity
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.symbols import kv_head_bytes, page_bytes
from octavo.platforms.recorded.tables import RopeTables
from octavo.platforms.selftest.values import values
from octavo.platforms.types import GroupKind, KVGroup, KVSpec, VarlenDtype

#: case -> (length, tokens of the step, sequences; 0: as many as make COLD_BYTES)
PAGED = {
    "decode": (1024, 1, 1), "cold": (1024, 1, 0), "long": (32768, 1, 1), "128k": (131072, 1, 1),
    "prefill": (512, 512, 1), "prefill2048": (2048, 2048, 1), "prefill8192": (8192, 2048, 1),
}  # fmt: skip
ENCODE = {"encode200": 200, "encode": 512, "encode2048": 2048}
USUAL = "decode,cold,long,prefill,encode"
COLD_BYTES = 48 << 20
BLOCK = 32


class Work:
    """One op recorded alone, with its inputs: what a call reads and multiplies."""

    def __init__(self, native: Native, shape: tuple[int, int, int], length: int, new: int, seqs: int) -> None:
        self.native, self.length, self.new, self.seqs = native, length, new, seqs
        self.heads, self.kv_heads, self.dim = shape
        self.rng = np.random.default_rng(0)
        self.held: list[Any] = []
        self.num_bytes = 0

    def recorder(self, spec: KVSpec | None, threads: int) -> Recorder:
        capacity = Capacity(self.new * self.seqs, self.seqs, 1, self.length, 1)
        return Recorder(self.native, capacity, spec, RopeTables(self.native, self.length), threads)

    def given(self, made: Recorder, heads: int) -> Any:
        """Random rows as an input."""
        x = self.rng.standard_normal((self.new * self.seqs, heads * self.dim)).astype(np.float32)
        self.held.append(x)
        return made.external(x.ctypes.data, x.shape[1], x.shape[1], "tokens")

    def step(self, pool: int, tables: list[Any]) -> Any:
        tokens = self.new * self.seqs
        start = (np.arange(self.seqs + 1) * self.new).astype(np.int32)
        zeros = np.zeros(tokens, np.int32)
        length = np.full(self.seqs, self.length, np.int32)
        return self.native.module.Step(
            tokens, self.seqs, 0, zeros, zeros, start, length, zeros, None, None, pool, tables
        )

    def seconds(self, made: Recorder, output: Any, step: Any, team: Any) -> float:
        done = made.finish(output)
        threads = team.num_threads
        return best(lambda: done.program.run(team, step, 0, len(done.program)), 0.4, threads)


def paged(native: Native, dtype: Any, case: str, shape: tuple[int, int, int], team: Any) -> tuple[float, int, int]:
    """(seconds, bytes of keys and values, multiply-adds) of one call."""
    length, new, seqs = PAGED[case]
    heads, kv_heads, dim = shape
    spec = KVSpec((KVGroup(GroupKind.FULL, (0,), 0),), kv_heads, dim, dtype, BLOCK)
    blocks = length // BLOCK
    seqs = seqs or max(1, COLD_BYTES // (blocks * page_bytes(spec)))
    work = Work(native, shape, length, new, seqs)
    pool = native.module.Arena((seqs * blocks + 1) * page_bytes(spec))
    np.frombuffer(pool, np.uint8)[:] = 0x3C  # a positive normal number in every dtype
    table = (work.rng.permutation(seqs * blocks) + 1).astype(np.int32).reshape(seqs, blocks)
    made = work.recorder(spec, team.num_threads)
    y = made.paged_attention(work.given(made, heads), layer=0, heads=heads, scale=dim**-0.5)
    seconds = work.seconds(made, y, work.step(pool.address, [table]), team)
    visible = seqs * sum(range(length - new + 1, length + 1))
    return seconds, seqs * length * kv_heads * kv_head_bytes(spec) // BLOCK, 2 * visible * heads * dim


def encoded(native: Native, op: str, case: str, shape: tuple[int, int, int], team: Any) -> tuple[float, int, int]:
    """The same of one sequence without pages."""
    heads, kv_heads, dim = shape
    dtype: VarlenDtype = "bf16" if op.endswith("_bf16") else "f32"
    is_relative = op.startswith("relative_attention")
    kv_heads = heads if is_relative else kv_heads
    length = ENCODE[case]
    work = Work(native, (heads, kv_heads, dim), length, length, 1)
    made = work.recorder(None, team.num_threads)
    q, k, v = (work.given(made, n) for n in (heads, kv_heads, kv_heads))
    if is_relative:  # DeBERTa v3's buckets: 128 distances of their own, then 127 that share
        by_distance, rows, _ = distances(256, 512, length)
        table = values("rel", len(rows), heads * dim).reshape(-1)
        y = made.relative_attention(
            q, k, v, heads=heads, scale=dim**-0.5, by_distance=by_distance, rel_k=table, rel_q=table, dtype=dtype
        )
    else:
        y = made.varlen_attention(q, k, v, heads=heads, kv_heads=kv_heads, scale=dim**-0.5, dtype=dtype)
    return work.seconds(made, y, work.step(0, []), team), 8 * length * kv_heads * dim, 2 * length * length * heads * dim


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row per kernel, shape and case."""
    module = load()
    team = module.Team(args.threads, 4000)
    most = measured(args.threads)
    for name in ("read", "f32__avx2", "f32__avx512"):
        if name in most:
            yield row(f"kernels.attention.{name}", "G/s", [most[name] / 1e9], better="higher", threads=args.threads)
    have = module.available_features()
    for op, name, level, required, _ in module.kernels():
        is_paged = op.startswith("paged_attention_")
        if (
            not (is_paged or op.startswith(("varlen_attention", "relative_attention")))
            or required & ~have
            or level == "scalar"
            or args.only not in ("", name)
        ):
            continue
        native = Native(module, (level,))
        own = {one.op for one in native.rows if one.level == level}
        native.__dict__["rows"] = [one for one in native.rows if one.level == level or one.op not in own]
        for text in args.shape.split(","):
            heads, kv_heads, dim = (int(n) for n in text.split("/"))
            for case in args.case.split(","):
                if case not in (PAGED if is_paged else ENCODE):
                    continue
                if is_paged:
                    dtype = op.removeprefix("paged_attention_")
                    seconds, size, macs = paged(native, dtype, case, (heads, kv_heads, dim), team)
                else:
                    seconds, size, macs = encoded(native, op, case, (heads, kv_heads, dim), team)
                rate, speed = size / seconds, macs / seconds
                peak = most["f32__avx2" if level == "avx2" else "f32__avx512"] / 2
                rates = {"kv_gb_per_s": round(rate / 1e9, 2), "of_read": round(rate / most["read"], 3)}
                rates |= {"gmac_per_s": round(speed / 1e9, 2), "of_fma": round(speed / peak, 3)}
                yield row(f"kernels.{name}.{case}.{text}", "s", [seconds], threads=args.threads, **rates)


def main() -> None:
    options = parser(__doc__, threads=1)
    options.add_argument("--only", default="", help="one kernel by name")
    options.add_argument("--shape", default="9/3/64,32/8/64,32/8/128")
    options.add_argument("--case", default=USUAL, help="comma list (default %(default)s)")
    args = options.parse_args()
    if unknown := set(args.case.split(",")) - {*PAGED, *ENCODE}:
        options.error(f"--case {','.join(sorted(unknown))}: allowed are {', '.join([*PAGED, *ENCODE])}")
    report(results(args), args, "kernels_attention")


if __name__ == "__main__":
    main()

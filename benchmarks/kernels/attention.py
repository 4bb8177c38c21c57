"""Times paged attention: one token over a warm or a cold context, and the prefill of a prompt.

    PYTHONPATH=src:. python benchmarks/kernels/attention.py [--threads 2] [--only paged_attention_bf16__avx2] [--shape 9/3/64]

Shapes are heads / kv heads / head_dim. `decode` is one sequence of 1,024 tokens (its pages stay in the caches), `cold` as many
sequences as make 48 MiB of pages, `prefill` 512 tokens at once. One row each: seconds per call, GB/s of keys and values,
GMAC/s over visible keys, and their shares of a memory read and of numpy's float32 product, measured in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.common import parser, report, row
from benchmarks.kernels.linear import best, read_bandwidth, sgemm

ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1}
KV_TYPES = {"f32": 0, "bf16": 1, "f16": 2, "int8": 3}
TOKENS = 0
CASES = {"decode": (1024, 1), "cold": (1024, 1), "prefill": (512, 512)}


def time_case(
    np: Any, avx: Any, name: str, case: str, shape: tuple[int, int, int], threads: int
) -> tuple[float, int, int]:
    """(seconds, bytes of keys and values, multiply-adds) of one call."""
    heads, kv_heads, dim = shape
    dtype = name.split("__")[0].removeprefix("paged_attention_")
    length, new = CASES[case]
    block = 32
    scales = 8 * block if dtype == "int8" else 0
    page = -(-kv_heads * (2 * block * dim * ELEMENT_BYTES[dtype] + scales) // 4096) * 4096
    blocks = length // block
    seqs = max(1, (48 << 20) // (blocks * page)) if case == "cold" else 1
    pool = avx.Arena((seqs * blocks + 1) * page)
    np.frombuffer(pool, np.uint8)[:] = 0x3C  # a positive normal number in every dtype
    rng = np.random.default_rng(0)
    table = (rng.permutation(seqs * blocks) + 1).astype(np.int32).reshape(seqs, blocks)
    tokens = seqs * new
    q = rng.standard_normal((tokens, heads * dim)).astype(np.float32)
    y = np.zeros_like(q)
    start = (np.arange(seqs + 1) * new).astype(np.int32)
    zeros, kv_len = np.zeros(tokens, np.int32), np.full(seqs, length, np.int32)
    program = avx.Program()
    fields = {
        "q": q.ctypes.data, "ldq": heads * dim, "y": y.ctypes.data, "ldy": heads * dim, "heads": heads,
        "kv_heads": kv_heads, "head_dim": dim, "block_tokens": block, "page_bytes": page, "layer_offset": 0, "window": 0,
        "sinks": 0, "alibi": 0, "scale": dim**-0.5, "softcap": 0.0, "group": 0, "kv_type": KV_TYPES[dtype],
    }  # fmt: skip
    program.add(name, name, 0, (TOKENS, 0), fields)
    team = avx.Team(threads, 2000)
    step = avx.Step(tokens, seqs, 0, zeros, zeros, start, kv_len, zeros, None, None, pool.address, [table])
    seconds = best(lambda: program.run(team, step, 0, 1), 0.4, threads)
    visible = seqs * sum(range(length - new + 1, length + 1))
    return seconds, seqs * 2 * length * kv_heads * dim * ELEMENT_BYTES[dtype], 2 * visible * heads * dim


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row per kernel, shape and case."""
    import numpy as np

    from octavo import _avx as avx  # type: ignore[attr-defined]

    read, product = read_bandwidth(np, args.threads), sgemm(np, args.threads)
    yield row("kernels.attention.read", "GB/s", [read], better="higher", threads=args.threads)
    yield row("kernels.attention.sgemm", "GMAC/s", [product], better="higher", threads=args.threads)
    have = avx.available_features()
    for op, name, level, required, _ in avx.kernels():
        if not op.startswith("paged_attention") or required & ~have or level == "scalar" or args.only not in ("", name):
            continue
        for text in args.shape.split(","):
            heads, kv_heads, dim = (int(n) for n in text.split("/"))
            for case in CASES:
                seconds, size, macs = time_case(np, avx, name, case, (heads, kv_heads, dim), args.threads)
                rate, speed = size / seconds / 1e9, macs / seconds / 1e9
                rates = {"kv_gb_per_s": round(rate, 2), "of_read": round(rate / read, 3)}
                rates |= {"gmac_per_s": round(speed, 2), "of_sgemm": round(speed / product, 3)}
                yield row(f"kernels.{name}.{case}.{text}", "s", [seconds], threads=args.threads, **rates)


def main() -> None:
    options = parser(__doc__, threads=1)
    options.add_argument("--only", default="", help="one kernel by name")
    options.add_argument("--shape", default="9/3/64,32/8/64,8/4/128")
    report(results(args := options.parse_args()), args, "kernels_attention")


if __name__ == "__main__":
    main()

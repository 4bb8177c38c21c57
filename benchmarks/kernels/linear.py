"""Times the linear kernels: share of the memory bandwidth at one row, share of peak multiply-adds at many.

    octavo bench kernels/linear -- [--threads 2] [--only linear_q4g32__avx2] [--rows 1,128] [--shape 1536x576]

Weights are copies that are larger than the last-level cache together, so that one row reads memory. Beside the kernels, in the
same run: a read of memory by numpy (max of float32) and numpy's float32 matrix product, each on as many threads. One row per
kernel, layout and number of rows: seconds of the fastest call, GB/s of packed weights, GMAC/s, their shares of the two
yardsticks. Inputs and scales are zeros: no kernel's time depends on values.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.common import parser, report, row

FIXED = 3
#: packed kind -> layouts: inputs and bytes of one record of 16 outputs (csrc_common/packed/panels.h), flags
RECORDS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "bf16": ((32, 1024, 0),),
    "f16": ((32, 1024, 0),),
    "f32": ((32, 2048, 0),),
    "q4g32": ((32, 320, 1),),
    "q8g32": ((32, 544, 0),),
    "q4k": ((256, 2368, 1),),
    "q5g32": ((32, 352, 0),),
    "q2k": ((256, 1344, 1),),
    "q3k": ((256, 1824, 0),),
    "q5k": ((256, 2880, 1),),
    "q6k": ((256, 3360, 0),),
    "w8a8": ((64, 1024, 0),),
    "i4": (
        (32, 288, 8),
        (64, 544, 32 + 8),
        (128, 1056, 64 + 8),
        (128, 1072, 64 + 8 + 4),
    ),  # bfloat16 scales, 4: zero points
}
TAIL_BYTES = {"w8a8": 64}


def best(call: Callable[[], object], seconds: float, threads: int) -> float:
    """Shortest of the repetitions that fit; of one thread its processor time, which neighbours on the machine disturb less."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def read_bandwidth(np: Any, threads: int) -> float:
    """GB/s of reading float32 in `threads` threads."""
    parts = [np.ones(24 << 20, np.float32) for _ in range(threads)]
    if threads == 1:
        return float(parts[0].nbytes / best(lambda: np.max(parts[0]), 0.4, 1) / 1e9)
    with ThreadPoolExecutor(threads) as pool:
        return float(sum(p.nbytes for p in parts) / best(lambda: list(pool.map(np.max, parts)), 0.4, threads) / 1e9)


def sgemm(np: Any, threads: int) -> float:
    """GMAC/s of numpy's float32 product."""
    a = np.random.default_rng(0).random((768, 768), np.float32)
    return float(768**3 / best(lambda: a @ a, 0.4, threads) / 1e9)


def time_kernel(
    np: Any, avx: Any, name: str, layout: tuple[int, int, int], rows: int, n: int, k: int, threads: int
) -> tuple[float, int]:
    """Seconds per call, and bytes of one packed weight."""
    inputs, record, flags = layout
    k = -(-k // inputs) * inputs
    size = -(-n // 16) * (k // inputs * record + TAIL_BYTES.get(kind_of(name), 0))
    copies = max(1, (96 << 20) // size) if rows <= 4 else max(1, (4 << 20) // size)
    weights = avx.Arena(size * copies)
    np.frombuffer(weights, np.uint8)[:] = 1
    ldx = k + 64 if k % 128 == 0 else k  # as the recorder places rows: off powers of two
    x = np.zeros((rows, ldx), np.float32)
    scales, sums = np.zeros((rows, k // 32), np.float32), np.zeros((rows, k // 16), np.int32)
    y = np.zeros((rows, n), np.float32)
    program = avx.Program()
    for copy in range(copies):
        fields = {
            "x": x.ctypes.data, "ldx": ldx, "scales": scales.ctypes.data, "sums": sums.ctypes.data, "lds": k // inputs,
            "weight": weights.address + copy * size, "n": n, "k": k, "bias": 0, "gate": 0, "ldgate": 0, "residual": 0,
            "ldres": 0, "y": y.ctypes.data, "ldy": n, "scale": 1.0, "activation": 0, "flags": flags, "rows": (FIXED, rows),
        }  # fmt: skip
        program.add([(0, name)], (FIXED, rows), fields)
    team = avx.Team(threads, 2000)
    step = avx.Step(0, 0, 0, None, None, None, None, None, None, None, 0, [])
    return best(lambda: program.run(team, step, 0, copies), 0.3, threads) / copies, size


def kind_of(name: str) -> str:
    """`linear_q4g32__avx2` -> q4g32."""
    return name.split("__")[0].removeprefix("linear_")


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row per kernel and number of rows."""
    import numpy as np

    from octavo import _avx as avx  # type: ignore[attr-defined]

    have = avx.available_features()
    best_of = {op: name for op, name, _, need, _ in avx.kernels() if op.startswith("linear_") and not need & ~have}
    n, k = (int(v) for v in args.shape.split("x"))
    bandwidth, product = read_bandwidth(np, args.threads), sgemm(np, args.threads)
    yield row("kernels.linear.read", "GB/s", [bandwidth], better="higher", threads=args.threads)
    yield row("kernels.linear.sgemm", "GMAC/s", [product], better="higher", threads=args.threads)
    for name in args.only.split(",") if args.only else best_of.values():
        layouts = RECORDS[kind_of(name)]
        for layout, rows in ((layout, int(r)) for layout in layouts for r in args.rows.split(",")):
            seconds, size = time_kernel(np, avx, name, layout, rows, n, k, args.threads)
            rate, macs = size / seconds / 1e9, rows * n * k / seconds / 1e9
            rates = {"gb_per_s": round(rate, 2), "of_read": round(rate / bandwidth, 2)}
            rates |= {"gmac_per_s": round(macs, 1), "of_sgemm": round(macs / product, 2)}
            label = f"{name}.g{layout[0]}z{layout[2] >> 2 & 1}" if len(layouts) > 1 else name
            yield row(f"kernels.{label}.{rows}x{args.shape}", "s", [seconds], threads=args.threads, **rates)


def main() -> None:
    options = parser(__doc__, threads=1)
    options.add_argument(
        "--only", default="", help="kernel names, comma separated; default: the best runnable of each op"
    )
    options.add_argument("--rows", default="1,128")
    options.add_argument("--shape", default="1536x576", help="outputs x inputs")
    args = options.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)  # read when numpy is imported
    report(results(args), args, "kernels_linear")


if __name__ == "__main__":
    main()

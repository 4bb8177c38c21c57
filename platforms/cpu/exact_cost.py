"""What the contract's order of operations costs on this chip: exact kernels against those of `--numerics fast`, timed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.platforms.cpu.weights import PackedWeights
from octavo.platforms.recorded.eager import EagerOps
from octavo.platforms.recorded.native import Native
from octavo.platforms.select import FAST_LEVELS, refusal
from octavo.platforms.types import RawTensor

ROWS, WIDTH, REPEATS = 96, 1024, 5


def cost_of_exact(native: Native, team: Any) -> dict[str, Any]:
    """The mode in force, and per op with a fast kernel that runs here: the best GFLOP/s of both for a prefill's rows."""
    modes = {name: replace(native, is_fast=name == "fast") for name in ("exact", "fast")}
    rows = []
    for row in native.rows:
        if row.level not in FAST_LEVELS or refusal(row, modes["fast"].allowance):
            continue
        speed = {name: _gflops(mode, team, row.op) for name, mode in modes.items()}
        kernels = {f"{name}_kernel": mode.table[row.op].many for name, mode in modes.items()}
        if kernels["exact_kernel"] != kernels["fast_kernel"]:
            told = {f"{name}_gflops": float(f"{value:.3g}") for name, value in speed.items()}
            rows.append({"op": row.op, **kernels, **told, "fast_over_exact": round(speed["fast"] / speed["exact"], 2)})
    mode = "fast" if native.is_fast else "exact"
    change = (
        "nothing here is faster"
        if not rows
        else f"--numerics {'exact' if native.is_fast else 'fast'}, or OCTAVO_NUMERICS"
    )
    return {"mode": mode, "change_with": change, "cost": rows}


def _gflops(native: Native, team: Any, op: str) -> float:
    """`linear` with weights of the op's format; ROWS x WIDTH x WIDTH, warm."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((WIDTH, WIDTH), np.float32)
    data = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    tensor = RawTensor("weight", op.removeprefix("linear_"), (WIDTH, WIDTH), data)
    weight, ops = PackedWeights(native, team).linear([tensor]), EagerOps(native, team)
    x = rng.standard_normal((ROWS, WIDTH), np.float32)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        ops.linear(x, weight)
        best = min(best, time.perf_counter() - start)
    return 2e-9 * ROWS * WIDTH * WIDTH / best

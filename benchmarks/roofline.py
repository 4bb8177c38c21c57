"""What instructions of a recorded step must move and compute at least, and how close to the machine's limits they came.

Bytes are counted once: rows in and out, weights as packed, keys and values as stored. Operations are two per multiply-add. The
limit of an instruction is bytes at the measured read bandwidth or operations at the measured peak of its level's best
instruction for its numbers, whichever takes longer. Rows of activations often come from a cache, so a light instruction may
come out above 100 %. Source: Williams, Waterman and Patterson, Roofline, 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.platforms.recorded.symbols import KV_ELEMENT_BYTES, Instruction, kv_head_bytes
from octavo.platforms.types import Batch, KVSpec

#: what a kernel's numbers are multiplied as, by the start of its name; the rest is float32
_INT8 = ("linear_q", "linear_i", "linear_w8a8")
_BF16 = ("linear_bf16", "paged_attention_bf16")
#: the limit that holds for a level, by kind, best first
_PEAKS = {
    "int8": {
        "amx": ("int8__amx",),
        "avx512vnni": ("int8__avx512vnni",),
        "avxvnni": ("int8__avxvnni",),
        "avx2": ("int8__avx2",),
    },
    "bf16": {
        "amx": ("bf16__amx",),
        "avx512bf16": ("bf16__avx512bf16",),
        "avx512fast": ("bf16__avx512bf16",),
    },
    "f32": {"avx512": ("f32__avx512",), "avx512vnni": ("f32__avx512",), "avx2": ("f32__avx2",)},
}


@dataclass
class Work:
    """What some instructions do in a step."""

    num_bytes: int = 0
    num_ops: int = 0

    def __iadd__(self, other: Work) -> Work:
        self.num_bytes += other.num_bytes
        self.num_ops += other.num_ops
        return self


def attention_work(ins: Instruction, batch: Batch, spec: KVSpec) -> Work:
    """Keys and values of every sequence once; products of every query with the keys it sees, twice."""
    window = int(ins.fields["window"])
    new = np.diff(batch.query_start)
    past = batch.kv_len - new
    first = np.maximum(past + 1 - window, 0) if window else np.zeros_like(past)  # the oldest key that any query sees
    keys = int((batch.kv_len - first).sum())
    seen = batch.positions[0].astype(np.int64) + 1
    pairs = int((np.minimum(seen, window) if window else seen).sum())
    heads = int(ins.fields["heads"])
    rows = 2 * 4 * batch.num_tokens * heads * spec.head_dim
    stored = keys * spec.num_kv_heads * kv_head_bytes(spec) // spec.block_tokens
    return Work(stored + rows, 4 * pairs * heads * spec.head_dim)


def row_bytes(ins: Instruction) -> int:
    """Bytes that an instruction reads and writes per row of activations, its weights and tables left out."""
    op, f = ins.op, ins.fields
    if op.startswith("linear_"):
        extra = sum(bool(f[name]) for name in ("gate", "residual"))
        return int(4 * f["n"] * (1 + extra) + f["k"] * (1 if op.startswith(_INT8) else 2 if "bf16" in op else 4))
    if op.startswith("prepare_"):
        return int(f["k"] * (6 if op.endswith("bf16") else 5))
    if op.startswith(("rms_norm_prepare_", "layer_norm_prepare_")):
        stored = 4 if op.endswith("pair") else 2 if "f16" in op else 1
        return int(f["width"] * (4 + stored + (4 if f["y"] else 0)))
    if op.startswith("gated"):
        stored = 4 if op == "gated" or op.endswith("pair") else 2 if "bf16" in op or "f16" in op else 1
        return int((f["width"] if op == "gated" else f["k"]) * (8 + stored))
    if op.startswith("rope_append"):
        stored = f["kv_heads"] * (12 + 2 * KV_ELEMENT_BYTES[op.rpartition("_")[2]])  # k is written rotated, too
        return int(f["head_dim"] * (8 * f["heads"] + stored))
    if op.startswith("kv_append"):
        return int(2 * f["kv_heads"] * f["head_dim"] * (4 + KV_ELEMENT_BYTES[op.rpartition("_")[2]]))
    if op.startswith("embedding"):
        return int(f["row_bytes"] + 4 * f["width"])
    width = f["heads"] * f["head_dim"] if op == "rope" else f["width"] * f.get("heads", 1) if "width" in f else 0
    return int(4 * width * (3 if op in ("add", "rms_norm_add") else 2))


def work_of(ins: Instruction, batch: Batch, num_logits: int, spec: KVSpec | None) -> Work:
    """What one instruction must do in a step with `num_logits` rows of logits."""
    if ins.op.startswith("paged_attention") and spec is not None:
        return attention_work(ins, batch, spec)
    rows = {"tokens": batch.num_tokens, "logits": num_logits, "sequences": batch.num_seqs}[ins.rows]
    num_ops = 2 * rows * int(ins.fields["n"]) * int(ins.fields["k"]) if ins.weight_bytes else 0
    return Work(ins.weight_bytes + rows * row_bytes(ins), num_ops)


def peak_of(kernel: str, limits: Mapping[str, float]) -> float:
    """Operations a second of the best instruction that a kernel of its level may use for its numbers; 0: none is known."""
    op, _, level = kernel.rpartition("__")
    kinds = ["int8"] if op.startswith(_INT8) else ["bf16", "f32"] if op.startswith(_BF16) else ["f32"]
    for kind in kinds:
        for name in _PEAKS[kind].get(level, ()):
            if limits.get(name):
                return limits[name]
    return 0.0


def shares(work: Work, seconds: float, kernel: str, limits: Mapping[str, float]) -> dict[str, float]:
    """bytes, ops, GB/s and Gop/s, and their shares of the limits; `of_limit` is the share of what the machine can do."""
    out: dict[str, float] = {"bytes": work.num_bytes, "gb_per_s": round(work.num_bytes / seconds / 1e9, 2)}
    read, peak = limits.get("read", 0.0), peak_of(kernel, limits)
    least = work.num_bytes / read if read else 0.0
    if read:
        out["of_read"] = round(least / seconds, 3)
    if work.num_ops:
        out |= {"ops": work.num_ops, "gop_per_s": round(work.num_ops / seconds / 1e9, 1)}
        if peak:
            out["of_peak"] = round(work.num_ops / peak / seconds, 3)
            least = max(least, work.num_ops / peak)
    if least:
        out["of_limit"] = round(least / seconds, 3)
    return out


def table(title: str, rows: Iterable[Mapping[str, object]]) -> str:
    """A Markdown table of results that hold `kernel`, `seconds`, `share`, `calls` and what `shares` gives."""
    columns = ("kernel", "calls", "ms", "share", "MB", "GB/s", "of read", "Gop", "Gop/s", "of peak", "of limit")
    lines = [title, "", "| " + " | ".join(columns) + " |", "| --- |" + " ---: |" * (len(columns) - 1)]
    for found in rows:
        cells: Sequence[str] = (
            str(found["kernel"]), str(found["calls"]), _scaled(found, "seconds", 1e3, 3), _percent(found, "share"),
            _scaled(found, "bytes", 1e-6, 2), _scaled(found, "gb_per_s", 1, 1), _percent(found, "of_read"),
            _scaled(found, "ops", 1e-9, 2), _scaled(found, "gop_per_s", 1, 0), _percent(found, "of_peak"),
            _percent(found, "of_limit"),
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _scaled(found: Mapping[str, object], name: str, scale: float, digits: int) -> str:
    value = found.get(name)
    return "-" if not isinstance(value, int | float) else f"{value * scale:.{digits}f}"


def _percent(found: Mapping[str, object], name: str) -> str:
    value = found.get(name)
    return "-" if not isinstance(value, int | float) else f"{100 * value:.1f} %"

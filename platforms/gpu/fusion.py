"""Instructions that follow each other become one launch, where there is a kernel for both.

Between the products of a layer a step of few rows costs launches, not work. Results keep the bits of the ops apart
(csrc_common/contract/fused.h).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from octavo.platforms.recorded.symbols import Instruction, Ref

NORMS = ("rms_norm", "layer_norm")  # before the name of a prepare op
NORM_ADD = "rms_norm_add"
GATED = "gated"
ROPE_APPEND = "rope_append_"  # before a KV dtype


def fused(tail: list[Instruction], ops: Collection[str]) -> tuple[int, Instruction] | None:
    """(how many instructions at the end, the one that takes their place), None where nothing fits. `ops` are there."""
    last = tail[-1]
    if last.op.startswith("prepare_"):
        return _gated_prepare(tail, ops) or _norm_prepare(tail, ops)
    if last.op == "add" and NORM_ADD in ops:
        return _norm_add(tail)
    name = last.op.replace("kv_append_", ROPE_APPEND)
    if name != last.op and name in ops:
        return _rope_append(name, tail)
    return None


def _gated_prepare(tail: list[Instruction], ops: Collection[str]) -> tuple[int, Instruction] | None:
    """Nobody else reads what `gated` writes (`GpuRecorder.gated_mlp`)."""
    gated, prepare = tail[-2:] if len(tail) > 1 else (tail[-1], tail[-1])
    x, y, op = gated.fields, prepare.fields, f"{GATED}_{prepare.op}"
    if gated.op != GATED or op not in ops or y["x"] != x["y"] or y["k"] != x["width"]:
        return None
    fields = {name: x[name] for name in ("gate", "ldgate", "x", "ldx", "activation", "rows")}
    fields |= {name: y[name] for name in ("k", "q", "ldq", "scales", "sums", "lds")}
    return 2, Instruction(op, gated.rows, fields, gated.reads, prepare.writes)


def _norm_prepare(tail: list[Instruction], ops: Collection[str]) -> tuple[int, Instruction] | None:
    norm, prepare = tail[-2:] if len(tail) > 1 else (tail[-1], tail[-1])
    x, y, op = norm.fields, prepare.fields, f"{norm.op}_{prepare.op}"
    if norm.op not in NORMS or op not in ops or x["heads"] != 1 or y["x"] != x["y"] or y["k"] != x["width"]:
        return None
    fields = {name: x[name] for name in ("x", "ldx", "weight", "bias", "y", "ldy", "width", "eps", "rows")}
    fields |= {name: y[name] for name in ("q", "ldq", "scales", "sums", "lds")}
    return 2, Instruction(op, norm.rows, fields, norm.reads, (*norm.writes, *prepare.writes))


def _norm_add(tail: list[Instruction]) -> tuple[int, Instruction] | None:
    norm, add = tail[-2:] if len(tail) > 1 else (tail[-1], tail[-1])
    x, y = norm.fields, add.fields
    if norm.op != "rms_norm" or x["heads"] != 1 or y["b"] != x["y"] or y["a"] == y["b"] or y["width"] != x["width"]:
        return None
    fields = {name: x[name] for name in ("x", "ldx", "weight", "width", "eps", "rows")}
    fields |= {name: y[name] for name in ("a", "lda", "y", "ldy", "scale_a", "scale_b")}
    fields |= {"normed": x["y"], "ldnormed": x["ldy"]}
    reads = tuple(dict.fromkeys((*norm.reads, *(buffer for buffer in add.reads if buffer not in norm.writes))))
    return 2, Instruction(NORM_ADD, norm.rows, fields, reads, (*norm.writes, *add.writes))


def _rope_append(name: str, tail: list[Instruction]) -> tuple[int, Instruction] | None:
    if len(tail) < 3:
        return None
    q, k, append = tail[-3:]
    a, b, c = q.fields, k.fields, append.fields
    same = ("table", "max_positions", "head_dim", "rotary_dim", "interleaved")
    if q.op != "rope" or k.op != "rope" or any(a[word] != b[word] for word in same):
        return None
    if c["k"] != b["y"] or b["heads"] != c["kv_heads"] or a["head_dim"] != c["head_dim"] or set(q.writes) & {*k.reads}:
        return None
    count, before = 3, tail[:-3]
    norms: dict[str, Instruction | None] = {"q": None, "k": None}
    for which, rope in (("k", k), ("q", q)):  # as they were recorded, from the end
        if before and _is_norm_of(before[-1], rope):
            norms[which], count = before.pop(), count + 1
    fields = {word: a[word] for word in (*same, "heads", "y", "ldy")}
    fields |= {word: value for word, value in c.items() if word not in ("k", "ldk")}
    fields |= {"key": b["y"], "ldkey": b["ldy"]}
    reads = list(append.reads)
    for which, rope in (("q", q), ("k", k)):
        norm = norms[which]
        source = rope if norm is None else norm
        reads += source.reads
        fields |= {
            which: source.fields["x"],
            f"ld{which}": source.fields["ldx"],
            f"has_{which}_norm": int(norm is not None),
        }
        fields[f"{which}_weight"] = 0 if norm is None else norm.fields["weight"]
        fields[f"{which}_eps"] = 0.0 if norm is None else norm.fields["eps"]
    unread = tuple(dict.fromkeys(buffer for buffer in reads if buffer not in k.writes))
    return count, Instruction(name, append.rows, fields, unread, (*q.writes, *k.writes))


def _is_norm_of(norm: Instruction, rope: Instruction) -> bool:
    """Whether an instruction norms the heads that a rope takes."""
    x, y = norm.fields, rope.fields
    return norm.op == "rms_norm" and (x["y"], x["heads"], x["width"]) == (y["x"], y["heads"], y["head_dim"])


def without_unread(instructions: list[Instruction], output: int | None) -> list[Instruction]:
    """The list, its fused norms without the rows that nobody reads."""
    reads = Counter(buffer for ins in instructions for buffer in ins.reads)

    def spared(ins: Instruction) -> Instruction:
        name = "normed" if ins.op == NORM_ADD else "y"
        y: Any = ins.fields.get(name)
        is_fused = ins.op == NORM_ADD or "norm_prepare_" in ins.op
        if not is_fused or not isinstance(y, Ref) or reads[y.buffer] or y.buffer == output:
            return ins
        return replace(ins, fields={**ins.fields, name: 0}, writes=tuple(b for b in ins.writes if b != y.buffer))

    return [spared(ins) for ins in instructions]

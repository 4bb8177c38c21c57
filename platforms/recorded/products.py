"""Products of a recorded model: rows in a weight's input form, the arguments of a product, and the greedy head around one.

Parts of `Recorder`, which it is given to append to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.weights import PackedLinear
from octavo.platforms.recorded.codes import ACTIVATIONS, PREPARED
from octavo.platforms.recorded.symbols import Prepared, Ref, Symbol
from octavo.platforms.types import Activation

if TYPE_CHECKING:
    from octavo.platforms.recorded.recorder import Recorder

#: parts of the outputs that a thread of several finds in a greedy head: enough for all to end together
PARTS_PER_THREAD = 16
GREEDY_STAGES = 2


def prepare(to: Recorder, x: Symbol, form: str) -> Prepared:
    """`x` in an input form; once, however many products read it."""
    if not form:
        return Prepared(x.buffer, x.stride, -1, -1, 0)
    key = (x.buffer, x.column, x.width, form)
    if key in to._prepared:
        return to._prepared[key]
    kind = PREPARED[form]
    q = to._new(-(-x.width // kind.pad) * kind.pad * kind.parts, x.rows, kind.element_bytes)
    scales = sums = None
    stride = 0
    if kind.group >= 0:
        scales = to._new(-(-x.width // kind.group) if kind.group else 1, x.rows)
        stride = scales.stride
    if kind.per_sum:
        sums = to._new(stride * (kind.group // kind.per_sum if kind.group else 1), x.rows)
    to._emit(
        form, x.rows, reads=(x,), writes=tuple(s for s in (q, scales, sums) if s is not None),
        x=to._at(x), ldx=x.stride, k=x.width, q=Ref(q.buffer), ldq=q.stride,
        scales=0 if scales is None else Ref(scales.buffer), sums=0 if sums is None else Ref(sums.buffer),
        lds=stride, rows=to._rows_field(x.rows),
    )  # fmt: skip
    made = Prepared(
        q.buffer, q.stride, -1 if scales is None else scales.buffer, -1 if sums is None else sums.buffer, stride
    )
    to._prepared[key] = made
    return made


def product(
    to: Recorder,
    x: Symbol,
    weight: PackedLinear,
    *,
    activation: Activation = "none",
    gate: Symbol | None = None,
    residual: Symbol | None = None,
    scale: float = 1.0,
) -> tuple[tuple[Symbol, ...], dict[str, Any]]:
    """(what a product reads, its arguments but for y), with its input prepared."""
    if x.width != weight.num_in:
        raise PlatformError(f"linear: input of width {x.width} for a weight of {weight.num_in} inputs")
    form = to._input_form(weight)
    prepared = prepare(to, x, form)
    reads = [Symbol(prepared.q, 0, 0, x.rows)] + [s for s in (gate, residual) if s is not None]
    reads += [Symbol(side, 0, 0, x.rows) for side in (prepared.scales, prepared.sums) if side >= 0]
    direct = form == ""
    to._held.append(weight)
    return tuple(reads), {
        "x": to._at(x) if direct else Ref(prepared.q), "ldx": x.stride if direct else prepared.stride,
        "scales": Ref(prepared.scales) if prepared.scales >= 0 else 0,
        "sums": Ref(prepared.sums) if prepared.sums >= 0 else 0, "lds": prepared.scale_stride,
        "weight": weight.address, "n": weight.num_out, "k": weight.num_in, "bias": weight.bias_address,
        "gate": 0 if gate is None else to._at(gate), "ldgate": 0 if gate is None else gate.stride,
        "residual": 0 if residual is None else to._at(residual), "ldres": 0 if residual is None else residual.stride,
        "scale": scale, "activation": ACTIVATIONS[activation], "flags": weight.packed.flags,
        "rows": to._rows_field(x.rows),
    }  # fmt: skip


def room_bytes(rows: int) -> int:
    """A thread's part of the logits of so many rows (csrc_common/contract/greedy_head.h, greedy_room_bytes)."""
    return max(128 << 10, 64 * 32 * rows) + 64 * rows


def greedy_head(to: Recorder, x: Symbol, weight: PackedLinear, scale: float, softcap: float) -> Symbol:
    """Ids [rows, 1] of the greatest logits; memory for a few panels of logits per thread, and the best of each part."""
    reads, fields = product(to, x, weight, scale=scale)
    kernels = to.native.table[f"linear_{weight.packed.kind}"]
    panels, most_rows = -(-weight.num_out // 16), to.max_rows[x.rows]
    parts = 1 if to.num_threads == 1 else min(panels, PARTS_PER_THREAD * to.num_threads)
    room = to._memory(to.num_threads * room_bytes(most_rows))
    values, places = (to._memory(4 * parts * most_rows) for _ in range(2))
    y = to._new(1, x.rows, is_int=True)
    for stage in range(GREEDY_STAGES):
        to._emit(
            "greedy_head", x.rows, reads=reads, writes=(room, values, places, y),
            **{f"linear.{name}": value for name, value in fields.items()},
            few=kernels.few, many=kernels.many, many_from=kernels.many_from,
            panel_bytes=weight.packed.num_bytes(16, weight.num_in), softcap=softcap, room=Ref(room.buffer),
            room_bytes=room_bytes(most_rows), values=Ref(values.buffer), places=Ref(places.buffer), ldparts=most_rows,
            parts=parts, stage=stage, **to._out(y),
        )  # fmt: skip
    return y

"""What makes rows that only products of bfloat16 weights read writes them as bfloat16 at once.

Rounding is what `prepare_bf16` would have done later, so results keep their bits; a step moves two bytes for each value where it
moved ten, and an encoder's activations stay in L2.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.symbols import Instruction, Recorded, Ref, Symbol

PREPARE = "prepare_bf16"
NORMS = ("rms_norm", "layer_norm")  # may write both
PAD = 32  # values: rows that end elsewhere would want zeros behind them


@dataclass(frozen=True)
class Narrowed:
    """A list without its preparations that others do, and where they were in the list before."""

    instructions: list[Instruction]
    gone: tuple[int, ...]

    def place(self, before: int) -> int:
        """Where the instruction is now that was at `before`, or the next that is still there."""
        return before - sum(at < before for at in self.gone)


def narrowed(instructions: list[Instruction], kept: frozenset[int]) -> Narrowed:
    """The list with such preparations joined to what makes their rows. `kept`: buffers that are read from elsewhere."""
    out = list(instructions)
    writers = Counter(buffer for ins in out for buffer in ins.writes)
    readers = Counter(buffer for ins in out for buffer in ins.reads)
    made = {buffer: at for at, ins in enumerate(out) for buffer in ins.writes}
    gone = []
    for at, prepare in enumerate(out):
        if prepare.op != PREPARE or not isinstance(prepare.fields["x"], Ref) or len(prepare.reads) != 1:
            continue
        buffer = prepare.reads[0]
        if writers[buffer] != 1 or buffer in kept or made[buffer] >= at:
            continue
        maker = out[made[buffer]]
        is_only_reader = readers[buffer] == 1
        if not _can_narrow(maker, prepare, is_only_reader):
            continue
        fields = {**maker.fields, "narrow": prepare.fields["q"], "ldnarrow": prepare.fields["ldq"]}
        writes = (*maker.writes, *prepare.writes)
        if is_only_reader:
            fields["y"] = 0
            writes = tuple(b for b in writes if b != buffer)
        out[made[buffer]] = replace(maker, fields=fields, writes=writes)
        gone.append(at)
    left = [ins for at, ins in enumerate(out) if at not in set(gone)]
    return Narrowed(left, tuple(gone))


def _can_narrow(maker: Instruction, prepare: Instruction, is_only_reader: bool) -> bool:
    """Whether `maker` writes the whole rows that `prepare` reads, and nothing but them is needed of it."""
    x, y = maker.fields, prepare.fields
    if "y" not in x or x["y"] != y["x"] or maker.rows != prepare.rows or y["k"] % PAD or "narrow" in x:
        return False
    if maker.op in NORMS:
        return bool(x["width"] * x["heads"] == y["k"])
    if maker.op.startswith("linear_"):
        return bool(is_only_reader and x["n"] == y["k"])
    if maker.op.startswith("varlen_attention"):
        return bool(is_only_reader and x["heads"] * x["head_dim"] == y["k"])
    return False


class CpuRecorder(Recorder):
    """Records for a processor."""

    def finish(self, output: Symbol | None) -> Recorded:
        kept = {*self._external} | (set() if output is None else {output.buffer})
        if self.greedy is not None:
            kept.add(self.greedy.ids.buffer)
        found = narrowed(self._list, frozenset(kept))
        self._list = found.instructions
        self.segments = [(name, found.place(at)) for name, at in self.segments]
        if self.head_at >= 0:
            self.head_at = found.place(self.head_at)
        if self.greedy is not None:
            first, last = (found.place(at) for at in (self.greedy.first, self.greedy.last))
            self.greedy = replace(self.greedy, first=first, last=last)
        return super().finish(output)

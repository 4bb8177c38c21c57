"""Records a model for a GPU: the recorder of CPUs, but for the head that picks tokens, and what threads of a CPU share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.fusion import fused, without_unread
from octavo.platforms.gpu.rows import bounded
from octavo.platforms.gpu.weights import FAST_PREPARE
from octavo.platforms.platform import Capacity
from octavo.platforms.recorded.codes import ACTIVATIONS
from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.symbols import Instruction, Recorded, Ref, Symbol
from octavo.platforms.select import FAST_LEVELS, Choice
from octavo.platforms.types import Activation, Rows

MOST_HEAD_DIM = 256  # csrc_common/gpu/attention.inl.h
#: kCut, kManyTokens, kRowsOfTile and kSpareTokens of csrc_common/gpu/attention_mma_cuts.inl.h
CUT, MANY_TOKENS, TILE_ROWS, SPARE_TOKENS = 512, 16, 16, 4
#: head_dim is a multiple of it, or exact levels run
TILE_DIMS = 16
MOST_PARTS_BYTES = 128 << 20


class GpuRecorder(Recorder):
    """See `Recorder`."""

    tile_tokens = 16

    def greedy_head(self, x: Symbol, weight: Any, *, scale: float = 1.0, softcap: float = 0.0) -> Symbol:
        """Logits, then the id of each row's greatest: memory bandwidth is no concern beside the weights'."""
        logits = self._linear(x, weight, self._new(weight.num_out, x.rows), "none", None, None, scale)
        if softcap:
            logits = self._softcap(logits, logits, softcap)
        y = self._new(1, x.rows, is_int=True)
        self._emit(
            "greedy_head", x.rows, reads=(logits,), writes=(y,),
            x=self._at(logits), ldx=logits.stride, width=logits.width, rows=self._rows_field(x.rows), **self._out(y),
        )  # fmt: skip
        return y

    def gated_mlp(
        self,
        x: Symbol,
        gate: Any,
        up: Any,
        down: Any,
        activation: Activation,
        *,
        residual: Symbol | None = None,
        scale: float = 1.0,
    ) -> Symbol:
        """One product of gate and up where they are one weight, and what lies between it and that of `down` in one launch."""
        if gate is not None:
            return super().gated_mlp(x, gate, up, down, activation, residual=residual, scale=scale)
        both, hidden = self.linear(x, up), self._new(down.num_in, x.rows)
        first, second = self.split(both, [down.num_in] * 2)
        self._emit(
            "gated", x.rows, reads=(both,), writes=(hidden,),
            gate=self._at(first), ldgate=first.stride, x=self._at(second), ldx=second.stride, width=hidden.width,
            activation=ACTIVATIONS[activation], rows=self._rows_field(x.rows), **self._out(hidden),
        )  # fmt: skip
        return self.linear(hidden, down, residual=residual, scale=scale)

    def _shared_segments(self, heads: int, window: int) -> tuple[tuple[Symbol, ...], dict[str, Any]]:
        """Memory for the cuts of sequences that several blocks share (`parts_of` in csrc_common/gpu/attention_mma_cuts.inl.h)."""
        spec = self._kv()
        if spec.head_dim > MOST_HEAD_DIM:
            raise PlatformError(
                f"head_dim {spec.head_dim}: attention on GPUs takes at most {MOST_HEAD_DIM}; run on a CPU"
            )
        size = 0
        if self._attention(f"paged_attention_{spec.dtype}") != f"paged_attention_{spec.dtype}":
            size = parts_bytes(self.capacity, heads, spec.num_kv_heads, spec.head_dim, spec.block_tokens, window)
        if not size:
            return (), {"partials": 0, "partials_bytes": 0, "counters": 0}
        partials = self._memory(size)
        return (partials,), {
            "partials": Ref(partials.buffer), "partials_bytes": size,
            "counters": self._zeros(self.capacity.max_seqs * heads),
        }  # fmt: skip

    def _emit(
        self, op: str, kind: Rows, *, reads: tuple[Symbol, ...], writes: tuple[Symbol, ...], **fields: Any
    ) -> None:
        """Appends an instruction, or joins it with those before it (`fusion.py`) where no mark lies between them. Attention is
        that of the class of head sizes."""
        if op.startswith("paged_attention_"):
            op = self._attention(op)
        elif op.startswith("varlen_attention") and not fields["bias"]:  # which matrix units do not add
            op = self._of_heads(op, fields["head_dim"])
        super()._emit(op, kind, reads=reads, writes=writes, **fields)
        found = fused(self._list, self.native.table.choices)
        if found is None:
            return
        first = len(self._list) - found[0]
        if max([start for _, start in self.segments], default=-1) <= first and self.head_at <= first:
            self._list[first:] = [found[1]]

    def finish(self, output: Symbol | None) -> Recorded:
        self._list = without_unread(self._list, None if output is None else output.buffer)
        return super().finish(output)

    def _choice(self, ins: Instruction) -> Choice:
        if ins.op.startswith("linear_"):
            return self._linear_kernels(ins.op.removeprefix("linear_"))
        return super()._choice(ins)

    def _input_form(self, weight: Any) -> str:
        """Kernels of fast levels may take another form than the exact ones."""
        kind = weight.packed.kind
        if kind in FAST_PREPARE and has_fast_inputs(self._linear_kernels(kind)):
            return FAST_PREPARE[kind]
        return super()._input_form(weight)

    def _linear_kernels(self, kind: str) -> Choice:
        """All of them take one form of inputs: where a chip or the self-test left any rows no fast kernel, exact ones run."""
        choice = self.native.table[f"linear_{kind}"]
        if kind in FAST_PREPARE and not has_fast_inputs(choice):
            return replace(self.native, is_fast=False).table[f"linear_{kind}"]
        return choice

    def _attention(self, op: str) -> str:
        """Of the kernels for few and for many tokens neither does without the other."""
        found, table = self._of_heads(op, self._kv().head_dim), self.native.table
        return op if found == op or table[found].few == table[found].many else found

    def _of_heads(self, op: str, head_dim: int) -> str:
        """Matrix units take head_dim in tiles of 16, and have kernels for classes of it; the exact levels take the rest."""
        return op if head_dim % TILE_DIMS else bounded(op, head_dim, self.native.table.choices)


def has_fast_inputs(choice: Choice) -> bool:
    """Whether the kernels for any number of rows are of fast levels."""
    return all(name.rsplit("__", 1)[1] in FAST_LEVELS for name in choice.kernels)


def parts_bytes(capacity: Capacity, heads: int, kv_heads: int, head_dim: int, block_tokens: int, window: int) -> int:
    """Bytes of one op's parts; 0 if no sequence has two cuts. Sequences that find no room in them are not shared."""
    group = heads // kv_heads
    cuts = -(-(-(-capacity.max_len // block_tokens) * block_tokens) // CUT)
    if window:
        cuts = min(cuts, (window + MANY_TOKENS) // CUT + 2)
    if cuts < 2:
        return 0
    tokens = min(capacity.max_tokens, MANY_TOKENS - 1)
    few = tokens * group // TILE_ROWS + min(capacity.max_seqs, tokens)
    many = capacity.max_seqs * -(-SPARE_TOKENS * group // TILE_ROWS) if capacity.max_tokens >= MANY_TOKENS else 0
    one = cuts * kv_heads * TILE_ROWS * (head_dim + 2) * 4
    return max(one, min(max(few, many) * one, MOST_PARTS_BYTES // one * one))

"""What models, the engine and platforms pass to each other: weights, the batch of a step, sampling rows.

Arrays of activations are opaque to models: on the reference they are numpy arrays, on recorded platforms they are
symbols of a program. Everything below is plain data; sizes are in elements, positions and lengths in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
F32 = NDArray[np.float32]
Rows = Literal["tokens", "logits", "sequences"]
Activation = Literal["none", "silu", "gelu", "gelu_tanh", "relu", "relu2", "tanh", "sigmoid"]
KVDtype = Literal["f32", "bf16", "f16", "int8", "fp8"]
VarlenDtype = Literal["f32", "bf16"]  # of attention's products where there are no pages


class Array(Protocol):
    """An activation: [rows, width] float32. `rows` is symbolic where the platform records."""

    @property
    def width(self) -> int: ...


@dataclass(frozen=True)
class RawTensor:
    """A checkpoint tensor as stored: `data` is the uint8 view of the file map, `shape` in numpy order ([out, in]).

    Formats that keep scales apart (`quant.formats`) have them in `scales` (f32, f16 or bf16 [out, groups of a row]) and zero
    points, if any, in `zeros` (u8, the same shape).
    """

    name: str
    format: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    scales: RawTensor | None = None
    zeros: RawTensor | None = None

    @property
    def layout(self) -> tuple[str, str, bool]:
        """What must be equal for tensors to be stacked: format, format of the scales, whether there are zero points."""
        return self.format, "" if self.scales is None else self.scales.format, self.zeros is not None


class LinearWeight(Protocol):
    """A platform's own copy of a linear weight [num_out, num_in], packed as its kernels want it."""

    @property
    def format(self) -> str: ...
    @property
    def num_out(self) -> int: ...
    @property
    def num_in(self) -> int: ...


class Embedding(Protocol):
    """A platform's table [num_rows, width], rows decoded on look-up."""

    @property
    def num_rows(self) -> int: ...
    @property
    def width(self) -> int: ...


@dataclass(frozen=True)
class Rope:
    """Rotary positions as data; tables are built once per model in float64 and rounded once (`platforms.rope`).

    kind: default, linear, dynamic, yarn, llama3, longrope. `rotary_dim` <= head_dim rotates only the first values
    (partial). `interleaved` pairs (2i, 2i+1), else (i, i + rotary_dim/2). `inv_freq` is float64 [rotary_dim/2];
    `attention_factor` multiplies cos and sin. longrope carries a second row used for sequences whose length limit
    (`max_len`) exceeds `original_len`; the choice is made once per model, so that bits never depend on a neighbour.
    """

    inv_freq: tuple[float, ...]
    rotary_dim: int
    attention_factor: float = 1.0
    interleaved: bool = False
    max_positions: int = 0


class GroupKind(Enum):
    """What a KV group keeps for a sequence."""

    FULL = "full"
    SLIDING = "sliding"


@dataclass(frozen=True)
class KVGroup:
    """Layers whose blocks live and die together. `window` counts visible tokens, the query's own included; 0 = all."""

    kind: GroupKind
    layers: tuple[int, ...]
    window: int = 0


@dataclass(frozen=True)
class KVSpec:
    """The paged memory of a model: one pool, one page size; each page holds `block_tokens` tokens of one group.

    Groups hold equal layer counts (the last may be padded), so that all pages have equal bytes.
    """

    groups: tuple[KVGroup, ...]
    num_kv_heads: int
    head_dim: int
    dtype: KVDtype
    block_tokens: int = 32

    @property
    def layers_per_group(self) -> int:
        return max((len(group.layers) for group in self.groups), default=0)

    @property
    def has_scales(self) -> bool:
        """Whether keys and values are codes of one byte, with a float32 scale per token and kv head."""
        return self.dtype in ("int8", "fp8")

    @property
    def rounds(self) -> bool:
        """Whether queries and weights are rounded to bfloat16 where they meet stored keys and values."""
        return self.has_scales or self.dtype == "bf16"

    def place(self, layer: int) -> tuple[int, int]:
        """(group index, index of the layer inside the group's page)."""
        for g, group in enumerate(self.groups):
            if layer in group.layers:
                return g, group.layers.index(layer)
        raise KeyError(f"layer {layer} has no KV group")


@dataclass
class Batch:
    """What a step carries. All arrays are C-contiguous; the runner owns and reuses them.

    T tokens of S sequences, packed without padding; sequence s owns tokens query_start[s] .. query_start[s+1].
    `kv_len[s]` counts its tokens after this step's are appended, so token t of s sits at position
    kv_len[s] - (query_start[s+1] - t). `positions` are what RoPE sees (P = 3 for mrope). Not served yet, hence refused by
    `check_batch` where present: `embeds`, `adapter_slots`, `attention_modes` other than causal, `taps`, `state_slots`.
    """

    token_ids: I32  # [T]
    positions: I32  # [P, T]
    query_start: I32  # [S + 1]
    kv_len: I32  # [S]
    token_seq: I32  # [T] the sequence of each token
    block_tables: Sequence[I32]  # per group [S, max_blocks], page ids; 0 = the null page
    logits_rows: I32  # [R] token indices whose logits are wanted, ascending
    embeds: F32 | None = None  # [T, hidden], instead of token_ids
    token_types: I32 | None = None  # [T] segment ids of encoders
    adapter_slots: I32 | None = None  # [S], -1 = none
    attention_modes: Sequence[str] | None = None  # per sequence: causal, bidirectional, tree
    state_slots: I32 | None = None  # [S]
    taps: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.shape[0])

    @property
    def num_seqs(self) -> int:
        return int(self.kv_len.shape[0])


@dataclass
class SampleBatch:
    """Sampling rows, one per logits row. CSR pairs (`*_start` [R+1]) hold per-row lists sorted by token id.

    Order of work (docs/numerics.md, "Sampling"): allowed mask, banned ids, logit bias, repetition, presence and frequency
    penalties; temperature; top-k; typical-p; top-p; min-p; Gumbel-max. temperature 0 is greedy.
    """

    temperature: F32
    top_k: I32  # 0 = off
    top_p: F32  # 1 = off
    min_p: F32  # 0 = off
    typical_p: F32  # 1 = off
    presence: F32
    frequency: F32
    repetition: F32  # 1 = off
    seed: NDArray[np.uint64]
    choice: NDArray[np.uint32]
    position: NDArray[np.int64]  # absolute position of the token being drawn
    num_logprobs: I32  # -1 = none, else how many best beside the chosen
    count_start: I32  # [R + 1]
    count_ids: I32  # tokens seen so far in prompt or output
    count_output: I32  # times in the output (0 = only in the prompt)
    bias_start: I32
    bias_ids: I32
    bias_values: F32
    banned_start: I32
    banned_ids: I32
    mask_row: I32  # [R] row of `masks`, -1 = all allowed
    masks: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, 0), np.uint32))  # [.., ceil(V / 32)]
    raw_logprobs: bool = True  # log-softmax of the logits before penalties and filters


@dataclass
class SampleResult:
    """ids [R]; logprob [R] of the chosen (NaN where not asked); ranks [R] from 1; best ids and logprobs [R, K] (-1 padded)."""

    ids: I32
    logprobs: F32
    ranks: I32
    best_ids: I32
    best_logprobs: F32


@dataclass(frozen=True)
class Variant:
    """One implementation of an op: what `doctor` and the tests name. `reason` says why it cannot run here ('' = it can)."""

    op: str
    name: str
    level: str
    reason: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

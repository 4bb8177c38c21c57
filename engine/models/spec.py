"""What a dense decoder is, as data: everything that `Decoder.forward` branches on, and nothing else.

A family file turns a checkpoint's own description (config.json or GGUF metadata) into a `DecoderSpec`; no field names a
family. Invariants: `len(layers) >= 1`; head counts divide; a layer's `window` counts visible tokens, the query's own
included, and 0 means all. Scales are Python floats that a platform rounds to float32 once. Sizes are in elements,
positions in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from octavo.engine.errors import ModelError
from octavo.platforms.types import Activation, GroupKind, KVDtype, KVGroup, KVSpec, Rope

NormKind = Literal["rms", "layer"]
QKNorm = Literal["none", "head", "width"]


@dataclass(frozen=True)
class LayerSpec:
    """What differs from layer to layer. `rope` None: the layer does not rotate (NoPE, learned positions)."""

    rope: Rope | None
    scale: float  # of attention scores
    window: int = 0


@dataclass(frozen=True)
class DecoderSpec:
    """A decoder-only transformer. See the module docstring for units."""

    family: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int  # tokens a sequence may have: the model's limit or the caller's smaller one
    layers: tuple[LayerSpec, ...]

    norm: NormKind = "rms"
    norm_eps: float = 1e-6
    norm_add: float = 0.0  # added to every stored norm weight (Gemma stores w - 1)
    has_pre_norm: bool = True  # before attention and before the MLP
    has_post_norm: bool = False  # on the output of both, before the residual sum
    qk_norm: QKNorm = "none"  # per head, or over the whole projected width

    has_qkv_bias: bool = False
    has_o_bias: bool = False
    has_mlp_bias: bool = False
    has_head_bias: bool = False
    is_tied: bool = False  # the head's weight is the token table

    activation: Activation = "silu"
    is_gated: bool = True  # down(act(gate x) * up x), else down(act(up x))
    num_learned_positions: int = 0
    is_bidirectional: bool = False  # an embedder made of a decoder: tokens see what lies behind them, too

    attn_softcap: float = 0.0
    final_softcap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of both branches, before the residual sum
    logits_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_positions"):
            if getattr(self, name) < 1:
                raise ModelError(f"{self.family}: {name} is {getattr(self, name)}; it must be at least 1")
        if self.norm_eps < 0:
            raise ModelError(f"{self.family}: norm_eps is {self.norm_eps}; it must be 0 or more")
        if not self.layers:
            raise ModelError(f"{self.family}: the model has no layers")
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.family}: {self.heads} heads cannot share {self.kv_heads} key-value heads evenly")
        for index, layer in enumerate(self.layers):
            turned = layer.rope.rotary_dim if layer.rope is not None else None
            if turned is not None and (turned % 2 or not 0 < turned <= self.head_dim):
                raise ModelError(
                    f"{self.family}: layer {index} rotates {turned} of {self.head_dim} values per head; allowed are even "
                    f"numbers from 2 to {self.head_dim}"
                )

    @property
    def position_offset(self) -> int:
        """A sequence's first position."""
        return 0

    def kv_spec(self, dtype: str, block_tokens: int = 32) -> KVSpec:
        """The paged memory this model needs: full and sliding groups of equal layer counts (the last may be padded)."""
        if dtype not in get_args(KVDtype):
            raise ModelError(f"keys and values cannot be kept as {dtype!r}; allowed are {', '.join(get_args(KVDtype))}")
        kinds: dict[int, list[int]] = {}
        for index, layer in enumerate(self.layers):
            kinds.setdefault(layer.window, []).append(index)
        size = group_size([len(layers) for layers in kinds.values()])
        groups: list[KVGroup] = []
        for window, layers in sorted(kinds.items()):
            kind = GroupKind.SLIDING if window else GroupKind.FULL
            groups += [
                KVGroup(kind, tuple(layers[start : start + size]), window) for start in range(0, len(layers), size)
            ]
        return KVSpec(tuple(groups), self.kv_heads, self.head_dim, cast(KVDtype, dtype), block_tokens)


def group_size(counts: Sequence[int]) -> int:
    """Layers per KV group for kinds with `counts` layers: fewest padded layers, a group counted as 1 % of the memory.

    20 full and 30 sliding give 10; 3 and 15 give 3; 5 and 29 give 5 (one padded layer instead of 34 groups).
    """

    def cost(size: int) -> float:
        groups = sum(-(-count // size) for count in counts)
        return groups * size * (1 + 0.01 * groups)

    return min(range(1, max(counts) + 1), key=lambda size: (cost(size), -size))

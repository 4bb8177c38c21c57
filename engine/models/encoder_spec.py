"""What an encoder is, as data: everything that `Encoder.forward` branches on, and nothing else.

A family file turns config.json into an `EncoderSpec`; no field names a family. Every token of a sequence sees all of it, or
what is at most `window` tokens away in either direction. Invariants: `len(layers) >= 1`; one head of keys per head of queries;
a token's position counts from its sequence's start, plus `position_offset` where tables have rows in front. Sizes are in
elements, positions in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.models.disentangled import Disentangled
from octavo.platforms.types import I32, Activation, KVSpec, Rope


@dataclass(frozen=True)
class EncoderLayerSpec:
    """What differs from layer to layer. `rope` None: the layer does not rotate. `window` w sees |i - j| <= w, 0 all."""

    rope: Rope | None = None
    window: int = 0
    has_pre_attn_norm: bool = True  # of the layers whose norms come first


@dataclass(frozen=True)
class EncoderSpec:
    """A bidirectional transformer. See the module docstring for units."""

    family: str
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int  # tokens a sequence may have, special ones included
    scale: float  # of attention scores
    layers: tuple[EncoderLayerSpec, ...]

    norm_place: Literal["post", "pre"] = "post"  # norm(x + branch(x)), or x + branch(norm(x)) and one norm at the end
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-12
    has_norm_bias: bool = True
    has_embedding_norm: bool = True
    token_width: int = (
        0  # of the tables of tokens, positions and types, where it is not `hidden`: then they are projected
    )

    num_learned_positions: int = 0  # rows of the table; 0: there is none
    position_offset: int = 0
    position_pad_id: int | None = None  # such a token stays at the position before the first and does not count
    num_token_types: int = 0  # rows of the table; 0: there is none
    num_buckets: int = 0  # of relative positions with a learned bias per head; 0: there are none
    bucket_reach: int = 0  # distance from which on all are in the last bucket
    disentangled: Disentangled | None = None  # terms of scores by distance
    alibi: tuple[float, ...] = ()  # a slope per head: scores + slope * -|i - j|

    activation: Activation = "gelu"
    is_gated: bool = False  # down(act(gate x) * up x), else down(act(up x))
    has_qkv_bias: bool = True
    has_qk_norm: bool = False  # of the whole width of q and k, before rotation
    has_o_bias: bool = True
    has_up_bias: bool = True  # of gate and up
    has_down_bias: bool = True

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "head_dim", "ffn", "vocab", "max_positions"):
            if getattr(self, name) < 1:
                raise ModelError(f"{self.family}: {name} is {getattr(self, name)}; it must be at least 1")
        if self.norm_eps < 0:
            raise ModelError(f"{self.family}: norm_eps is {self.norm_eps}; it must be 0 or more")
        if not self.layers:
            raise ModelError(f"{self.family}: the model has no layers")
        if self.disentangled and (self.alibi or self.num_buckets or any(layer.window for layer in self.layers)):
            raise ModelError(f"{self.family}: terms of distances go with no slopes, biases or windows")
        if self.alibi and len(self.alibi) != self.heads:
            raise ModelError(f"{self.family}: {len(self.alibi)} slopes were given for {self.heads} heads")
        if self.num_learned_positions and self.num_learned_positions < self.max_positions + self.position_offset:
            raise ModelError(
                f"{self.family}: {self.max_positions} tokens from position {self.position_offset} on do not fit a table of "
                f"{self.num_learned_positions} positions"
            )
        for index, layer in enumerate(self.layers):
            turned = layer.rope.rotary_dim if layer.rope is not None else None
            if turned is not None and (turned % 2 or not 0 < turned <= self.head_dim):
                raise ModelError(
                    f"{self.family}: layer {index} rotates {turned} of {self.head_dim} values per head; allowed are even "
                    f"numbers from 2 to {self.head_dim}"
                )

    def positions(self, ids: Sequence[int] | I32) -> I32:
        """The position of every token of one sequence, int32 [n]."""
        if self.position_pad_id is None:
            return np.arange(self.position_offset, self.position_offset + len(ids), dtype=np.int32)
        is_text = np.asarray(ids, np.int32) != self.position_pad_id
        places: I32 = np.where(is_text, np.cumsum(is_text, dtype=np.int32), 0).astype(np.int32)
        places += np.int32(self.position_offset - 1)
        return places


#: encoders keep no keys and values: no layer has pages
NO_PAGES = KVSpec(groups=(), num_kv_heads=1, head_dim=1, dtype="f32")


def layer_window(window: int, max_positions: int) -> int:
    """A window as `EncoderLayerSpec` wants it: 0 when every token of a sequence is visible anyway."""
    return window if 0 < window < max_positions - 1 else 0

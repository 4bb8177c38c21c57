"""What pooling needs of a model of texts: hidden states of packed sequences. An `Encoder` is one, and a `BareDecoder`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.engine.models.heads import Head
from octavo.platforms.ops import Ops
from octavo.platforms.types import Array, Batch, KVSpec


class TextSpec(Protocol):
    """Sizes in elements; `max_positions` tokens a text may have, whose positions begin at `position_offset`."""

    @property
    def hidden(self) -> int: ...

    @property
    def vocab(self) -> int: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def position_offset(self) -> int: ...


class TextEncoder(Protocol):
    """A model ready to run. `grown_bytes`: by which its weights are larger than what the checkpoint stores."""

    @property
    def spec(self) -> TextSpec: ...

    @property
    def grown_bytes(self) -> int: ...

    @property
    def head(self) -> Head | None:
        """What makes scores of hidden states, where it was asked for."""
        ...

    def kv_spec(self, dtype: str = "f32", block_tokens: int = 32) -> KVSpec:
        """No layer keeps keys and values."""
        ...

    def formats(self) -> list[str]:
        """Formats of the linear weights as they run, sorted."""
        ...

    def forward(self, ops: Ops, batch: object) -> Array:
        """Hidden states [R, hidden] of the batch's `logits_rows`."""
        ...

    def hidden(self, ops: Ops) -> Array:
        """Hidden states [T, hidden] of every token, behind the last norm."""
        ...

    def batch(
        self,
        sequences: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
        unseen: Sequence[int] | None = None,
    ) -> Batch:
        """One step over whole sequences of token ids, packed; `types` are their segment ids, where the model has some; `unseen`:
        how many tokens at the end of each see the others and are not seen."""
        ...

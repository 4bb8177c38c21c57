"""What an encoder gives beside one vector per text, as data: weights of a vocabulary's entries, and a vector per token.

"sparse": weights by entry, by a masked head (SPLADE: Formal et al. 2021) or a linear layer over each token (bge-m3: Chen et al.
2024).
"multi_vector": a vector per token, compared by the sum over a query's vectors of the largest product with one of a document's
(ColBERT: Khattab & Zaharia 2020). Lengths are in tokens, special ones and markers included.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Output = Literal["dense", "sparse", "multi_vector"]
OUTPUTS: tuple[Output, ...] = get_args(Output)
Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Splade:
    """log(1 + relu(score)) of every entry of the vocabulary, the largest or the sum over a text's tokens. `is_doubled`: the
    logarithm is taken twice."""

    pooling: Literal["max", "sum"] = "max"
    is_doubled: bool = False


@dataclass(frozen=True)
class Expansion:
    """Queries shorter than `length` get `token` (None: the mask token) up to there. `attends`: whether other tokens see those.
    `is_fixed`: longer queries are too long."""

    length: int
    attends: bool = False
    token: str | None = None
    is_fixed: bool = True


@dataclass(frozen=True)
class Late:
    """Vectors of tokens. `has_head`: a linear layer of the checkpoint itself makes them; else the pipeline's `dense` layers do.

    `skips_first`: the first token gives none. Documents' tokens spelled as one of `skip_words` give none in `skip_roles`.
    """

    has_head: bool = False
    normalizes: bool = True
    skips_first: bool = False
    prefixes: tuple[tuple[Role, str], ...] = ()
    lengths: tuple[tuple[Role, int], ...] = ()
    expansion: Expansion | None = None
    skip_words: tuple[str, ...] = ()
    skip_roles: tuple[Role, ...] = ("document",)

    @property
    def has_roles(self) -> bool:
        """Whether queries and documents are treated differently."""
        return bool(self.prefixes or self.lengths or self.expansion or self.skip_words)


@dataclass(frozen=True)
class Joined:
    """Files of bge-m3's linear layers beside the encoder: weights of tokens, and vectors of tokens."""

    sparse: Path | None = None
    multi_vector: Path | None = None

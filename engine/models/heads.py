"""Heads: what checkpoints trained for a task compute from an encoder's hidden states, as data and as weights.

All have one form, norm(act(dense(x))) and then `out`, of which the first three may be missing. "masked": scores of every entry of
the vocabulary, per token; "token": scores of labels, per token; "sequence": scores of labels, of a sequence's first or last
token or of the mean of its tokens; "vectors": a vector per token, as ColBERT makes them. Tensors have the roles `{kind}_dense`,
`{kind}_norm` and `{kind}_out` of the family's `Names`; `masked_decoder` is the name of a masked head's matrix where it is not the
token table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from octavo.engine.layers.norm import Norm
from octavo.engine.models.head_kinds import HeadKind
from octavo.engine.models.reader import Description
from octavo.platforms.ops import Ops
from octavo.platforms.types import Activation, Array, LinearWeight

_MAX_LABELS = 1 << 20


@dataclass(frozen=True)
class HeadSpec:
    """`num_out` scores (0: as many as the last layer has outputs). `activation` and `norm_eps` None: there is no dense layer, or
    no norm, in front of the last layer."""

    kind: HeadKind
    num_out: int
    labels: tuple[str, ...] = ()  # of classifications
    pooling: Literal["cls", "mean", "last"] = "cls"  # of a sequence
    activation: Activation | None = None
    has_dense_bias: bool = True
    norm_eps: float | None = None
    has_norm_bias: bool = True
    has_out_bias: bool = True
    is_tied: bool = False  # the last layer's matrix is the token table
    rows: tuple[
        int, ...
    ] = ()  # of a decoder's own head: the score is the first one's logit, less the second's if there is one
    cap: float = 0.0  # of those logits: cap * tanh(logit / cap); 0: none
    scale: float = 1.0  # by which they are multiplied before


@dataclass(frozen=True)
class Head:
    """A head's weights in a platform's memory."""

    spec: HeadSpec
    dense: LinearWeight | None
    norm: Norm | None
    out: LinearWeight

    def __call__(self, ops: Ops, x: Array) -> Array:
        """Scores [rows, num_out] of hidden states [rows, hidden]."""
        if self.dense is not None:
            x = ops.linear(x, self.dense, activation=self.spec.activation or "none")
        if self.norm is not None:
            x = self.norm(ops, x)
        return ops.linear(x, self.out)


def classification(cfg: Description, kind: HeadKind, **more: Any) -> HeadSpec:
    """The head of a classification: labels as config.json names them, else LABEL_0 and so on, two where it says nothing."""
    listed = cfg.get("id2label")
    if listed is None:
        count = cfg.whole("num_labels", 2)
        if not 1 <= count <= _MAX_LABELS:
            raise cfg.bad("num_labels", count, f"1 to {_MAX_LABELS}")
        return HeadSpec(kind, count, tuple(f"LABEL_{i}" for i in range(count)), **more)
    if not isinstance(listed, Mapping) or not 0 < len(listed) <= _MAX_LABELS:
        raise cfg.bad("id2label", listed, f"names of 1 to {_MAX_LABELS} labels by number")
    named = {str(number): name for number, name in listed.items()}
    numbers = [str(i) for i in range(len(named))]
    if set(named) != set(numbers):
        raise cfg.bad("id2label", listed, f"names of labels by the numbers 0 to {len(named) - 1}")
    return HeadSpec(kind, len(named), tuple(str(named[number]) for number in numbers), **more)

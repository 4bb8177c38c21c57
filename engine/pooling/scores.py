"""Scores of a classification: steps over items, and what raw scores become on the host, in float32 with the bits of any chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.models.heads import HeadSpec
from octavo.engine.pooling.head_runner import HeadRunner
from octavo.engine.pooling.opened import Opened
from octavo.platforms import elementwise
from octavo.platforms.types import F32

ScoreActivation = Literal["none", "sigmoid", "softmax", "tanh", "relu", "gelu", "silu"]
SCORE_ACTIVATIONS: tuple[ScoreActivation, ...] = get_args(ScoreActivation)


def activated(scores: F32, activation: str) -> F32:
    """What scores [..., labels] become; softmax is over the labels, whose exponentials are added in order."""
    return _FUNCTIONS[activation](scores)


def _softmax(scores: F32) -> F32:
    powers = elementwise.exp(scores - scores.max(axis=-1, keepdims=True))
    return elementwise.div(powers, np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:])


_FUNCTIONS: dict[str, Callable[[F32], F32]] = {
    "none": lambda scores: scores,
    "sigmoid": elementwise.sigmoid,
    "softmax": _softmax,
    "tanh": elementwise.tanh,
    "relu": lambda scores: np.maximum(scores, np.float32(0)),
    "gelu": elementwise.gelu,
    "silu": elementwise.silu,
}


def label_activation(config: Mapping[str, Any], num_labels: int) -> ScoreActivation:
    """What scores of labels become by default: one distribution over them, unless config.json's `problem_type` says that each
    stands by itself (multi_label_classification) or is a number (regression)."""
    problem = config.get("problem_type")
    known = (None, "regression", "single_label_classification", "multi_label_classification")
    if problem not in known:
        raise ModelError(
            f"config.json: problem_type is {problem!r}; it must be one of {', '.join(map(str, known[1:]))}"
        )
    if problem == "regression":
        return "none"
    return "sigmoid" if problem == "multi_label_classification" or num_labels == 1 else "softmax"


def compared(logits: F32, spec: HeadSpec) -> F32:
    """[texts, 1]: logits [texts, 1 or 2] of words, scaled and capped as the generator's are; the first less the second."""
    if spec.scale != 1.0:
        logits = logits * np.float32(spec.scale)
    if spec.cap:
        cap = np.float32(spec.cap)
        logits = elementwise.tanh(logits / cap) * cap
    return logits[:, :1] - logits[:, 1:] if logits.shape[1] == 2 else logits


class ScoreRunner:
    """Raw scores of a model that was opened with its head."""

    def __init__(self, opened: Opened) -> None:
        head = opened.encoder.head
        if head is None:
            raise ModelError(f"{opened.name} was opened without its head")
        self.spec = head.spec
        self._runner = HeadRunner(
            opened.platform,
            opened.encoder,
            head,
            pooling=head.spec.pooling if head.spec.kind == "sequence" else "",
            max_tokens=opened.max_batch_tokens,
            max_seqs=opened.max_num_seqs,
        )

    def scores(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int] | None]) -> list[F32 | None]:
        """Of each text of one step float32 [labels], or of token classification [tokens, labels]; None for what is not finite.
        `types` None: all 0."""
        segments = [[0] * len(ids) if own is None else own for ids, own in zip(texts, types, strict=True)]
        if self.spec.rows:
            found = list(compared(self._runner.of_sequences(texts, segments), self.spec))
        elif self.spec.kind == "sequence":
            found = list(self._runner.of_sequences(texts, segments))
        else:
            parts: list[list[F32]] = [[] for _ in texts]
            for place, rows in self._runner.of_tokens(texts, segments):
                parts[place].append(np.array(rows))
            found = [np.concatenate(some) for some in parts]
        return [values if np.isfinite(values).all() else None for values in found]

    def scratch_bytes(self) -> int:
        """Of the work area of a step."""
        return self._runner.scratch_bytes()

    def close(self) -> None:
        """Lets go of the program."""
        self._runner.close()

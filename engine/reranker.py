"""How well documents answer a query, by a model that reads both at once, in the caller's process: a cross-encoder, or a generator
that is asked whether a document fits.

reranker = octavo.Reranker("./model")
best = reranker.rank("a question", ["a text", "another"], top_n=1)     # [Ranked(index=1, score=0.98, ...)]

Invariants: a score depends on its own pair and options alone, not on the documents beside it, their order, threads or the kernel
level; the order of equal scores is that of the documents; a document without score costs only itself. One thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from octavo.engine.classifier import Classifier
from octavo.engine.errors import ModelError, RequestError
from octavo.engine.loading.source import Progress
from octavo.engine.pooling.options import encoder_config
from octavo.engine.pooling.pairs import PairTruncation
from octavo.engine.pooling.prompt_pairs import refuse_instruction
from octavo.engine.pooling.scores import SCORE_ACTIVATIONS, ScoreActivation, activated
from octavo.platforms.types import F32


@dataclass(frozen=True)
class Score:
    """One pair's score; None where `error` says why there is none. `num_tokens` and `truncated_from` as of `Embedding`."""

    score: float | None
    num_tokens: int = 0
    truncated_from: int = 0
    error: str = ""


@dataclass(frozen=True)
class Ranked:
    """A document's score and its place in the list that was given."""

    index: int
    score: float | None
    num_tokens: int = 0
    truncated_from: int = 0
    error: str = ""


class Reranker:
    """A model of one score for a pair. `model` and the options are those of `Embedder`."""

    def __init__(self, model: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
        encoder_config(model, options, "Reranker")
        self._classifier = found = Classifier(model, progress=progress, **options)
        if found.is_per_token or len(found.labels) != 1:
            what = "for every token" if found.is_per_token else f"of {', '.join(found.labels)}"
            found.close()
            raise ModelError(f"{found.name} gives scores {what}, and a reranker one for a pair; use octavo.Classifier")
        self.platform = found.platform
        self.tokenizer = found.tokenizer
        self.max_tokens = found.max_tokens
        self.pairs = found.pairs
        #: what raw scores become unless a call says otherwise: the model's own choice, as sentence-transformers reads it
        self.activation: ScoreActivation = cast("ScoreActivation", found.pipeline.activation)

    @property
    def prompts(self) -> dict[str, str]:
        """Texts that `prompt_name` puts before a query."""
        return self._classifier.prompts

    def score(self, pairs: Sequence[Sequence[str]], **how: Any) -> F32:
        """float32 [n] of pairs (query, document), in their order. RequestError names the first that has no score; see
        `score_each` for the options."""
        found = self.score_each(pairs, **how)
        for index, item in enumerate(found):
            if item.score is None:
                raise RequestError(f"pair {index}: {item.error}", param="pairs")
        return np.array([item.score for item in found], np.float32)

    def score_each(
        self,
        pairs: Sequence[Sequence[str]],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        instruction: str | None = None,
        truncate: PairTruncation = "error",
        activation: ScoreActivation | None = None,
    ) -> list[Score]:
        """One `Score` per pair (query, document); a pair without one says why.

        `truncate`: what becomes of a pair beyond `max_tokens`: an error, or it loses tokens of the longer text until both are
        even (longest_first), or of the document alone (only_second). `activation` (default: `self.activation`): what raw scores
        become; none leaves them. `prompt_name`, `prompt`: what goes before the query. `instruction`: of models that are asked
        whether a document fits, what that means (default: their own); prompts are their instructions. RequestError for options
        that cannot be.
        """
        how = self.activation if activation is None else activation
        if how not in SCORE_ACTIVATIONS or how == "softmax":
            known = ", ".join(name for name in SCORE_ACTIVATIONS if name != "softmax")
            raise RequestError(f"activation is {how!r}; it must be one of {known}", param="activation")
        if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Sequence):
            raise RequestError(f"pairs are {type(pairs).__name__}; give a list of pairs of texts", param="pairs")
        if instruction is not None:
            refuse_instruction(self.pairs, prompt_name if prompt is None else prompt)
            prompt = instruction
        items = self.pairs.items(pairs, self._classifier.texts.prompt(prompt_name, prompt), truncate)
        found = []
        for item in self._classifier.scored(items):
            score = None if item.scores is None else float(activated(item.scores, how)[0])
            found.append(Score(score, item.num_tokens, item.truncated_from, item.error))
        return found

    def rank(self, query: str, documents: Sequence[str], *, top_n: int | None = None, **how: Any) -> list[Ranked]:
        """The `top_n` best documents (None: all), from high scores to low ones, equal ones as they were given. Documents without
        a score follow, whatever `top_n` is, so that none is lost unseen. See `score_each` for the options."""
        if top_n is not None and (isinstance(top_n, bool) or not isinstance(top_n, int) or top_n < 1):
            raise RequestError(f"top_n is {top_n!r}; it must be 1 or more", param="top_n")
        if isinstance(documents, (str, bytes)) or not isinstance(documents, Sequence) or not documents:
            raise RequestError("documents must be a list of one text or more", param="documents")
        if not isinstance(query, str) or not query:
            raise RequestError("query must be a text with something in it", param="query")
        return ranked(self.score_each([(query, document) for document in documents], **how), top_n)

    def close(self) -> None:
        """Lets go of the work area and the device; the object scores nothing afterwards."""
        self._classifier.close()


def ranked(scores: Sequence[Score], top_n: int | None = None) -> list[Ranked]:
    """Scores from high to low, equal ones in order, cut to `top_n`; then those that there are not."""
    every = [
        Ranked(place, found.score, found.num_tokens, found.truncated_from, found.error)
        for place, found in enumerate(scores)
    ]
    good = sorted((one for one in every if one.score is not None), key=lambda one: -cast("float", one.score))
    return [*good[:top_n], *(one for one in every if one.score is None)]

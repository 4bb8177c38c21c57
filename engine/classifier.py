"""Scores of labels for texts and pairs of texts, in the caller's process.

classifier = octavo.Classifier("./model")
scores = classifier.classify(["a text", ("a premise", "a hypothesis")])      # float32 [2, labels]
classifier.labels                                                           # what each stands for

Invariants: those of `embedder`: a score depends on its own text and options alone, an item that has none fails by itself. One
thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from octavo.engine.errors import RequestError
from octavo.engine.loading.config import open_model
from octavo.engine.loading.source import Progress
from octavo.engine.model_text import text_of
from octavo.engine.pooling.opened import open_encoder
from octavo.engine.pooling.options import encoder_config
from octavo.engine.pooling.pairs import PAIR_TRUNCATIONS, PairTruncation, has_segments
from octavo.engine.pooling.prompt_pairs import PairTexts, pairs_of
from octavo.engine.pooling.runner import NOT_FINITE
from octavo.engine.pooling.scores import SCORE_ACTIVATIONS, ScoreActivation, ScoreRunner, activated, label_activation
from octavo.engine.pooling.texts import TRUNCATIONS, Item, Texts, Truncation, steps
from octavo.platforms.types import F32

Input = str | Sequence[int] | Sequence[str]  # a text, its token ids, or a pair of texts


@dataclass(frozen=True)
class Classification:
    """One item's scores: float32 [labels], or [tokens, labels] where every token has its own, `ids` being the tokens; None where
    `error` says why there are none. `num_tokens` and `truncated_from` as of `Embedding`."""

    scores: F32 | None
    num_tokens: int = 0
    truncated_from: int = 0
    error: str = ""
    ids: tuple[int, ...] = ()


class Classifier:
    """A model with a classification head. `model` and the options are those of `Embedder`."""

    def __init__(self, model: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
        config = encoder_config(model, options, type(self).__name__)
        opened = open_encoder(config, progress=progress, needs_tokenizer=config.tokenizer is None, with_head=True)
        try:
            text_files = opened.files if config.tokenizer is None else open_model(config.tokenizer)
            self._text = text_of(text_files)
        finally:
            opened.files.checkpoint.close()
        self.tokenizer = self._text.tokenizer
        self._has_segments = has_segments(text_files.tokenizer_config)
        self.name = opened.name
        self.platform = opened.platform
        self.pipeline = opened.pipeline
        self.max_tokens = self.pipeline.max_tokens
        self.texts = Texts(self.tokenizer, self.pipeline, opened.encoder.spec.vocab)
        self.max_batch_tokens = opened.shared_tokens
        self.max_num_seqs = opened.max_num_seqs
        self._runner = ScoreRunner(opened)
        self.labels = self._runner.spec.labels
        self.is_per_token = self._runner.spec.kind == "token"
        self.activation = label_activation(opened.files.config, len(self.labels))

    @cached_property
    def pairs(self) -> PairTexts:
        """The text side of pairs. ModelError if their special tokens leave no room."""
        asked = self.pipeline.question
        style, options = ("", {}) if asked is None else (asked.style, asked.options)
        return pairs_of(style, self._text, self.pipeline, has_segments=self._has_segments, options=options)

    @property
    def prompts(self) -> dict[str, str]:
        """Texts that `prompt_name` puts before a text, or before the first of a pair."""
        return dict(self.pipeline.prompts)

    def classify(self, items: Input | Sequence[Input], **how: Any) -> F32:
        """float32 [n, labels], in the order of the items. RequestError names the first that has none, and refuses models that
        score tokens, of which items have different numbers; see `classify_each` for the options."""
        if self.is_per_token:
            raise RequestError("this model gives scores for every token; use classify_each")
        found = self.classify_each(items, **how)
        scores = np.zeros((len(found), len(self.labels)), np.float32)
        for index, item in enumerate(found):
            if item.scores is None:
                raise RequestError(f"item {index}: {item.error}", param="items")
            scores[index] = item.scores
        return scores

    def classify_each(
        self,
        items: Input | Sequence[Input],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate: Truncation | PairTruncation = "error",
        activation: ScoreActivation | None = None,
    ) -> list[Classification]:
        """One `Classification` per item: a text, a list of token ids, or a pair (tuple or list) of two texts.

        `truncate`: what becomes of an item beyond `max_tokens`: an error, or what it loses: texts their start or end, pairs
        longest_first or only_second. `activation` (default: `self.activation`): what raw scores become. `prompt_name`, `prompt`
        as of `Embedder`. RequestError for options that cannot be.
        """
        how = self.activation if activation is None else activation
        if how not in SCORE_ACTIVATIONS:
            raise RequestError(
                f"activation is {how!r}; it must be one of {', '.join(SCORE_ACTIVATIONS)}", param="activation"
            )
        allowed = tuple(dict.fromkeys((*TRUNCATIONS, *PAIR_TRUNCATIONS)))
        if truncate not in allowed:
            raise RequestError(f"truncate is {truncate!r}; it must be one of {', '.join(allowed)}", param="truncate")
        entered = self._entered(listed(items), self.texts.prompt(prompt_name, prompt), truncate)
        return [
            found if found.scores is None else replace(found, scores=activated(found.scores, how))
            for found in self.scored(entered)
        ]

    def scored(self, items: Sequence[Item]) -> list[Classification]:
        """Raw scores of items that are tokens already."""
        found = [Classification(None, error=item.error) for item in items]
        for places in steps(items, self.max_batch_tokens, self.max_num_seqs):
            step = [items[place] for place in places]
            values = self._runner.scores([item.ids for item in step], [item.types for item in step])
            for place, item, scores in zip(places, step, values, strict=True):
                ids = tuple(item.ids) if self.is_per_token else ()
                error = NOT_FINITE if scores is None else ""
                found[place] = Classification(scores, len(item.ids), item.truncated_from, error, ids)
        return found

    def close(self) -> None:
        """Lets go of the work area and the device; the object scores nothing afterwards."""
        self._runner.close()
        self.platform.close()

    def _entered(self, items: list[object], prompt: str, truncate: str) -> list[Item]:
        """Tokens of texts, ids and pairs, each where it was."""
        found: list[Item] = [Item([])] * len(items)
        is_pair = [_is_pair(item) for item in items]
        places = [place for place, has_two in enumerate(is_pair) if has_two]
        if places and truncate not in PAIR_TRUNCATIONS:
            raise RequestError(
                f"truncate is {truncate!r}, and item {places[0]} is a pair; pairs lose {' or '.join(PAIR_TRUNCATIONS[1:])}",
                param="truncate",
            )
        if len(places) < len(items) and truncate not in TRUNCATIONS:
            raise RequestError(
                f"truncate is {truncate!r}, and item {is_pair.index(False)} is no pair; texts lose their "
                f"{' or '.join(TRUNCATIONS[1:])}",
                param="truncate",
            )
        if places:
            pairs = self.pairs.items([items[place] for place in places], prompt, cast("PairTruncation", truncate))
            for place, pair in zip(places, pairs, strict=True):
                found[place] = pair
        for place, text in enumerate(items):
            if not is_pair[place]:
                found[place] = self.texts.item(text, prompt, cast("Truncation", truncate))
        return found


def listed(items: object) -> list[object]:
    """The items of a call: several, or one text, list of token ids or tuple of two texts."""
    if isinstance(items, str) or (isinstance(items, tuple) and _is_pair(items)):
        return [items]
    if not isinstance(items, Sequence) or isinstance(items, bytes):
        raise RequestError(
            f"items are {type(items).__name__}; give text, token ids, a pair of texts, or a list of these",
            param="items",
        )
    is_one = len(items) > 0 and isinstance(items[0], (int, np.integer))
    return [items] if is_one else list(items)


def _is_pair(item: object) -> bool:
    return isinstance(item, (tuple, list)) and bool(item) and isinstance(item[0], str)

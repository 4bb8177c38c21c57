"""What the handlers share: settings, the engine and its text once they are there, metrics, and the gate.

The HTTP side is up before the model is: until `attach` was called everything that needs the model answers 503 and
`/ready` says no, while `/live` already says yes. The gate bounds how many choices are in the server at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from octavo.engine.errors import EngineDeadError, OverloadedError, ShuttingDownError
from octavo.engine.server.bounds import Bounds, StreamLimits
from octavo.engine.server.engine_api import Engine
from octavo.engine.server.held import Held
from octavo.engine.server.http import HttpError, bad_request, unavailable
from octavo.engine.server.metrics import Metrics
from octavo.engine.server.prompts import Prompts

if TYPE_CHECKING:
    from octavo.engine.errors import OctavoError
    from octavo.engine.messages import PoolingInfo
    from octavo.engine.model_text import ModelText
    from octavo.engine.pooling.late import OutputTexts
    from octavo.engine.pooling.prompt_pairs import PairTexts
    from octavo.engine.pooling.texts import Texts


#: a model's first task -> what it is, and what it answers
_KINDS = {
    "generate": "a model that generates text; use /v1/chat/completions or /v1/completions",
    "embed": "an embedding model; use /v1/embeddings",
    "sparse": "a model of sparse vectors; use /embed_sparse or /pooling",
    "token_embed": "a model that gives a vector per token; use /pooling or /embed_all",
    "score": "a model that scores pairs of texts; use /v1/rerank, /score or /classify",
    "classify": "a classifier; use /classify or /predict",
    "token_classify": "a classifier of tokens; use /pooling",
}


@dataclass(frozen=True)
class Settings:
    """Options of the HTTP side."""

    served_names: tuple[str, ...]  # the first one is shown in answers
    max_running: int = 4096  # choices in the server at once, running and queued
    max_held_tokens: int = 1 << 20  # of inputs that wait for vectors
    max_held_bytes: int = 256 << 20  # of bodies with such inputs
    allows_dimensions: bool = False  # vectors of models that do not say that they were trained for it may be cut, too
    bounds: Bounds = field(default_factory=Bounds)
    streams: StreamLimits = field(default_factory=StreamLimits)


@dataclass(frozen=True)
class Model:
    """A model that takes requests. `texts`: of one that gives vectors."""

    engine: Engine
    text: ModelText
    prompts: Prompts
    texts: Texts | None = None
    pairs: PairTexts | None = None  # of one that scores them
    entered: OutputTexts | None = None  # of one that gives sparse vectors or a vector per token

    @property
    def pooling(self) -> PoolingInfo:
        """Of one that gives vectors or scores."""
        found = self.engine.info.pooling
        assert found is not None
        return found


class Call(Protocol):
    """Something that runs for a client and can be ended from outside."""

    def end(self, error: OctavoError) -> None: ...


class ServerState:
    """One per model of a server process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.served_names[0])
        self.held = Held(settings.max_held_tokens, settings.max_held_bytes)
        self.created = int(time.time())
        self.is_draining = False
        self.is_warm = False  # a real one-token pass has come through
        self.num_running = 0
        self._model: Model | None = None
        self._runs: set[Call] = set()

    def attach(self, engine: Engine, text: ModelText) -> None:
        """The model is there."""
        texts, pairs, entered, pooling = None, None, None, engine.info.pooling
        if pooling is not None:
            from octavo.engine.pooling.texts import Texts

            allows = self.settings.allows_dimensions
            texts = Texts(text.tokenizer, pooling, engine.info.vocab_size, allows_dimensions=allows)
            if pooling.labels:
                from octavo.engine.pooling.prompt_pairs import pairs_of

                how: dict[str, Any] = {"has_segments": pooling.has_segments, "options": pooling.pair_options}
                pairs = pairs_of(pooling.pair_style, text, pooling, **how)
            if set(pooling.outputs) - {"dense"}:
                from octavo.engine.pooling.late import OutputTexts

                entered = OutputTexts(texts, pooling.late, weighs_tokens=pooling.weighs_tokens)
        self._model = Model(engine, text, Prompts(text, engine.info, self.settings.bounds), texts, pairs, entered)

    def detach(self) -> Engine | None:
        """The model is there no longer; its engine, if there was one."""
        engine = self.engine
        self._model, self.is_warm = None, False
        return engine

    @property
    def engine(self) -> Engine | None:
        """The engine, once there is one."""
        return self._model.engine if self._model is not None else None

    @property
    def is_engine_dead(self) -> bool:
        """True when there was an engine and it is gone."""
        return self._model is not None and not self._model.engine.is_alive

    def model(self) -> Model:
        """The model, or the error that says why it takes nothing now."""
        if self.is_draining:
            raise ShuttingDownError("the server is shutting down; ask another one")
        if self._model is None:
            raise unavailable("the model is still loading; try again in a moment", "loading")
        if not self._model.engine.is_alive:
            raise EngineDeadError("restart the server")
        return self._model

    def generator(self, path: str) -> Model:
        """The model, if it gives tokens; `path` is what was asked for."""
        model = self.model()
        if model.texts is not None:
            raise self._unfit(path, model)
        return model

    def pooler(self, path: str, *tasks: str) -> Model:
        """The model, if it does one of these tasks (none: gives vectors or scores)."""
        model = self.model()
        if model.texts is None or (tasks and not set(tasks) & set(model.pooling.tasks)):
            raise self._unfit(path, model)
        return model

    def _unfit(self, path: str, model: Model) -> HttpError:
        """What the model is instead."""
        tasks = model.pooling.tasks if model.texts is not None else ["generate"]
        name = self.settings.served_names[0]
        return HttpError(400, f"{path}: {name} is {_KINDS[tasks[0]]}", code="unsupported_endpoint")

    def check_name(self, name: str | None) -> None:
        """A 404 for a model that is not served; no name means the only one."""
        if name is not None and name not in self.settings.served_names:
            served = ", ".join(self.settings.served_names)
            message = f"the model {name[:100]!r} is not served here; served: {served}"
            raise HttpError(404, message, param="model", code="model_not_found")

    def check_choices(self, num_choices: int) -> None:
        """A 400 for a call of more answers than the server ever makes at once: a later try would not help."""
        limit = self.settings.max_running
        if num_choices > limit:
            raise bad_request(
                f"the call asks for {num_choices} answers (prompts x n); at most {limit} are made at once here "
                "(--max-running); split it",
                "n",
            )

    @contextmanager
    def admitted(self, num_choices: int) -> Iterator[None]:
        """Holds places for `num_choices`; a 429 when there are not so many left."""
        limit = self.settings.max_running
        if self.num_running + num_choices > limit:
            raise OverloadedError(
                f"{self.num_running} answers are in the making and {num_choices} more were asked for; at most {limit} "
                "are allowed at once; try again later",
                retry_after_s=1.0,
            )
        self.num_running += num_choices
        try:
            yield
        finally:
            self.num_running -= num_choices

    @contextmanager
    def running(self, run: Call) -> Iterator[None]:
        """Knows of a call while it runs. Raises what `model` does: the prompt may have taken long."""
        self.model()
        self._runs.add(run)
        try:
            yield
        finally:
            self._runs.discard(run)

    def end_runs(self) -> None:
        """Ends every call that runs: its client is told that the server is shutting down."""
        for run in self._runs:
            run.end(ShuttingDownError("the server is shutting down and this answer was not finished; ask another one"))

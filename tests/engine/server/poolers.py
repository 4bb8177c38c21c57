"""An engine that gives vectors, in this process: the real core and queue over a scripted task, for tests over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.engine.server.conftest import LiveServer
from tests.engine.server.fakes import FakeEngine

from octavo.engine.client import ItemFlow
from octavo.engine.errors import EngineDeadError
from octavo.engine.messages import AddItems, ItemOptions, ItemOutput, PoolingInfo
from octavo.engine.pooling.core import Outcome, PoolingCore
from octavo.engine.pooling.fair import Work
from octavo.engine.pooling.scores import activated
from octavo.engine.pooling.vectors import cut, normalized

PROMPTS = {"query": "Q: ", "document": "", "instructed": "Instruct: find it\nQuery: "}
POOLING = PoolingInfo(["embed"], 4, 32, prompts=PROMPTS, modes=["mean"], dims=(2,))
RANKING = PoolingInfo(
    ["score", "classify"], 1, 32, prompts={"query": "Q: "}, labels=["LABEL_0"], pair_activation="sigmoid"
)
LABELS = PoolingInfo(["classify"], 3, 32, labels=["no", "maybe", "yes"], label_activation="softmax")


def lengths(item: Work) -> list[float]:
    """The default vector of an item: its number of tokens, its first and last token, its prompt's tokens."""
    return [len(item.ids), item.ids[0], item.ids[-1], item.num_prompt]


class ScriptedTask:
    """`vector` makes an item's values; a step takes `step_s`; `steps` has the (request, index) of each step."""

    def __init__(self) -> None:
        self.vector: Callable[[Work], Sequence[float]] = lengths
        self.step_s = 0.0
        self.steps: list[list[tuple[str, int]]] = []

    def __call__(self, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        self.steps.append([(item.request_id, item.index) for item in items])
        if self.step_s:
            time.sleep(self.step_s)
        outcomes = []
        for item in items:
            vector = np.array([self.vector(item)], np.float32)
            vector = normalized(vector) if options.normalize else vector
            vector = activated(vector, options.activation)
            if options.dimensions:
                vector = cut(vector, options.dimensions, normalizes=options.normalize is not False)
            outcomes.append(Outcome(vector))
        return outcomes


class FakePooler(FakeEngine):
    """`task` is the script; `core` the real thing, stepped in the server's loop."""

    def __init__(self, pooling: PoolingInfo = POOLING, max_batch_tokens: int = 64) -> None:
        super().__init__()
        self.info = msgspec.structs.replace(self.info, pooling=pooling, max_model_len=pooling.max_tokens)
        self.task = ScriptedTask()
        self.core = PoolingCore(
            dict.fromkeys(pooling.tasks, self.task), self.info, max_batch_tokens=max_batch_tokens, max_num_seqs=8
        )
        self.sent: list[AddItems] = []
        self._flows: dict[str, ItemFlow] = {}
        self._stepping: asyncio.Task[None] | None = None

    @contextmanager
    def open_items(self, request_id: str) -> Iterator[ItemFlow]:
        if not self.is_alive:
            raise EngineDeadError("killed by signal 9")
        flow = self._flows[request_id] = ItemFlow(self._add)
        try:
            yield flow
        finally:
            del self._flows[request_id]
            if self.core.abort(request_id):
                self.aborted.append(request_id)

    def _add(self, message: AddItems) -> None:
        self.sent.append(message)
        self.core.add(message)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.ensure_future(self._step())

    async def _step(self) -> None:
        while self.core.has_work and self.is_alive:
            found: dict[str, list[ItemOutput]] = {}
            for output in await asyncio.get_running_loop().run_in_executor(None, self.core.step):
                found.setdefault(output.request_id, []).append(output)
            for request_id, outputs in found.items():
                if request_id in self._flows:
                    self._flows[request_id].put(outputs)

    def kill(self) -> None:
        super().kill()
        for flow in self._flows.values():
            flow.fail(EngineDeadError("killed by signal 9"))

    async def stats(self) -> dict[str, float]:
        return self.core.stats()


def use(server: LiveServer, pooling: PoolingInfo = POOLING, **options: Any) -> FakePooler:
    """A fresh scripted engine of vectors behind the server; texts are tokenized byte by byte."""

    def make() -> FakePooler:
        from tests.engine.server.fakes import make_text

        engine = FakePooler(pooling, **options)
        server.state.attach(engine, make_text())
        server.state.is_warm, server.state.is_draining = True, False
        return engine

    engine: FakePooler = server.call(make)
    server.engine = engine
    return engine


def use_model(server: LiveServer, folder: Path) -> Any:
    """A real engine process of the model in `folder` behind the server."""
    from octavo.engine.client import AsyncEngine
    from octavo.engine.config import EngineConfig
    from octavo.engine.model_text import load_text

    starting = AsyncEngine.start(EngineConfig(str(folder), platform="reference", num_threads=1))
    engine = asyncio.run_coroutine_threadsafe(starting, server.loop).result(60)
    server.call(lambda: server.state.attach(engine, load_text(folder)))
    server.state.is_warm = True
    return engine

"""The engine of a model that gives vectors or scores: items of requests in, results out, one packed step at a time.

`PoolingCore` is to such a model what `EngineCore` is to a decoder, and the engine process drives it the same way. What is done
with the items of a step is a `Task`'s. Invariants: a step holds whole items, as many as its tokens and sequences allow, in the
fair order of `fair.FairQueue`; an item's result does not depend on the others; an item that fails fails alone, since a step that
breaks is run again item by item; a value that is not finite never leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from octavo.engine.errors import RequestError, trace_of
from octavo.engine.messages import AddItems, EngineInfo, ItemOptions, ItemOutput, ItemOutputs
from octavo.engine.pooling.fair import FairQueue, Work
from octavo.engine.pooling.late import that_count
from octavo.engine.pooling.outputs import OUTPUTS, Output
from octavo.engine.pooling.runner import NOT_FINITE, EmbeddingRunner
from octavo.platforms.types import F32

if TYPE_CHECKING:
    from octavo.engine.pooling.head_runner import HeadRunner
    from octavo.engine.pooling.scores import ScoreRunner
    from octavo.engine.pooling.token_runner import Made, TokenRunner

log = logging.getLogger("octavo.engine")
ACTIVATIONS = ("none", "sigmoid", "softmax", "tanh", "relu", "gelu", "silu")  # those of pooling.scores


class Outcome(NamedTuple):
    """What a task made of an item. `values`: float32 [rows, width]; None where `error` says why there are none. `ids`: int32, one
    per value or row, where the task gives them."""

    values: F32 | None
    ids: bytes = b""
    error: str = ""


class Task(Protocol):
    """Something that the model does with items."""

    def __call__(self, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        """An outcome per item, in order."""
        ...


class Embed:
    """One vector per text."""

    def __init__(self, runner: EmbeddingRunner, *, normalizes: bool) -> None:
        self._runner = runner
        self._normalizes = normalizes

    def __call__(self, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        """Values [1, width]."""
        vectors = self._runner.vectors(
            [item.ids for item in items],
            [item.num_prompt for item in items],
            self._normalizes if options.normalize is None else options.normalize,
            options.dimensions or None,
        )
        return [
            Outcome(None, error=NOT_FINITE) if vector is None else Outcome(vector.reshape(1, -1)) for vector in vectors
        ]


class TokenVectors:
    """The encoder's last hidden state of every token, special ones included, as it is."""

    def __init__(self, runner: HeadRunner) -> None:
        self._runner = runner

    def __call__(self, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        """Values [tokens, width]."""
        parts: list[list[F32]] = [[] for _ in items]
        for place, rows in self._runner.of_tokens([item.ids for item in items]):
            parts[place].append(np.array(rows))
        return [Outcome(np.concatenate(some)) for some in parts]


class Encode:
    """What a text becomes: its vector, weights of entries of the vocabulary, vectors of its tokens, of one pass. `outputs`:
    unless a request says which."""

    def __init__(self, runner: TokenRunner, outputs: Sequence[Output]) -> None:
        self._runner = runner
        self._outputs = tuple(outputs)

    def __call__(self, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        """Values [vectors, width] of vectors of tokens alone; else [1, n]: a vector, then weights, whose `ids` are the entries,
        then vectors of tokens end to end, whatever of it was asked for."""
        wanted = cast("tuple[Output, ...]", options.outputs) or self._outputs
        unseen = [item.num_unseen for item in items]
        made = self._runner.made([item.ids for item in items], wanted, unseen if any(unseen) else None)
        return [self._outcome(item, one, wanted) for item, one in zip(items, made, strict=True)]

    @staticmethod
    def _outcome(item: Work, made: Made, wanted: Sequence[Output]) -> Outcome:
        sparse, vectors = that_count(item.ids, made, item.marks)
        weights = None if sparse is None else sparse.weights
        found = {"dense": made.dense, "sparse": weights, "multi_vector": vectors}
        parts = [part for name in OUTPUTS if name in wanted and (part := found[name]) is not None]
        if len(parts) < len(wanted):
            return Outcome(None, error=NOT_FINITE)
        if tuple(wanted) == ("multi_vector",):
            return Outcome(parts[0])
        ids = b"" if sparse is None else sparse.ids.astype("<i4").tobytes()
        return Outcome(np.concatenate([part.reshape(-1) for part in parts])[None], ids)


class Scores:
    """Scores of labels: one row for a text or pair, or one for each of its tokens."""

    def __init__(self, runner: ScoreRunner, activated: Callable[[F32, str], F32]) -> None:
        self._runner = runner
        self._activated = activated

    def __call__(self, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        """Values [1, labels], or [tokens, labels]."""
        found = self._runner.scores([item.ids for item in items], [list(item.segments) or None for item in items])
        return [
            Outcome(None, error=NOT_FINITE)
            if scores is None
            else Outcome(np.atleast_2d(self._activated(scores, options.activation)))
            for scores in found
        ]


class PoolingCore:
    """One model being served. `tasks` by name. Not thread-safe: one loop owns it."""

    frame = ItemOutputs

    def __init__(
        self,
        tasks: Mapping[str, Task],
        info: EngineInfo,
        *,
        max_batch_tokens: int,
        max_num_seqs: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if info.pooling is None:
            raise ValueError("the info of a model that gives vectors says so")
        self.info = info
        self.tasks = dict(tasks)
        self._max_tokens = info.pooling.max_tokens
        self._width = info.pooling.width
        self._outputs = frozenset(info.pooling.outputs)
        self._max_batch_tokens = max_batch_tokens
        self._max_num_seqs = max_num_seqs
        self._clock = clock
        self._queue = FairQueue()
        self.num_steps = self.num_items = self.num_tokens = self.num_failed = self.num_aborts = 0
        self.step_s = 0.0

    def add(self, message: Any) -> None:
        """Queues items. RequestError if the message is none of ours."""
        if not isinstance(message, AddItems):
            raise RequestError("this model gives vectors, not tokens", code="unsupported_endpoint")
        if message.task not in self.tasks:
            raise RequestError(f"task {message.task!r}: this model does {', '.join(self.tasks)}", param="task")
        if message.options.activation not in ACTIVATIONS:
            raise RequestError(f"activation is {message.options.activation!r}", param="activation")
        if not 0 <= message.options.dimensions <= self._width:
            raise RequestError(
                f"dimensions is {message.options.dimensions}; allowed are 1 to {self._width}", param="dimensions"
            )
        if not set(message.options.outputs) <= self._outputs:
            raise RequestError(
                f"outputs is {list(message.options.outputs)}; this model gives {', '.join(sorted(self._outputs))}",
                param="outputs",
            )
        self._queue.push(message.request_id, self._items(message), is_last=message.is_last)

    def _items(self, message: AddItems) -> list[Work]:
        """The items of a message, checked: what comes over the socket is not trusted to fit."""
        lengths, prompts = _ints(message.lengths, "lengths"), _ints(message.num_prompt, "num_prompt")
        ids, segments, marks = _ints(message.ids, "ids"), message.segments, message.marks
        unseen = _ints(message.num_unseen, "num_unseen")
        ends = np.cumsum(lengths, dtype=np.int64)
        if (len(lengths) and int(ends[-1]) != len(ids)) or (not len(lengths) and len(ids)):
            raise RequestError("lengths do not add up to the number of ids", param="lengths")
        if (len(prompts) and len(prompts) != len(lengths)) or (segments and len(segments) != len(ids)):
            raise RequestError("num_prompt or segments do not fit the items", param="num_prompt")
        if (len(unseen) and len(unseen) != len(lengths)) or (marks and len(marks) != len(ids)):
            raise RequestError("num_unseen or marks do not fit the items", param="num_unseen")
        if len(unseen) and not (int(unseen.min()) >= 0 and bool((unseen < lengths).all())):
            raise RequestError("num_unseen is less than the tokens of an item", param="num_unseen")
        if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= self._max_tokens:
            raise RequestError(f"items have 1 to {self._max_tokens} tokens here", param="lengths")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.info.vocab_size:
            raise RequestError(f"token ids are 0 to {self.info.vocab_size - 1}", param="ids")
        return [
            Work(
                message.request_id,
                message.first + place,
                message.task,
                message.options,
                ids[end - length : end].tolist(),
                int(prompts[place]) if len(prompts) else 0,
                segments[end - length : end],
                int(unseen[place]) if len(unseen) else 0,
                marks[end - length : end],
            )
            for place, (length, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True))
        ]

    def abort(self, request_id: str) -> bool:
        """Forgets a request; False when nothing of it is here (any more)."""
        dropped = self._queue.drop(request_id)
        self.num_aborts += bool(dropped)
        return bool(dropped)

    def finish(self, request_id: str, choice: int | None = None) -> bool:
        """As `abort`."""
        return self.abort(request_id)

    def abort_all(self, reason: str) -> list[ItemOutput]:
        """Forgets everything; an output for each item that waited, with `reason` as its error."""
        return [
            ItemOutput(item.request_id, item.index, b"", 0, b"", reason, "aborted") for item in self._queue.drop_all()
        ]

    @property
    def has_work(self) -> bool:
        return self._queue.num_items > 0

    @property
    def is_idle(self) -> bool:
        """No request is open: none waits, and of none is more to come."""
        return not self._queue.num_requests

    def step(self) -> list[ItemOutput]:
        """One packed step."""
        items = self._plan()
        if not items:
            return []
        start = self._clock()
        task, options = items[0].key
        outcomes = self._run(self.tasks[task], items, options)
        self.num_steps += 1
        self.step_s += self._clock() - start
        self.num_items += len(items)
        self.num_tokens += sum(len(item.ids) for item in items)
        return [self._output(item, outcome) for item, outcome in zip(items, outcomes, strict=True)]

    def _plan(self) -> list[Work]:
        """The items that go next, as many as share their task and options and fit."""
        first = self._queue.peek()
        if first is None:
            return []
        key = first.key
        items = [self._queue.pop(key)]
        num_tokens = len(first.ids)
        while len(items) < self._max_num_seqs:
            item = self._queue.peek(key)
            if item is None or num_tokens + len(item.ids) > self._max_batch_tokens:
                break
            items.append(self._queue.pop(key))
            num_tokens += len(item.ids)
        return items

    def _run(self, task: Task, items: Sequence[Work], options: ItemOptions) -> list[Outcome]:
        """The task's outcomes; of a step that breaks, each item's own."""
        try:
            return task(items, options)
        except Exception as error:
            log.error("a step of %d items failed: %s", len(items), trace_of(error))
            if len(items) > 1:
                return [outcome for item in items for outcome in self._run(task, [item], options)]
            return [Outcome(None, error=f"the engine could not run it: {type(error).__name__}: {error}")]

    def _output(self, item: Work, outcome: Outcome) -> ItemOutput:
        values, ids, error = outcome
        if values is not None and not np.isfinite(values).all():
            values, error = None, NOT_FINITE
        if values is None:
            self.num_failed += 1
            code = "not_finite" if error == NOT_FINITE else "engine_error"
            return ItemOutput(item.request_id, item.index, b"", 0, b"", error, code)
        return ItemOutput(item.request_id, item.index, values.astype("<f4").tobytes(), values.shape[1], ids)

    def undeliverable(self, output: ItemOutput, why: str) -> ItemOutput:
        """What is said instead of an output that no frame holds."""
        return ItemOutput(output.request_id, output.index, b"", 0, b"", f"{why}; send a shorter text")

    def rest(self, *, is_last: bool = False) -> None:
        """Nothing waits for its time here."""

    def stats(self) -> dict[str, float]:
        """Gauges and counters by name; `engine/server/metrics.py` says what each is called outside."""
        queue = self._queue
        return {
            "num_requests_waiting": queue.num_requests,
            "num_items_waiting": queue.num_items,
            "num_tokens_waiting": queue.num_tokens,
            "num_items": self.num_items,
            "num_item_tokens": self.num_tokens,
            "num_items_failed": self.num_failed,
            "num_aborts": self.num_aborts,
            "num_steps": self.num_steps,
            "step_seconds": self.step_s,
        }


def _ints(data: bytes, name: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    if len(data) % 4:
        raise RequestError(f"{name} are not whole int32 numbers", param=name)
    return np.frombuffer(data, "<i4")

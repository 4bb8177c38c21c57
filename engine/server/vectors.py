"""What all endpoints of models that give vectors share: admission, the run, and how its answer is put together.

An endpoint says what is `Asked` of which inputs and how a result is written; parts are written as they come, and joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from octavo.engine.messages import ItemOptions, ItemOutput
from octavo.engine.pooling.outputs import Role
from octavo.engine.pooling.texts import Item, Truncation
from octavo.engine.server.http import JSON, Headers, HttpError, Request, Response, error_object
from octavo.engine.server.inputs import chars_of, weight_of
from octavo.engine.server.items import ItemsRun
from octavo.engine.server.state import Model, ServerState

if TYPE_CHECKING:
    from octavo.platforms.types import F32

encode = msgspec.json.Encoder().encode
_NO_OPTIONS = ItemOptions()
ENTERED = ("sparse", "token_embed", "encode")  # tasks that tell what of a token counts


@dataclass(frozen=True)
class Asked:
    """One call. `param`: the field that has the inputs. `make`: tokens of inputs that are not texts. `role`: of texts
    for models that treat queries and documents differently."""

    inputs: Sequence[Any]
    param: str
    prompt: str = ""
    truncate: Truncation = "error"
    task: str = "embed"
    options: ItemOptions = _NO_OPTIONS
    is_list: bool = True  # not one input outside of a list
    keeps_errors: bool = False
    make: Callable[[Sequence[Any]], list[Item]] | None = None
    role: Role = "document"
    where: Callable[[int], str] | None = None  # what an input is called in errors, other than `param` and its place


def values_of(output: ItemOutput) -> F32:
    """float32 [rows, width]."""
    values: F32 = np.frombuffer(output.values, "<f4")
    return values.reshape(-1, output.width) if output.width else values[None]


async def run_items(
    state: ServerState, request: Request, model: Model, asked: Asked, take: Callable[[int, ItemOutput], None]
) -> ItemsRun:
    """Runs a call to its end. Raises OverloadedError, and what `ItemsRun.run` does."""
    texts = model.texts
    assert texts is not None

    most = state.settings.bounds.max_whole_chars if asked.truncate == "start" else None
    entered = model.entered if asked.task in ENTERED else None

    def item_of(text: Any) -> Item:
        if most is not None and chars_of(text) > most:
            return endless(most)
        if entered is not None:
            return entered.item(text, asked.role, asked.truncate, asked.prompt)
        return texts.item(text, asked.prompt, asked.truncate)

    def make(items: Sequence[Any]) -> list[Item]:
        return [item_of(text) for text in items]

    async with AsyncExitStack() as stack:
        stack.enter_context(state.admitted(1))
        weight = sum(map(weight_of, asked.inputs))
        place = stack.enter_context(state.held.admitted(weight, len(request.body)))
        run = ItemsRun(
            model,
            state.metrics,
            request.id,
            asked.inputs,
            asked.make or make,
            task=asked.task,
            options=asked.options,
            param=asked.param,
            place=place,
            is_list=asked.is_list,
            keeps_errors=asked.keeps_errors,
            where=asked.where,
        )
        stack.enter_context(state.running(run))
        await run.run(take)
    request.notes.update(items=len(asked.inputs), prompt=run.num_tokens)
    return run


def endless(most: int) -> Item:
    """A text that is too long to be tokenized to its end."""
    why = f"it has more than {most} characters, which are not tokenized to their end; cut it, or ask for another truncation"
    return Item([], error=why, code="context_length_exceeded")


def error_part(index: int, error: HttpError) -> bytes:
    """An item that has no result, in its place."""
    inner = error_object(error.status, str(error), error.param, error.code)["error"]
    return encode({"object": "error", "index": index, "error": inner})


def put_errors(run: ItemsRun, pieces: list[bytes]) -> None:
    """Writes what became of items without result."""
    for index, error in run.errors.items():
        pieces[index] = error_part(index, error)


def cut_note(run: ItemsRun, index: int) -> bytes:
    """Of an item that was cut: the field that says so."""
    found = run.truncated.get(index)
    return b"" if found is None else b',"truncated_from":%d' % found


def usage_of(run: ItemsRun) -> dict[str, int]:
    """OpenAI's usage object: special tokens and prompts count."""
    return {"prompt_tokens": run.num_tokens, "total_tokens": run.num_tokens}


def answer(head: dict[str, Any], name: str, array: bytes, tail: dict[str, Any], headers: Headers) -> Response:
    """An object of `head`, the field `name` with what is JSON already, and `tail`."""
    start = encode(head)[:-1] + (b"," if head else b"")
    end = encode(tail)[1:]
    body = b"".join([start, encode(name), b":", array, b"," if tail else b"", end])
    return Response(body, 200, JSON, headers)

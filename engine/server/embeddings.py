"""POST /v1/embeddings (OpenAI) and /pooling (vLLM): a result per input, as numbers or as base64 of little-endian float32.

Sources: https://platform.openai.com/docs/api-reference/embeddings; vLLM's pooling API.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from octavo.engine.errors import RequestError
from octavo.engine.messages import ItemOptions, ItemOutput, PoolingInfo
from octavo.engine.pooling.outputs import OUTPUTS
from octavo.engine.pooling.texts import Texts
from octavo.engine.server.generate import extra_headers
from octavo.engine.server.http import Request, Response, bad_request
from octavo.engine.server.inputs import listed, prompt_of, role_of, truncation_of
from octavo.engine.server.json_numbers import base64_of, joined, json_numbers
from octavo.engine.server.outputs import several, weights_of
from octavo.engine.server.pooling_schema import EmbeddingsBody, PoolingBody, VectorsBody
from octavo.engine.server.schema import decode
from octavo.engine.server.state import Model, ServerState
from octavo.engine.server.vectors import ENTERED, Asked, answer, cut_note, put_errors, run_items, usage_of, values_of

ENCODINGS = ("float", "base64")


class VectorsEndpoint:
    """What both have in common."""

    body_type: type[VectorsBody]
    item_name: ClassVar[bytes]  # the `object` of an item
    value_name: ClassVar[bytes]  # its field with the result
    needs: ClassVar[tuple[str, ...]] = ()  # tasks, of which a model does one

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def task(self, body: Any, model: Model) -> str:
        """Which of the model's tasks the call is for."""
        return "embed"

    def outputs(self, body: Any) -> Sequence[str]:
        """What of the model's outputs the call is for; none: what its task gives."""
        return ()

    def head(self, request: Request) -> dict[str, Any]:
        """What an answer begins with."""
        return {"object": "list"}

    async def __call__(self, request: Request) -> Response:
        """Answers one call."""
        state = self._state
        body = decode(self.body_type, request.body)
        model = state.pooler(request.path, *self.needs)
        state.check_name(body.model)
        asked = self._asked(body, model)
        is_float = encoding_of(body.encoding_format) == "float"
        if not is_float and asked.task in ("sparse", "encode"):
            why = "encoding_format base64 is of vectors; weights of a vocabulary and several outputs are float"
            raise bad_request(why, "encoding_format")
        pieces: list[bytes] = [b""] * len(asked.inputs)

        def take(index: int, output: ItemOutput) -> None:
            pieces[index] = written(output, asked, model.pooling) if is_float else base64_of(output.values)

        run = await run_items(state, request, model, asked, take)
        for index, piece in enumerate(pieces):
            head = b'{"object":"%b","index":%d,"%b":' % (self.item_name, index, self.value_name)
            pieces[index] = b"".join([head, piece, cut_note(run, index), b"}"])
        put_errors(run, pieces)
        tail = {"model": state.settings.served_names[0], "usage": usage_of(run)}
        return answer(self.head(request), "data", joined(pieces), tail, extra_headers(body))

    def _asked(self, body: VectorsBody, model: Model) -> Asked:
        texts = model.texts
        assert texts is not None
        task = self.task(body, model)
        has_roles = model.entered is not None and model.entered.has_roles
        has_roles = has_roles and task in ENTERED
        role = role_of(has_roles, body.input_type, body.prompt_name)
        given = {name: getattr(body, name) for name in ("input_type", "prompt_name", "prompt", "instruction")}
        if role is not None:  # which stands for the model's prompt
            given["input_type"] = given["prompt_name"] = None
        is_bare = has_roles and not any(value is not None for value in given.values())
        prompt = "" if is_bare else prompt_of(texts, **given)
        for name in ("normalize", "dimensions"):
            if task != "embed" and getattr(body, name) is not None:
                raise bad_request(f"{name} is for vectors of texts (task embed), not for {task}; leave it out", name)
        inputs = listed(body.input, "input", self._state.settings.bounds.max_inputs)
        return Asked(
            inputs,
            "input",
            prompt,
            truncation_of(body.truncate),
            task,
            ItemOptions(
                body.normalize,
                dimensions_of(texts, body.dimensions),
                model.pooling.label_activation,
                tuple(self.outputs(body)),
            ),
            inputs is body.input,
            bool(body.item_errors),
            role=role or "document",
        )


class EmbeddingsEndpoint(VectorsEndpoint):
    """POST /v1/embeddings."""

    body_type = EmbeddingsBody
    item_name, value_name = b"embedding", b"embedding"
    needs = ("embed",)


class PoolingEndpoint(VectorsEndpoint):
    """POST /pooling."""

    body_type = PoolingBody
    item_name, value_name = b"pooling", b"data"

    def task(self, body: Any, model: Model) -> str:
        tasks, gives = model.pooling.tasks, model.pooling.outputs
        if body.outputs is not None:
            if body.task is not None:
                raise bad_request(
                    "task and outputs were both sent; outputs are several tasks at once: send one", "task"
                )
            if "encode" not in tasks or not body.outputs or not set(body.outputs) <= set(gives):
                why = (
                    f"this model gives {', '.join(gives)}"
                    if "encode" in tasks
                    else f"this model does one thing at a time ({', '.join(tasks)}); leave it out"
                )
                raise bad_request(f"outputs is {body.outputs[:4]!r}; {why}", "outputs")
            return "encode"
        if body.task is None or body.task in tasks:
            return body.task or tasks[0]
        raise bad_request(f"task is {body.task[:40]!r}; this model does {', '.join(tasks)}", "task")

    def outputs(self, body: Any) -> Sequence[str]:
        return [name for name in OUTPUTS if name in (body.outputs or ())]

    def head(self, request: Request) -> dict[str, Any]:
        return {"id": f"pool-{request.id}", "object": "list", "created": int(time.time())}


def dimensions_of(texts: Texts, asked: int | None, param: str = "dimensions") -> int:
    """To how many values vectors are cut; 0: they stay whole."""
    try:
        return texts.dimensions(asked) or 0
    except RequestError as error:
        raise bad_request(str(error), param) from None


def encoding_of(asked: str | None) -> str:
    """float or base64."""
    if asked is not None and asked not in ENCODINGS:
        raise bad_request(f"encoding_format is {asked[:40]!r}; it must be float or base64", "encoding_format")
    return asked or "float"


def written(output: ItemOutput, asked: Asked, pooling: PoolingInfo) -> bytes:
    """A result as an array, an array of arrays, weights with their entries, or an object of several outputs."""
    values = values_of(output)
    if asked.task == "sparse":
        return weights_of(output.ids, values[0])
    if asked.task == "encode":
        return several(output.ids, values.reshape(-1), asked.options.outputs, pooling)
    return json_numbers(values if asked.task.startswith("token") else values[0])

"""What chat and completions share: one call from body to answer. What differs is in `chat.py` and `completions.py`.

A call's choices get their own engine requests that share seed, prompt and parameters and differ in `choice`. The ids are
random and internal; nothing a client sends becomes an id or a cache key, `cache_salt` only narrows its own salt.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from octavo import __version__
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.server.auth import cache_salt
from octavo.engine.server.http import Headers, Request, Response, Stream, bad_request, describe, json_response
from octavo.engine.server.logs import log_fault
from octavo.engine.server.params import to_sampling
from octavo.engine.server.runs import Choice, Run
from octavo.engine.server.schema import (
    Body,
    ChatBody,
    CompletionBody,
    check_neutral,
    decode,
    ignored_fields,
)
from octavo.engine.server.sse import DONE, PING, ChunkWriter, event
from octavo.engine.server.state import Model, ServerState

FINGERPRINT = f"octavo-{__version__}"
B = TypeVar("B", ChatBody, CompletionBody)


class Prompt(NamedTuple):
    """One prompt of a call: its text as sent (None: it was not sent as one text), its tokens, the field it came from."""

    text: str | None
    tokens: list[int]
    param: str


class Answer(ABC, Generic[B]):
    """How the choices of one call are written."""

    def __init__(self, body: B, model: Model, prompts: Sequence[Prompt], num_choices: int) -> None:
        self.body: B = body
        self.model, self.prompts, self.num_choices = model, prompts, num_choices

    @abstractmethod
    def whole(self, choice: Choice) -> dict[str, Any]:
        """A finished choice of an answer that is not streamed."""

    @abstractmethod
    def first(self, choice: Choice, writer: ChunkWriter) -> bytes | None:
        """What opens a choice in a stream; None: not yet."""

    @abstractmethod
    def piece(self, choice: Choice, writer: ChunkWriter) -> bytes:
        """What a choice has pending, taken."""


class GenerateEndpoint(ABC, Generic[B]):
    """The handler of one endpoint."""

    body_type: type[B]
    answer_type: type[Answer[B]]
    id_prefix: ClassVar[str]
    object_name: ClassVar[str]
    chunk_name: ClassVar[str]

    def __init__(self, state: ServerState) -> None:
        self._state = state

    @abstractmethod
    async def prompts(self, body: B, model: Model) -> list[Prompt]:
        """The call's prompts, at least one."""

    async def __call__(self, request: Request) -> Response | Stream:
        """Answers one call."""
        state = self._state
        body = decode(self.body_type, request.body)
        check_neutral(body)
        model = state.generator(request.path)
        state.check_name(body.model)
        if body.stream and body.prompt_logprobs is not None:
            raise bad_request("prompt_logprobs cannot be streamed; send stream=false", "prompt_logprobs")
        params = to_sampling(body, model.engine.info, model.text, state.settings.bounds)
        async with AsyncExitStack() as stack:
            state.check_choices(params.n)
            stack.enter_context(state.admitted(params.n))
            prompts = await self.prompts(body, model)
            for prompt in prompts:
                model.prompts.check_tokens(prompt.tokens, params.max_tokens, prompt.param)
            state.check_choices(params.n * len(prompts))
            stack.enter_context(state.admitted(params.n * (len(prompts) - 1)))
            requests = build_requests(state, request, body, params, [prompt.tokens for prompt in prompts])
            is_stream = bool(body.stream)
            run = Run(model.engine, model.text, state.metrics, state.settings.streams, requests, is_stream=is_stream)
            stack.enter_context(state.running(run))
            stack.push_async_callback(run.close)
            run.start()
            await run.started()
            answer = self.answer_type(body, model, prompts, params.n)
            if is_stream:
                chunks = stream_chunks(request, run, answer, self._head(request, self.chunk_name))
                return Stream(chunks, stack.pop_all().aclose, headers=extra_headers(body))
            await run.finished()
            choices = [answer.whole(choice) for choice in run.choices]
            head = self._head(request, self.object_name)
            return json_response(
                {**head, "choices": choices, "usage": usage_of(run, request)}, 200, extra_headers(body)
            )

    def _head(self, request: Request, object_name: str) -> dict[str, Any]:
        """The fields every chunk and answer begins with."""
        return {
            "id": f"{self.id_prefix}-{request.id}",
            "object": object_name,
            "created": int(time.time()),
            "model": self._state.settings.served_names[0],
            "system_fingerprint": FINGERPRINT,
        }


def extra_headers(body: msgspec.Struct) -> Headers:
    """Names of harmless fields that were not acted on."""
    ignored = ignored_fields(body)
    return [(b"x-octavo-ignored", ", ".join(ignored).encode())] if ignored else []


def build_requests(
    state: ServerState, request: Request, body: Body, params: SamplingParams, prompts: Sequence[list[int]]
) -> list[AddRequest]:
    """One engine request per prompt and choice, in OpenAI's order of indices."""
    num_choices = params.n
    limit = state.settings.bounds.max_runs
    if len(prompts) * num_choices > limit:
        raise bad_request(
            f"{len(prompts)} prompts with n={num_choices} are more than {limit} answers; ask for fewer", "n"
        )
    salt = cache_salt(request.tenant, body.cache_salt)
    single = params if num_choices == 1 else msgspec.structs.replace(params, n=1)
    now = time.monotonic()
    return [
        AddRequest(
            request_id=f"{request.id}-{place}",
            prompt=prompt,
            params=single,
            choice=choice,
            priority=body.priority or 0,
            salt=salt,
            arrival_s=now,
            leader=f"{request.id}-{place - choice}" if choice else "",
        )
        for place, (prompt, choice) in enumerate((p, c) for p in prompts for c in range(num_choices))
    ]


def usage_of(run: Run, request: Request) -> dict[str, Any]:
    """OpenAI's usage object: a prompt counts once whatever `n` is; `cached_tokens` were read from the prefix cache."""
    firsts = [choice for choice in run.choices if choice.request.choice == 0]
    num_prompt = sum(len(choice.request.prompt) for choice in firsts)
    request.notes.update(prompt=num_prompt, completion=run.num_tokens)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": run.num_tokens,
        "total_tokens": num_prompt + run.num_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.num_cached for choice in firsts)},
    }


async def stream_chunks(
    request: Request, run: Run, answer: Answer[B], head: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    """The stream of a started Run. `head`: the fields all chunks share.

    An error in mid-stream becomes an error event, after which the stream ends without [DONE].
    """
    options = answer.body.stream_options
    has_usage = bool(options and options.include_usage)
    writer = ChunkWriter(head, is_chat=isinstance(answer.body, ChatBody), has_usage=has_usage)
    opened: set[int] = set()
    try:
        async for changed in with_first(run):
            out = []
            for choice in changed:
                if choice.index not in opened and (lead := answer.first(choice, writer)) is not None:
                    opened.add(choice.index)
                    out.append(lead)
                if choice.pending_text or choice.pending_infos:
                    out.append(answer.piece(choice, writer))
                if choice.is_done and not choice.is_finish_taken:
                    choice.is_finish_taken = True
                    out.append(writer.finish(choice.index, choice.finish_reason))
            yield b"".join(out) or PING
        usage = usage_of(run, request)
        yield (writer.usage(usage) if has_usage else b"") + DONE
    except Exception as error:
        status, body, _ = describe(error, request.id)
        if status == 500:
            log_fault(error, request.id)
        yield event(body)


async def with_first(run: Run) -> AsyncIterator[list[Choice]]:
    """`changes()`; when nothing has come yet, all choices first, so that the client sees its stream open."""
    if not any(choice.num_tokens or choice.is_done for choice in run.choices):
        yield run.choices
    async for changed in run.changes():
        yield changed

"""What chat and completions share: building engine requests, running them, usage, and the stream around a Run.

A call's choices get their own engine requests that share seed, prompt and parameters and differ in `choice`. The ids are
random and internal; nothing a client sends becomes an id or a cache key, `cache_salt` only narrows its own salt.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from octavo import __version__
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.server.auth import cache_salt
from octavo.engine.server.http import Headers, Request, bad_request, describe
from octavo.engine.server.logs import log_fault
from octavo.engine.server.runs import Choice, Run
from octavo.engine.server.schema import Body, TokenizeBody, ignored_fields
from octavo.engine.server.sse import DONE, PING, ChunkWriter, event
from octavo.engine.server.state import Model, ServerState

FINGERPRINT = f"octavo-{__version__}"


def head_of(state: ServerState, request: Request, prefix: str, kind: str) -> dict[str, Any]:
    """The fields every chunk and answer begins with."""
    return {
        "id": f"{prefix}-{request.id}",
        "object": kind,
        "created": int(time.time()),
        "model": state.settings.served_names[0],
        "system_fingerprint": FINGERPRINT,
    }


def extra_headers(body: Body | TokenizeBody) -> Headers:
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


def open_run(state: ServerState, model: Model, requests: Sequence[AddRequest], is_stream: bool) -> Run:
    """The Run of a call, not yet started."""
    return Run(model.engine, model.text, state.metrics, state.settings.streams, requests, is_stream=is_stream)


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
    request: Request,
    run: Run,
    writer: ChunkWriter,
    first: Callable[[Choice], bytes | None],
    piece: Callable[[Choice], bytes],
    *,
    has_usage: bool,
) -> AsyncGenerator[bytes, None]:
    """The stream of a started Run. `first` opens a choice (None: not yet), `piece` writes what it has pending.

    An error in mid-stream becomes an error event, after which the stream ends without [DONE].
    """
    opened: set[int] = set()
    try:
        async for changed in with_first(run):
            out = []
            for choice in changed:
                if choice.index not in opened and (lead := first(choice)) is not None:
                    opened.add(choice.index)
                    out.append(lead)
                if choice.pending_text or choice.pending_infos:
                    out.append(piece(choice))
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

"""POST /v1/chat/completions.

Source: https://platform.openai.com/docs/api-reference/chat. Role delta first; `usage` in a stream only when asked for, in
one extra chunk; finish reasons are stop and length.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

from octavo.engine.server.generate import (
    build_requests,
    extra_headers,
    head_of,
    open_run,
    stream_chunks,
    usage_of,
)
from octavo.engine.server.http import Request, Response, Stream, bad_request, json_response
from octavo.engine.server.logprobs import chat_logprobs, prompt_logprobs_list
from octavo.engine.server.params import to_sampling
from octavo.engine.server.runs import Choice, Run
from octavo.engine.server.schema import ChatBody, check_neutral, decode
from octavo.engine.server.sse import ChunkWriter
from octavo.engine.server.state import Model, ServerState


class ChatEndpoint:
    """The handler."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, request: Request) -> Response | Stream:
        """Answers one call."""
        state = self._state
        body = decode(ChatBody, request.body)
        check_neutral(body)
        model = state.model()
        state.check_name(body.model)
        if body.stream and body.prompt_logprobs is not None:
            raise bad_request("prompt_logprobs cannot be streamed; send stream=false", "prompt_logprobs")
        params = to_sampling(body, model.engine.info, model.text, state.settings.bounds)
        async with AsyncExitStack() as stack:
            stack.enter_context(state.admitted(params.n))
            tokens = await model.prompts.chat(
                body.messages,
                add_generation_prompt=body.add_generation_prompt is not False,
                continue_final_message=bool(body.continue_final_message),
                template_kwargs=body.chat_template_kwargs,
            )
            model.prompts.check_tokens(tokens, params.max_tokens, "messages")
            requests = build_requests(state, request, body, params, [tokens])
            run = open_run(state, model, requests, bool(body.stream))
            stack.push_async_callback(run.close)
            run.start()
            await run.started()
            if body.stream:
                chunks = self._chunks(request, body, model, run)
                return Stream(chunks, stack.pop_all().aclose, headers=extra_headers(body))
            await run.finished()
            head = head_of(state, request, "chatcmpl", "chat.completion")
            choices = [self._choice(body, model, choice) for choice in run.choices]
            return json_response(
                {**head, "choices": choices, "usage": usage_of(run, request)}, 200, extra_headers(body)
            )

    def _choice(self, body: ChatBody, model: Model, choice: Choice) -> dict[str, Any]:
        text, infos = choice.take()
        out: dict[str, Any] = {
            "index": choice.index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": chat_logprobs(model.text, infos) if body.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if choice.prompt_logprobs is not None:
            out["prompt_logprobs"] = prompt_logprobs_list(model.text, choice.prompt_logprobs)
        return out

    def _chunks(self, request: Request, body: ChatBody, model: Model, run: Run) -> AsyncGenerator[bytes, None]:
        has_usage = bool(body.stream_options and body.stream_options.include_usage)
        head = head_of(self._state, request, "chatcmpl", "chat.completion.chunk")
        writer = ChunkWriter(head, is_chat=True, has_usage=has_usage)

        def piece(choice: Choice) -> bytes:
            text, infos = choice.take()
            return writer.text(choice.index, text, chat_logprobs(model.text, infos) if infos else None)

        return stream_chunks(request, run, writer, lambda choice: writer.role(choice.index), piece, has_usage=has_usage)

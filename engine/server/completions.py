"""POST /v1/completions.

Source: https://platform.openai.com/docs/api-reference/completions. `echo` with `logprobs` reports the prompt's tokens too
(evaluation harnesses live on it), the first without a logprob; `max_tokens: 0` then scores the prompt and makes nothing.
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
from octavo.engine.server.logprobs import completion_logprobs, join_logprobs, prompt_infos, prompt_logprobs_list
from octavo.engine.server.params import to_sampling
from octavo.engine.server.runs import Choice, Run
from octavo.engine.server.schema import CompletionBody, check_neutral, decode
from octavo.engine.server.sse import ChunkWriter
from octavo.engine.server.state import Model, ServerState


class _Answer:
    """How the answers of one call are written: which prompt they echo, whether with logprobs."""

    def __init__(self, body: CompletionBody, model: Model, prompts: list[tuple[str | None, list[int]]], n: int) -> None:
        self._body, self._model, self._n = body, model, n
        self._prompts = prompts

    def echoed(self, choice: Choice) -> str:
        """The prompt's text as sent; of token ids, what they spell."""
        if not self._body.echo:
            return ""
        sent, tokens = self._prompts[choice.index // self._n]
        return sent if sent is not None else self._model.text.tokenizer.decode(tokens)

    def prompt_part(self, choice: Choice) -> dict[str, Any] | None:
        """Logprobs of the echoed prompt, None when not asked for."""
        if not self._body.echo or self._body.logprobs is None:
            return None
        infos = prompt_infos(self._model.text, choice.request.prompt, choice.prompt_logprobs)
        return completion_logprobs(self._model.text, infos)

    def part(self, choice: Choice) -> tuple[str, dict[str, Any] | None]:
        """Pending text and its logprobs."""
        text, infos = choice.take()
        if self._body.logprobs is None:
            return text, None
        return text, completion_logprobs(self._model.text, infos, len(self.echoed(choice)))

    def whole(self, choice: Choice) -> dict[str, Any]:
        """A finished choice."""
        prompt_part = self.prompt_part(choice)
        text, part = self.part(choice)
        logprobs = join_logprobs(prompt_part, part) if prompt_part is not None and part is not None else part
        out: dict[str, Any] = {
            "index": choice.index,
            "text": self.echoed(choice) + text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }
        if self._body.prompt_logprobs is not None and choice.prompt_logprobs is not None:
            out["prompt_logprobs"] = prompt_logprobs_list(self._model.text, choice.prompt_logprobs)
        return out


class CompletionsEndpoint:
    """The handler."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, request: Request) -> Response | Stream:
        """Answers one call."""
        state = self._state
        body = decode(CompletionBody, request.body)
        check_neutral(body)
        model = state.model()
        state.check_name(body.model)
        if body.stream and body.prompt_logprobs is not None:
            raise bad_request("prompt_logprobs cannot be streamed; send stream=false", "prompt_logprobs")
        params = to_sampling(body, model.engine.info, model.text, state.settings.bounds)
        async with AsyncExitStack() as stack:
            stack.enter_context(state.admitted(params.n))
            prompts = await model.prompts.completion(body.prompt, body.add_special_tokens is not False)
            for place, (_, tokens) in enumerate(prompts):
                name = "prompt" if len(prompts) == 1 else f"prompt[{place}]"
                model.prompts.check_tokens(tokens, params.max_tokens, name)
            stack.enter_context(state.admitted(params.n * (len(prompts) - 1)))
            requests = build_requests(state, request, body, params, [tokens for _, tokens in prompts])
            run = open_run(state, model, requests, bool(body.stream))
            stack.push_async_callback(run.close)
            run.start()
            await run.started()
            answer = _Answer(body, model, prompts, params.n)
            if body.stream:
                chunks = self._chunks(request, body, answer, run)
                return Stream(chunks, stack.pop_all().aclose, headers=extra_headers(body))
            await run.finished()
            head = head_of(state, request, "cmpl", "text_completion")
            choices = [answer.whole(choice) for choice in run.choices]
            return json_response(
                {**head, "choices": choices, "usage": usage_of(run, request)}, 200, extra_headers(body)
            )

    def _chunks(self, request: Request, body: CompletionBody, answer: _Answer, run: Run) -> AsyncGenerator[bytes, None]:
        has_usage = bool(body.stream_options and body.stream_options.include_usage)
        head = head_of(self._state, request, "cmpl", "text_completion")
        writer = ChunkWriter(head, is_chat=False, has_usage=has_usage)

        def first(choice: Choice) -> bytes | None:
            if not body.echo:
                return b""
            if body.logprobs is not None and choice.prompt_logprobs is None and not choice.is_done:
                return None  # the prompt has not been through the engine yet
            return writer.text(choice.index, answer.echoed(choice), answer.prompt_part(choice))

        def piece(choice: Choice) -> bytes:
            text, part = answer.part(choice)
            return writer.text(choice.index, text, part)

        return stream_chunks(request, run, writer, first, piece, has_usage=has_usage)

"""POST /v1/completions.

Source: https://platform.openai.com/docs/api-reference/completions. `echo` with `logprobs` reports the prompt's tokens too
(evaluation harnesses live on it), the first without a logprob; `max_tokens: 0` then scores the prompt and makes nothing.
"""

from __future__ import annotations

from typing import Any

from octavo.engine.server.generate import Answer, GenerateEndpoint, Prompt
from octavo.engine.server.logprobs import completion_logprobs, join_logprobs, prompt_infos, prompt_logprobs_list
from octavo.engine.server.runs import Choice
from octavo.engine.server.schema import CompletionBody
from octavo.engine.server.sse import ChunkWriter
from octavo.engine.server.state import Model


class CompletionAnswer(Answer[CompletionBody]):
    """Texts, with their prompt where that is asked for."""

    def whole(self, choice: Choice) -> dict[str, Any]:
        prompt_part = self._prompt_part(choice)
        text, part = self._part(choice)
        logprobs = join_logprobs(prompt_part, part) if prompt_part is not None and part is not None else part
        out: dict[str, Any] = {
            "index": choice.index,
            "text": self._echoed(choice) + text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }
        if self.body.prompt_logprobs is not None and choice.prompt_logprobs is not None:
            out["prompt_logprobs"] = prompt_logprobs_list(self.model.text, choice.prompt_logprobs)
        return out

    def first(self, choice: Choice, writer: ChunkWriter) -> bytes | None:
        if not self.body.echo:
            return b""
        if self.body.logprobs is not None and choice.prompt_logprobs is None and not choice.is_done:
            return None  # the prompt has not been through the engine yet
        return writer.text(choice.index, self._echoed(choice), self._prompt_part(choice))

    def piece(self, choice: Choice, writer: ChunkWriter) -> bytes:
        text, part = self._part(choice)
        return writer.text(choice.index, text, part)

    def _echoed(self, choice: Choice) -> str:
        """The prompt's text as sent; of token ids, what they spell."""
        if not self.body.echo:
            return ""
        prompt = self.prompts[choice.index // self.num_choices]
        return prompt.text if prompt.text is not None else self.model.text.tokenizer.decode(prompt.tokens)

    def _prompt_part(self, choice: Choice) -> dict[str, Any] | None:
        """Logprobs of the echoed prompt, None when not asked for."""
        if not self.body.echo or self.body.logprobs is None:
            return None
        infos = prompt_infos(self.model.text, choice.request.prompt, choice.prompt_logprobs)
        return completion_logprobs(self.model.text, infos)

    def _part(self, choice: Choice) -> tuple[str, dict[str, Any] | None]:
        """Pending text and its logprobs."""
        text, infos = choice.take()
        if self.body.logprobs is None:
            return text, None
        return text, completion_logprobs(self.model.text, infos, len(self._echoed(choice)))


class CompletionsEndpoint(GenerateEndpoint[CompletionBody]):
    """The handler."""

    body_type = CompletionBody
    answer_type = CompletionAnswer
    id_prefix, object_name, chunk_name = "cmpl", "text_completion", "text_completion"

    async def prompts(self, body: CompletionBody, model: Model) -> list[Prompt]:
        found = await model.prompts.completion(body.prompt, body.add_special_tokens is not False)
        names = ["prompt"] if len(found) == 1 else [f"prompt[{place}]" for place in range(len(found))]
        return [Prompt(text, tokens, name) for name, (text, tokens) in zip(names, found, strict=True)]

"""POST /v1/chat/completions.

Source: https://platform.openai.com/docs/api-reference/chat. Role delta first; `usage` in a stream only when asked for, in
one extra chunk; finish reasons are stop and length.
"""

from __future__ import annotations

from typing import Any

from octavo.engine.server.generate import Answer, GenerateEndpoint, Prompt
from octavo.engine.server.logprobs import chat_logprobs, prompt_logprobs_list
from octavo.engine.server.runs import Choice
from octavo.engine.server.schema import ChatBody
from octavo.engine.server.sse import ChunkWriter
from octavo.engine.server.state import Model


class ChatAnswer(Answer[ChatBody]):
    """Messages and deltas."""

    def whole(self, choice: Choice) -> dict[str, Any]:
        text, infos = choice.take()
        out: dict[str, Any] = {
            "index": choice.index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": chat_logprobs(self.model.text, infos) if self.body.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if choice.prompt_logprobs is not None:
            out["prompt_logprobs"] = prompt_logprobs_list(self.model.text, choice.prompt_logprobs)
        return out

    def first(self, choice: Choice, writer: ChunkWriter) -> bytes:
        return writer.role(choice.index)

    def piece(self, choice: Choice, writer: ChunkWriter) -> bytes:
        text, infos = choice.take()
        return writer.text(choice.index, text, chat_logprobs(self.model.text, infos) if infos else None)


class ChatEndpoint(GenerateEndpoint[ChatBody]):
    """The handler."""

    body_type = ChatBody
    answer_type = ChatAnswer
    id_prefix, object_name, chunk_name = "chatcmpl", "chat.completion", "chat.completion.chunk"

    async def prompts(self, body: ChatBody, model: Model) -> list[Prompt]:
        tokens = await model.prompts.chat(
            body.messages,
            add_generation_prompt=body.add_generation_prompt is not False,
            continue_final_message=bool(body.continue_final_message),
            template_kwargs=body.chat_template_kwargs,
        )
        return [Prompt(None, tokens, "messages")]

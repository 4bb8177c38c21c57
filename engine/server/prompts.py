"""From messages or prompts to token ids, bounded first, and off the event loop when it could take long.

A text with more characters than the context has tokens times the longest token cannot fit, and is refused before it is
tokenised. One small thread pool serves all long prompts: the event loop never waits for a tokenizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.engine.errors import TooLargeError
from octavo.engine.messages import EngineInfo
from octavo.engine.sampling_params import check_token_ids
from octavo.engine.server.bounds import Bounds
from octavo.engine.server.http import bad_request
from octavo.engine.server.schema import ChatMessage

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText

T = TypeVar("T")
_ROLES = ("system", "developer", "user", "assistant")


class Prompts:
    """Makes prompts for one model."""

    def __init__(self, text: ModelText, info: EngineInfo, bounds: Bounds) -> None:
        self._text, self._info, self._bounds = text, info, bounds
        self._pool = ThreadPoolExecutor(1, "octavo-tokenize")

    async def _run(self, num_chars: int, param: str, work: Callable[[], T]) -> T:
        if num_chars <= self._bounds.inline_chars:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._bounded, num_chars, param, work)

    async def offload(self, num_chars: int, work: Callable[[], T]) -> T:
        """The result of work on texts of so many characters: done at once, or in the thread of long ones."""
        if num_chars <= self._bounds.inline_chars:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _bounded(self, num_chars: int, param: str, work: Callable[[], T]) -> T:
        most = self._info.max_model_len * self._text.max_token_chars
        if num_chars > most:
            raise TooLargeError(
                f"{param} has {num_chars} characters; this model's {self._info.max_model_len} tokens of context "
                f"hold at most {most}; shorten it",
                param=param,
            )
        return work()

    def check_tokens(self, tokens: list[int], max_tokens: int | None, param: str) -> None:
        """A prompt must be there, hold known ids, and leave room for what was asked."""
        if not tokens:
            raise bad_request(f"{param} is empty; send at least one token", param)
        limit = self._info.max_model_len
        wanted = max(max_tokens if max_tokens is not None else 1, 0)
        if len(tokens) + wanted > limit:  # of a far too long text only a part was tokenised, hence "at least"
            raise TooLargeError(
                f"the prompt has at least {len(tokens)} tokens and {wanted} more were asked for; this model's context is {limit} "
                "tokens; shorten the prompt or lower max_tokens",
                param=param,
            )

    async def encode(self, text: str, add_special: bool, param: str = "prompt") -> list[int]:
        """Token ids of a text prompt; of one that is too long only so many that this shows."""
        limit = self._info.max_model_len
        return await self._run(
            len(text), param, lambda: self._text.encode(text, add_special=add_special, max_tokens=limit)
        )

    async def chat(
        self,
        messages: list[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation."""
        plain = self._plain(messages)
        num_chars = sum(_num_chars(message["content"]) for message in plain)
        if continue_final_message and (add_generation_prompt or plain[-1]["role"] != "assistant"):
            raise bad_request(
                "continue_final_message needs an assistant message at the end and add_generation_prompt=false",
                "continue_final_message",
            )
        return await self._run(
            num_chars,
            "messages",
            lambda: self._text.encode_chat(
                plain,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                kwargs=template_kwargs or {},
            ),
        )

    def _plain(self, messages: list[ChatMessage]) -> list[dict[str, Any]]:
        if not 0 < len(messages) <= self._bounds.max_messages:
            raise bad_request(
                f"messages has {len(messages)} entries; 1 to {self._bounds.max_messages} work", "messages"
            )
        return [self._message(message, f"messages[{i}]") for i, message in enumerate(messages)]

    def _message(self, message: ChatMessage, at: str) -> dict[str, Any]:
        """What the template sees of a message. What it holds is checked where all messages are
        (`octavo.engine.text.messages`); here is what the API promises, and the bounds."""
        if message.role not in _ROLES:
            raise bad_request(f"{at}.role is {message.role[:40]!r}; allowed are {', '.join(_ROLES)}", f"{at}.role")
        for name in ("tool_calls", "function_call", "audio"):
            if getattr(message, name):
                raise bad_request(f"{at}.{name} is not supported; remove it", f"{at}.{name}", "unsupported_parameter")
        out = {"role": message.role, "content": self._content(message, at)}
        if message.name:
            out["name"] = message.name
        return out

    def _content(self, message: ChatMessage, at: str) -> str | list[dict[str, Any]]:
        content, is_assistant = message.content, message.role == "assistant"
        if message.refusal and (content or not is_assistant):
            raise bad_request(f"{at}.refusal stands for an assistant's content; send one of the two", f"{at}.refusal")
        if content is None:
            if not is_assistant:
                raise bad_request(f"{at}.content is missing; send text", f"{at}.content", "missing_field")
            return message.refusal or ""
        if isinstance(content, str):
            return content
        if len(content) > self._bounds.max_parts:
            raise bad_request(
                f"{at}.content has {len(content)} parts; at most {self._bounds.max_parts}", f"{at}.content"
            )
        return [{"type": part.type, "text": part.text, "refusal": part.refusal} for part in content]

    async def completion(
        self, prompt: str | list[str | int | list[int]], add_special: bool
    ) -> list[tuple[str | None, list[int]]]:
        """(text as sent or None, token ids) of each prompt in a completion body."""
        if isinstance(prompt, str):
            prompt = [prompt]
        if not prompt:
            raise bad_request("prompt is an empty list; send at least one prompt", "prompt")
        if all(type(entry) is int for entry in prompt):
            return [(None, self._ids(prompt))]
        if len(prompt) > self._bounds.max_prompts:
            raise bad_request(f"prompt has {len(prompt)} entries; at most {self._bounds.max_prompts}", "prompt")
        if all(isinstance(entry, str) for entry in prompt):
            return [(str(entry), await self.encode(str(entry), add_special)) for entry in prompt]
        if all(isinstance(entry, list) for entry in prompt):
            return [(None, self._ids(entry)) for entry in prompt]
        raise bad_request("prompt mixes strings, token ids and lists; send one kind", "prompt", "invalid_type")

    def _ids(self, ids: Any) -> list[int]:
        if len(ids) > self._info.max_model_len:
            raise TooLargeError(
                f"prompt has {len(ids)} tokens; this model's context is {self._info.max_model_len}; shorten it",
                param="prompt",
            )
        check_token_ids("prompt", ids, self._info.vocab_size)
        return list(ids)


def _num_chars(content: str | list[dict[str, Any]]) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part["text"] or part["refusal"] or "") for part in content)

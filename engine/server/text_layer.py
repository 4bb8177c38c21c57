"""The text layer of one served model: its tokenizer and its chat template behind the four calls the server makes.

Text is str (characters), tokens are ids of the model's vocabulary. Encoding may be called from a worker thread; it reads
immutable state only. A prompt that is too long for `max_tokens` may come back cut, but always with more than `max_tokens` ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from octavo.engine.sampling_params import SamplingParams
from octavo.engine.server.http import bad_request
from octavo.engine.text.output import TextStream
from octavo.engine.text.spans import Span
from octavo.engine.text.tokenizer import Tokenizer


class ChatTemplate(Protocol):
    """How a conversation is written down. RequestError when it refuses the messages or exceeds its budgets."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        kwargs: Mapping[str, Any],
    ) -> list[Span]:
        """The rendered prompt, each part with its origin."""
        ...


class TextLayer:
    """Tokenizer and chat template (None: the model has none) of one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self.template = template

    @cached_property
    def max_token_chars(self) -> int:
        """Characters of the longest token: a text longer than this times the context cannot fit."""
        return max(map(len, self.tokenizer.rust.get_vocab()), default=1)

    def encode(self, text: str, *, add_special: bool, max_tokens: int) -> list[int]:
        """Token ids of foreign text; control tokens only as the tokenizer adds them around a prompt."""
        return self.tokenizer.encode(text, add_special=add_special, max_tokens=max_tokens)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        kwargs: Mapping[str, Any],
    ) -> list[int]:
        """Token ids of a conversation."""
        if self.template is None:
            raise bad_request(
                "this model has no chat template; use /v1/completions", "messages", code="no_chat_template"
            )
        spans = self.template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            kwargs=kwargs,
        )
        return self.tokenizer.encode_spans(spans)

    def token_text(self, token: int) -> str:
        """One token as text; U+FFFD where it is a part of a character."""
        return self.tokenizer.token_bytes(token).decode("utf-8", "replace")

    def open_stream(self, params: SamplingParams) -> TextStream:
        """The text machine of one answer."""
        return TextStream(
            self.tokenizer,
            stops=params.stop,
            include_stop=params.include_stop_str_in_output,
            skip_special=params.skip_special_tokens,
            min_tokens=params.min_tokens,
            with_tokens=params.logprobs is not None,
        )

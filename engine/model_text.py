"""The text side of one model: tokenizer and chat template, behind the few calls that servers and `LLM` make.

Encoding may be called from worker threads; it reads immutable state only. A prompt longer than `max_tokens` may come back
cut, but always with more than `max_tokens` ids, so that refusing it stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.loading.config import ModelFiles, open_model
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.text.chat_template import ChatTemplate
from octavo.engine.text.output import TextStream
from octavo.engine.text.tokenizer import Tokenizer

NO_TEMPLATE = (
    "this model has no chat template; complete plain text (/v1/completions, octavo generate without --chat), or serve it with "
    "--chat-template"
)


class ModelText:
    """Tokenizer and chat template (None: the model has none) of one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self.template = template

    @cached_property
    def max_token_chars(self) -> int:
        """Characters of the longest token: a text longer than this times the context cannot fit."""
        return max(map(len, self.tokenizer.rust.get_vocab()), default=1)

    def encode(self, text: str, *, add_special: bool = True, max_tokens: int | None = None) -> list[int]:
        """Ids of foreign text; control tokens only as the tokenizer itself adds them around a prompt."""
        return self.tokenizer.encode(text, add_special=add_special, max_tokens=max_tokens)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of a conversation, rendered by the model's template. RequestError where it refuses the messages."""
        if self.template is None:
            raise RequestError(
                NO_TEMPLATE,
                param="messages",
                code="no_chat_template",
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


def load_text(path: str | Path, *, template: str | None = None) -> ModelText:
    """Tokenizer and template of a resolved model path, or of a folder or file that holds a tokenizer only. `template`: a
    built-in's name or template text instead of its own."""
    path = Path(path)
    if path.suffix == ".json" or (path / "tokenizer.json").is_file():
        return _with_template(Tokenizer.from_file(path), template)
    files = open_model(path)
    try:
        return text_of(files, template=template)
    finally:
        files.checkpoint.close()


def text_of(files: ModelFiles, *, template: str | None = None, in_excerpts: bool = False) -> ModelText:
    """The same of open files. `in_excerpts`: a large vocabulary is built only once texts have made it worth it."""
    if files.tokenizer_files:
        tokenizer = Tokenizer.from_file(next(iter(files.tokenizer_files.values())).parent)
    elif files.kind == "gguf":
        tokenizer = Tokenizer.from_gguf(files.metadata, in_excerpts=in_excerpts)
    else:
        raise ModelError(f"{files.path} has no tokenizer files; give the folder that holds tokenizer.json")
    return _with_template(tokenizer, template)


def _with_template(tokenizer: Tokenizer, template: str | None) -> ModelText:
    has_template = template is not None or bool(tokenizer.chat_templates)
    return ModelText(tokenizer, ChatTemplate.for_tokenizer(tokenizer, template=template) if has_template else None)

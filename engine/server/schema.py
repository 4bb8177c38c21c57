"""Request bodies of the OpenAI endpoints, as strict structs: an unknown field is an error.

Three kinds of field. Honoured ones reach the prompt or SamplingParams. NEUTRAL ones are known but not served: the values
listed there ask for nothing and are accepted, any other is a 400. HARMLESS ones cannot change an answer: accepted, not
acted on, and named in the response header `x-octavo-ignored`. Those inside messages are HARMLESS_IN_MESSAGES.
Sources: https://platform.openai.com/docs/api-reference (chat, completions, models); vLLM's extra sampling fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from octavo.engine.server.http import HttpError, bad_request

HARMLESS = ("user", "metadata", "safety_identifier", "prompt_cache_key", "store", "service_tier")
HARMLESS_IN_MESSAGES = ("cache_control", "annotations")
_OFF: tuple[Any, ...] = (None, False)
_EMPTY: tuple[Any, ...] = (None, [])
#: field -> (values that ask for nothing, what to do instead)
NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "store": (_OFF, "answers are never stored; leave it out"),
    "service_tier": ((None, "auto", "default"), "there is one tier; send auto"),
    "tools": (_EMPTY, "tool calling is not supported; leave it out"),
    "tool_choice": ((None, "none", "auto"), "tool calling is not supported; send none"),
    "parallel_tool_calls": ((None, True, False), "tool calling is not supported"),
    "functions": (_EMPTY, "tool calling is not supported; leave it out"),
    "function_call": ((None, "none", "auto"), "tool calling is not supported; send none"),
    "response_format": ((None, {"type": "text"}), "only plain text is supported; send {'type': 'text'}"),
    "modalities": ((None, ["text"]), "only text is produced"),
    "suffix": ((None, ""), "infilling is not supported; leave it out"),
    "chat_template": ((None,), "the model's own template is used; leave it out"),
    "reasoning_effort": ((None,), "not supported; leave it out"),
    "best_of": ((None,), "send n instead; answers are not ranked"),
    "use_beam_search": (_OFF, "beam search is not supported"),
}


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`include_obfuscation` false is the only value served: chunks are never padded."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What chat and completion bodies share. None means not sent; ranges are checked by SamplingParams.validate."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: int | None = None
    priority: int | None = None
    cache_salt: str | None = None
    add_special_tokens: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: Any = None
    service_tier: Any = None
    best_of: Any = None
    use_beam_search: Any = None


class TextPart(msgspec.Struct, forbid_unknown_fields=True):
    """One part of a message's content; `type` other than text (and an assistant's refusal) is refused by name."""

    type: str
    text: str | None = None
    cache_control: Any = None
    image_url: Any = None
    input_audio: Any = None
    file: Any = None
    refusal: Any = None


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One turn. Roles: system, developer (system where the template knows no other), user, assistant.

    An assistant's content may be null or missing, as answers that were only a tool call or a refusal have it.
    """

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None
    annotations: Any = None
    cache_control: Any = None


class ChatBody(Body, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    chat_template: Any = None
    reasoning_effort: Any = None


class CompletionBody(Body, kw_only=True):
    """POST /v1/completions. `prompt`: a string, strings, token ids, or lists of token ids."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    suffix: Any = None
    response_format: Any = None


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /tokenize: `prompt` or `messages`, not both."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]


B = TypeVar("B", bound=msgspec.Struct)
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}
_AT = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_MISSING = re.compile(r"required field `(.*?)`")
_KEY_BEFORE = re.compile(rb'"(\w{1,64})"\s*:\s*[-+]?$')


def decode(kind: type[B], body: bytes) -> B:
    """The body as a struct, or a 400 that names the field. NaN and Infinity are not JSON and are refused."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        value: B = decoder.decode(body)
    except RecursionError:
        raise bad_request("the JSON body is nested too deeply; use fewer levels", code="invalid_json") from None
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind.__struct_fields__) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), body) from None
    return value


def _explain(text: str, fields: Sequence[str]) -> HttpError:
    """msgspec's message as ours, with the field's path as `param`; `fields` are the endpoint's."""
    at = _AT.search(text)
    path = at.group(1) if at else ""
    what = text[: at.start()] if at else text
    for pattern, code in ((_UNKNOWN, "unknown_field"), (_MISSING, "missing_field")):
        named = pattern.search(what)
        if named:
            field = f"{path}.{named.group(1)}" if path else named.group(1)
            verb = "is required; send it"
            if code == "unknown_field":
                near = [] if path else get_close_matches(field[:64], fields, 1, 0.8)
                verb = f"is not a field of this endpoint; {f'did you mean {near[0]}?' if near else 'remove it'}"
            return bad_request(f"{field} {verb}", field[:256], code)
    where = f"{path}: " if path else "the body: "
    return bad_request(where + what[:1].lower() + what[1:], path or None, "invalid_type")


def _malformed(text: str, body: bytes) -> HttpError:
    offset = re.search(r"\(byte (\d+)\)", text)
    before = _KEY_BEFORE.search(body[: int(offset.group(1))][-200:]) if offset else None
    if before:
        name = before.group(1).decode()
        return bad_request(f"{name}: {text}; NaN and Infinity are not JSON numbers", name, "invalid_json")
    return bad_request(f"the body is not valid JSON: {text}", code="invalid_json")


def check_neutral(body: Body) -> None:
    """Refuses every known but unserved field whose value asks for something."""
    for name, (neutral, hint) in NEUTRAL.items():
        value = getattr(body, name, None)
        if any(value == allowed and type(value) is type(allowed) for allowed in neutral):
            continue
        if name == "best_of" and value == (body.n or 1) and type(value) is int:
            continue  # n answers out of n: nothing to rank
        raise bad_request(f"{name} asks for something this server does not do: {hint}", name, "unsupported_parameter")
    if body.stream_options is not None:
        if not body.stream:
            raise bad_request("stream_options is only for stream=true; remove it or stream", "stream_options")
        if body.stream_options.include_obfuscation:
            name = "stream_options.include_obfuscation"
            raise bad_request(f"{name}: chunks are never padded; send false", name, "unsupported_parameter")


def ignored_fields(body: msgspec.Struct) -> list[str]:
    """Harmless fields that were sent and not acted on."""
    names = [name for name in HARMLESS if getattr(body, name, None) is not None]
    messages = getattr(body, "messages", None) or ()
    return names + [f"messages.{name}" for name in HARMLESS_IN_MESSAGES if any(_has(m, name) for m in messages)]


def _has(message: ChatMessage, name: str) -> bool:
    parts = message.content if isinstance(message.content, list) else ()
    return any(getattr(holder, name, None) for holder in (message, *parts))

"""From a request body to SamplingParams: names, defaults and the cheap bounds; ranges are `SamplingParams.validate`'s.

Counts are checked before lists are converted, so a body within the size limit cannot make this slow or large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.engine.messages import EngineInfo
from octavo.engine.sampling_params import MAX_BAD_WORDS, MAX_BIAS_ENTRIES, MAX_STOP_STRINGS, SamplingParams
from octavo.engine.server.bounds import Bounds
from octavo.engine.server.http import bad_request
from octavo.engine.server.schema import Body, ChatBody, CompletionBody

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText

DEFAULT_COMPLETION_TOKENS = 16  # the OpenAI default of /v1/completions
_SAME_NAME = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "seed", "ignore_eos", "min_tokens", "stop_token_ids", "allowed_token_ids"),
    *("skip_special_tokens", "prompt_logprobs", "n"),
)
_MAX_PRIORITY = 1 << 31


def _capped(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise bad_request(f"{name} has {count} entries, allowed are {limit}; send fewer", name)


def _bias(raw: dict[str, float]) -> dict[int, float]:
    _capped("logit_bias", len(raw), MAX_BIAS_ENTRIES)
    out: dict[int, float] = {}
    for key, value in raw.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10):
            raise bad_request(
                f"logit_bias key {key[:40]!r} is not a token id; send ids as decimal strings", "logit_bias"
            )
        out[int(key)] = value
    return out


def _bad_words(words: list[str], text: ModelText, bounds: Bounds) -> list[list[int]]:
    """A word as it stands and as it stands after a space: both spellings are refused to the sampler."""
    _capped("bad_words", len(words), MAX_BAD_WORDS // 2)
    out: list[list[int]] = []
    for word in words:
        if not 0 < len(word) <= bounds.max_bad_word_chars:
            raise bad_request(
                f"a bad word has 1 to {bounds.max_bad_word_chars} characters, not {len(word)}", "bad_words"
            )
        for spelling in (word, " " + word):
            ids = text.tokenizer.encode(spelling, add_special=False)
            if ids and ids not in out:
                out.append(ids)
    return out


def to_sampling(body: Body, info: EngineInfo, text: ModelText, bounds: Bounds) -> SamplingParams:
    """Validated sampling parameters of a chat or completion body; RequestError names the field."""
    fields: dict[str, Any] = {name: getattr(body, name) for name in _SAME_NAME if getattr(body, name) is not None}
    if body.stop is not None:
        stops = [body.stop] if isinstance(body.stop, str) else body.stop
        _capped("stop", len(stops), MAX_STOP_STRINGS)
        fields["stop"] = stops
    if body.include_stop_str_in_output:
        fields["include_stop_str_in_output"] = True
    if body.logit_bias:
        fields["logit_bias"] = _bias(body.logit_bias)
    if body.bad_words:
        fields["bad_words"] = _bad_words(body.bad_words, text, bounds)
    if body.priority is not None and abs(body.priority) > _MAX_PRIORITY:
        raise bad_request(f"priority is beyond {_MAX_PRIORITY}; use a smaller number", "priority")
    if body.cache_salt is not None and not 0 < len(body.cache_salt) <= bounds.max_salt_chars:
        raise bad_request(f"cache_salt has 1 to {bounds.max_salt_chars} characters", "cache_salt")
    if isinstance(body, ChatBody):
        _chat_fields(body, fields)
    elif isinstance(body, CompletionBody):
        _completion_fields(body, fields)
    params = SamplingParams(**fields)
    params.validate(info.vocab_size)
    return params


def _chat_fields(body: ChatBody, fields: dict[str, Any]) -> None:
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise bad_request("max_tokens and max_completion_tokens were both sent; send the latter", "max_tokens")
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if limit is not None:
        name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        if limit < 1:
            raise bad_request(f"{name} is {limit}; it must be at least 1", name)
        fields["max_tokens"] = limit
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs=true; send both or neither", "top_logprobs")
    if body.logprobs:
        if not 0 <= (body.top_logprobs or 0) <= 20:
            raise bad_request(f"top_logprobs is {body.top_logprobs}; allowed are 0 to 20", "top_logprobs")
        fields["logprobs"] = body.top_logprobs or 0


def _completion_fields(body: CompletionBody, fields: dict[str, Any]) -> None:
    fields["max_tokens"] = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    if body.logprobs is not None:
        fields["logprobs"] = body.logprobs
        if body.echo and body.prompt_logprobs is None:
            fields["prompt_logprobs"] = body.logprobs
    if fields["max_tokens"] == 0:
        if not body.echo:
            raise bad_request("max_tokens is 0 without echo, which asks for nothing; send 1 or more", "max_tokens")
        fields.setdefault("prompt_logprobs", 0)  # the engine's way to run a prompt and sample nothing

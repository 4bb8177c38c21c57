"""What a caller may ask of sampling: every field, its range, and the one place where ranges are checked.

Frozen: one object is shared by all choices of a request and by both processes (it travels as msgpack). Ranges follow
the OpenAI API where it has the field; the table `BOUNDS` is the single list of numeric ranges. `validate` must run
before anything is allocated for the request: a value that passes can neither hang nor crash the sampler nor make it
allocate more than `MAX_*` says. Token ids are integers in [0, vocab_size).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from octavo.engine.errors import RequestError


class Bound(NamedTuple):
    """A closed range, or one open at its lower end."""

    low: float
    high: float
    is_low_open: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return False
        return (self.low < value if self.is_low_open else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low, high = (f"{end}" if isinstance(end, int) else f"{end:g}" for end in (self.low, self.high))
        return f"{'(' if self.is_low_open else '['}{low}, {high}]"


MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_IDS = 1024
MAX_BIAS_ENTRIES = 1024
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_TOKENS = 64

BOUNDS: dict[str, Bound] = {
    "temperature": Bound(0.0, 2.0),
    "top_k": Bound(-1, MAX_TOKENS),
    "top_p": Bound(0.0, 1.0, is_low_open=True),
    "min_p": Bound(0.0, 1.0),
    "typical_p": Bound(0.0, 1.0, is_low_open=True),
    "presence_penalty": Bound(-2.0, 2.0),
    "frequency_penalty": Bound(-2.0, 2.0),
    "repetition_penalty": Bound(0.0, 2.0, is_low_open=True),
    "min_tokens": Bound(0, MAX_TOKENS),
    "max_tokens": Bound(0, MAX_TOKENS),
    "seed": Bound(-(2**63), 2**64 - 1),
    "n": Bound(1, MAX_CHOICES),
    "logprobs": Bound(0, MAX_LOGPROBS),
    "prompt_logprobs": Bound(0, MAX_LOGPROBS),
}
INTEGERS = frozenset({"top_k", "min_tokens", "max_tokens", "seed", "n", "logprobs", "prompt_logprobs"})
OPTIONAL = frozenset({"max_tokens", "seed", "logprobs", "prompt_logprobs"})
BIAS_BOUND = Bound(-100.0, 100.0)


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How to sample one request. Defaults sample from the model's own distribution.

    temperature          [0, 2]; 0 is greedy (the filters below are then without effect)
    top_k                0 or -1 keeps all; larger than the vocabulary keeps all
    top_p                (0, 1]; 1 keeps all
    min_p                [0, 1]; keeps tokens with p >= min_p * max p
    typical_p            (0, 1]; 1 keeps all (locally typical sampling)
    presence_penalty     [-2, 2], on output tokens
    frequency_penalty    [-2, 2], on output tokens, per occurrence
    repetition_penalty   (0, 2], on prompt and output tokens; 1 is off
    logit_bias           {token id: [-100, 100]}; -100 never samples the token, 100 all but forces it
    bad_words            token id sequences that must not be completed
    min_tokens           no end of sequence or stop id before so many output tokens
    max_tokens           output tokens at most; None: up to the context length; 0 only together with prompt_logprobs
    stop                 strings that end the answer (found by the text layer), 16 at most
    stop_token_ids       token ids that end the answer, beside the model's own end of sequence
    ignore_eos           the model's end of sequence does not end the answer
    seed                 any 64-bit integer: the same request gives the same tokens whoever its neighbours are
    n                    number of choices, [1, 128]
    logprobs             number of best tokens reported per output token; 0: only the sampled one; None: none
    prompt_logprobs      the same for prompt tokens
    skip_special_tokens  leave special tokens out of the text
    include_stop_str_in_output   keep the stop string or stop token in the text
    allowed_token_ids    only these may be sampled; None: all
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    bad_words: list[list[int]] = []
    min_tokens: int = 0
    max_tokens: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    allowed_token_ids: list[int] | None = None

    def validate(self, vocab_size: int) -> None:
        """Raise RequestError naming the first bad parameter. Cost is bounded by the MAX_* constants and vocab_size."""
        for name, bound in BOUNDS.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            if value not in bound or (name in INTEGERS and not isinstance(value, int)):
                kind = "an integer" if name in INTEGERS else "a number"
                raise RequestError(f"{name} is {_show(value)}; it must be {kind} in {bound}", param=name)
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise RequestError("max_tokens is 0; ask for at least 1, or for prompt logprobs", param="max_tokens")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens is {self.min_tokens}, above max_tokens {self.max_tokens}; lower it", param="min_tokens"
            )
        self._validate_stops(vocab_size)
        self._validate_tokens(vocab_size)

    def _validate_stops(self, vocab_size: int) -> None:
        _check_count("stop", len(self.stop), MAX_STOP_STRINGS)
        for text in self.stop:
            if not 0 < len(text) <= MAX_STOP_CHARS:
                raise RequestError(
                    f"a stop string has {len(text)} characters; it must have 1 to {MAX_STOP_CHARS}", param="stop"
                )
        _check_count("stop_token_ids", len(self.stop_token_ids), MAX_STOP_IDS)
        check_token_ids("stop_token_ids", self.stop_token_ids, vocab_size)

    def _validate_tokens(self, vocab_size: int) -> None:
        _check_count("logit_bias", len(self.logit_bias), MAX_BIAS_ENTRIES)
        check_token_ids("logit_bias", self.logit_bias, vocab_size)
        for token, bias in self.logit_bias.items():
            if bias not in BIAS_BOUND:
                raise RequestError(
                    f"logit_bias of token {token} is {_show(bias)}; it must be a number in {BIAS_BOUND}",
                    param="logit_bias",
                )
        _check_count("bad_words", len(self.bad_words), MAX_BAD_WORDS)
        for word in self.bad_words:
            if not 0 < len(word) <= MAX_BAD_WORD_TOKENS:
                raise RequestError(
                    f"a bad word has {len(word)} tokens; it must have 1 to {MAX_BAD_WORD_TOKENS}", param="bad_words"
                )
            check_token_ids("bad_words", word, vocab_size)
        allowed = self.allowed_token_ids
        if allowed is not None:
            if not allowed:
                raise RequestError("allowed_token_ids is empty; name at least one token", param="allowed_token_ids")
            _check_count("allowed_token_ids", len(allowed), vocab_size)
            check_token_ids("allowed_token_ids", allowed, vocab_size)
            if all(self.logit_bias.get(token, 0.0) <= BIAS_BOUND.low for token in allowed):
                raise RequestError(
                    "logit_bias forbids every one of allowed_token_ids; leave at least one", param="logit_bias"
                )
        if len(self.logit_bias) >= vocab_size and all(b <= BIAS_BOUND.low for b in self.logit_bias.values()):
            raise RequestError("logit_bias forbids the whole vocabulary; leave at least one token", param="logit_bias")


def check_token_ids(param: str, ids: list[int] | dict[int, float], vocab_size: int) -> None:
    """Raise RequestError naming `param` when an id is not an integer in [0, vocab_size). Used for prompts too."""
    if not ids:
        return
    for token in ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise RequestError(
                f"{param} holds token id {_show(token)}; this model's ids are 0 to {vocab_size - 1}", param=param
            )


def _check_count(param: str, count: int, limit: int) -> None:
    if count > limit:
        raise RequestError(f"{param} has {count} entries; at most {limit} are allowed", param=param)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."

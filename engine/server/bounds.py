"""Every bound of a request, in one place; all are checked before anything of that size is allocated.

Counts are items, sizes say bytes or chars. JSON nesting is bounded by the decoder (below 1,000 levels); a prompt's tokens
are bounded by the model's context, and its characters by what could fit into that context at all. The sampling fields'
own bounds (n, logprobs, stops, biases, bad words) are in `octavo.engine.sampling_params`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Limits on one request; the defaults are documented values."""

    max_body_bytes: int = 32 << 20
    body_timeout_s: float = 30.0
    max_messages: int = 4096
    max_parts: int = 256  # text parts in one message
    max_prompts: int = 1024  # prompts in one completion call
    max_runs: int = 1024  # prompts x n
    max_inputs: int = 1 << 15  # texts in one call of an endpoint that gives vectors
    max_whole_chars: int = 1 << 20  # of a text that has to be tokenized to its end, for its start is to be cut
    max_bad_word_chars: int = 1024
    max_salt_chars: int = 256
    inline_chars: int = 2000  # longer prompts are rendered and tokenised in a thread


@dataclass(frozen=True)
class StreamLimits:
    """How streams behave. A client that reads nothing for `slow_client_s` while its buffer is full is dropped."""

    max_buffered_chars: int = 256 << 10
    slow_client_s: float = 60.0
    ping_s: float = 15.0
    first_event_s: float = 1.0  # wait this long for a refusal before the 200 and the role chunk go out

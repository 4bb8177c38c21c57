"""Which of the tokens that a step sampled become part of the answer, token by token. Pure functions of one request.

A token that ends the request (end of sequence, stop id) is kept as the last one; what was sampled behind it never
existed: it enters neither the tokens, nor the prefix cache, nor any count.
"""

from __future__ import annotations

from octavo.engine.plan import PlanEntry
from octavo.engine.request import FinishReason, Request


def end_reason(request: Request) -> FinishReason | None:
    """Why the request ends with its newest token, or None. Stop ids do not count within the first `min_tokens`."""
    tokens = request.tokens
    if tokens[-1] in request.stop_ids and len(tokens) > request.min_len:
        return "stop"
    return "length" if len(tokens) >= request.max_len else None


def accept(request: Request, entry: PlanEntry, sampled: list[int]) -> list[int]:
    """The tokens kept of 0..n sampled ones (accepted drafts and one more), with the computed count set to what they
    justify: KV behind the last kept token's predecessor is garbage and will be overwritten."""
    length = len(request.tokens)
    kept = sampled[: max(0, request.max_len - length)]
    for i, token in enumerate(kept):
        if token in request.stop_ids and length + i + 1 > request.min_len:
            kept = kept[: i + 1]
            break
    if request.epoch == entry.epoch:
        known = entry.num_tokens - len(entry.drafts)
        request.num_computed = request.num_planned = entry.start + known - 1 + len(kept)
    return kept

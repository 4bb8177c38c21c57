"""What the scheduler refuses at the door, before anything is kept: what can never fit, and what the queue cannot hold.

One rule for length, in tokens: prompt + max_tokens (1 when it is None) must fit both the model's limit and the whole KV
pool; nothing is ever cut silently. Without max_tokens a request runs to that limit.
"""

from __future__ import annotations

from octavo.engine.errors import OverloadedError, RequestError, TooLargeError
from octavo.engine.kv.manager import KVManager
from octavo.engine.request import Request


def check_length(request: Request, kv: KVManager, max_model_len: int) -> None:
    """Raise RequestError for an empty prompt, TooLargeError for what can never fit."""
    num_prompt, max_tokens = request.num_prompt, request.params.max_tokens
    if num_prompt == 0:
        raise RequestError("the prompt has no tokens; send at least one", param="prompt")
    num_pool = kv.max_tokens
    max_len = min(max_model_len, num_pool)
    wanted = num_prompt + (1 if max_tokens is None else max_tokens)
    if wanted <= max_len:
        return
    limit = (
        f"this model's limit is {max_model_len} tokens"
        if max_model_len <= num_pool
        else f"the KV pool of {kv.pool.num_usable} blocks of {kv.block_tokens} tokens holds {num_pool} tokens"
    )
    has, do = f"the prompt has {num_prompt} tokens", "shorten the prompt"
    if num_prompt < max_len:
        has, do = f"{has} and {wanted - num_prompt} more are asked for", f"{do} or lower max_tokens"
    raise TooLargeError(
        f"{has}, but {limit}, answer included; {do}",
        param="prompt" if num_prompt >= max_len else "max_tokens",
    )


def check_queue(request: Request, num_queued: int, max_waiting: int) -> None:
    """Raise OverloadedError when the queue cannot take all choices of the request."""
    if num_queued + request.params.n > max_waiting:
        raise OverloadedError(
            f"{num_queued} choices wait and {request.params.n} more were asked for; "
            f"at most {max_waiting} may wait; try again later"
        )

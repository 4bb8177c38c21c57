"""Logprobs in the two shapes OpenAI has: chat (with bytes) and completions (parallel lists).

A token that is only a part of a character is written `bytes:\\xNN...` in completions and with its true bytes in chat.
Source: https://platform.openai.com/docs/api-reference (logprobs objects).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from octavo.engine.messages import TokenLogprobs
from octavo.engine.server.runs import TokenInfo
from octavo.engine.text.output import TextStream

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText

_FLOOR = -9999.0  # what OpenAI writes for minus infinity, which JSON has no word for


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _FLOOR


def _chat_entry(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": data.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(data)}


def chat_logprobs(text: ModelText, infos: Iterable[TokenInfo]) -> dict[str, Any]:
    """`{"content": [...], "refusal": null}` of some tokens."""
    content = []
    for token, lp in infos:
        if lp is None:
            continue
        entry = _chat_entry(token.data, lp.logprob)
        best = zip(lp.best_ids, lp.best_logprobs, strict=True)
        entry["top_logprobs"] = [_chat_entry(text.tokenizer.token_bytes(other), value) for other, value in best]
        content.append(entry)
    return {"content": content, "refusal": None}


def _spelled(data: bytes) -> str:
    """One token as completions spell it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def completion_logprobs(text: ModelText, infos: Iterable[TokenInfo], start: int = 0) -> dict[str, Any]:
    """`tokens`, `token_logprobs`, `top_logprobs`, `text_offset`; `start`: where the answer begins in the text shown."""
    out: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token, lp in infos:
        out["tokens"].append(_spelled(token.data))
        out["token_logprobs"].append(None if lp is None else _finite(lp.logprob))
        out["top_logprobs"].append(None if lp is None else _best(text, token.data, lp))
        out["text_offset"].append(start + token.offset)
    return out


def _best(text: ModelText, own: bytes, lp: TokenLogprobs) -> dict[str, float]:
    """The best tokens and always the token itself; of two tokens spelled alike the likelier stays."""
    out: dict[str, float] = {}
    for token, value in zip(lp.best_ids, lp.best_logprobs, strict=True):
        out.setdefault(_spelled(text.tokenizer.token_bytes(token)), _finite(value))
    out.setdefault(_spelled(own), _finite(lp.logprob))
    return out


def join_logprobs(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The lists of two `completion_logprobs` one after the other."""
    return {name: first[name] + second[name] for name in first}


def prompt_infos(
    text: ModelText, prompt: Sequence[int], logprobs: Sequence[TokenLogprobs | None] | None
) -> list[TokenInfo]:
    """The prompt's tokens for `completion_logprobs`; position 0 has no logprob."""
    tokens = TextStream(text.tokenizer, strip_first_space=True, with_tokens=True).push(prompt).tokens
    entries: list[TokenLogprobs | None] = [None] * len(tokens) if logprobs is None else [None, *logprobs[1:]]
    return [TokenInfo(token, lp) for token, lp in zip(tokens, entries, strict=True)]


def prompt_logprobs_list(text: ModelText, logprobs: Sequence[TokenLogprobs | None]) -> list[Any]:
    """vLLM's `prompt_logprobs`: per position None or {token id: {logprob, rank, decoded_token}}."""
    out: list[Any] = []
    for position, lp in enumerate(logprobs):
        if lp is None or position == 0:
            out.append(None)
            continue
        rows = {
            str(token): {"logprob": _finite(value), "rank": rank, "decoded_token": text.token_text(token)}
            for rank, (token, value) in enumerate(zip(lp.best_ids, lp.best_logprobs, strict=True), 1)
        }
        own = {"logprob": _finite(lp.logprob), "rank": lp.rank, "decoded_token": text.token_text(lp.token_id)}
        rows.setdefault(str(lp.token_id), own)
        out.append(rows)
    return out

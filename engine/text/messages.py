"""Chat messages as clients send them, made into what templates expect; every string marked with whose text it is.

Real clients send null contents, lists of parts, empty tool lists, tool arguments as JSON text, reasoning under three
names. Templates expect a string content, arguments as objects and absent keys. This is the only place that knows both.

Trust: assistant messages are MODEL text, all others USER text; a role from the known list is TEMPLATE text, because
templates build control tokens from it. Errors: RequestError naming the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.engine.errors import RequestError
from octavo.engine.text.marked import Marked, mark_tree
from octavo.engine.text.spans import Trust

KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_REASONING = ("reasoning_content", "reasoning", "thinking")
MAX_MESSAGES = 10_000
_MAX_DEPTH = 64


def normalize_messages(
    messages: Any, *, knows_developer: bool = True, as_parts: bool = False, ending: str = ""
) -> list[dict[str, Any]]:
    """Checked, completed and marked copies.

    `knows_developer`: the template has a developer role; else it becomes system. `as_parts`: the template reads
    contents as lists of text parts, not as strings. `ending` is put behind the last message's content.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)) or not messages:
        raise RequestError("messages must be a list with at least one message", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestError(f"{len(messages)} messages; at most {MAX_MESSAGES} are allowed", param="messages")
    result = [_normalize(message, place, knows_developer) for place, message in enumerate(messages)]
    if ending:
        result[-1]["content"] = result[-1]["content"] + Marked(ending, Trust.USER)
    if as_parts:
        for message in result:
            text = message["content"]
            message["content"] = [{"type": "text", "text": text}] if text else []
    return result


def _normalize(message: Any, place: int, knows_developer: bool) -> dict[str, Any]:
    where = f"messages[{place}]"
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} is a {type(message).__name__}; it must be an object", param=where)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(
            f"{where}.role is missing; use one of {', '.join(sorted(KNOWN_ROLES))}", param=f"{where}.role"
        )
    if role == "developer" and not knows_developer:
        role = "system"
    level = Trust.MODEL if role == "assistant" else Trust.USER
    result: dict[str, Any] = {"role": role if role in KNOWN_ROLES else Marked(role, Trust.USER)}
    result["content"] = Marked(_content(message.get("content"), f"{where}.content"), level)
    calls = _tool_calls(message, where)
    if calls:
        result["tool_calls"] = mark_tree(calls, level)
    reasoning = next((message[key] for key in _REASONING if isinstance(message.get(key), str)), None)
    if reasoning is not None and role == "assistant":
        result["reasoning_content"] = result["thinking"] = Marked(reasoning, level)
    for key, value in message.items():
        if key not in result and key not in (*_REASONING, "tool_calls", "function_call") and value is not None:
            check_depth(value, f"{where}.{key}")
            result[str(key)] = mark_tree(value, level)
    return result


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise RequestError(
            f"{where} is a {type(content).__name__}; it must be a string, null or a list of text parts", param=where
        )
    texts = []
    for number, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        key = _TEXT_PARTS.get(str(kind))
        text = part.get(key) if key is not None and isinstance(part, Mapping) else None
        if not isinstance(text, str):
            found = f"has type {kind!r}" if key is None else f"is a {kind} part without {key}"
            raise RequestError(
                f"{where}[{number}] {found}; this model takes parts of type text only",
                param=f"{where}[{number}]",
                code="unsupported_content",
            )
        texts.append(text)
    return "\n".join(texts)


def _tool_calls(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    if calls is None and isinstance(message.get("function_call"), Mapping):
        calls = [{"type": "function", "function": message["function_call"]}]
    if calls is None:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise RequestError(f"{where}.tool_calls must be a list", param=f"{where}.tool_calls")
    result = []
    for number, call in enumerate(calls):
        at = f"{where}.tool_calls[{number}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RequestError(f"{at} has no function with a name", param=at)
        check_depth(call, at)
        arguments = _arguments(function.get("arguments"))
        check_depth(arguments, f"{at}.function.arguments")
        result.append(
            {**call, "type": call.get("type") or "function", "function": {**function, "arguments": arguments}}
        )
    return result


def _arguments(value: Any) -> Any:
    """Templates print arguments as JSON, so text that is a JSON object becomes that object; other text stays text."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return parsed if isinstance(parsed, dict) else value
    return value


def check_depth(value: Any, where: str) -> None:
    """Refuse JSON nested too deep to walk safely."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        following: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                following += item.values()
            elif isinstance(item, (list, tuple)):
                following += item
        if not following:
            return
        level = following
    raise RequestError(f"{where} is nested more than {_MAX_DEPTH} levels deep", param=where)

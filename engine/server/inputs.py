"""What a call puts before its texts, and what its inputs are: the fields of several APIs as the model's own prompts and items."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from octavo.engine.pooling.outputs import Role
from octavo.engine.pooling.texts import TRUNCATIONS, Texts, Truncation
from octavo.engine.server.http import bad_request

#: input types of Cohere, Jina, Voyage and others -> names under which models keep the prompt for them, best first
INPUT_TYPES: dict[str, tuple[str, ...]] = {
    "query": ("query", "search_query", "s2p_query", "retrieval.query"),
    "document": ("document", "passage", "search_document", "corpus", "retrieval.passage"),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
    "sts": ("sts", "STS", "text-matching"),
}
_ROLES: dict[str | None, Role] = {
    **dict.fromkeys(("query", "search_query"), "query"),
    **dict.fromkeys(("document", "search_document", "passage"), "document"),
}
_SAME = {"search_query": "query", "search_document": "document", "passage": "document"}
_INSTRUCTED = re.compile(r"(Instruct: ).*?(\nQuery: ?)\Z", re.S)


def prompt_of(
    texts: Texts,
    *,
    input_type: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    instruction: str | None = None,
) -> str:
    """The text before every text. An input type that the model has no prompt for adds nothing."""
    given = {"input_type": input_type, "prompt_name": prompt_name, "prompt": prompt, "instruction": instruction}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise bad_request(
            f"{' and '.join(named)} were sent; each chooses what is put before a text: send one", named[1]
        )
    if input_type is not None:
        return _of_type(input_type, texts.rules.prompts)
    if instruction is not None:
        return _instructed(instruction, texts.rules.prompts)
    return texts.prompt(prompt_name, prompt)


def role_of(model_has_roles: bool, *names: str | None) -> Role | None:
    """What texts are to a model that treats queries and documents differently; None where no name says."""
    if not model_has_roles:
        return None
    return next((_ROLES[name] for name in names if name in _ROLES), None)


def _of_type(input_type: str, prompts: Mapping[str, str]) -> str:
    if input_type in prompts:
        return prompts[input_type]
    names = INPUT_TYPES.get(_SAME.get(input_type, input_type))
    if names is None:
        known = ", ".join(dict.fromkeys([*prompts, *INPUT_TYPES, *_SAME]))
        raise bad_request(f"input_type is {input_type[:60]!r}; known are {known}", "input_type")
    return next((prompts[name] for name in names if name in prompts), "")


def _instructed(instruction: str, prompts: Mapping[str, str]) -> str:
    """The model's own query prompt with this instruction in place of its own."""
    for prompt in prompts.values():
        found = _INSTRUCTED.fullmatch(prompt)
        if found:
            return found.group(1) + instruction + found.group(2)
    raise bad_request(
        "this model has no prompt that holds an instruction ('Instruct: ...\\nQuery:'); send what goes before a text as prompt",
        "instruction",
    )


def truncation_of(value: str | None, usual: Truncation = "error") -> Truncation:
    """The policy of a call."""
    if value is None:
        return usual
    if value not in TRUNCATIONS:
        raise bad_request(f"truncate is {value[:40]!r}; it must be error, start or end", "truncate")
    return value


def listed(inputs: Any, param: str, most: int) -> Sequence[Any]:
    """The items of a call: texts or lists of token ids, one kind. One text, or one list of ids, is one item."""
    if isinstance(inputs, str):
        return [inputs]
    if not inputs:
        raise bad_request(f"{param} is an empty list; send at least one text", param)
    if all(type(entry) is int for entry in inputs):
        return [inputs]
    if len(inputs) > most:
        raise bad_request(f"{param} has {len(inputs)} entries; at most {most}: send several calls", param)
    kind = type(inputs[0])
    if kind is int or any(type(entry) is not kind for entry in inputs):
        raise bad_request(f"{param} mixes strings, token ids and lists; send one kind", param, "invalid_type")
    return cast("Sequence[Any]", inputs)


def weight_of(item: Any) -> int:
    """Tokens of an input, about, before it is tokenized."""
    if isinstance(item, tuple):  # a pair of texts
        return sum(map(weight_of, item))
    return len(item) // 4 + 2 if isinstance(item, str) else len(item)


def chars_of(item: Any) -> int:
    """Characters that are to be tokenized."""
    if isinstance(item, tuple):
        return sum(map(len, item))
    return len(item) if isinstance(item, str) else 0

"""Fields of several APIs become the model's own prompts; inputs are one kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.server.fakes import make_tokenizer

from octavo.engine.errors import RequestError
from octavo.engine.pooling.texts import Texts
from octavo.engine.server.http import HttpError
from octavo.engine.server.inputs import listed, prompt_of, truncation_of, weight_of


def texts_with(**prompts: str) -> Texts:
    rules: Any = SimpleNamespace(
        max_tokens=16, lowers_case=False, prompts=prompts, default_prompt=None, width=4, dims=None, truncate_dim=None
    )
    return Texts(make_tokenizer(), rules, 269)


@pytest.mark.parametrize(
    ("prompts", "input_type", "expected"),
    [
        ({"query": "q: ", "passage": "p: "}, "search_query", "q: "),
        ({"query": "q: ", "passage": "p: "}, "search_document", "p: "),
        ({"query": "q: ", "passage": "p: "}, "document", "p: "),
        ({"search_query": "q: "}, "query", "q: "),
        ({"query": "q: "}, "document", ""),
        ({"query": "q: ", "odd one": "o: "}, "odd one", "o: "),
        ({}, "query", ""),
        ({}, "clustering", ""),
    ],
)
def test_input_types_find_the_models_prompt(prompts: dict[str, str], input_type: str, expected: str) -> None:
    assert prompt_of(texts_with(**prompts), input_type=input_type) == expected


def test_an_instruction_takes_the_place_of_the_models_own() -> None:
    texts = texts_with(document="", query="Instruct: Given a web search query\nQuery:")
    assert prompt_of(texts, instruction="Find code") == "Instruct: Find code\nQuery:"
    with pytest.raises(HttpError, match="no prompt that holds an instruction"):
        prompt_of(texts_with(query="q: "), instruction="Find code")


def test_unknown_and_doubled_choices_are_refused() -> None:
    texts = texts_with(query="q: ")
    with pytest.raises(HttpError, match="input_type is 'poem'; known are query, document"):
        prompt_of(texts, input_type="poem")
    with pytest.raises(HttpError, match="prompt_name and prompt were sent"):
        prompt_of(texts, prompt="x", prompt_name="query")
    with pytest.raises(RequestError, match="'poem' is not one of the model's: query"):
        prompt_of(texts, prompt_name="poem")
    assert prompt_of(texts) == "" and prompt_of(texts, prompt="") == ""


def test_inputs_are_one_text_ids_or_a_list_of_one_kind() -> None:
    assert listed("a", "input", 9) == ["a"] and listed([1, 2], "input", 9) == [[1, 2]]
    assert listed(["a", "b"], "input", 9) == ["a", "b"] and listed([[1], [2]], "input", 9) == [[1], [2]]
    for bad in ([], ["a", 1], [1, "a"], ["a", [1]], [[1], "a"]):
        with pytest.raises(HttpError, match="input"):
            listed(bad, "input", 9)
    with pytest.raises(HttpError, match="input has 10 entries; at most 9"):
        listed(["a"] * 10, "input", 9)


def test_truncation_and_weights() -> None:
    assert (truncation_of(None), truncation_of(None, "end"), truncation_of("start")) == ("error", "end", "start")
    with pytest.raises(HttpError, match="truncate is 'left'"):
        truncation_of("left")
    assert weight_of("a" * 40) == 12 and weight_of([1, 2, 3]) == 3

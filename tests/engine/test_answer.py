"""An answer's text, counts and end are the same however its tokens were cut into outputs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.server.fakes import EOS, make_text, piece_ids

from octavo.engine.answer import AnswerText
from octavo.engine.messages import RequestOutput
from octavo.engine.sampling_params import SamplingParams

TEXT = make_text()
TOKENS = piece_ids(b"abc", b"DE", b"F", b"GH", b"tail")


def answer(step: int, tokens: list[int] = TOKENS, end: str = "stop", **params: Any) -> tuple[AnswerText, str]:
    """What comes of tokens that arrive `step` at a time."""
    made = AnswerText(TEXT, SamplingParams(**params))
    shown = ""
    for at in range(0, len(tokens), step):
        is_last = at + step >= len(tokens)
        reason, stop_id = (end, EOS if end == "stop" else -1) if is_last else ("", -1)
        shown += made.feed(RequestOutput("r", tokens[at : at + step], reason, stop_id)).text
        if made.finish_reason:
            break
    return made, shown


@pytest.mark.parametrize("step", [1, 2, 5])
def test_the_end_token_counts_and_is_the_reason(step: int) -> None:
    made, shown = answer(step)
    assert (shown, made.num_tokens, made.finish_reason, made.stop_reason) == ("abcDEFGHtail", 6, "stop", EOS)
    made, shown = answer(step, include_stop_str_in_output=True, skip_special_tokens=False)
    assert (shown, made.num_tokens, made.stop_reason) == ("abcDEFGHtail<|im_end|>", 6, EOS)


@pytest.mark.parametrize("step", [1, 2, 5])
def test_nothing_behind_a_stop_string_counts(step: int) -> None:
    made, shown = answer(step, stop=["EFG"])
    assert (shown, made.num_tokens, made.finish_reason, made.stop_reason) == ("abcD", 4, "stop", "EFG")
    assert made.is_stopped_by_string


@pytest.mark.parametrize("step", [1, 2])
def test_a_stop_string_that_only_the_last_character_completes_is_a_stop(step: int) -> None:
    tokens = piece_ids(b"hello", b"\xf0\x9f")  # what is left of a character at the end shows as U+FFFD
    made, shown = answer(step, tokens, "length", stop=["o\ufffd"])
    assert (shown, made.finish_reason, made.stop_reason) == ("hell", "stop", "o\ufffd")

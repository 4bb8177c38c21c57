"""The in-process engine: shapes of answers, streams that agree with them, and calls that are left early or read in turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.fake_executable import EOS, FakeExecutable, greedy_after, make_core
from tests.engine.server.fakes import make_text

from octavo.engine.errors import EngineDeadError, RequestError
from octavo.engine.llm import LLM, Piece
from octavo.engine.sampling_params import SamplingParams

TEXT = make_text()
VOCAB = TEXT.tokenizer.rust.get_vocab_size()
PROMPTS: list[str | list[int]] = ["Hello", [70, 71, 72], "A"]


@pytest.fixture
def llm() -> LLM:
    """An LLM over a fake model with the tiny tokenizer."""
    return LLM.over(make_core(VOCAB, max_tokens=32), TEXT)


def greedy(**params: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, **params})


def text_of(pieces: Iterator[Piece] | list[Piece], prompt_index: int = 0) -> str:
    return "".join(piece.text for piece in pieces if piece.prompt_index == prompt_index)


def test_answers_come_in_the_order_of_prompts_and_choices(llm: LLM) -> None:
    done = llm.generate(PROMPTS, greedy(n=2, temperature=1.0, seed=1))
    assert [(c.prompt_index, c.index) for c in done] == [(p, i) for p in range(3) for i in range(2)]
    assert all(len(c.token_ids) == 6 and c.finish_reason == "length" for c in done)
    assert done[2].prompt_ids == [70, 71, 72] and done[0].prompt_ids == TEXT.encode("Hello")


def test_one_prompt_and_no_prompt_are_lists_too(llm: LLM) -> None:
    for one in ("Hello", TEXT.encode("Hello")):
        assert [c.token_ids for c in llm.generate(one, greedy())] == [greedy_after(TEXT.encode("Hello"), 6, VOCAB)]
    assert llm.generate([], greedy()) == []


def test_a_stream_is_the_answer_in_pieces(llm: LLM) -> None:
    done, pieces = llm.generate(PROMPTS, greedy()), list(llm.stream(PROMPTS, greedy()))
    for completion in done:
        assert text_of(pieces, completion.prompt_index) == completion.text
    last = [piece.completion for piece in pieces if piece.completion is not None]
    assert sorted((c.prompt_index, c.token_ids) for c in last) == [(c.prompt_index, c.token_ids) for c in done]


def test_chat_goes_through_the_template(llm: LLM) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    expected = TEXT.encode_chat(talk)
    alone, both = llm.chat(talk, greedy()), llm.chat([talk, talk], greedy())
    assert [c.prompt_ids for c in alone + both] == [expected] * 3
    assert text_of(llm.stream_chat(talk, greedy())) == alone[0].text


def test_logprobs_are_as_many_as_tokens_when_a_stop_token_ends_the_answer(llm: LLM) -> None:
    params = greedy(logprobs=1, prompt_logprobs=1, ignore_eos=False, min_tokens=2, logit_bias={EOS: 95.0})
    (done,) = llm.generate("Hello", params)
    assert (done.finish_reason, done.stop_reason, len(done.token_ids)) == ("stop", EOS, 2)
    assert [lp.token_id for lp in done.logprobs or []] == done.token_ids
    assert len(done.prompt_logprobs or []) == len(done.prompt_ids)


def test_a_stop_token_stays_in_the_text_when_asked_for(llm: LLM) -> None:
    stop = TEXT.encode("Z")[0]
    params = {"stop_token_ids": [stop], "logit_bias": {stop: 100.0}, "min_tokens": 1}
    (without,) = llm.generate("Hello", greedy(**params))
    (kept,) = llm.generate("Hello", greedy(**params, include_stop_str_in_output=True))
    assert kept.text == without.text + "Z" and kept.token_ids == without.token_ids


def test_a_stop_string_ends_the_answer_and_frees_its_blocks(llm: LLM) -> None:
    token = TEXT.encode("q")[0]
    (done,) = llm.generate("Hello", greedy(logit_bias={token: 100.0}, stop=["qqq"], max_tokens=50))
    assert (done.text, done.finish_reason, done.stop_reason) == ("", "stop", "qqq")
    assert not llm.core.has_work


def test_closing_a_stream_aborts_what_is_left(llm: LLM) -> None:
    stream = llm.stream(PROMPTS, greedy(max_tokens=40))
    next(stream)
    assert llm.core.has_work
    stream.close()  # type: ignore[attr-defined]
    assert not llm.core.has_work and not llm._inboxes
    assert llm.core.stats()["kv_blocks_used"] == 0


def test_a_bad_prompt_among_good_ones_leaves_nothing_running(llm: LLM) -> None:
    with pytest.raises(RequestError, match="token id"):
        llm.generate([[70], [VOCAB]], greedy())
    with pytest.raises(RequestError, match="temperature"):
        llm.stream("Hello", greedy(temperature=-1.0))  # before the first piece is asked for
    with pytest.raises(RequestError, match="n is"):
        llm.generate("Hello", greedy(n=10**9))
    assert not llm.core.has_work and not llm._inboxes


def test_streams_read_in_turns_lose_nothing(llm: LLM) -> None:
    alone = [llm.generate(prompt, greedy())[0].text for prompt in PROMPTS]
    streams = [llm.stream(prompt, greedy()) for prompt in PROMPTS[:2]]
    pieces: list[list[Piece]] = [[], []]
    pieces[0].append(next(streams[0]))
    pieces[1].append(next(streams[1]))
    assert llm.generate(PROMPTS[2], greedy())[0].text == alone[2]  # runs both streams to their end
    for place, stream in enumerate(streams):
        pieces[place] += stream
        assert text_of(pieces[place]) == alone[place]


def test_a_request_that_vanishes_is_an_error_not_a_wait(llm: LLM) -> None:
    stream = llm.stream("Hello", greedy(max_tokens=30))
    next(stream)
    llm.core.abort("llm-0")
    with pytest.raises(EngineDeadError, match="gone"):
        list(stream)


def test_a_failing_step_is_the_callers_error_and_the_next_call_works(llm: LLM) -> None:
    executable = llm.core.runner.executable
    assert isinstance(executable, FakeExecutable)
    executable.broken_at = 70
    with pytest.raises(RequestError, match="planted"):
        llm.generate([[70, 71]], greedy())
    executable.broken_at = None
    assert llm.generate([[70, 71]], greedy())[0].token_ids == greedy_after([70, 71], 6, VOCAB)

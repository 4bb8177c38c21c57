"""The in-process engine: shapes of answers, streams that agree with them, and calls that are left early or read in turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.fake_executable import EOS, FakeExecutable, greedy_after, make_core
from tests.engine.server.fakes import make_text

from octavo.engine.errors import ConfigError, EngineDeadError, RequestError
from octavo.engine.llm import LLM, AnswerError, Piece
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
    with pytest.raises(RequestError, match="prompt 1: prompt holds token id"):
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
    with pytest.raises(EngineDeadError, match=r"gone from the engine \(prompt.choice 0.0\)"):
        list(stream)


def executable_of(llm: LLM) -> FakeExecutable:
    executable = llm.core.runner.executable
    assert isinstance(executable, FakeExecutable)
    return executable


def test_a_failing_step_is_the_callers_error_and_the_next_call_works(llm: LLM) -> None:
    executable_of(llm).broken_at = 70
    with pytest.raises(RequestError, match=r"^the engine could not run this step: ArithmeticError: planted$"):
        llm.generate([[70, 71]], greedy())
    executable_of(llm).broken_at = None
    assert llm.generate([[70, 71]], greedy())[0].token_ids == greedy_after([70, 71], 6, VOCAB)


def test_a_failing_step_costs_only_the_answers_in_it_and_they_are_named(llm: LLM) -> None:
    executable_of(llm).broken_at = 70
    bias = {70: -100.0}  # no answer says the token whose step breaks
    prompts = [[80 + i, 90] if i != 2 else [70, 90] for i in range(9)]  # four run at once
    with pytest.raises(
        AnswerError, match=r"^4 of 9 answers failed \(prompt.choice 0.0, 1.0, 2.0, 3.0\): .*planted"
    ) as caught:
        llm.generate(prompts, greedy(logit_bias=bias))
    done = caught.value.completions
    assert [c.prompt_index for c in done] == list(range(9)) and caught.value.failed == done[:4]
    assert all(c.finish_reason == "error" and "planted" in c.error for c in done[:4])
    good = llm.generate(prompts[4:], greedy(logit_bias=bias))
    assert [c.token_ids for c in done[4:]] == [c.token_ids for c in good] and not any(c.error for c in done[4:])
    pieces = []
    with pytest.raises(AnswerError, match="4 of 9"):
        pieces += iter(llm.stream(prompts, greedy(logit_bias=bias)))
    assert [text_of(pieces, place) for place in range(4, 9)] == [c.text for c in good]
    assert not llm.core.has_work and not llm._inboxes


def test_an_answer_that_fails_keeps_what_it_said_until_then(llm: LLM) -> None:
    answer = greedy_after([71, 72], 6, VOCAB)
    executable_of(llm).broken_at = answer[3]
    with pytest.raises(AnswerError) as caught:
        llm.generate([[71, 72]], greedy())
    (failed,) = caught.value.failed
    assert failed.token_ids == answer[: answer.index(answer[3]) + 1] and failed.text


def test_an_interrupt_ends_its_call_and_names_what_it_cost_others(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = executable_of(llm)
    run_step = executable.run
    other = llm.stream([[75, 76], [77, 78]], greedy(max_tokens=30))
    next(other)

    def interrupted(batch: Any) -> None:
        monkeypatch.setattr(executable, "run", run_step)
        raise KeyboardInterrupt

    monkeypatch.setattr(executable, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[70, 71]], greedy())
    assert llm.generate([[70, 71]], greedy())[0].token_ids == greedy_after([70, 71], 6, VOCAB)
    with pytest.raises(AnswerError, match=r"2 of 2 .*KeyboardInterrupt"):
        list(other)
    assert not llm.core.has_work and llm.core.stats()["kv_blocks_used"] == 0


@pytest.mark.parametrize(
    ("prompts", "params", "text"),
    [
        (3, None, "prompts are int"),
        (b"Hello", None, "prompts are bytes"),
        (["Hello", None], None, "prompt 1 is NoneType"),
        ("Hello", {"max_tokens": 3}, r"params are dict; give SamplingParams"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(llm: LLM, prompts: Any, params: Any, text: str) -> None:
    for call in (llm.generate, llm.stream):
        with pytest.raises(RequestError, match=text):
            call(prompts, params)


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        ("m", {"tensor_parallel_size": 2}, "no option 'tensor_parallel_size'; there are tokenizer, device, platform"),
        ("m", {"max_model_length": 99}, "did you mean max_model_len"),
        (3, {}, "the model is int; give a path or a name"),
    ],
)
def test_an_option_that_there_is_not_is_named_before_anything_is_loaded(model: Any, options: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LLM(model, **options)


def test_a_path_object_names_a_model_and_fetching_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def resolve(spec: str, **options: Any) -> None:
        seen.append((spec, options["progress"]))
        raise EngineDeadError("far enough")

    monkeypatch.setattr("octavo.engine.llm.resolve", resolve)
    with pytest.raises(EngineDeadError):
        LLM(Path("folder/model.gguf"), progress=print)
    assert seen == [("folder/model.gguf", print)]

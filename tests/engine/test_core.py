"""What a request asks for is what it gets, whatever its neighbours do; and nothing of it stays behind."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.engine.fake_executable import EOS, FakeExecutable, greedy_after, logits_after, make_core

from octavo.engine.core import EngineCore
from octavo.engine.cost import CostModel
from octavo.engine.errors import EngineDeadError, RequestError, TooLargeError
from octavo.engine.messages import AddRequest, RequestOutput
from octavo.engine.pace import Pace
from octavo.engine.sampling_params import SamplingParams

VOCAB = 50
PROMPT = [5, 9, 3, 7, 7, 2]


def ask(name: str, prompt: list[int] | None = None, **params: Any) -> AddRequest:
    sampling = {"temperature": 0.0, "max_tokens": 5, "ignore_eos": True, **params}
    return AddRequest(name, PROMPT if prompt is None else prompt, SamplingParams(**sampling))


def run(core: EngineCore, *requests: AddRequest) -> dict[tuple[str, int], list[RequestOutput]]:
    """Outputs by request and choice, all requests at once."""
    for request in requests:
        core.add(request)
    out: dict[tuple[str, int], list[RequestOutput]] = {}
    for _ in range(5000):
        if not core.has_work:
            break
        for output in core.step():
            out.setdefault((output.request_id, output.choice), []).append(output)
    assert not core.has_work
    return out


def tokens(outputs: list[RequestOutput]) -> list[int]:
    return [token for output in outputs for token in output.tokens]


def assert_nothing_stays(core: EngineCore) -> None:
    core.step()  # hands back the slots of those that ended in the last step
    runner = core.runner
    assert not core._prompt_scores and not runner._slots
    assert sorted(runner._free) == list(range(len(runner._rows.state)))
    assert all(state is None for state in runner._rows.state)
    assert core.stats()["kv_blocks_used"] == core.stats()["num_requests_running"] == 0


def expected_logprobs(prompt: list[int]) -> list[tuple[int, float]]:
    """(rank, logprob) of every prompt token but the first, from a forward pass of all of it."""
    out = []
    for end in range(1, len(prompt)):
        logits = logits_after(tuple(prompt[:end]), VOCAB).astype(np.float64)
        own = logits[prompt[end]]
        out.append((int((logits > own).sum()) + 1, float(own - np.log(np.exp(logits).sum()))))
    return out


@pytest.mark.parametrize(("chunk", "num_seqs"), [(1, 1), (4, 2), (64, 4)])
def test_prompt_logprobs_are_those_of_a_full_forward_however_the_prompt_is_cut(chunk: int, num_seqs: int) -> None:
    core = make_core(VOCAB, max_tokens=chunk, max_seqs=num_seqs)
    prompt = np.random.default_rng(1).integers(2, VOCAB, 23).tolist()
    for name in ("first", "again"):  # the second time the prompt is in the cache
        outputs = run(core, ask(name, prompt, prompt_logprobs=2), ask("neighbour", prompt[:5]))[(name, 0)]
        given = [output.prompt_logprobs for output in outputs if output.prompt_logprobs is not None]
        assert len(given) == 1 and given[0][0] is None and len(given[0]) == len(prompt)
        for place, (rank, logprob) in enumerate(expected_logprobs(prompt), 1):
            found = given[0][place]
            assert found is not None and (found.token_id, found.rank) == (prompt[place], rank)
            assert abs(found.logprob - logprob) < 1e-5 and len(found.best_ids) == 2
        assert tokens(outputs) == greedy_after(prompt, 5, VOCAB)


def test_a_prompt_can_be_scored_without_an_answer() -> None:
    outputs = run(make_core(VOCAB), ask("r", max_tokens=0, prompt_logprobs=0))[("r", 0)]
    assert [output.finish_reason for output in outputs] == ["length"]
    assert outputs[0].tokens == [] and len(outputs[0].prompt_logprobs or []) == len(PROMPT)


def test_a_prompt_of_one_token_has_no_scores() -> None:
    outputs = run(make_core(VOCAB), ask("r", [4], prompt_logprobs=1))[("r", 0)]
    assert outputs[0].prompt_logprobs == [None]


def test_prompt_logprobs_survive_preemption_in_the_middle_of_the_prompt() -> None:
    core = make_core(VOCAB, max_tokens=8, max_seqs=1, policy="priority", has_prefix_cache=False)
    prompt = np.random.default_rng(1).integers(2, VOCAB, 30).tolist()
    core.add(ask("slow", prompt, prompt_logprobs=0))
    assert core.step() == core.step() == []
    urgent = msgspec.structs.replace(ask("urgent"), priority=-100)
    out = run(core, urgent)
    assert core.stats()["num_preemptions"] == 1
    found = [o.prompt_logprobs for o in out[("slow", 0)] if o.prompt_logprobs is not None]
    assert [lp.rank for lp in found[0] if lp is not None] == [rank for rank, _ in expected_logprobs(prompt)]
    assert len(found) == 1 and tokens(out[("slow", 0)]) == greedy_after(prompt, 5, VOCAB)


def test_choices_differ_and_the_first_is_the_only_one_of_a_plain_call() -> None:
    core = make_core(VOCAB)
    several = run(core, ask("n", n=4, temperature=1.0, seed=7, max_tokens=8, logprobs=1))
    alone = run(core, ask("one", temperature=1.0, seed=7, max_tokens=8))
    assert sorted(choice for _, choice in several) == [0, 1, 2, 3]
    assert len({tuple(tokens(outputs)) for outputs in several.values()}) == 4
    assert tokens(several[("n", 0)]) == tokens(alone[("one", 0)])
    assert all(len(o.logprobs or []) == len(o.tokens) for outputs in several.values() for o in outputs)


def test_limits_on_tokens_are_honoured_beside_plain_neighbours() -> None:
    plain = greedy_after(PROMPT, 8, VOCAB)
    first = plain[0]
    asked = {
        "bias": ask("bias", logit_bias={17: 100.0}),
        "ban": ask("ban", logit_bias={first: -100.0}),
        "allowed": ask("allowed", allowed_token_ids=[11, 12, 13]),
        "word": ask("word", bad_words=[[first]]),
        "pair": ask("pair", bad_words=[plain[:2]]),
        "plain": ask("plain"),
    }
    out = {name: tokens(outputs) for (name, _), outputs in run(make_core(VOCAB), *asked.values()).items()}
    assert out["bias"] == [17] * 5
    assert first not in out["ban"] and out["ban"] == out["word"]
    assert set(out["allowed"]) <= {11, 12, 13}
    assert out["pair"][0] == first and out["pair"][1] != plain[1]
    assert out["plain"] == plain[:5]


def test_a_bad_word_may_begin_in_the_prompt_but_is_no_word_of_the_answer() -> None:
    first = greedy_after(PROMPT, 1, VOCAB)[0]
    out = run(make_core(VOCAB), ask("r", bad_words=[[PROMPT[-1], first]]))
    assert tokens(out[("r", 0)])[0] == first


def test_no_end_comes_before_min_tokens() -> None:
    likely = {"logit_bias": {EOS: 90.0}, "ignore_eos": False, "max_tokens": 9}
    out = run(make_core(VOCAB), ask("soon", **likely), ask("late", min_tokens=4, **likely))
    assert tokens(out[("soon", 0)]) == [] and out[("soon", 0)][-1].stop_id == EOS
    assert len(tokens(out[("late", 0)])) == 4 and out[("late", 0)][-1].stop_id == EOS
    assert EOS not in tokens(out[("late", 0)])


def test_a_request_that_may_say_nothing_ends_alone() -> None:
    core = make_core(VOCAB)
    dead = ask("dead", allowed_token_ids=[11], bad_words=[[11]], prompt_logprobs=1)
    out = run(core, ask("good"), dead, ask("fine", [8, 8]))
    assert [o.finish_reason for o in out[("dead", 0)]] == ["error"] and "no token is allowed" in out[("dead", 0)][
        0
    ].error
    assert tokens(out[("good", 0)]) == greedy_after(PROMPT, 5, VOCAB)
    assert tokens(out[("fine", 0)]) == greedy_after([8, 8], 5, VOCAB)
    assert_nothing_stays(core)


def test_a_failing_step_ends_only_its_own_requests() -> None:
    core = make_core(VOCAB, max_seqs=2)
    executable = core.runner.executable
    assert isinstance(executable, FakeExecutable)
    executable.broken_at = 49
    mates = [ask("bad", [49, 3], max_tokens=4), ask("mate", max_tokens=4, prompt_logprobs=1)]
    later = [ask(f"later{i}", [10 + i, 3], logit_bias={49: -100.0}) for i in range(3)]
    out = run(core, *mates, *later)
    for name in ("bad", "mate"):
        assert out[(name, 0)][-1].finish_reason == "error" and "ArithmeticError: planted" in out[(name, 0)][-1].error
    assert all(out[(request.request_id, 0)][-1].finish_reason == "length" for request in later)
    executable.broken_at = None
    assert tokens(run(core, ask("mate"))[("mate", 0)]) == greedy_after(PROMPT, 5, VOCAB), "a failed step was cached"
    assert_nothing_stays(core)


@pytest.mark.parametrize("place", ["plan.begin", "plan.end", "commit.begin", "commit.end"])
def test_a_failure_around_a_step_is_one_error_for_everyone_it_could_concern(place: str) -> None:
    core = make_core(VOCAB, max_seqs=2, max_tokens=8)
    long = np.random.default_rng(2).integers(2, VOCAB, 30).tolist()
    requests = [ask("long", long, prompt_logprobs=1), ask("n", n=3, temperature=1.0), ask("late", max_tokens=3)]
    for request in requests:
        core.add(request)
    first = core.step()

    def fault(name: str) -> None:
        if name == place:
            core.scheduler._fault = None
            raise ArithmeticError("planted")

    core.scheduler._fault = fault
    failed = core.step()
    keys = [(output.request_id, output.choice) for output in failed]
    assert all(o.finish_reason == "error" and "ArithmeticError: planted" in o.error for o in failed)
    assert len(set(keys)) == len(keys) and ("long", 0) in keys
    everyone = {("long", 0), ("n", 0), ("n", 1), ("n", 2), ("late", 0)}
    if place.startswith("plan"):
        assert set(keys) == everyone and not core.has_work
    ended = {(o.request_id, o.choice) for o in first + failed if o.finish_reason}
    again = run(core, ask("again"))
    ended |= {key for key, outputs in again.items() if outputs[-1].finish_reason}
    assert ended == everyone | {("again", 0)}
    assert tokens(again[("again", 0)]) == greedy_after(PROMPT, 5, VOCAB)
    assert_nothing_stays(core)


def test_an_engine_whose_plan_broke_for_good_says_that_it_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    core = make_core(VOCAB)
    core.add(ask("r"))

    def attach(*args: Any) -> None:
        raise ArithmeticError("planted")  # the request is in no queue any more, and does not run yet

    monkeypatch.setattr(core.scheduler.kv, "attach", attach)
    with pytest.raises(EngineDeadError, match=r"planted; and it cannot go on"):
        core.step()


def test_an_interrupted_step_is_an_error_for_its_requests_and_the_callers_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = make_core(VOCAB)
    executable = core.runner.executable
    run_step = executable.run
    core.add(ask("mine"))
    core.add(ask("other", [8, 8]))
    core.step()

    def interrupted(batch: Any) -> None:
        monkeypatch.setattr(executable, "run", run_step)
        raise KeyboardInterrupt

    monkeypatch.setattr(executable, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        core.step()
    core.abort("mine")
    assert core.has_work
    (other,) = core.step()
    assert (other.request_id, other.finish_reason) == ("other", "error") and "KeyboardInterrupt" in other.error
    assert tokens(run(core, ask("next"))[("next", 0)]) == greedy_after(PROMPT, 5, VOCAB)
    assert_nothing_stays(core)


def test_abort_and_finish_leave_nothing_of_a_prompt_half_scored() -> None:
    core = make_core(VOCAB, max_tokens=4)
    long = np.random.default_rng(3).integers(2, VOCAB, 40).tolist()
    for end in (core.abort, core.finish):
        core.add(ask("r", long, prompt_logprobs=1, n=2))
        core.step()
        assert core._prompt_scores
        assert end("r") and not end("r")
        assert_nothing_stays(core)


def test_one_choice_can_be_finished_without_the_others() -> None:
    core = make_core(VOCAB)
    core.add(ask("r", n=3, temperature=1.0, max_tokens=6))
    core.step()
    core.step()
    assert core.finish("r", 1) and not core.finish("r", 1)
    ended = {output.choice for _ in range(20) for output in core.step() if output.finish_reason}
    assert ended == {0, 2} and not core.has_work


def test_a_thousand_requests_use_the_same_few_slots() -> None:
    core = make_core(VOCAB)
    rng = np.random.default_rng(0)
    answers: dict[str, list[int]] = {}
    prompts = {f"r{i}": rng.integers(2, VOCAB, int(rng.integers(1, 6))).tolist() for i in range(1000)}
    counts = {name: 1 + i % 3 for i, name in enumerate(prompts)}

    def step() -> None:
        for output in core.step():
            answers.setdefault(output.request_id, []).extend(output.tokens)

    for i, (name, prompt) in enumerate(prompts.items()):
        core.add(ask(name, prompt, max_tokens=counts[name], **({"presence_penalty": 0.5} if i % 5 == 0 else {})))
        if i % 7 == 0:
            core.add(ask(f"gone{i}", prompt, max_tokens=50))
            step()
            core.abort(f"gone{i}")
        step()
    while core.has_work:
        step()
    assert_nothing_stays(core)
    for name in list(prompts)[1::50]:
        assert answers[name] == greedy_after(prompts[name], counts[name], VOCAB)
    assert all(len(answers[name]) == counts[name] for name in prompts)


@pytest.mark.parametrize(
    ("request_", "kind", "text"),
    [
        (ask("r", [VOCAB]), RequestError, "prompt holds token id 50"),
        (ask("r", []), RequestError, "no tokens"),
        (ask("r", [2] * 60, max_tokens=60), TooLargeError, "limit is 100 tokens"),
        (ask("r", temperature=9.0), RequestError, "temperature"),
        (msgspec.structs.replace(ask("r"), choice=2**32), RequestError, "choice is 4294967296"),
        (msgspec.structs.replace(ask("r"), choice=-1), RequestError, "choice is -1"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_kept(
    request_: AddRequest, kind: type[RequestError], text: str
) -> None:
    core = make_core(VOCAB)
    with pytest.raises(kind, match=text):
        core.add(request_)
    assert not core.has_work


def test_steps_teach_what_they_cost_and_late_ones_are_counted() -> None:
    core = make_core(VOCAB)
    now = [0.0]

    def clock() -> float:
        now[0] += 0.5  # a step reads it twice
        return now[0]

    core._clock = clock
    core.cost = cost = CostModel([0.1] * 7)
    core.scheduler.pace = Pace(cost, 0.4)
    run(core, ask("a", max_tokens=4))
    assert cost.num_steps == 3, "the first step touches its pages for the first time"
    assert cost.seconds(cost.work([(7, 1, 1)])) == pytest.approx(0.5, rel=0.1)
    stats = core.stats()
    assert stats["num_late_steps"] == 3, "the step of the prompt alone kept nobody waiting"
    assert stats["itl_target_seconds"] == 0.4 and stats["step_predicted_seconds"] == pytest.approx(1.5, rel=0.3)

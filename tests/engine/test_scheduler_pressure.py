"""The scheduler when blocks, seats or time are short: who waits, who is preempted, who goes on."""

from __future__ import annotations

import random

import pytest
from tests.engine.fake_runner import (
    FULL,
    ask,
    check_conserved,
    expected_output,
    make,
    prompt_of,
    run_all,
    run_late,
    window,
)

from octavo.engine.errors import OverloadedError, RequestError
from octavo.engine.plan import PLACEHOLDER
from octavo.engine.request import Status
from octavo.engine.waiting import priority


@pytest.mark.parametrize("specs", [(FULL,), (FULL, window(6)), (window(5), window(13))])
@pytest.mark.parametrize("num_blocks", [24, 40, 100])
def test_plan_may_run_one_step_ahead(num_blocks, specs):
    scheduler, runner = make(num_blocks=num_blocks, specs=specs, max_batch_tokens=16, max_num_seqs=4, max_model_len=40)
    stops = [5, 6, 7, *range(100, 130)]
    requests = [
        ask(
            f"r{i}",
            prompt_of(i % 3, 9 + i),
            max_tokens=1 if i == 5 else 10 + i,
            stop_token_ids=stops,
            n=1 + i % 2,
            prompt_logprobs=0 if i > 4 else None,
        )
        for i in range(8)
    ]
    choices = [choice for request in requests for choice in scheduler.add(request)]
    ahead, got, num_placeholders = scheduler.plan(), {}, 0
    for _ in range(500):
        plan = ahead
        ahead = scheduler.plan()
        num_placeholders += sum(PLACEHOLDER in e.token_ids for e in ahead.entries)
        # The KV of the last token a request may have is never needed.
        assert all(e.start + e.num_tokens < e.request.max_len for e in ahead.entries)
        for output in scheduler.commit(plan, run_late(runner, plan)):
            got.setdefault((output.request_id, output.choice), []).extend(output.token_ids)
        check_conserved(scheduler, choices)
        if not scheduler.has_work:
            break
    assert num_placeholders > 20
    for request in choices:
        prompt = request.tokens[: request.num_prompt]
        wanted = expected_output(prompt, request.params.max_tokens, stops, request.choice)
        assert got[request.request_id, request.choice] == wanted


def test_priority_goes_first_and_takes_the_seat_of_a_less_urgent_request():
    scheduler, runner = make(max_num_seqs=2, policy=priority(60.0))
    slow = [ask(f"slow{i}", prompt_of(i, 5), max_tokens=40, priority=1) for i in range(3)]
    for request in slow:
        scheduler.add(request)
    for _ in range(4):
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    urgent = ask("urgent", prompt_of(9, 5), max_tokens=3, priority=0)
    scheduler.add(urgent)
    plan = scheduler.plan()
    assert urgent in [e.request for e in plan.entries]
    assert slow[1].status is Status.WAITING and slow[0].status is Status.RUNNING
    scheduler.commit(plan, runner.run(plan))
    run_all(scheduler, runner)
    for request in [*slow, urgent]:
        assert request.output_ids == expected_output(request.tokens[:5], request.params.max_tokens)


def test_the_least_urgent_pays_for_missing_blocks_wherever_it_came_in():
    scheduler, runner = make(num_blocks=12, policy=priority(60.0), watermark=0.0)
    low = ask("low", prompt_of(1, 8), max_tokens=30, priority=5)
    scheduler.add(low)
    plan = scheduler.plan()
    scheduler.commit(plan, runner.run(plan))
    high = [ask(f"high{i}", prompt_of(2 + i, 8), max_tokens=12, priority=0) for i in range(2)]
    for request in high:
        scheduler.add(request)
    run_all(scheduler, runner)
    assert low.num_preemptions and not any(r.num_preemptions for r in high)


def test_a_long_prompt_never_takes_blocks_from_what_this_step_has_planned():
    scheduler, runner = make(num_blocks=10, watermark=0.0, max_chunk_tokens=1)
    long = ask("long", prompt_of(1, 32), max_tokens=1)
    short = ask("short", prompt_of(2, 4), max_tokens=20)
    scheduler.add(long)
    for _ in range(2):
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    scheduler.add(short)
    num_stalls = 0

    def check(plan, _):
        nonlocal num_stalls
        num_stalls += long.status is Status.RUNNING and long not in [e.request for e in plan.entries]
        assert all(e.epoch == e.request.epoch for e in plan.entries if not e.request.is_finished)

    answers = run_all(scheduler, runner, each=check)
    assert answers["long", 0] == expected_output(prompt_of(1, 32), 1)
    assert answers["short", 0] == expected_output(prompt_of(2, 4), 20)
    assert num_stalls and short.num_preemptions


def test_an_urgent_request_takes_the_blocks_of_a_less_urgent_one():
    scheduler, runner = make(num_blocks=10, policy=priority(60.0), watermark=0.0)
    low = [ask(f"low{i}", prompt_of(i, 12), max_tokens=6, priority=5) for i in range(2)]
    for request in low:
        scheduler.add(request)
    plan = scheduler.plan()
    scheduler.commit(plan, runner.run(plan))
    urgent = ask("urgent", prompt_of(9, 16), max_tokens=2, priority=0)
    scheduler.add(urgent)
    for _ in range(2):
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    assert urgent.num_output == 1 and [r.num_preemptions for r in low] == [0, 1]
    run_all(scheduler, runner)
    for request in [*low, urgent]:
        assert request.output_ids == expected_output(request.tokens[: request.num_prompt], request.params.max_tokens)


def test_who_has_aged_keeps_the_seat():
    now = [0.0]
    scheduler, runner = make(max_num_seqs=1, policy=priority(10.0), clock=lambda: now[0])
    aged = ask("aged", prompt_of(1, 5), max_tokens=20, priority=3)
    scheduler.add(aged)
    for now[0] in (0.0, 100.0):
        scheduler.add(ask(f"urgent{now[0]}", prompt_of(2, 5), max_tokens=2, priority=0))
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    assert aged.num_preemptions == 0 and aged.status is Status.WAITING
    while aged.status is Status.WAITING:
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    scheduler.add(ask("urgent3", prompt_of(3, 5), max_tokens=2, priority=0))
    run_all(scheduler, runner)
    assert aged.num_preemptions == 0 and len(aged.output_ids) == 20


def test_blocks_promised_to_a_running_prompt_are_not_given_to_the_next():
    scheduler, runner = make(num_blocks=10, watermark=0.0, max_chunk_tokens=4)
    first = ask("first", prompt_of(1, 32), max_tokens=2)
    second = ask("second", prompt_of(2, 12), max_tokens=2)
    scheduler.add(first)
    scheduler.add(second)
    started = []
    run_all(scheduler, runner, each=lambda plan, _: started.append([r.request_id for r in plan.admitted]))
    assert started[0] == ["first"] and started.index(["second"]) >= 8
    assert second.num_preemptions == 0


def test_a_blocked_head_is_admitted_as_soon_as_blocks_are_free():
    scheduler, runner = make(num_blocks=10, watermark=0.0)
    scheduler.add(ask("long", prompt_of(1, 12), max_tokens=20))
    scheduler.add(ask("short", prompt_of(2, 12), max_tokens=3))
    blocked = ask("blocked", prompt_of(3, 18), max_tokens=2)
    scheduler.add(blocked)
    while blocked.status is Status.WAITING:
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    assert len(scheduler._running) == 2 and runner.num_steps == 4


def test_prompt_scores_are_not_wanted_again_after_a_preemption():
    scheduler, runner = make(max_num_seqs=1, policy=priority(60.0), max_batch_tokens=8)
    request = ask("r", prompt_of(1, 20), max_tokens=6, prompt_logprobs=1, priority=1)
    scheduler.add(request)
    rows = []

    def step():
        plan = scheduler.plan()
        rows.extend((e.start, e.num_tokens, e.num_logits) for e in plan.entries if e.request is request)
        scheduler.commit(plan, runner.run(plan))

    step()
    scheduler.add(ask("urgent1", prompt_of(2, 4), max_tokens=1))
    for _ in range(3):
        step()
    assert rows == [(0, 8, 8), (8, 8, 8), (16, 4, 4)]
    scheduler.add(ask("urgent2", prompt_of(2, 4), max_tokens=1))
    step()
    assert request.num_preemptions == 2
    del rows[:]
    while not request.is_finished:
        step()
    assert rows == [(p, 1, 1) for p in range(20, 25)]


def test_priority_does_not_starve_the_less_urgent():
    now = [0.0]
    scheduler, runner = make(max_num_seqs=1, policy=priority(10.0), clock=lambda: now[0])
    scheduler.add(ask("patient", prompt_of(1, 4), max_tokens=2, priority=3))
    done_at = None
    for i in range(200):
        now[0] += 1.0
        scheduler.add(ask(f"u{i}", prompt_of(i, 4), max_tokens=2, priority=0))
        for _ in range(2):
            plan = scheduler.plan()
            for output in scheduler.commit(plan, runner.run(plan)):
                if output.request_id == "patient" and output.finish_reason:
                    done_at = now[0]
        if done_at:
            break
    # Three classes at ten seconds each, and the queue that stood before it then.
    assert done_at is not None and done_at <= 40.0


def test_a_large_request_is_not_overtaken_for_ever():
    scheduler, runner = make(num_blocks=20, max_num_seqs=8)
    for i in range(4):
        scheduler.add(ask(f"s{i}", prompt_of(i, 8), max_tokens=8))
    large = ask("large", prompt_of(50, 70), max_tokens=5)
    scheduler.add(large)
    for i in range(100):
        scheduler.add(ask(f"t{i}", prompt_of(60 + i, 8), max_tokens=8))
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
        if large.is_finished:
            break
    assert large.is_finished and i < 40


def test_the_queue_is_bounded():
    scheduler, _ = make(max_waiting=3)
    scheduler.add(ask("a", [1], n=2))
    with pytest.raises(OverloadedError, match="at most 3") as caught:
        scheduler.add(ask("b", [1], n=2))
    assert caught.value.status == 429 and caught.value.retry_after_s > 0
    scheduler.add(ask("b", [1]))
    with pytest.raises(RequestError, match="in use"):
        scheduler.add(ask("a", [1]))
    with pytest.raises(RequestError, match="no tokens"):
        scheduler.add(ask("c", []))


def test_thousands_of_aborts_leave_nothing_behind():
    scheduler, runner = make(max_num_seqs=1, max_waiting=5000)
    for i in range(3000):
        scheduler.add(ask(f"r{i}", [1, 2], max_tokens=1))
    for i in range(1, 3000):
        assert scheduler.abort(f"r{i}")
    assert len(scheduler._waiting) == 1 and len(scheduler._waiting._heap) < 200
    run_all(scheduler, runner)
    assert len(scheduler._waiting) == 0 and not scheduler._requests


@pytest.mark.parametrize("specs", [(FULL,), (FULL, window(6)), (window(5), window(13), FULL)])
@pytest.mark.parametrize("seed", range(4))
def test_random_traces_with_drafts_aborts_and_plans_ahead(seed, specs):
    """Everything at once: the answers are the model's own, and blocks are conserved after every step."""
    rng = random.Random(seed)
    limit, block_tokens = 60, rng.choice([1, 3, 4, 8])
    per_sequence = sum(s.peak_blocks(limit, block_tokens) for s in specs)
    scheduler, runner = make(
        num_blocks=per_sequence + rng.randrange(2 * per_sequence),
        block_tokens=block_tokens,
        specs=specs,
        max_batch_tokens=rng.choice([5, 9, 64]),
        max_num_seqs=rng.choice([2, 3, 5]),
        max_chunk_tokens=rng.choice([0, 1, 5]),
        max_model_len=limit,
        policy=rng.choice([None, priority(5.0)]),
    )
    shared = prompt_of(seed, 30)
    todo, alive, wanted, got, aborted = [], [], {}, {}, set()
    for i in range(20):
        prompt = shared[: rng.randrange(30)] + prompt_of(999 + seed * 7 + i, rng.randrange(1, 20))
        count, stops = rng.randrange(1, 11), [rng.randrange(997) for _ in range(30)]
        scores, num_choices = rng.choice([None, None, 0]), rng.choice([1, 1, 2])
        todo.append(
            ask(
                f"r{i}",
                prompt,
                count,
                stop_token_ids=stops,
                n=num_choices,
                priority=rng.randrange(3),
                prompt_logprobs=scores,
            )
        )
        wanted |= {(f"r{i}", c): expected_output(prompt, count, stops, c) for c in range(num_choices)}
    ahead = None
    for _ in range(3000):
        while todo and rng.random() < 0.5:
            alive += scheduler.add(todo.pop())
        if alive and rng.random() < 0.04:
            victim = rng.choice(alive).request_id
            if scheduler.abort(victim):
                aborted.add(victim)
        for request in alive:
            if request.status is Status.RUNNING and request.num_output and rng.random() < 0.3:
                right = expected_output(request.tokens, 3)
                request.drafts = tuple(t if rng.random() < 0.7 else 1 for t in right)
        plan = ahead or scheduler.plan()
        ahead = scheduler.plan() if rng.random() < 0.7 else None
        for output in scheduler.commit(plan, run_late(runner, plan)):
            got.setdefault((output.request_id, output.choice), []).extend(output.token_ids)
        check_conserved(scheduler, alive)
        if not todo and not scheduler.has_work:
            break
    assert not scheduler.has_work and scheduler.kv.pool.num_used == 0, scheduler.stats()
    assert {k: got.get(k) for k in wanted if k[0] not in aborted} == {
        k: v for k, v in wanted.items() if k[0] not in aborted
    }

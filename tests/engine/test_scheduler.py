"""Invariants of the scheduler, on small scripted loads and on random traces."""

from __future__ import annotations

import random
import re
import time

import pytest
from tests.engine.fake_runner import (
    FULL,
    FakeRunner,
    ask,
    check_conserved,
    expected_output,
    make,
    prompt_of,
    run_all,
    window,
)

import octavo.engine.scheduler
from octavo.engine.errors import TooLargeError
from octavo.engine.kv.manager import KVManager
from octavo.engine.request import Status
from octavo.engine.scheduler import Scheduler, SchedulerConfig
from octavo.engine.waiting import priority


def test_never_promise_a_block_the_pool_lacks():
    scheduler, runner = make(num_blocks=4, block_tokens=16, max_model_len=4096)
    begin = time.process_time()
    with pytest.raises(TooLargeError, match=r"100 tokens.*4 blocks of 16 tokens holds 64") as caught:
        scheduler.add(ask("large", prompt_of(1, 100), max_tokens=1))
    assert caught.value.param == "prompt" and caught.value.status == 400
    scheduler.add(ask("small", prompt_of(2, 5)))
    assert run_all(scheduler, runner) == {("small", 0): expected_output(prompt_of(2, 5), 8)}
    assert time.process_time() - begin < 1.0
    check_conserved(scheduler, [])


def test_a_request_that_fills_the_whole_pool_runs():
    scheduler, runner = make(num_blocks=4, block_tokens=16, max_model_len=4096)
    with pytest.raises(TooLargeError, match="max_tokens") as caught:
        scheduler.add(ask("x", prompt_of(1, 60), max_tokens=5))
    assert caught.value.param == "max_tokens"
    scheduler.add(ask("x", prompt_of(1, 60), max_tokens=4))
    scheduler.add(ask("open", prompt_of(2, 60), max_tokens=None))
    answers = run_all(scheduler, runner)
    assert len(answers["x", 0]) == 4 and len(answers["open", 0]) == 4


def test_running_requests_decode_before_prefills_spend_the_budget():
    scheduler, runner = make(max_batch_tokens=16, max_num_seqs=4)
    first = scheduler.add(ask("first", prompt_of(1, 100), max_tokens=2))[0]
    for _ in range(3):
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    second = ask("second", prompt_of(2, 4), max_tokens=50)
    scheduler.add(second)
    while second.status is not Status.RUNNING:
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    scheduler.add(ask("third", prompt_of(3, 100), max_tokens=2))
    for _ in range(5):
        plan = scheduler.plan()
        assert plan.num_tokens == 16 == sum(e.num_tokens for e in plan.entries)
        decoding = [e.request for e in plan.entries if e.num_tokens == 1]
        assert second in decoding and plan.entries[0].num_tokens == 1
        scheduler.commit(plan, runner.run(plan))
    assert first.is_finished or first.num_output


def test_a_preempted_request_returns_to_the_front():
    scheduler, runner = make(num_blocks=10, watermark=0.0)
    requests = [ask(n, prompt_of(i, 10), max_tokens=20) for i, n in enumerate("abc")]
    late = ask("late", prompt_of(9, 10), max_tokens=20)
    for request in requests:
        scheduler.add(request)
    victim = requests[-1]
    while scheduler.has_work:
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
        if victim.num_preemptions and late.arrival_s is None:
            scheduler.add(late)
            assert scheduler._waiting.peek() is victim
        if victim.status is Status.WAITING:
            assert late.status is Status.WAITING
    assert victim.num_preemptions and not requests[0].num_preemptions
    for request in [*requests, late]:
        assert request.output_ids == expected_output(request.tokens[:10], 20)


def test_order_among_equals_is_arrival():
    scheduler, runner = make(max_num_seqs=2)
    for i in range(6):
        scheduler.add(ask(f"r{i}", prompt_of(i, 5), max_tokens=3))
    finished = []
    run_all(scheduler, runner, each=lambda plan, outs: finished.extend(o.request_id for o in outs if o.finish_reason))
    assert finished == [f"r{i}" for i in range(6)]


def test_the_result_depends_only_on_the_arguments():
    def trace():
        scheduler, runner = make(num_blocks=20, max_batch_tokens=16)
        for i in range(12):
            scheduler.add(ask(f"r{i}", prompt_of(i % 5, 6 + i), max_tokens=9, n=1 + i % 2))
        steps = []
        while scheduler.has_work:
            plan = scheduler.plan()
            steps += [(e.request.request_id, e.start, e.num_tokens, e.request.tables[0].ids[:]) for e in plan.entries]
            scheduler.commit(plan, runner.run(plan))
        return steps

    assert trace() == trace()


def random_requests(rng, seed):
    """25 requests that share prefixes, and the tokens that each choice must give."""
    shared = prompt_of(seed, 30)
    requests, wanted = [], {}
    for i in range(25):
        prompt = shared[: rng.randrange(30)] + prompt_of(100 * seed + i, rng.randrange(1, 20))
        stops = [rng.randrange(997) for _ in range(40)]
        request = ask(
            f"r{i}",
            prompt,
            rng.randrange(1, 11),
            stop_token_ids=stops,
            n=rng.choice([1, 1, 3]),
            priority=rng.randrange(3),
        )
        requests.append(request)
        for c in range(request.params.n):
            wanted[request.request_id, c] = expected_output(prompt, request.params.max_tokens, stops, c)
    return requests, wanted


@pytest.mark.parametrize("specs", [(FULL,), (FULL, window(6)), (window(9),), (window(5), window(13), FULL)])
@pytest.mark.parametrize("seed", range(6))
def test_every_admitted_request_finishes(seed, specs):
    """Random load on a small pool: right tokens whatever was chunked, cached or preempted, and blocks conserved."""
    rng = random.Random(seed)
    block_tokens = rng.choice([1, 3, 4, 8])
    limit = 60
    per_sequence = sum(s.peak_blocks(limit, block_tokens) for s in specs)
    scheduler, runner = make(
        num_blocks=per_sequence + rng.randrange(3 * per_sequence),
        block_tokens=block_tokens,
        specs=specs,
        cache=rng.random() < 0.8,
        partial=rng.random() < 0.7,
        max_batch_tokens=rng.choice([4, 7, 64]),
        max_num_seqs=rng.choice([1, 3, 4]),
        max_chunk_tokens=rng.choice([0, 1, 5]),
        max_model_len=limit,
        watermark=rng.choice([0.0, 0.1]),
        policy=rng.choice([None, priority(5.0)]),
    )
    (waiting, wanted), alive = random_requests(rng, seed), []
    aborted, got = set(), {}
    for _ in range(3000):
        while waiting and rng.random() < 0.5:
            alive += scheduler.add(waiting.pop())
        if rng.random() < 0.05 and alive:
            victim = rng.choice(alive).request_id
            if scheduler.abort(victim):
                aborted.add(victim)
        plan = scheduler.plan()
        assert plan.num_tokens <= scheduler.config.max_batch_tokens
        assert plan.num_tokens == sum(e.num_tokens for e in plan.entries)
        assert len(scheduler._running) <= scheduler.config.max_num_seqs
        results = runner.run(plan)
        if rng.random() < 0.02 and plan.entries:
            victim = rng.choice(plan.entries).request.request_id
            scheduler.abort(victim)
            aborted.add(victim)
        for output in scheduler.commit(plan, results):
            got.setdefault((output.request_id, output.choice), []).extend(output.token_ids)
        check_conserved(scheduler, alive)
        if not waiting and not scheduler.has_work:
            break
    assert not scheduler.has_work and not scheduler._running and len(scheduler._waiting) == 0, scheduler.stats()
    assert scheduler.kv.pool.num_used == 0 and scheduler._num_held == 0
    index = scheduler.kv.index
    index.clear()
    assert len(index) == 0 and not any(root.children or root.num_pins for root in index._roots.values())
    for (name, choice), tokens in wanted.items():
        if name not in aborted:
            assert got.get((name, choice)) == tokens
    assert len(aborted) < 20


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("specs", [(FULL,), (FULL, window(6))])
def test_chunking_does_not_change_the_tokens(chunk, specs):
    scheduler, runner = make(specs=specs, max_batch_tokens=max(8, chunk), max_chunk_tokens=chunk)
    for i in range(4):
        scheduler.add(ask(f"r{i}", prompt_of(i, 50), max_tokens=12))
    answers = run_all(scheduler, runner)
    assert answers == {(f"r{i}", 0): expected_output(prompt_of(i, 50), 12) for i in range(4)}


def test_stop_eos_length_and_min_tokens():
    prompt = prompt_of(3, 9)
    free = expected_output(prompt, 8)
    stop, eos = free[2], free[4]
    assert free.index(stop) == 2 and free.index(eos) == 4

    def run(**kwargs):
        scheduler, runner = make()
        request = scheduler.add(ask("r", prompt, **{"eos_ids": [eos], **kwargs}))[0]
        run_all(scheduler, runner)
        return request.output_ids, request.finish_reason, request.stop_id

    assert run() == (free[:5], "stop", eos)
    assert run(stop_token_ids=[stop]) == (free[:3], "stop", stop)
    assert run(stop_token_ids=[stop], min_tokens=2) == (free[:3], "stop", stop)
    assert run(stop_token_ids=[stop], min_tokens=3) == (free[:5], "stop", eos)
    assert run(ignore_eos=True) == (free, "length", None)
    assert run(max_tokens=5) == (free[:5], "stop", eos)
    assert run(max_tokens=4) == (free[:4], "length", None)


def test_n_choices_compute_the_prompt_once():
    prompt = prompt_of(5, 23)
    for n in (2, 5):
        scheduler, runner = make()
        choices = scheduler.add(ask("r", prompt, max_tokens=6, n=n))
        assert [c.choice for c in choices] == list(range(n)) and len({c.seed for c in choices}) == 1
        answers = run_all(scheduler, runner)
        assert answers == {("r", c): expected_output(prompt, 6, choice=c) for c in range(n)}
        # 23 tokens once; every other choice runs only the last one of the prompt, then 5 of its own outputs.
        assert runner.num_tokens_run == 23 + (n - 1) + 5 * n
        check_conserved(scheduler, [])


def test_a_choice_ends_alone_and_abort_ends_all():
    scheduler, runner = make()
    choices = scheduler.add(ask("r", prompt_of(1, 9), max_tokens=50, n=3))
    for _ in range(5):
        plan = scheduler.plan()
        scheduler.commit(plan, runner.run(plan))
    assert scheduler.finish("r", "stop", choice=1) and not scheduler.finish("r", "stop", choice=1)
    assert [c.status for c in choices] == [Status.RUNNING, Status.FINISHED, Status.RUNNING]
    assert scheduler.abort("r") and not scheduler.abort("r")
    assert [c.finish_reason for c in choices] == ["abort", "stop", "abort"]
    assert not scheduler.has_work and scheduler.kv.pool.num_used == 0 and scheduler.stats().num_aborted == 1


def test_abort_of_a_queued_request_and_its_held_choices():
    scheduler, runner = make(max_num_seqs=1)
    scheduler.add(ask("a", prompt_of(1, 5), max_tokens=3))
    scheduler.add(ask("b", prompt_of(2, 5), max_tokens=3, n=4))
    assert scheduler.stats().num_waiting == 5
    scheduler.plan()
    assert scheduler.abort("b")
    assert scheduler.stats().num_waiting == 0 and scheduler.abort("a") and not scheduler.has_work
    assert scheduler.kv.pool.num_used == 0
    scheduler.add(ask("b", prompt_of(2, 5), max_tokens=3))
    assert run_all(scheduler, runner) == {("b", 0): expected_output(prompt_of(2, 5), 3)}


def test_results_that_come_after_an_abort_are_ignored():
    scheduler, runner = make()
    scheduler.add(ask("a", prompt_of(1, 5)))
    plan = scheduler.plan()
    results = runner.run(plan)
    scheduler.abort("a")
    scheduler.add(ask("a", prompt_of(2, 5)))
    assert scheduler.commit(plan, results) == []
    assert run_all(scheduler, runner) == {("a", 0): expected_output(prompt_of(2, 5), 8)}


@pytest.mark.parametrize("quality", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("specs", [(FULL,), (FULL, window(6))])
def test_accepted_drafts_give_the_same_tokens_in_fewer_steps(quality, specs):
    rng = random.Random(4)
    scheduler, runner = make(num_blocks=60, specs=specs)
    requests = [ask(f"r{i}", prompt_of(i, 10), max_tokens=30, stop_token_ids=list(range(30))) for i in range(4)]
    wanted = {(r.request_id, 0): expected_output(r.tokens, 30, range(30)) for r in requests}
    for request in requests:
        scheduler.add(request)

    def propose(plan, _):
        assert all(e.start + e.num_tokens < e.request.max_len for e in plan.entries)
        for request in requests:
            if request.num_output and not request.is_finished:
                right = expected_output(request.tokens, 4)
                request.drafts = tuple(t if rng.random() < quality else 1 for t in right)
        check_conserved(scheduler, requests)

    assert run_all(scheduler, runner, each=propose) == wanted
    longest = max(map(len, wanted.values()))
    assert runner.num_steps <= 3 + longest / 4 if quality == 1.0 else runner.num_steps >= longest / 5


def test_a_sampling_entry_may_yield_nothing():
    scheduler, runner = make()
    scheduler.add(ask("r", prompt_of(1, 10), max_tokens=3))
    plan = scheduler.plan()
    runner.run(plan)
    assert scheduler.commit(plan, [[]]) == []
    plan = scheduler.plan()
    assert (plan.entries[0].start, plan.entries[0].num_tokens) == (9, 1)
    scheduler.commit(plan, runner.run(plan))
    assert run_all(scheduler, runner)["r", 0] == expected_output(prompt_of(1, 10), 3)[1:]


def test_prompt_scores_want_every_prompt_row_once():
    scheduler, runner = make(max_batch_tokens=8)
    prompt = prompt_of(1, 20)
    scheduler.add(ask("warm", prompt, max_tokens=1))
    run_all(scheduler, runner)
    request = scheduler.add(ask("r", prompt, max_tokens=3, prompt_logprobs=1))[0]
    rows = []
    run_all(
        scheduler, runner, each=lambda plan, _: rows.extend((e.start, e.num_tokens, e.num_logits) for e in plan.entries)
    )
    assert rows == [(0, 8, 8), (8, 8, 8), (16, 4, 4), (20, 1, 1), (21, 1, 1)]
    assert request.num_cached == 0
    scored = scheduler.add(ask("s", prompt, max_tokens=0, prompt_logprobs=1))[0]
    outputs = []
    run_all(scheduler, runner, each=lambda _, outs: outputs.extend(outs))
    assert scored.finish_reason == "length" and scored.num_output == 0 and [o.token_ids for o in outputs] == [[]]


def test_fault_points_are_reached_by_name():
    kv = KVManager([FULL], 20, 4)
    names = []
    scheduler = Scheduler(SchedulerConfig(), kv, fault=names.append)
    scheduler.add(ask("r", [1, 2, 3], max_tokens=1))
    run_all(scheduler, FakeRunner(kv))
    assert names == ["plan.begin", "plan.end", "commit.begin", "commit.end"]


def test_released_tables_are_reported_once():
    scheduler, runner = make()
    request = scheduler.add(ask("r", prompt_of(1, 5), max_tokens=1))[0]
    plan = scheduler.plan()
    epoch = plan.entries[0].epoch
    scheduler.commit(plan, runner.run(plan))
    assert scheduler.plan().released == [(request, epoch)] and scheduler.plan().released == []


def test_imports_no_tensor_library():
    import subprocess
    import sys

    code = (
        "import sys, octavo.engine.scheduler, octavo.engine.sampling_params\n"
        "bad = {'numpy', 'torch', 'numba'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=60)


def test_choices_sent_one_by_one_share_the_prompt_too():
    prompt = prompt_of(5, 23)
    scheduler, runner = make()
    scheduler.add(ask("r/0", prompt, max_tokens=6))
    for c in (1, 2):
        scheduler.add(ask(f"r/{c}", prompt, max_tokens=6, choice=c), leader_id="r/0")
    answers = run_all(scheduler, runner)
    assert answers == {(f"r/{c}", c): expected_output(prompt, 6, choice=c) for c in range(3)}
    assert runner.num_tokens_run == 23 + 2 + 5 * 3
    scheduler.add(ask("late", prompt, max_tokens=1), leader_id="r/0")
    scheduler.abort("late")
    assert not scheduler.has_work and scheduler.stats().num_waiting == 0


def test_a_broken_step_ends_its_requests_and_leaves_no_doubtful_kv():
    scheduler, runner = make(num_blocks=30)
    prompt = prompt_of(1, 22)
    bystander = ask("bystander", prompt_of(7, 30), max_tokens=3)
    for name, tokens in (("warm", prompt), ("other", prompt_of(2, 10))):
        scheduler.add(ask(name, tokens, max_tokens=2))
        run_all(scheduler, runner)
    victim = ask("victim", [*prompt[:19], 1, 2, 3], max_tokens=4)
    scheduler.add(victim)
    plan = scheduler.plan()
    assert plan.copies and plan.admitted == [victim]
    scheduler.add(bystander)
    scheduler.kv.index.clear()
    assert scheduler.fail(plan) == [victim] and victim.finish_reason == "error"
    check_conserved(scheduler, [victim])
    check_conserved(scheduler, [victim])
    # Nothing of the step ran: what it would have copied or computed must not be found by anybody.
    again = ask("again", [*prompt[:19], 1, 2, 3], max_tokens=4)
    scheduler.add(again)
    answers = run_all(scheduler, runner)
    assert answers == {("bystander", 0): expected_output(bystander.tokens[:30], 3), ("again", 0): again.output_ids}
    assert again.output_ids == expected_output([*prompt[:19], 1, 2, 3], 4)
    assert scheduler.fail(plan) == [] and not scheduler.has_work


def test_every_invariant_of_the_module_head_is_a_test_here():
    names = re.findall(r"(?m)^  \d\. (\w+)", octavo.engine.scheduler.__doc__)
    assert len(names) == 6 and all(f"test_{name}" in globals() for name in names)

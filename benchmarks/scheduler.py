"""What one step of bookkeeping costs. No model: results are made up, one id per row.

    octavo bench scheduler -- [--steps N]

scheduler.step           plan + commit of a step with 64 decoding requests, stop ids checked, full blocks hashed; us
scheduler.step_5000      the same with 5,000 more requests waiting for a seat
scheduler.step_blocked   the same with 5,000 more requests waiting for blocks
scheduler.waiting_cost   ratio of the larger of these two medians to the first
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.common import OtherLoad, parser, report, row

from octavo.engine.kv.groups import GroupSpec
from octavo.engine.kv.manager import KVManager
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import Scheduler, SchedulerConfig

BLOCK_TOKENS = 32
NUM_RUNNING = 64


def make_scheduler(num_blocks: int, max_num_seqs: int = NUM_RUNNING) -> Scheduler:
    """A scheduler of default sizes over a pool for one full-attention group."""
    config = SchedulerConfig(max_num_seqs=max_num_seqs, max_model_len=8192)
    return Scheduler(config, KVManager([GroupSpec()], num_blocks, BLOCK_TOKENS, model_identity=bytes(32)))


def make_request(name: str, rng: random.Random, num_prompt: int, max_tokens: int) -> Request:
    """A request with three stop ids that never come up."""
    params = SamplingParams(max_tokens=max_tokens, stop_token_ids=[1, 2, 3])
    return Request(name, [rng.randrange(10, 32000) for _ in range(num_prompt)], params, eos_ids=[0], seed=0)


def run_step(scheduler: Scheduler, token: int) -> int:
    """Plan, pretend to run, commit; the number of entries."""
    plan = scheduler.plan()
    scheduler.commit(plan, [[token] if entry.is_sampling else [] for entry in plan.entries])
    return len(plan.entries)


def time_steps(num_steps: int, num_waiting: int, num_seats: int = NUM_RUNNING) -> list[float]:
    """Microseconds of plan + commit per step with 64 decoding requests of staggered lengths. With more seats than
    that, the first who waits has a prompt too large for what is left of the pool."""
    rng = random.Random(1)
    num_blocks = NUM_RUNNING * (10 + num_steps // BLOCK_TOKENS)
    scheduler = make_scheduler(num_blocks, num_seats)
    for i in range(NUM_RUNNING):
        scheduler.add(make_request(f"r{i}", rng, 100 + i, 5000))
    while run_step(scheduler, 11) < NUM_RUNNING or any(r.num_output == 0 for r in scheduler._running):
        pass
    pool, spare = scheduler.kv.pool, []
    if num_seats > NUM_RUNNING:
        # Somebody holds what is left of the pool, and gives back just enough for those who run to grow.
        spare = pool.take(pool.num_free - 2 * NUM_RUNNING) or []
    for i in range(num_waiting):
        scheduler.add(make_request(f"w{i}", rng, 8000 if i == 0 and spare else 64, 100))
    times = []
    for step in range(num_steps):
        token = 100 + step % 1000
        if step % BLOCK_TOKENS == 0:
            pool.release(spare[-NUM_RUNNING:])
            del spare[-NUM_RUNNING:]
        begin = time.perf_counter()
        plan = scheduler.plan()
        middle = time.perf_counter()
        results = [[token] for _ in plan.entries]
        resumed = time.perf_counter()
        scheduler.commit(plan, results)
        times.append((time.perf_counter() - resumed + middle - begin) * 1e6)
        if len(plan.entries) != NUM_RUNNING:
            raise RuntimeError(f"expected {NUM_RUNNING} entries, got {len(plan.entries)}")
    return times


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    times: dict[str, list[float]] = {}
    for name, waiting, seats in (
        ("scheduler.step", 0, NUM_RUNNING),
        ("scheduler.step_5000", 5000, NUM_RUNNING),
        ("scheduler.step_blocked", 5000, 2 * NUM_RUNNING),
    ):
        load = OtherLoad()
        times[name] = time_steps(args.steps, waiting, seats)
        share = load.share()
        yield row(name, "us", times[name], mean=round(statistics.fmean(times[name]), 2), other_load=round(share, 3))
    few, *many = (statistics.median(values) for values in times.values())
    yield row("scheduler.waiting_cost", "ratio", [max(many) / few])


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=2000)
    args = options.parse_args()
    report(results(args), args, "scheduler")


if __name__ == "__main__":
    main()

"""What one step of bookkeeping costs, and how full the KV blocks are. No model: results are made up, one id per row.

    python benchmarks/scheduler.py [--steps N]

scheduler.step           plan + commit of a step with 64 decoding requests, stop ids checked, full blocks hashed; us
scheduler.step_5000      the same with 5,000 more requests waiting for a seat
scheduler.step_blocked   the same with 5,000 more requests waiting for blocks
scheduler.waiting_cost   ratio of the larger of these two medians to the first
kv.utilisation           tokens whose KV is live / (blocks held by running requests * block_tokens), sampled each step
                         while the queue is never empty; prompts of 200 to 3,000 tokens, answers of 100 to 1,000
One JSON object a line: name, unit, min, median, max, n, machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Sequence

from octavo.engine.kv.groups import GroupSpec
from octavo.engine.kv.manager import KVManager
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import Scheduler, SchedulerConfig

BLOCK_TOKENS = 32
NUM_RUNNING = 64


def machine() -> str:
    """Processor, cores, Python: what the numbers depend on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def report(name: str, unit: str, values: Sequence[float]) -> dict[str, object]:
    """One row of results."""
    return {
        "name": name,
        "unit": unit,
        "min": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "max": round(max(values), 4),
        "mean": round(statistics.fmean(values), 4),
        "n": len(values),
        "machine": machine(),
    }


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


def measure_utilisation(num_steps: int) -> list[float]:
    """Share of the slots in held blocks that hold live tokens, per step, with the pool under pressure."""
    rng = random.Random(2)
    scheduler = make_scheduler(num_blocks=1500)
    shares, count = [], 0
    for step in range(num_steps):
        while scheduler.stats().num_waiting < 8:
            count += 1
            scheduler.add(make_request(f"r{count}", rng, rng.randrange(200, 3000), rng.randrange(100, 1000)))
        run_step(scheduler, 11)
        if step >= num_steps // 4:
            held = {block for r in scheduler._running for block in r.tables[0].ids}
            live = sum(r.num_computed for r in scheduler._running)
            shares.append(live / (len(held) * BLOCK_TOKENS))
    return shares


def rows(num_steps: int) -> list[dict[str, object]]:
    """All results."""
    few = time_steps(num_steps, 0)
    seats, blocks = time_steps(num_steps, 5000), time_steps(num_steps, 5000, 2 * NUM_RUNNING)
    ratio = max(statistics.median(seats), statistics.median(blocks)) / statistics.median(few)
    return [
        report("scheduler.step", "us", few),
        report("scheduler.step_5000", "us", seats),
        report("scheduler.step_blocked", "us", blocks),
        report("scheduler.waiting_cost", "ratio", [ratio]),
        report("kv.utilisation", "ratio", measure_utilisation(max(400, num_steps))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    for row in rows(steps):
        print(json.dumps(row))


if __name__ == "__main__":
    main()

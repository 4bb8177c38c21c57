"""How full the KV blocks are under load: paging's whole point. No model: results are made up, one id per row.

    octavo bench kv_pool -- [--steps N]

kv_pool.utilisation   tokens whose KV is live / (blocks held by running requests * block_tokens), sampled each step while the
                      queue is never empty; prompts of 200 to 3,000 tokens, answers of 100 to 1,000 (>= 0.96 wanted)
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import Any

from benchmarks.common import parser, report, row
from benchmarks.scheduler import BLOCK_TOKENS, make_request, make_scheduler, run_step


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


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The row."""
    yield row("kv_pool.utilisation", "ratio", measure_utilisation(args.steps), better="higher")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=2000)
    args = options.parse_args()
    report(results(args), args, "kv_pool")


if __name__ == "__main__":
    main()

"""Where a step's time goes: seconds per kernel of a decode step and of a 512-token prefill.

    octavo bench profile -- [MODEL] [--threads N] [--past TOKENS]

profile.decode.KERNEL, profile.prefill.KERNEL: seconds of all instructions of that kernel in the fastest of the repeated
steps (their sum is profile.decode, profile.prefill); `share` is its part of the step, `calls` how often it ran.
profile.cost.TERM: what engine/cost.py learns from some hundred steps of streams and prompts, in seconds per unit of work;
profile.cost.ratio: time that as many steps after that took, over what was predicted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from benchmarks.common import MODEL, OtherLoad, Samples, parser, report, row
from benchmarks.processes import model_file

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.platforms.types import Batch, KVSpec

PREFILL_TOKENS = 512
MIXES = ((1, 40, 300), (4, 100, 20), (8, 60, 700), (8, 200, 100), (2, 600, 40))


def step_of(spec: KVSpec, past: int, tokens: int) -> Batch:
    """One sequence with `past` stored tokens and `tokens` new ones, on pages from 1 on."""
    blocks = -(-(past + tokens) // spec.block_tokens)
    table = np.arange(1, 1 + blocks, dtype=np.int32).reshape(1, -1)
    return Batch(
        token_ids=np.arange(100, 100 + tokens, dtype=np.int32),
        positions=np.arange(past, past + tokens, dtype=np.int32).reshape(1, -1),
        query_start=np.array([0, tokens], np.int32),
        kv_len=np.array([past + tokens], np.int32),
        token_seq=np.zeros(tokens, np.int32),
        block_tables=[table] * len(spec.groups),
        logits_rows=np.zeros(0, np.int32),
    )


def by_kernel(profile: list[tuple[str, float]]) -> dict[str, tuple[float, int]]:
    """kernel -> (seconds, calls), the costliest first."""
    found: dict[str, tuple[float, int]] = {}
    for kernel, seconds in profile:
        total, calls = found.get(kernel, (0.0, 0))
        found[kernel] = (total + seconds, calls + 1)
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def work(core: EngineCore, rng: random.Random, mixes: Sequence[tuple[int, int, int]]) -> None:
    """Steps of all kinds: per mix so many streams, their prompts' tokens, and a longer prompt that comes while they run."""
    for streams, length, longer in mixes:
        for name, tokens, new in [*((f"s{i}", length + 9 * i, 24) for i in range(streams)), ("long", longer, 1)]:
            prompt = [rng.randrange(3, core.info.vocab_size) for _ in range(tokens)]
            core.add(AddRequest(name, prompt, SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)))
            core.step()
        while core.has_work:
            core.step()


def cost_rows(core: EngineCore, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What steps cost as learned, and how far predictions are off after that."""
    cost, rng = core.cost, random.Random(1)
    if cost is None:
        return
    work(core, rng, MIXES)
    predicted, taken = cost.predicted_s, core.step_s
    work(core, rng, MIXES)
    for term, seconds in cost.terms.items():
        if cost.knee or not term.endswith("_few"):
            yield row(f"profile.cost.{term}", "s", [seconds], threads=args.threads, model=args.model)
    ratio = (core.step_s - taken) / (cost.predicted_s - predicted)
    yield row("profile.cost.ratio", "ratio", [ratio], threads=args.threads, model=args.model)


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of both steps, then of costs."""
    config = EngineConfig(str(model_file(args.model)), num_threads=args.threads, max_num_seqs=9, is_offline=True)
    core = build_core(config)
    executable: Any = core.runner.executable
    if not hasattr(executable, "profile"):
        raise SystemExit(f"platform {core.info.platform} cannot say where its time goes")
    for name, tokens in (("decode", 1), ("prefill", PREFILL_TOKENS)):
        batch = step_of(core.runner.spec, args.past, tokens)
        last = np.array([tokens - 1], np.int32)
        profiles, totals = [], Samples()
        for _ in range(max(3, args.repeats)):
            load = OtherLoad()
            profiles.append(executable.profile(batch, last))
            totals.values.append(sum(seconds for _, seconds in profiles[-1]))
            totals.other.append(load.share())
        best = profiles[int(np.argmin(totals.values))]
        whole = min(totals.values)
        yield row(f"profile.{name}", "s", totals, threads=args.threads, tokens=tokens, past=args.past, model=args.model)
        for kernel, (seconds, calls) in by_kernel(best).items():
            share = round(seconds / whole, 4)
            yield row(f"profile.{name}.{kernel}", "s", [seconds], threads=args.threads, share=share, calls=calls)
    yield from cost_rows(core, args)


def main() -> None:
    options = parser(__doc__, repeats=8)
    options.add_argument("model", nargs="?", default=MODEL)
    options.add_argument("--past", type=int, default=64, help="tokens stored before the step (default %(default)s)")
    args = options.parse_args()
    report(results(args), args, "profile")


if __name__ == "__main__":
    main()

"""Where a step's time goes, kernel by kernel, and how close each comes to what the machine can do (a roofline).

    octavo bench profile -- [MODEL] [--threads N] [--past TOKENS] [--prefill TOKENS] [--streams N]

profile.decode.KERNEL, profile.prefill.KERNEL: seconds of all instructions of that kernel in the fastest of the repeated
steps (their sum is profile.decode, profile.prefill); `share` is its part of the step, `calls` how often it ran. bytes and ops:
what it must move and compute; of_read and of_peak: against the bandwidth and the peak measured at the start; of_limit:
against whichever of both takes longer (roofline.py). Tables of the same follow on stderr.
profile.cost.TERM: what engine/cost.py learns from some hundred steps of streams and prompts, in seconds per unit of work;
profile.cost.ratio: time that as many steps after that took, over what was predicted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from benchmarks.common import MODEL, OtherLoad, Samples, parser, report, row, say
from benchmarks.limits import measured
from benchmarks.processes import model_file
from benchmarks.roofline import Work, shares, table, work_of

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.platforms.types import Batch, KVSpec

MIXES = ((1, 40, 300), (4, 100, 20), (8, 60, 700), (8, 200, 100), (2, 600, 40))


def step_of(spec: KVSpec, past: int, tokens: int, streams: int = 1) -> Batch:
    """So many sequences, each with `past` stored tokens and `tokens` new ones, on pages from 1 on."""
    blocks = -(-(past + tokens) // spec.block_tokens)
    table = np.arange(1, 1 + streams * blocks, dtype=np.int32).reshape(streams, -1)
    return Batch(
        token_ids=np.arange(100, 100 + streams * tokens, dtype=np.int32) % 1000,
        positions=np.tile(np.arange(past, past + tokens, dtype=np.int32), streams).reshape(1, -1),
        query_start=np.arange(streams + 1, dtype=np.int32) * tokens,
        kv_len=np.full(streams, past + tokens, np.int32),
        token_seq=np.repeat(np.arange(streams, dtype=np.int32), tokens),
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


def step_rows(
    name: str, core: EngineCore, args: argparse.Namespace, batch: Batch, limits: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """The whole step, then every kernel of it, the costliest first."""
    executable: Any = core.runner.executable
    spec = core.runner.spec
    last = batch.query_start[1:] - 1  # every sequence's
    profiles, totals = [], Samples()
    for _ in range(max(3, args.repeats)):
        load = OtherLoad()
        profiles.append(executable.profile(batch, last))
        totals.values.append(sum(seconds for _, seconds in profiles[-1]))
        totals.other.append(load.share())
    best, whole = profiles[int(np.argmin(totals.values))], min(totals.values)
    works: dict[str, Work] = {}
    for (kernel, _), ins in zip(best, executable.profiled(), strict=True):
        works.setdefault(kernel, Work())
        works[kernel] += work_of(ins, batch, len(last), spec)
    common = {"tokens": batch.num_tokens, "streams": batch.num_seqs, "past": args.past, "model": args.model}
    yield row(f"profile.{name}", "s", totals, threads=args.threads, **common)
    shown: list[dict[str, Any]] = []
    for kernel, (seconds, calls) in by_kernel(best).items():
        more = {"share": round(seconds / whole, 4), "calls": calls, **shares(works[kernel], seconds, kernel, limits)}
        shown.append({"kernel": kernel, "seconds": seconds, **more})
        yield row(f"profile.{name}.{kernel}", "s", [seconds], threads=args.threads, **more)
    at_once = f"{batch.num_seqs} x {batch.num_tokens // batch.num_seqs} tokens behind {args.past}"
    say(f"\n{table(f'{name}: {at_once}, {whole * 1e3:.2f} ms', shown)}\n")


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of both steps, then of costs."""
    config = EngineConfig(
        str(model_file(args.model)), num_threads=args.threads, max_num_seqs=max(9, args.streams), is_offline=True,
        max_batch_tokens=max(512, args.prefill),
    )  # fmt: skip
    core = build_core(config)
    if core.keeper is not None:
        core.keeper.settle()
    if not hasattr(core.runner.executable, "profile"):
        raise SystemExit(f"platform {core.info.platform} cannot say where its time goes")
    try:
        limits: Mapping[str, float] = measured(args.threads)
    except RuntimeError as error:
        say(f"without shares of the limits: {error}")
        limits = {}
    for name, tokens, streams in (("decode", 1, args.streams), ("prefill", args.prefill, 1)):
        yield from step_rows(name, core, args, step_of(core.runner.spec, args.past, tokens, streams), limits)
    yield from cost_rows(core, args)


def main() -> None:
    options = parser(__doc__, repeats=8)
    options.add_argument("model", nargs="?", default=MODEL)
    options.add_argument(
        "--prefill", type=int, default=512, metavar="TOKENS", help="of the prompt (default %(default)s)"
    )
    options.add_argument("--streams", type=int, default=1, help="that decode at once (default %(default)s)")
    options.add_argument("--past", type=int, default=64, help="tokens stored before the step (default %(default)s)")
    args = options.parse_args()
    report(results(args), args, "profile")


if __name__ == "__main__":
    main()

"""Streams that decode while a long prompt is computed: how long each waits for its next token, and how long the prompt takes.

    octavo bench mixed -- [MODEL] [--itl-ms N | --times X] [--streams 8] [--context 512] [--prompt 7500]

Three runs on one machine: the prompt alone, with streams and no limit (mixed.free), with streams and a limit (mixed.paced).
The limit is --itl-ms, or --times (1.5) as much as the streams' median time between tokens while they decode alone, taken in the
same run just before the prompt comes. Rows have a value per stream:

mixed.RUN.alone      median time between a stream's tokens before the prompt comes; ms. .alone_p99: the noise of the machine
mixed.RUN.p50, .p99  the same while the prompt is computed
mixed.RUN.spread     p99 over p50, both while the prompt is computed (<= 1.5 wanted)
mixed.RUN.ratio      p99 while the prompt is computed over the stream's own median before it, in the same run
mixed.RUN.own_ratio  the same with every gap over what the stream takes by itself at that length (between its medians before and
                     after the prompt), so that its own growth is taken out
mixed.RUN.prefill    seconds from the prompt's arrival to its first token; mixed.prefill: the same with no streams
mixed.RUN.floor      p99 over median of as long pieces of a bare loop on as many threads, right after the run: what of .spread the
                     machine does by itself
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import MODEL, OtherLoad, Samples, parser, report, row
from benchmarks.processes import model_file
from benchmarks.realtime import first_in_line

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams

WANTED = 1.5
#: at real-time priority: seconds of work between rests, and of a rest; the kernel halts whoever takes more than 95 %
WORK_S, REST_S = 0.3, 0.03


@dataclass
class Run:
    """Milliseconds between tokens, per stream, in the three parts of a run; seconds of the prompt."""

    before: dict[str, list[float]] = field(default_factory=dict)
    during: dict[str, list[float]] = field(default_factory=dict)
    after: dict[str, list[float]] = field(default_factory=dict)
    prefill_s: float = 0.0
    floor: float = 1.0
    other_load: float = 0.0


class Load:
    """Requests to one engine, and when their tokens came. `rests`: now and then, uncounted."""

    def __init__(self, core: EngineCore, *, rests: bool = False) -> None:
        self.core = core
        self._rested = time.perf_counter() if rests else float("inf")
        self._is_cold = False
        self._rng = random.Random(1)
        self._last: dict[str, float] = {}

    def add(self, name: str, num_prompt: int, num_new: int) -> None:
        """A request with a prompt that no cache knows."""
        prompt = [self._rng.randrange(1000, 40000) for _ in range(num_prompt)]
        self.core.add(AddRequest(name, prompt, SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True)))

    def step(self, gaps: dict[str, list[float]]) -> set[str]:
        """One step; who got a token. RuntimeError for an answer with an error."""
        start = time.perf_counter()
        outputs = self.core.step()
        now = time.perf_counter()
        # A short gap after a rest shows the caches that others have used meanwhile; of a long one that is nothing.
        is_cold, self._is_cold = self._is_cold and now - start < WORK_S / 3, False
        for output in outputs:
            if output.error:
                raise RuntimeError(output.error)
            if output.request_id in self._last and not is_cold:
                gaps.setdefault(output.request_id, []).append((now - self._last[output.request_id]) * 1e3)
            self._last[output.request_id] = now
        if now - self._rested > WORK_S:
            time.sleep(REST_S)
            self._rested = time.perf_counter()
            self._last = {name: at + self._rested - now for name, at in self._last.items()}
            self._is_cold = True
        return {output.request_id for output in outputs}


def prompt_alone(core: EngineCore, num_prompt: int) -> float:
    """Seconds of a prompt to its first token with nothing else to do."""
    load = Load(core)
    load.add("alone", num_prompt, 1)
    start = time.perf_counter()
    while core.has_work:
        load.step({})
    return time.perf_counter() - start


def run(core: EngineCore, args: argparse.Namespace) -> Run:
    """Streams alone, with the prompt, alone again. An engine with a limit gets the one that is wanted."""
    load, made = Load(core, rests=args.realtime > 0), Run()
    streams = {f"s{i}" for i in range(args.streams)}
    for name in streams:
        load.add(name, args.context, core.info.max_model_len - args.context)
    while load.step({}) != streams:
        pass
    other = OtherLoad()
    for _ in range(args.steps):
        load.step(made.before)
    pace = core.scheduler.pace
    if pace is not None and args.itl_ms is None:
        pace.itl_s = args.times * quantile([gap for gaps in made.before.values() for gap in gaps], 0.5) / 1e3
    load.add("prompt", args.prompt, 1)
    start = time.perf_counter()
    while "prompt" not in load.step(made.during):
        pass
    made.prefill_s = time.perf_counter() - start
    for _ in range(args.steps):
        load.step(made.after)
    made.other_load = other.share()
    made.floor = floor(args.threads, quantile([gap for gaps in made.during.values() for gap in gaps], 0.5))
    for name in streams:
        core.abort(name)
    return made


def quantile(values: list[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1e6) * len(ordered) // 10**6) - 1)]


def floor(num_threads: int, piece_ms: float, num: int = 100) -> float:
    """P99 over median of pieces of work that need no memory to speak of, nor anything else of anybody: every thread does as much,
    and a piece ends with the last of them, as a step does."""
    block = bytes(1 << 20)
    start = time.perf_counter()
    for _ in range(16):
        hashlib.blake2b(block)
    data = block * max(1, round(16 * piece_ms / 1e3 / (time.perf_counter() - start)))
    barrier, pieces = threading.Barrier(num_threads), []

    def walk(is_first: bool) -> None:
        for _ in range(num):
            barrier.wait()
            at = time.perf_counter()
            hashlib.blake2b(data)  # without the GIL
            barrier.wait()
            if is_first:
                pieces.append(time.perf_counter() - at)

    others = [threading.Thread(target=walk, args=(False,)) for _ in range(num_threads - 1)]
    for thread in others:
        thread.start()
    walk(is_first=True)
    for thread in others:
        thread.join()
    return quantile(pieces, 0.99) / quantile(pieces, 0.5)


def own_ratios(made: Run, stream: str) -> list[float]:
    """Each gap while the prompt was computed over the stream's own pace at that length."""
    before, after = quantile(made.before[stream], 0.5), quantile(made.after[stream], 0.5)
    gaps = made.during[stream]
    return [gap / (before + (after - before) * (i + 1) / len(gaps)) for i, gap in enumerate(gaps)]


def rows(name: str, made: Run, args: argparse.Namespace, **more: Any) -> Iterator[dict[str, Any]]:
    """What a run showed."""
    more |= {"threads": args.threads, "model": args.model, "streams": args.streams, "prompt": args.prompt}
    more |= {"context": args.context}
    medians = {
        part: {s: quantile(v, 0.5) for s, v in getattr(made, part).items()} for part in ("before", "during", "after")
    }
    late = {s: quantile(v, 0.99) for s, v in made.during.items()}

    def samples(values: list[float]) -> Samples:
        return Samples(values, [made.other_load] * len(values))

    yield row(f"mixed.{name}.alone", "ms", samples(list(medians["before"].values())), **more)
    yield row(f"mixed.{name}.alone_p99", "ms", samples([quantile(v, 0.99) for v in made.before.values()]), **more)
    yield row(f"mixed.{name}.alone_after", "ms", samples(list(medians["after"].values())), **more)
    yield row(f"mixed.{name}.p50", "ms", samples(list(medians["during"].values())), **more)
    yield row(f"mixed.{name}.p99", "ms", samples(list(late.values())), **more)
    yield row(f"mixed.{name}.spread", "ratio", samples([late[s] / medians["during"][s] for s in late]), **more)
    yield row(f"mixed.{name}.floor", "ratio", samples([made.floor]), **more)
    yield row(f"mixed.{name}.ratio", "ratio", samples([late[s] / medians["before"][s] for s in late]), **more)
    yield row(f"mixed.{name}.own_ratio", "ratio", samples([quantile(own_ratios(made, s), 0.99) for s in late]), **more)
    steps = max(map(len, made.during.values()))
    rate = round(args.prompt / made.prefill_s, 1)
    yield row(f"mixed.{name}.prefill", "s", samples([made.prefill_s]), steps=steps, tokens_per_s=rate, **more)


def engine(args: argparse.Namespace, itl_ms: float | None) -> EngineCore:
    """An engine in this process."""
    core = build_core(
        EngineConfig(
            str(model_file(args.model)), num_threads=args.threads, has_prefix_cache=False, max_num_seqs=args.streams + 1,
            max_model_len=args.max_model_len, itl_ms=itl_ms, is_offline=True,
        )
    )  # fmt: skip
    if args.prompt >= core.info.max_model_len:
        raise SystemExit(f"--prompt {args.prompt}: this engine holds {core.info.max_model_len} tokens")
    return core


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    core = engine(args, None)
    yield row("mixed.prefill", "s", [prompt_alone(core, args.prompt)], threads=args.threads, prompt=args.prompt)
    with first_in_line(os.getpid(), args.realtime):
        free = run(core, args)
    yield from rows("free", free, args)
    core.rest(is_last=True)
    core = engine(args, args.itl_ms or 1000.0)
    with first_in_line(os.getpid(), args.realtime):
        paced = run(core, args)
    found = core.stats()
    itl_ms = round(found["itl_target_seconds"] * 1e3, 2)
    yield from rows("paced", paced, args, itl_ms=itl_ms, late_steps=found["num_late_steps"])
    core.rest(is_last=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("model", nargs="?", default=MODEL)
    options.add_argument("--itl-ms", type=float, help="the limit (default: by --times)")
    about = "the limit as a multiple of the streams' median alone (default %(default)s)"
    options.add_argument("--times", type=float, default=WANTED, help=about)
    options.add_argument("--streams", type=int, default=8)
    options.add_argument("--context", type=int, default=512, help="prompt tokens of each stream (default %(default)s)")
    options.add_argument("--prompt", type=int, default=7500, help="tokens of the long prompt (default %(default)s)")
    options.add_argument("--max-model-len", type=int, help="context length (default: the model's)")
    options.add_argument("--steps", type=int, default=100, help="steps of the streams alone (default %(default)s)")
    about = "seconds of every run at real-time priority, on a machine that others use (needs root)"
    options.add_argument("--realtime", type=float, metavar="S", default=0.0, help=about)
    args = options.parse_args()
    report(results(args), args, "mixed")


if __name__ == "__main__":
    main()

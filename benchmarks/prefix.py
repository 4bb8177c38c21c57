"""64 requests at once whose prompts begin with the same 256 tokens: seconds until all have their 64 tokens, and what was shared.

    octavo bench prefix -- [--model M] [--vllm-python /path/bin/python --vllm-model FOLDER] [--realtime S]

prefix.total      seconds for all answers; peer vLLM's CPU build, its prefix cache on, the same numbers of tokens
prefix.apart      the same requests with the prefix cache off, once
prefix.cached     prompt tokens that were found in the cache, of all requests together; `possible` is what sharing could save
prefix.host       share of the time that went by outside the kernels' program: planning, arrays, sampling, outputs
Both engines forget what they cached before each repetition: prompts never repeat.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.cells import SHARED_PREFIX, SHARED_REQUESTS, Cell, Lengths, Prompts
from benchmarks.common import MODEL, Call, OtherLoad, Peer, Samples, interleave, parser, report, row
from benchmarks.processes import PeerProcess, model_file
from benchmarks.realtime import first_in_line

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams

PAUSE_S = 0.5


class Timed:
    """A program of kernels that adds up the seconds of its runs."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self.program)

    def run(self, *args: Any) -> None:
        start = time.perf_counter()
        self.program.run(*args)
        self.seconds += time.perf_counter() - start


class Engine:
    """An engine in this process; what its last run found cached, and the share of its time outside kernels."""

    def __init__(self, args: argparse.Namespace, has_prefix_cache: bool = True) -> None:
        self.core: EngineCore = build_core(
            EngineConfig(
                str(model_file(args.model)), num_threads=args.threads, has_prefix_cache=has_prefix_cache,
                max_num_seqs=SHARED_REQUESTS, is_offline=True,
            )
        )  # fmt: skip
        self.cached: list[float] = []
        self.host: list[float] = []
        self._count = 0

    def run(self, prompts: list[list[int]], new: int) -> float:
        """Seconds until every prompt has `new` tokens."""
        executable: Any = self.core.runner.executable
        timed = Timed(executable.recorded.program) if hasattr(executable, "recorded") else None
        if timed is not None:
            executable.recorded.program = timed
        start = time.perf_counter()
        for prompt in prompts:
            self._count += 1
            params = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
            self.core.add(AddRequest(f"r{self._count}", prompt, params))
        cached: dict[str, int] = {}
        num_tokens = 0
        while self.core.has_work:
            for output in self.core.step():
                num_tokens += len(output.tokens)
                cached[output.request_id] = output.num_cached
        seconds = time.perf_counter() - start
        if timed is not None:
            executable.recorded.program = timed.program
            self.host.append(1 - timed.seconds / seconds)
        if num_tokens != new * len(prompts):
            raise RuntimeError(f"asked for {new * len(prompts)} tokens, got {num_tokens}")
        self.cached.append(float(sum(cached.values())))
        return seconds


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    cell = Cell("shared", "shared", lengths=Lengths(shared_own=args.own, shared_new=args.new))
    prompts = Prompts()
    shared, apart = Engine(args), Engine(args, has_prefix_cache=False)

    def ours(engine: Engine) -> Call:
        def call() -> float:
            asked = cell.command(prompts)["prompts"]
            with first_in_line(os.getpid(), args.realtime):
                return engine.run(asked, args.new)

        return call

    with contextlib.ExitStack() as stack:
        calls: dict[str, Call] = {"ours": ours(shared)}
        process: PeerProcess | None = None
        if args.vllm_python:
            command = (args.vllm_python, "vllm_cpu.py", args.vllm_model, str(args.threads))
            process = peer = stack.enter_context(PeerProcess(*command))

            def theirs() -> float:
                with first_in_line(peer.process.pid, args.realtime):
                    return cell.value(peer.ask(**cell.command(prompts)))

            calls["theirs"] = theirs
        found = interleave(calls, args.repeats, budget_s=args.budget, pause_s=PAUSE_S)
        how: dict[str, Any] = {
            "threads": args.threads, "model": args.model, "requests": SHARED_REQUESTS, "prefix": SHARED_PREFIX,
            "own": args.own, "new": args.new,
        }  # fmt: skip
        by = None if process is None else Peer(process.name, process.version, found["theirs"])
        yield row("prefix.total", "s", found["ours"], peer=by, **how)
        load = OtherLoad()
        once = ours(apart)()
        yield row("prefix.apart", "s", Samples([once or 0.0], [load.share()]), **how)
        possible = SHARED_PREFIX * (SHARED_REQUESTS - 1)
        yield row("prefix.cached", "tokens", shared.cached, better="higher", possible=possible, **how)
        if shared.host:
            yield row("prefix.host", "share", shared.host, **how)


def main() -> None:
    options = parser(__doc__, repeats=3)
    options.add_argument("--model", default=MODEL)
    options.add_argument("--own", type=int, default=16, help="prompt tokens of each request after the prefix")
    options.add_argument("--new", type=int, default=64, help="tokens of each answer (default %(default)s)")
    options.add_argument("--vllm-python", help="a Python with vLLM's CPU build")
    options.add_argument("--vllm-model", help="the same model as a folder of safetensors, for vLLM")
    about = "seconds of every repetition at real-time priority, on a machine that others use (needs root)"
    options.add_argument("--realtime", type=float, metavar="S", default=0.0, help=about)
    args = options.parse_args()
    if bool(args.vllm_python) != bool(args.vllm_model):
        options.error("--vllm-python and --vllm-model go together")
    report(results(args), args, "prefix")


if __name__ == "__main__":
    main()

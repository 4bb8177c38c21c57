"""Tokens per second with SmolLM2: one request, sixteen at once, and the prompt; llama.cpp and vLLM in turns with us.

    octavo bench decode -- --peer-python /path/with/llama-cpp/bin/python [--vllm-python P --vllm-model FOLDER]

decode.b1     one request, single-token steps after a prompt of 64; peer llama.cpp on the same file (ratio >= 0.9 wanted)
decode.b16    16 requests of 128 prompt tokens: 16 * 127 / (time of 128 new tokens - time of 1); peer vLLM's CPU build, while all
              its requests decode
prefill.512   a prompt of 512 tokens to its first token; peer llama.cpp
All go through the whole engine: scheduler, sampler, prefix cache off, bfloat16 keys and values. Two threads.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.cells import Prompts
from benchmarks.common import MODEL, Call, Peer, Samples, interleave, parser, report, row, say
from benchmarks.processes import PeerProcess, model_file

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams

NEW, BATCH = 128, 16
PAUSE_S = 0.05


class Engine:
    """An engine in this process."""

    def __init__(self, model: str, threads: int) -> None:
        config = EngineConfig(
            str(model_file(model)), num_threads=threads, has_prefix_cache=False, max_num_seqs=BATCH, is_offline=True
        )
        self.core: EngineCore = build_core(config)
        if self.core.keeper is not None:
            self.core.keeper.settle()
        self._count = 0

    def add(self, prompt: list[int], new: int) -> None:
        self._count += 1
        params = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
        self.core.add(AddRequest(f"r{self._count}", prompt, params))

    def run(self, prompts: list[list[int]], new: int) -> float:
        """Seconds until every prompt has `new` tokens."""
        start = time.perf_counter()
        for prompt in prompts:
            self.add(prompt, new)
        num_tokens = 0
        while self.core.has_work:
            num_tokens += sum(len(output.tokens) for output in self.core.step())
        seconds = time.perf_counter() - start
        if num_tokens != new * len(prompts):
            raise RuntimeError(f"asked for {new * len(prompts)} tokens, got {num_tokens}")
        return seconds

    def decode(self, prompt: list[int], new: int) -> float:
        """Seconds of `new` single-token steps after the first token."""
        self.add(prompt, new + 1)
        while not any(output.tokens for output in self.core.step()):
            pass
        start = time.perf_counter()
        while self.core.has_work:
            self.core.step()
        return time.perf_counter() - start


def turns(
    ours: Callable[[], float], theirs: Callable[[], float] | None, args: argparse.Namespace
) -> tuple[Samples, Samples]:
    """Rates of both (the second empty without a peer)."""
    calls: dict[str, Call] = {"ours": ours, **({} if theirs is None else {"theirs": theirs})}
    found = interleave(calls, args.repeats, budget_s=args.budget, pause_s=PAUSE_S)
    return found["ours"], found.get("theirs", Samples())


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    prompts, engine = Prompts(), Engine(args.model, args.threads)
    with contextlib.ExitStack() as stack:
        llama = vllm = None
        if args.peer_python:
            path = str(model_file(args.model))
            llama = stack.enter_context(PeerProcess(args.peer_python, "llamacpp.py", path, str(args.threads)))
        if args.vllm_python:
            vllm = stack.enter_context(PeerProcess(args.vllm_python, "vllm_cpu.py", args.vllm_model, str(args.threads)))
        how: dict[str, Any] = {"better": "higher", "threads": args.threads}

        def peer(process: PeerProcess | None, samples: Samples) -> Peer | None:
            return None if process is None else Peer(process.name, process.version, samples)

        def asked(process: PeerProcess | None, requests: int, length: int, new: int) -> Callable[[], float] | None:
            """The rate of a peer: of decoding for many new tokens, of the prompt for one."""

            def call() -> float:
                assert process is not None
                found = process.ask(do="generate", prompts=[prompts(length) for _ in range(requests)], new=new)
                if new == 1:
                    return float(length / found["seconds"])
                return float(found["window_tokens"] / found["window_seconds"])

            return None if process is None else call

        if "b1" in args.only:
            found = turns(
                lambda: NEW / engine.decode(prompts(64), NEW),
                asked(llama, 1, 64, NEW + 1),
                args,
            )
            yield row("decode.b1", "tokens/s", found[0], peer=peer(llama, found[1]), **how)
        if "b16" in args.only:
            several = lambda: [prompts(128) for _ in range(BATCH)]  # noqa: E731
            found = turns(
                lambda: BATCH * (NEW - 1) / (engine.run(several(), NEW) - engine.run(several(), 1)),
                asked(vllm, BATCH, 128, NEW),
                args,
            )
            yield row("decode.b16", "tokens/s", found[0], peer=peer(vllm, found[1]), **how)
        if "prefill" in args.only:
            found = turns(
                lambda: 512 / engine.run([prompts(512)], 1),
                asked(llama, 1, 512, 1),
                args,
            )
            yield row("prefill.512", "tokens/s", found[0], peer=peer(llama, found[1]), **how)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", default=MODEL)
    options.add_argument("--peer-python", help="a Python with llama-cpp-python")
    options.add_argument("--vllm-python", help="a Python with vLLM's CPU build")
    options.add_argument("--vllm-model", help="the same model as a folder of safetensors, for vLLM")
    options.add_argument("--only", nargs="+", choices=("b1", "b16", "prefill"), default=["b1", "b16", "prefill"])
    args = options.parse_args()
    if bool(args.vllm_python) != bool(args.vllm_model):
        options.error("--vllm-python and --vllm-model go together")
    if not args.peer_python:
        say("without --peer-python there is no peer in these rows")
    report(results(args), args, "decode")


if __name__ == "__main__":
    main()

"""vLLM's CPU build, for benchmarks that take turns with it. Runs under the Python that has it.

    python vllm_cpu.py MODEL_FOLDER THREADS     answers commands on stdin, one JSON object a line

Command: {"do": "batch", "prompts": [[ids], ...], "new": n} times n new tokens for each prompt, greedily, all at once;
{"do": "memory"} gives the peak of resident memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def peak_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def main() -> None:
    path, threads = sys.argv[1], int(sys.argv[2])
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    import vllm

    llm = vllm.LLM(
        model=path, dtype="bfloat16", max_model_len=4096, max_num_seqs=64, enable_prefix_caching=False, seed=0,
        disable_log_stats=True,
    )  # fmt: skip
    print(json.dumps({"peer": "vllm-cpu", "version": vllm.__version__}), flush=True)
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        if command["do"] == "memory":
            print(json.dumps({"bytes": peak_bytes()}), flush=True)
            continue
        new = command["new"]
        how = vllm.SamplingParams(temperature=0.0, max_tokens=new, min_tokens=new, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        done = llm.generate([{"prompt_token_ids": ids} for ids in command["prompts"]], how, use_tqdm=False)
        seconds = time.perf_counter() - start
        if any(len(one.outputs[0].token_ids) != new for one in done):
            raise RuntimeError("an answer has not the length that was asked for")
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()

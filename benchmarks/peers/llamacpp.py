"""llama.cpp through llama-cpp-python, for benchmarks that take turns with it. Runs under the Python that has it.

    python llamacpp.py MODEL.gguf THREADS            answers commands on stdin, one JSON object a line
    python llamacpp.py MODEL.gguf THREADS --first    prints one token and ends (process start to first token)

Commands: {"do": "decode", "prompt": [ids], "new": n} times n single-token steps after the prompt, the highest logit taken
each time; {"do": "prefill", "prompt": [ids]} times the prompt; {"do": "memory"} gives the peak of resident memory.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import llama_cpp
import numpy as np


class Model:
    """One context of 4,096 tokens."""

    def __init__(self, path: str, threads: int) -> None:
        self.llm = llama_cpp.Llama(
            model_path=path, n_ctx=4096, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.vocab = self.llm.n_vocab()

    def best(self) -> int:
        """The token of the highest logit of the last position."""
        at = llama_cpp.llama_get_logits_ith(self.llm.ctx, -1)
        return int(np.ctypeslib.as_array(at, shape=(self.vocab,)).argmax())

    def prefill(self, prompt: list[int]) -> float:
        """Seconds from the prompt to the first token."""
        self.llm.reset()
        start = time.perf_counter()
        self.llm.eval(prompt)
        self.best()
        return time.perf_counter() - start

    def decode(self, prompt: list[int], new: int) -> float:
        """Seconds for `new` steps of one token."""
        self.prefill(prompt)
        token = self.best()
        start = time.perf_counter()
        for _ in range(new):
            self.llm.eval([token])
            token = self.best()
        return time.perf_counter() - start


def peak_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def main() -> None:
    path, threads = sys.argv[1], int(sys.argv[2])
    model = Model(path, threads)
    if "--first" in sys.argv[3:]:
        llm = model.llm
        llm.eval(llm.tokenize(b"Gravity is"))
        print(llm.detokenize([model.best()]).decode(errors="replace"), flush=True)
        return
    print(json.dumps({"peer": "llama.cpp", "version": f"llama-cpp-python {llama_cpp.__version__}"}), flush=True)
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        if command["do"] == "decode":
            answer = {"seconds": model.decode(command["prompt"], command["new"])}
        elif command["do"] == "prefill":
            answer = {"seconds": model.prefill(command["prompt"])}
        else:
            answer = {"bytes": peak_bytes()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

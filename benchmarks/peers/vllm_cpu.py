"""vLLM's CPU build. Runs under the Python that has it; commands: see protocol.py.

One engine in this process, bfloat16 keys and values, prefix cache on, steps of up to 4,096 tokens. VLLM_EAGER=1 leaves its
compiler out.
"""

from __future__ import annotations

import os
from typing import Any

from protocol import TEXT, Steps, serve


class Engine:
    """One offline engine, stepped by hand."""

    peer = "vllm"

    def __init__(self, path: str, threads: int) -> None:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        import vllm

        self.vllm, self.count = vllm, 0
        self.version = vllm.__version__
        self.llm = vllm.LLM(
            model=path, dtype="bfloat16", max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=4096, seed=0,
            enable_prefix_caching=True, disable_log_stats=True, enforce_eager=os.environ.get("VLLM_EAGER") == "1",
        )  # fmt: skip

    def first(self) -> str:
        """One token after TEXT."""
        how = self.vllm.SamplingParams(temperature=0.0, max_tokens=1)
        return str(self.llm.generate([TEXT], how, use_tqdm=False)[0].outputs[0].text)

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """See protocol.py."""
        how = self.vllm.SamplingParams(
            temperature=0.0, max_tokens=new, min_tokens=new, ignore_eos=True, detokenize=False
        )
        engine, names = self.llm.llm_engine, {}
        steps = Steps(new)
        for i, ids in enumerate(prompts):
            self.count += 1
            names[str(self.count)] = i
            engine.add_request(str(self.count), {"prompt_token_ids": ids}, how)
        counts = [0] * len(prompts)
        while engine.has_unfinished_requests():
            for output in engine.step():
                counts[names[output.request_id]] = len(output.outputs[0].token_ids)
            steps.mark(counts)
        return steps.answer(counts)

    def reset(self) -> None:
        """Empties the prefix cache."""
        self.llm.reset_prefix_cache()


if __name__ == "__main__":
    serve(Engine)

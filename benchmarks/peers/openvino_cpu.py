"""OpenVINO GenAI's continuous batching on the CPU. Runs under the Python that has it; commands: see protocol.py.

Prefix cache on, steps of up to 4,096 tokens; there is no call to empty the cache, so prompts must never repeat.
"""

from __future__ import annotations

from typing import Any

from protocol import TEXT, Steps, serve


class Engine:
    """One pipeline, stepped by hand."""

    peer = "openvino-genai"

    def __init__(self, path: str, threads: int) -> None:
        import numpy as np
        import openvino as ov
        import openvino_genai as genai

        self.np, self.ov, self.genai, self.count = np, ov, genai, 0
        self.version = genai.__version__
        plan = genai.SchedulerConfig()
        plan.cache_size, plan.enable_prefix_caching = 2, True
        plan.max_num_batched_tokens, plan.max_num_seqs = 4096, 64
        self.pipe = genai.ContinuousBatchingPipeline(path, plan, "CPU", {"INFERENCE_NUM_THREADS": threads})

    def _how(self, new: int) -> Any:
        how = self.genai.GenerationConfig()
        how.max_new_tokens = how.min_new_tokens = new
        how.ignore_eos, how.do_sample = True, False
        return how

    def first(self) -> str:
        """One token after TEXT."""
        return str(self.pipe.generate([TEXT], [self._how(1)])[0].m_generation_ids[0])

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """See protocol.py."""
        steps = Steps(new)
        handles = []
        for ids in prompts:
            self.count += 1
            tensor = self.ov.Tensor(self.np.array([ids], dtype=self.np.int64))
            handles.append(self.pipe.add_request(self.count, tensor, self._how(new)))
        counts = [0] * len(prompts)
        while self.pipe.has_non_finished_requests():
            self.pipe.step()
            for i, handle in enumerate(handles):
                while handle.can_read():
                    counts[i] += sum(len(output.generated_ids) for output in handle.read().values())
            steps.mark(counts)
        return steps.answer(counts)

    def reset(self) -> None:
        """The cache cannot be emptied; prompts never repeat."""


if __name__ == "__main__":
    serve(Engine)

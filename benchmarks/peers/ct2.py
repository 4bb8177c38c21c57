"""CTranslate2's Generator on the CPU, int8 weights. Runs under the Python that has it; commands: see protocol.py.

Static batches: all prompts at once, no prefix shared between them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protocol import Steps, serve


class Engine:
    """One generator; tokens go in as their spellings."""

    peer = "ctranslate2"

    def __init__(self, path: str, threads: int) -> None:
        import ctranslate2

        self.version = ctranslate2.__version__
        self.vocabulary = json.loads((Path(path) / "vocabulary.json").read_text())
        self.generator = ctranslate2.Generator(
            path, device="cpu", compute_type="int8_float32", intra_threads=threads, inter_threads=1
        )

    def first(self) -> str:
        """One token after a prompt of ids: the library has no tokenizer."""
        words = [self.vocabulary[i] for i in range(1000, 1003)]
        found = self.generator.generate_batch([words], max_length=1, include_prompt_in_result=False)
        return str(found[0].sequences[0])

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """See protocol.py."""
        words = [[self.vocabulary[i] for i in prompt] for prompt in prompts]
        counts = [0] * len(prompts)
        steps = Steps(new)

        def take(result: Any) -> bool:
            counts[result.batch_id] = result.step + 1
            if result.batch_id == len(counts) - 1:
                steps.mark(counts)
            return False

        done = self.generator.generate_batch(
            words, max_length=new, min_length=new, sampling_topk=1, beam_size=1, include_prompt_in_result=False,
            end_token=[], max_batch_size=0, callback=take,
        )  # fmt: skip
        return steps.answer([len(one.sequences_ids[0]) for one in done])

    def reset(self) -> None:
        """Nothing is kept between commands."""


if __name__ == "__main__":
    serve(Engine)

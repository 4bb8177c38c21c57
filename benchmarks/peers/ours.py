"""Octavo itself, as its peers are asked: one engine in this process. Commands: see protocol.py.

Default options: bfloat16 keys and values, prefix cache on, room for 64 requests.
"""

from __future__ import annotations

from typing import Any

from protocol import TEXT, Steps, serve


class Engine:
    """An engine core, stepped by hand."""

    peer = "octavo"

    def __init__(self, path: str, threads: int) -> None:
        from octavo import LLM, __version__

        self.version = __version__
        self.llm = LLM(path, num_threads=threads, max_num_seqs=64, is_offline=True)
        self.core = self.llm.core
        self.count = 0

    def first(self) -> str:
        """One token after TEXT."""
        from octavo import SamplingParams

        return str(self.llm.generate([TEXT], SamplingParams(temperature=0.0, max_tokens=1))[0].text)

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """See protocol.py."""
        from octavo import SamplingParams
        from octavo.engine.messages import AddRequest

        how = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
        names: dict[str, int] = {}
        steps = Steps(new)
        for i, ids in enumerate(prompts):
            self.count += 1
            names[f"r{self.count}"] = i
            self.core.add(AddRequest(f"r{self.count}", ids, how))
        counts = [0] * len(prompts)
        while self.core.has_work:
            for output in self.core.step():
                counts[names[output.request_id]] += len(output.tokens)
            steps.mark(counts)
        return steps.answer(counts)

    def reset(self) -> None:
        """Prompts never repeat."""


if __name__ == "__main__":
    serve(Engine)

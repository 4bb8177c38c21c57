"""Intel's extension for PyTorch with transformers, bfloat16. Runs under the Python that has it; commands: see protocol.py.

Static batches. The extension's last release is 2.8.0: it wants torch 2.8, Python 3.9 to 3.13 and a processor with AVX2. Where one
of these is missing the program says which, what was found and what to do, and ends.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

from protocol import TEXT, Steps, serve

TORCH = "2.8"
PYTHONS = ((3, 9), (3, 13))


def why_not(python: tuple[int, int], versions: dict[str, str], flags: set[str]) -> str:
    """Why the extension cannot run with this Python, these distributions and this processor, or ''."""
    low, high = PYTHONS
    if not low <= python <= high:
        found = ".".join(map(str, python))
        return f"intel-extension-for-pytorch 2.8.0 has builds for Python 3.9 to 3.13, this is {found}; set PYTHON_IPEX"
    missing = [name for name in ("torch", "intel-extension-for-pytorch", "transformers") if name not in versions]
    if missing:
        return f"{', '.join(missing)}: not installed; run benchmarks/peers/install FOLDER ipex"
    torch, extension = versions["torch"], versions["intel-extension-for-pytorch"]
    if ".".join(torch.split(".")[:2]) != TORCH:
        return f"intel-extension-for-pytorch {extension} is built for torch {TORCH}, found {torch}; install torch=={TORCH}.0"
    if "avx2" not in flags:
        return f"intel-extension-for-pytorch {extension} needs a processor with AVX2; this one has none"
    return ""


def installed() -> dict[str, str]:
    """Versions of what is installed here."""
    return {dist.metadata["Name"].lower(): dist.version for dist in importlib.metadata.distributions()}


def cpu_flags() -> set[str]:
    """The processor's features as Linux names them."""
    with open("/proc/cpuinfo") as file:
        return next((set(line.split()) for line in file if line.startswith("flags")), set())


class Engine:
    """A model under `ipex.llm.optimize`."""

    peer = "ipex"

    def __init__(self, path: str, threads: int) -> None:
        if why := why_not(sys.version_info[:2], installed(), cpu_flags()):
            raise RuntimeError(why)
        import intel_extension_for_pytorch as ipex
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self.torch, self.version = torch, ipex.__version__
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.bfloat16).eval()
        self.model = ipex.llm.optimize(model, dtype=torch.bfloat16, inplace=True)

    def _run(self, prompts: list[list[int]], new: int, each: Any) -> list[list[int]]:
        from transformers import StoppingCriteria, StoppingCriteriaList

        class Watch(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                each(input_ids.shape[1])
                return input_ids.new_zeros(input_ids.shape[0], dtype=bool)

        ids = self.torch.tensor(prompts)
        with self.torch.inference_mode():
            out = self.model.generate(
                ids, attention_mask=self.torch.ones_like(ids), do_sample=False, max_new_tokens=new, min_new_tokens=new,
                pad_token_id=2, stopping_criteria=StoppingCriteriaList([Watch()]),
            )  # fmt: skip
        return [row[len(prompts[0]) :].tolist() for row in out]

    def first(self) -> str:
        """One token after TEXT."""
        found = self._run([self.tokenizer(TEXT)["input_ids"]], 1, lambda _: None)
        return str(self.tokenizer.decode(found[0]))

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """See protocol.py. All prompts have one length."""
        steps = Steps(new)
        length = len(prompts[0])
        found = self._run(prompts, new, lambda size: steps.mark([size - length] * len(prompts)))
        return steps.answer([len(row) for row in found])

    def reset(self) -> None:
        """Nothing is kept between commands."""


if __name__ == "__main__":
    serve(Engine)

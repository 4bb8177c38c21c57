"""Makes or checks `tests/golden/real/*.npz`: what transformers says for two real quantized files, expanded to float32.

    python tests/golden/make_real_golden.py --smollm2 FILE.gguf --gemma3 FILE.gguf [--llama-cpp PYTHON] [--check]

Per file, for ten prompts and the oracle's 64 greedy tokens after each: `prompt_ids`, `prompt_start` [11],
`output_ids` [10, 64], and from one pass over prompt and output, for the position before each output token: `gaps`
[10, 64] (first minus second logit), `top_ids` and `top_logprobs` [10, 64, TOP]. `llama_cpp_kl`: mean coarse KL of
llama.cpp for the same file and text (NaN where it was not measured). Coarse means: over the stored top tokens and one
bucket for all others, which never exceeds the KL over all tokens. Needs torch, transformers, gguf; run from the
repository root with PYTHONPATH=src:. set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "real"
NUM_TOKENS = 64
TOP = 8
CHECK_BOUND = 1e-3  # of logprobs; float32 sums over a real model's widths

QUESTIONS = (
    "What is gravity? Answer in two sentences.",
    "Write a short poem about rain in the mountains.",
    "List three prime numbers greater than 50.",
    "How do I sort a list of numbers in Python?",
    "Translate to French: The library opens at nine.",
    "Why is the sky blue in the day and red at sunset?",
    "Tell me about the history of the printing press.",
    "A train leaves at 14:20 and arrives at 17:05. How long does it travel?",
    "Give me a recipe for a simple tomato soup.",
    "What should I pack for a week of hiking?",
)
OPENINGS = (
    "The history of paper begins in",
    "def fibonacci(n):\n    ",
    "In a small village by the sea there lived",
    "The three laws of thermodynamics state that",
    "Dear Sir or Madam,\n\nI am writing to",
    "La capitale de la France est",
    "1, 1, 2, 3, 5, 8, 13,",
    "An octavo is a sheet of paper folded",
    "Ingredients: two eggs, a cup of flour,",
    "The most important thing about learning a language is",
)


def chat(question: str) -> str:
    """SmolLM2's chat format."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = {"smollm2": tuple(map(chat, QUESTIONS)), "gemma3": tuple(f"<bos>{text}" for text in OPENINGS)}


def oracle(path: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of transformers for a GGUF file, float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kwargs = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**kwargs)
    model = AutoModelForCausalLM.from_pretrained(**kwargs, dtype=torch.float32, attn_implementation="eager")
    return model.eval(), tokenizer


def measure(name: str, path: Path) -> dict[str, NDArray[Any]]:
    """Everything stored for one file, without llama.cpp's figure."""
    import torch

    model, tokenizer = oracle(path)
    prompts = [tokenizer(text, add_special_tokens=False).input_ids for text in PROMPTS[name]]
    outputs, gaps, top_ids, top_logprobs = [], [], [], []
    with torch.no_grad():
        for ids in prompts:
            text = greedy(model, ids)
            logits = model(torch.tensor([ids + text]), use_cache=False).logits[0].float()
            logits = logits[len(ids) - 1 : -1]
            best = torch.topk(logits, TOP, dim=-1)
            outputs.append(text)
            gaps.append((best.values[:, 0] - best.values[:, 1]).numpy())
            top_ids.append(best.indices.numpy())
            top_logprobs.append((best.values - torch.logsumexp(logits, -1, keepdim=True)).numpy())
    return {
        "sha256": np.frombuffer(hashlib.sha256(path.read_bytes()).digest(), np.uint8),
        "prompt_ids": np.concatenate([np.array(ids, np.int32) for ids in prompts]),
        "prompt_start": np.cumsum([0, *(len(ids) for ids in prompts)]).astype(np.int32),
        "output_ids": np.array(outputs, np.int32),
        "gaps": np.array(gaps, np.float32),
        "top_ids": np.array(top_ids, np.int32),
        "top_logprobs": np.array(top_logprobs, np.float32),
    }


def greedy(model: Any, ids: list[int]) -> list[int]:
    """NUM_TOKENS greedy tokens after `ids`, never stopping at an end token."""
    import torch

    cache, fed, text = None, torch.tensor([ids]), []
    for _ in range(NUM_TOKENS):
        out = model(fed, cache=cache, use_cache=True)
        cache = out.cache
        text.append(int(out.logits[0, -1].argmax()))
        fed = torch.tensor([[text[-1]]])
    return text


def coarse_kl(golden: dict[str, NDArray[Any]], logits: NDArray[np.float32], prompt: int) -> NDArray[np.float64]:
    """KL(oracle, other) in nats per position [64] over the stored top tokens and one bucket for the rest.

    `logits` [64, vocab] are the other's, for the positions before the prompt's output tokens.
    """
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    q = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    p = np.exp(golden["top_logprobs"][prompt].astype(np.float64))
    q = np.take_along_axis(q, golden["top_ids"][prompt], -1)
    p = np.concatenate([p, np.maximum(1 - p.sum(-1, keepdims=True), 1e-12)], -1)
    q = np.concatenate([q, np.maximum(1 - q.sum(-1, keepdims=True), 1e-12)], -1)
    return np.asarray((p * (np.log(p) - np.log(np.maximum(q, 1e-300)))).sum(-1))


_LLAMA_CPP = """
import json, sys
import numpy as np
from llama_cpp import Llama
job = json.load(open(sys.argv[1]))
llm = Llama(job["path"], n_ctx=512, logits_all=True, n_threads=2, verbose=False)
for i, ids in enumerate(job["texts"]):
    llm.reset()
    llm.eval(ids)
    first = len(ids) - job["num_tokens"]
    np.save(f'{job["out"]}/{i}.npy', np.array(llm.scores[first - 1 : len(ids) - 1], np.float32))
"""


def llama_cpp_kl(python: str, path: Path, golden: dict[str, NDArray[Any]]) -> float:
    """Mean coarse KL of llama.cpp (its default number types) on the oracle's text."""
    texts = [full_text(golden, i).tolist() for i in range(len(golden["output_ids"]))]
    with tempfile.TemporaryDirectory() as folder:
        job = {"path": str(path), "texts": texts, "num_tokens": NUM_TOKENS, "out": folder}
        (Path(folder) / "job.json").write_text(json.dumps(job))
        subprocess.run([python, "-c", _LLAMA_CPP, f"{folder}/job.json"], check=True)
        return float(np.mean([coarse_kl(golden, np.load(f"{folder}/{i}.npy"), i) for i in range(len(texts))]))


def full_text(golden: dict[str, NDArray[Any]], prompt: int) -> NDArray[np.int32]:
    """Prompt and output ids of one prompt."""
    start = golden["prompt_start"]
    return np.concatenate([golden["prompt_ids"][start[prompt] : start[prompt + 1]], golden["output_ids"][prompt]])


def load(name: str) -> dict[str, NDArray[Any]]:
    """A stored file."""
    with np.load(FOLDER / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored}


def check(name: str, fresh: dict[str, NDArray[Any]]) -> bool:
    """Whether fresh values agree with the stored ones; prints what does not."""
    stored = load(name)
    if not np.array_equal(stored["sha256"], fresh["sha256"]):
        print(f"{name}: another file than the one measured")
        return False
    ids = ("prompt_ids", "prompt_start", "output_ids")
    wrong = [key for key in ids if not np.array_equal(stored[key], fresh[key])]
    worst = float(np.abs(stored["top_logprobs"] - fresh["top_logprobs"]).max()) if not wrong else float("nan")
    print(f"{name}: {'different ' + ', '.join(wrong) if wrong else f'largest logprob difference {worst:.1e}'}")
    return not wrong and worst <= CHECK_BOUND


def main() -> int:
    """Writes the files, or compares with them."""
    parser = argparse.ArgumentParser()
    for name in PROMPTS:
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--llama-cpp", help="a Python that has llama_cpp")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    is_good = True
    for name in PROMPTS:
        path: Path | None = getattr(args, name)
        if path is None:
            continue
        fresh = measure(name, path.resolve())
        if args.check:
            is_good &= check(name, fresh)
            continue
        figure = llama_cpp_kl(args.llama_cpp, path.resolve(), fresh) if args.llama_cpp else float("nan")
        fresh["llama_cpp_kl"] = np.array(figure)
        FOLDER.mkdir(exist_ok=True)
        np.savez_compressed(FOLDER / f"{name}.npz", **fresh)
        size = (FOLDER / f"{name}.npz").stat().st_size
        print(f"{name}: {size} bytes; smallest gap {fresh['gaps'].min():.4f}; llama.cpp's mean KL {figure:.5f}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

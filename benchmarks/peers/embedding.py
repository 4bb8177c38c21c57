"""What programs of embedding engines share: the tokenizer of peers that have none of their own, and the answer to `embed`.

    {"do": "embed", "texts": [...], "alone": false, "file": path}     all texts in one call, or (`alone`) one call each

Answer: seconds, of all; with `alone` also each, the seconds of every call. With `file` float32 vectors [texts, dim] go there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

BATCH = 32
TEXT = "Gravity pulls."


def answer(call: Callable[[list[str]], Any], command: dict[str, Any]) -> dict[str, Any]:
    """Times `call`, which gives vectors as an array [texts, dim]."""
    import numpy as np

    texts = command["texts"]
    found, each = [], []
    for part in [[text] for text in texts] if command.get("alone") else [texts]:
        start = time.perf_counter()
        found.append(call(part))
        each.append(time.perf_counter() - start)
    if command.get("file"):
        np.concatenate([np.asarray(vectors, np.float32) for vectors in found]).tofile(command["file"])
    return {"seconds": sum(each), "each": each}


def by_length(call: Callable[[list[str]], Any], texts: Sequence[str]) -> Any:
    """Calls of at most BATCH texts of like lengths, as sentence-transformers does, in the order that was given."""
    import numpy as np

    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    parts = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
    vectors = np.concatenate([call([texts[place] for place in part]) for part in parts])
    out = np.empty_like(vectors)
    out[order] = vectors
    return out


def tokenizer(folder: str) -> Callable[[list[str]], tuple[Any, Any]]:
    """Texts -> (ids, mask), int64 [texts, longest], cut at 256 tokens."""
    import numpy as np
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    made.enable_truncation(256)
    made.enable_padding()

    def encode(texts: list[str]) -> tuple[Any, Any]:
        found = made.encode_batch(texts)
        return np.array([one.ids for one in found], np.int64), np.array([one.attention_mask for one in found], np.int64)

    return encode

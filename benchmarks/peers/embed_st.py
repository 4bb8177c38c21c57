"""sentence-transformers on the CPU. Commands: see protocol.py and embedding.py. EMBED_FORM: f32 or bf16."""

from __future__ import annotations

import os
from typing import Any

from embedding import BATCH, TEXT, answer
from protocol import serve


class Engine:
    """One model, `encode` as people call it."""

    peer = "sentence-transformers"

    def __init__(self, path: str, threads: int) -> None:
        import sentence_transformers
        import torch

        torch.set_num_threads(threads)
        self.version = sentence_transformers.__version__
        model = sentence_transformers.SentenceTransformer(path, device="cpu")
        self.model = model.bfloat16() if os.environ["EMBED_FORM"] == "bf16" else model

    def _vectors(self, texts: list[str]) -> Any:
        how = {"batch_size": BATCH, "show_progress_bar": False, "convert_to_tensor": True}
        return self.model.encode(texts, **how).float().numpy()

    def first(self) -> str:
        """One vector."""
        return str(self._vectors([TEXT])[0, 0])

    def embed(self, command: dict[str, Any]) -> dict[str, Any]:
        """See embedding.py."""
        return answer(self._vectors, command)


if __name__ == "__main__":
    serve(Engine)

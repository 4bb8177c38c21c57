"""Octavo's embedder, as its peers are asked. Commands: see protocol.py and embedding.py. EMBED_FORM: none, bf16, w8a8, q8_0."""

from __future__ import annotations

import os
from typing import Any

from embedding import TEXT, answer
from protocol import serve


class Engine:
    """An `octavo.Embedder` with default options."""

    peer = "octavo"

    def __init__(self, path: str, threads: int) -> None:
        import octavo

        self.version = octavo.__version__
        self.model = octavo.Embedder(path, num_threads=threads, is_offline=True, quantization=os.environ["EMBED_FORM"])

    def first(self) -> str:
        """One vector."""
        return str(self.model.embed(TEXT)[0, 0])

    def embed(self, command: dict[str, Any]) -> dict[str, Any]:
        """See embedding.py."""
        return answer(lambda texts: self.model.embed(texts, truncate="end"), command)


if __name__ == "__main__":
    serve(Engine)

"""vLLM's CPU build as an embedder. Commands: see protocol.py and embedding.py. EMBED_FORM: f32 or bf16."""

from __future__ import annotations

import os
from typing import Any

from embedding import TEXT, answer
from protocol import serve


class Engine:
    """The offline engine in this process."""

    peer = "vllm"

    def __init__(self, path: str, threads: int) -> None:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        import vllm

        self.version = vllm.__version__
        dtype = {"bf16": "bfloat16", "f32": "float32"}[os.environ["EMBED_FORM"]]
        self.model = vllm.LLM(model=path, runner="pooling", dtype=dtype, disable_log_stats=True)

    def _vectors(self, texts: list[str]) -> Any:
        return [found.outputs.embedding for found in self.model.embed(texts, use_tqdm=False)]

    def first(self) -> str:
        """One vector."""
        return str(self._vectors([TEXT])[0][0])

    def embed(self, command: dict[str, Any]) -> dict[str, Any]:
        """See embedding.py."""
        return answer(self._vectors, command)


if __name__ == "__main__":
    serve(Engine)

"""Octavo: one inference engine for the chips most people have.

Public names are loaded on first use, so that `import octavo` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "AnswerError",
    "AsyncEngine",
    "Classification",
    "Classifier",
    "Embedder",
    "Embedding",
    "Encoding",
    "Ranked",
    "Reranker",
    "SamplingParams",
    "Score",
    "__version__",
]

_HOMES = {
    "LLM": "octavo.engine.llm",
    "AnswerError": "octavo.engine.llm",
    "AsyncEngine": "octavo.engine.client",
    "Classification": "octavo.engine.classifier",
    "Classifier": "octavo.engine.classifier",
    "Embedder": "octavo.engine.embedder",
    "Embedding": "octavo.engine.embedder",
    "Encoding": "octavo.engine.embedder",
    "Ranked": "octavo.engine.reranker",
    "Reranker": "octavo.engine.reranker",
    "SamplingParams": "octavo.engine.sampling_params",
    "Score": "octavo.engine.reranker",
}

if TYPE_CHECKING:
    from octavo.engine.classifier import Classification, Classifier
    from octavo.engine.client import AsyncEngine
    from octavo.engine.embedder import Embedder, Embedding, Encoding
    from octavo.engine.llm import LLM, AnswerError
    from octavo.engine.reranker import Ranked, Reranker, Score
    from octavo.engine.sampling_params import SamplingParams


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(home), name)

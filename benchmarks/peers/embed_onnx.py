"""onnxruntime or OpenVINO over an ONNX file that pools and normalises (export_onnx.py). Commands: see protocol.py, embedding.py.

EMBED_ENGINE: onnxruntime, openvino. EMBED_FORM: f32, bf16 (OpenVINO's own inference precision), int8 (the dynamically
quantized file). MODEL is the folder with FORM.onnx and tokenizer.json.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from embedding import TEXT, answer, by_length, tokenizer
from protocol import serve


class Engine:
    """One session; texts of a call go in batches of like lengths."""

    def __init__(self, path: str, threads: int) -> None:
        self.peer, self.form = os.environ["EMBED_ENGINE"], os.environ["EMBED_FORM"]
        file = os.path.join(path, f"{'int8' if self.form == 'int8' else 'f32'}.onnx")
        self.encode = tokenizer(path)
        made = {"onnxruntime": self._onnxruntime, "openvino": self._openvino}[self.peer]
        self.version, self.call = made(file, threads)

    def _onnxruntime(self, file: str, threads: int) -> tuple[str, Callable[[Any, Any], Any]]:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        return ort.__version__, lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    def _openvino(self, file: str, threads: int) -> tuple[str, Callable[[Any, Any], Any]]:
        import openvino as ov

        precision = "bf16" if self.form == "bf16" else "f32"
        hints = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
        }
        model = ov.Core().compile_model(file, "CPU", hints)
        return ov.__version__.split("-")[0], lambda ids, mask: model({"input_ids": ids, "attention_mask": mask})[
            0
        ].copy()

    def _vectors(self, texts: list[str]) -> Any:
        return self.call(*self.encode(texts))

    def first(self) -> str:
        """One vector."""
        return str(self._vectors([TEXT])[0, 0])

    def embed(self, command: dict[str, Any]) -> dict[str, Any]:
        """See embedding.py."""
        return answer(lambda texts: by_length(self._vectors, texts), command)


if __name__ == "__main__":
    serve(Engine)

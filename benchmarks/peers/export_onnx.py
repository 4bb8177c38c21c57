"""An encoder that ends in its mean and a normalisation, as ONNX files for onnxruntime and OpenVINO.

    python export_onnx.py MODEL_FOLDER TARGET_FOLDER

Writes f32.onnx, int8.onnx (onnxruntime's dynamic quantization) and a copy of tokenizer.json. Needs torch, transformers, onnx and
onnxruntime (`benchmarks/peers/install FOLDER export`).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def main(source: Path, target: Path) -> None:
    """Exports."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(source, attn_implementation="eager", dtype=torch.float32)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1)

    target.mkdir(parents=True, exist_ok=True)
    ids = torch.randint(1000, 2000, (2, 16))
    free = {0: "texts", 1: "tokens"}
    torch.onnx.export(
        Pooled().eval(),
        (ids, torch.ones_like(ids)),
        str(target / "f32.onnx"),
        input_names=["input_ids", "attention_mask"],
        output_names=["vectors"],
        dynamic_axes={"input_ids": free, "attention_mask": free, "vectors": {0: "texts"}},
        opset_version=17,
        dynamo=False,
    )
    quantize_dynamic(str(target / "f32.onnx"), str(target / "int8.onnx"), weight_type=QuantType.QInt8)
    shutil.copy(source / "tokenizer.json", target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

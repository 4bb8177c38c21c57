"""Models of the comparison with peers: their shapes, their tensors, the work and the bytes of a step.

`Shape.tensors` lists every tensor once, with its Hugging Face and GGUF names; all shapes here tie the output matrix to the
embedding. `RandomWeights` and `FileWeights` give the values, as bfloat16 numbers in float32, in slices of whole rows, so
that every format of a model comes from the same numbers and no more than a slice is in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLICE_ELEMENTS = 1 << 22
STD = 0.02


@dataclass(frozen=True)
class Tensor:
    """One tensor in numpy order; `paired_heads` > 0: a matrix whose rows GGUF's llama files keep in rotating pairs."""

    hf: str
    gguf: str
    shape: tuple[int, ...]
    paired_heads: int = 0

    @property
    def is_matrix(self) -> bool:
        """False for the norms, which every format leaves alone."""
        return len(self.shape) == 2

    @property
    def is_embedding(self) -> bool:
        """The token embedding, which is the output matrix too."""
        return self.gguf == "token_embd.weight"

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Shape:
    """A decoder: sizes in elements, `about` says what it is."""

    name: str
    about: str
    family: str  # of GGUF: llama or qwen3
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_theta: float
    norm_eps: float
    is_random: bool = True
    max_tokens: int = 8192

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor, in the order in which files keep them."""
        h, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        paired = self.family == "llama"
        yield Tensor("model.embed_tokens.weight", "token_embd.weight", (self.vocab, h))
        for i in range(self.layers):
            at, blk = f"model.layers.{i}", f"blk.{i}"
            yield Tensor(f"{at}.input_layernorm.weight", f"{blk}.attn_norm.weight", (h,))
            yield Tensor(f"{at}.self_attn.q_proj.weight", f"{blk}.attn_q.weight", (q, h), self.heads * paired)
            yield Tensor(f"{at}.self_attn.k_proj.weight", f"{blk}.attn_k.weight", (kv, h), self.kv_heads * paired)
            yield Tensor(f"{at}.self_attn.v_proj.weight", f"{blk}.attn_v.weight", (kv, h))
            if self.family == "qwen3":
                yield Tensor(f"{at}.self_attn.q_norm.weight", f"{blk}.attn_q_norm.weight", (self.head_dim,))
                yield Tensor(f"{at}.self_attn.k_norm.weight", f"{blk}.attn_k_norm.weight", (self.head_dim,))
            yield Tensor(f"{at}.self_attn.o_proj.weight", f"{blk}.attn_output.weight", (h, q))
            yield Tensor(f"{at}.post_attention_layernorm.weight", f"{blk}.ffn_norm.weight", (h,))
            yield Tensor(f"{at}.mlp.gate_proj.weight", f"{blk}.ffn_gate.weight", (self.inner, h))
            yield Tensor(f"{at}.mlp.up_proj.weight", f"{blk}.ffn_up.weight", (self.inner, h))
            yield Tensor(f"{at}.mlp.down_proj.weight", f"{blk}.ffn_down.weight", (h, self.inner))
        yield Tensor("model.norm.weight", "output_norm.weight", (h,))

    @property
    def layer_params(self) -> int:
        """Elements of the matrices of all layers: every token of a step is multiplied with each."""
        return sum(tensor.size for tensor in self.tensors() if tensor.is_matrix and not tensor.is_embedding)

    @property
    def kv_token_bytes(self) -> int:
        """Keys and values of one token in 16-bit numbers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    def prefill_ops(self, tokens: int) -> float:
        """Multiplications and additions of a prompt: the layers' matrices, causal attention, and one row of the output."""
        attention = 2 * tokens * (tokens + 1) * self.layers * self.heads * self.head_dim
        return 2.0 * self.layer_params * tokens + attention + 2.0 * self.vocab * self.hidden

    def step_bytes(self, weight_bytes: float, requests: int, context: float) -> float:
        """What one decoding step must read: every weight once, and the keys and values of every request."""
        return weight_bytes + requests * context * self.kv_token_bytes

    def hf_config(self) -> dict[str, Any]:
        """config.json."""
        name = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[self.family]
        return {
            "architectures": [name], "model_type": self.family, "vocab_size": self.vocab, "hidden_size": self.hidden,
            "intermediate_size": self.inner, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "hidden_act": "silu",
            "max_position_embeddings": self.max_tokens, "rms_norm_eps": self.norm_eps, "rope_theta": self.rope_theta,
            "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "use_cache": True,
            "initializer_range": STD, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
            "pad_token_id": 2,
        }  # fmt: skip

    def gguf_keys(self) -> dict[str, Any]:
        """Metadata of the GGUF file, the tokenizer's left out."""
        at = self.family
        return {
            "general.architecture": at, "general.name": self.name, "general.quantization_version": 2,
            f"{at}.block_count": self.layers, f"{at}.context_length": self.max_tokens,
            f"{at}.embedding_length": self.hidden, f"{at}.feed_forward_length": self.inner,
            f"{at}.attention.head_count": self.heads, f"{at}.attention.head_count_kv": self.kv_heads,
            f"{at}.attention.key_length": self.head_dim, f"{at}.attention.value_length": self.head_dim,
            f"{at}.rope.dimension_count": self.head_dim, f"{at}.rope.freq_base": self.rope_theta,
            f"{at}.attention.layer_norm_rms_epsilon": self.norm_eps, f"{at}.vocab_size": self.vocab,
        }  # fmt: skip


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("smollm2", "SmolLM2-135M-Instruct, real weights out of its Q4_1 file", "llama", 576, 1536, 30, 9, 3, 64,
              49152, 100000.0, 1e-5, is_random=False),
        Shape("llama1b", "the shape of Llama-3.2-1B, random weights", "llama", 2048, 8192, 16, 32, 8, 64, 128256,
              500000.0, 1e-5),
        Shape("qwen06b", "the shape of Qwen3-0.6B, random weights", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936,
              1000000.0, 1e-6),
    )
}  # fmt: skip


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to the nearest bfloat16, ties to even."""
    bits = values.view(np.uint32)
    rounded: NDArray[np.uint32] = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def slices(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Row ranges of about SLICE_ELEMENTS elements."""
    rows, width = shape[0], int(np.prod(shape[1:]))
    step = max(1, SLICE_ELEMENTS // width)
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


class RandomWeights:
    """Norms of one, matrices normal with deviation 0.02; each slice has its own seed, so any order gives the same."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape, self.seed = shape, seed

    def rows(self, tensor: Tensor, start: int, stop: int) -> NDArray[np.float32]:
        """Rows of a tensor in Hugging Face order, a range of `slices`."""
        if not tensor.is_matrix:
            return np.ones(stop - start, np.float32)
        rng = np.random.default_rng([self.seed, zlib.crc32(tensor.hf.encode()), start])
        values = rng.standard_normal((stop - start, *tensor.shape[1:]), np.float32)
        values *= np.float32(STD)
        return to_bf16(values)


class FileWeights:
    """Values of a GGUF file of the llama family, its rotating pairs of rows undone."""

    def __init__(self, shape: Shape, path: Path) -> None:
        from octavo.engine.loading.gguf import GGUFFile

        self.shape, self.file = shape, GGUFFile.open(path)
        self._last: tuple[str, NDArray[np.float32]] = ("", np.empty(0, np.float32))

    def rows(self, tensor: Tensor, start: int, stop: int) -> NDArray[np.float32]:
        """Rows of a tensor in Hugging Face order."""
        from octavo.quant.load import unpack

        if self._last[0] != tensor.gguf:
            info = self.file.tensors[tensor.gguf]
            values = unpack(info.format, self.file.data(tensor.gguf), info.shape)
            self._last = (tensor.gguf, to_bf16(np.ascontiguousarray(unpaired(values, tensor.paired_heads))))
        return self._last[1][start:stop]


Weights = RandomWeights | FileWeights


def paired(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of each head from halves (i, i + d/2) to pairs (2i, 2i + 1), as GGUF's llama files keep them."""
    return _swapped(values, heads, lambda size: (2, size // 2))


def unpaired(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """The reverse of `paired`."""
    return _swapped(values, heads, lambda size: (size // 2, 2))


def _swapped(values: NDArray[Any], heads: int, split: Any) -> NDArray[Any]:
    if not heads:
        return values
    parts = values.reshape(heads, *split(values.shape[0] // heads), *values.shape[1:])
    swapped: NDArray[Any] = parts.swapaxes(1, 2).reshape(values.shape)
    return swapped

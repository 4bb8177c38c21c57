"""Where a family's tensors are: role -> name in the file, for one file format.

Roles of the model: `tokens`, `positions`, `final_norm`, `head`. Roles of a layer, `{layer}` standing for its index:
`pre_attn`, `post_attn`, `pre_ffn`, `post_ffn` (norms), `q`, `k`, `v` or fused `qkv`, `o`, `q_norm`, `k_norm`, `gate`,
`up` or fused `gate_up` (gate's rows first) or `up_gate` (up's first), `down`. Encoders have also `token_types`,
`token_proj`, `embedding_norm`, `relative` (biases or vectors of buckets of distances) and its `relative_norm`, in layers `rel_k`
and `rel_q` (projections of such vectors), and `after_attn`, `after_ffn` for norms behind the sums.
Names are given without `.weight` / `.bias`.
Invariant: data only, no look at a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LLAMA_HF: dict[str, str] = {
    "tokens": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "pre_attn": "model.layers.{layer}.input_layernorm",
    "pre_ffn": "model.layers.{layer}.post_attention_layernorm",
    "q": "model.layers.{layer}.self_attn.q_proj",
    "k": "model.layers.{layer}.self_attn.k_proj",
    "v": "model.layers.{layer}.self_attn.v_proj",
    "o": "model.layers.{layer}.self_attn.o_proj",
    "q_norm": "model.layers.{layer}.self_attn.q_norm",
    "k_norm": "model.layers.{layer}.self_attn.k_norm",
    "gate": "model.layers.{layer}.mlp.gate_proj",
    "up": "model.layers.{layer}.mlp.up_proj",
    "down": "model.layers.{layer}.mlp.down_proj",
}

GGUF: dict[str, str] = {
    "tokens": "token_embd",
    "positions": "position_embd",
    "final_norm": "output_norm",
    "head": "output",
    "pre_attn": "blk.{layer}.attn_norm",
    "post_attn": "blk.{layer}.post_attention_norm",
    "pre_ffn": "blk.{layer}.ffn_norm",
    "post_ffn": "blk.{layer}.post_ffw_norm",
    "qkv": "blk.{layer}.attn_qkv",
    "q": "blk.{layer}.attn_q",
    "k": "blk.{layer}.attn_k",
    "v": "blk.{layer}.attn_v",
    "o": "blk.{layer}.attn_output",
    "q_norm": "blk.{layer}.attn_q_norm",
    "k_norm": "blk.{layer}.attn_k_norm",
    "gate": "blk.{layer}.ffn_gate",
    "up": "blk.{layer}.ffn_up",
    "down": "blk.{layer}.ffn_down",
}

GGUF_ENCODER: dict[str, str] = {
    "tokens": "token_embd",
    "positions": "position_embd",
    "token_types": "token_types",
    "embedding_norm": "token_embd_norm",
    "qkv": "blk.{layer}.attn_qkv",
    "q": "blk.{layer}.attn_q",
    "k": "blk.{layer}.attn_k",
    "v": "blk.{layer}.attn_v",
    "o": "blk.{layer}.attn_output",
    "after_attn": "blk.{layer}.attn_output_norm",
    "up": "blk.{layer}.ffn_up",
    "down": "blk.{layer}.ffn_down",
    "after_ffn": "blk.{layer}.layer_output_norm",
}
"""Of encoders whose norms follow the sums."""


@dataclass(frozen=True)
class Names:
    """The name map of one family in one file format.

    `is_transposed`: linear weights are stored [in, out] (GPT-2 in safetensors). `has_paired_qk`: rows of q and k are in
    the order that rotates neighbours (2i, 2i+1), as GGUF stores the llama architecture; the loader puts them back into
    halves (i, i + rotary/2), so that both file formats give the same bits. `harmless` are tensors that carry no weight
    (`*` matches any text). `prefixes` may be missing from or present on all names.
    """

    roles: Mapping[str, str]
    is_transposed: bool = False
    has_paired_qk: bool = False
    harmless: tuple[str, ...] = ()
    optional_prefix: str = ""

    def stem(self, role: str, layer: int = 0) -> str:
        """The name of a role without `.weight` or `.bias`."""
        return self.roles[role].format(layer=layer)


HF_HARMLESS = ("*.rotary_emb.inv_freq", "*.self_attn.rotary_emb.*")
"""Buffers that older checkpoints saved; their values follow from the configuration."""


def hf_names(**changes: str) -> dict[str, str]:
    """The Llama name map with roles changed or added; a name that starts with a dot is a layer's."""
    full = {role: f"model.layers.{{layer}}{name}" if name.startswith(".") else name for role, name in changes.items()}
    return {**LLAMA_HF, **full}


def gguf_names(**changes: str) -> dict[str, str]:
    """The GGUF name map with roles changed or added (see `hf_names`); an empty name takes a role away."""
    full = {role: f"blk.{{layer}}{name}" if name.startswith(".") else name for role, name in changes.items()}
    return {role: name for role, name in {**GGUF, **full}.items() if name}

"""What a model family provides, and what it is given to read.

A family is one file with a `FAMILY`: how to read its config.json, its GGUF metadata, and where its tensors are. It
never sees a platform and never touches weights. Invariant: everything a family reads comes through `Source`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.head_kinds import HeadKind
from octavo.engine.models.heads import HeadSpec
from octavo.engine.models.names import Names
from octavo.engine.models.reader import Description
from octavo.engine.models.spec import DecoderSpec


class Source(Protocol):
    """A model's description together with the questions about tensors that GGUF leaves to the file itself."""

    @property
    def cfg(self) -> Description: ...

    def max_len(self, max_positions: int) -> int:
        """Tokens to serve: the model's limit, or the caller's smaller one."""
        ...

    def has(self, tensor: str) -> bool:
        """Whether the checkpoint holds a tensor of this full name."""
        ...

    def rows(self, tensor: str) -> int:
        """The first dimension of a tensor."""
        ...

    def floats(self, tensor: str) -> list[float]:
        """A small float32 tensor's values, claimed; empty if the checkpoint does not hold it."""
        ...


@dataclass(frozen=True)
class Family:
    """One row of the registry, loaded. `from_gguf` None: the GGUF format does not have the family."""

    name: str
    from_hf: Callable[[Source], DecoderSpec]
    hf: Names
    from_gguf: Callable[[Source], DecoderSpec] | None = None
    gguf: Names | None = None


@dataclass(frozen=True)
class EncoderFamily:
    """The same of a family of encoders. `others`: further spellings of the names; a checkpoint has the one whose MLP of layer 0
    it holds, and so has a GGUF file of those in `gguf`. `head`: what its heads are; None: none are served. `is_half`: of an
    encoder-decoder. `gguf_head`: the head that a GGUF file holds, for scores of a text."""

    name: str
    from_hf: Callable[[Source], EncoderSpec]
    hf: Names
    others: tuple[Names, ...] = ()
    head: Callable[[Description, HeadKind], HeadSpec] | None = None
    is_half: bool = False
    from_gguf: Callable[[Source], EncoderSpec] | None = None
    gguf: tuple[Names, ...] = ()
    gguf_head: Callable[[Source], HeadSpec] | None = None


def hf_base(
    src: Source, family: str, *, eps: float = 1e-6, eps_key: str = "rms_norm_eps", tied: bool
) -> dict[str, Any]:
    """The fields nearly all config.json files spell alike. `eps` and `tied` are the family's defaults."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    return {
        "family": family,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": cfg.whole("num_key_value_heads", heads),
        "head_dim": cfg.whole("head_dim", hidden // heads),
        "ffn": cfg.whole("intermediate_size"),
        "vocab": cfg.whole("vocab_size"),
        "max_positions": src.max_len(cfg.whole("max_position_embeddings")),
        "norm_eps": cfg.number(eps_key, eps),
        "is_tied": cfg.flag("tie_word_embeddings", tied),
    }


def gguf_base(src: Source, family: str, *, eps_key: str = "attention.layer_norm_rms_epsilon") -> dict[str, Any]:
    """The fields all GGUF architectures spell alike; biases and tying follow from which tensors the file holds."""
    meta = src.cfg
    hidden, heads = meta.whole("embedding_length"), meta.whole("attention.head_count")
    head_dim = meta.whole("attention.key_length", hidden // heads)
    if meta.whole("attention.value_length", head_dim) != head_dim:
        raise meta.bad("attention.value_length", meta.get("attention.value_length"), f"the key length, {head_dim}")
    meta.expect("attention.causal", True)
    meta.skip("vocab_size", "tensor_data_layout")  # the table's rows count; the layout is told by the architecture
    return {
        "family": family,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": meta.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "ffn": meta.whole("feed_forward_length"),
        "vocab": src.rows("token_embd.weight"),
        "max_positions": src.max_len(meta.whole("context_length")),
        "norm_eps": meta.number(eps_key),
        "is_tied": not src.has("output.weight"),
    }


def gguf_encoder(src: Source, family: str, **more: Any) -> EncoderSpec:
    """An encoder's description from GGUF metadata. Biases, token types and learned positions are there where their tensors are;
    positions count from 0, for files hold the rows of a table that texts use. What a text may be used for is not read here."""
    meta = src.cfg
    hidden, heads = meta.whole("embedding_length"), meta.whole("attention.head_count")
    if heads < 1 or hidden % heads:
        raise meta.bad("attention.head_count", heads, f"a number of heads that share a width of {hidden} evenly")
    for key, value in (("head_count_kv", heads), ("key_length", hidden // heads), ("value_length", hidden // heads)):
        meta.expect(f"attention.{key}", value)
    if meta.get("attention.causal") is not False:
        raise meta.bad("attention.causal", meta.get("attention.causal"), "false: encoders see both directions")
    meta.skip("vocab_size", "tensor_data_layout")  # the table's rows count; the layout is told by the architecture
    meta.skip("pooling_type", "classifier.output_labels")  # of what follows the encoder
    tables = {name: src.rows(f"{name}.weight") if src.has(f"{name}.weight") else 0 for name in _GGUF_TABLES}
    positions = meta.whole("context_length")
    if tables["position_embd"]:
        positions = min(positions, tables["position_embd"])
    fields: dict[str, Any] = {
        "hidden": hidden,
        "heads": heads,
        "head_dim": hidden // heads,
        "ffn": meta.whole("feed_forward_length"),
        "vocab": src.rows("token_embd.weight"),
        "max_positions": src.max_len(positions),
        "scale": (hidden // heads) ** -0.5,
        "layers": (EncoderLayerSpec(),) * meta.whole("block_count"),
        "norm_eps": meta.number("attention.layer_norm_epsilon"),
        "num_learned_positions": tables["position_embd"],
        "num_token_types": tables["token_types"],
        "has_qkv_bias": src.has("blk.0.attn_q.bias") or src.has("blk.0.attn_qkv.bias"),
        "has_o_bias": src.has("blk.0.attn_output.bias"),
        "has_up_bias": src.has("blk.0.ffn_up.bias"),
        "has_down_bias": src.has("blk.0.ffn_down.bias"),
    }
    return EncoderSpec(family=family, **{**fields, **more})


_GGUF_TABLES = ("position_embd", "token_types")


def full_window(window: int | None, max_len: int) -> int:
    """A window as `LayerSpec` wants it: 0 when every token a sequence can have is visible anyway."""
    return window if window and window < max_len else 0


def layer_windows(
    src: Source, num_layers: int, default: Callable[[int], bool], window: int | None, max_len: int
) -> list[int]:
    """Windows per layer from `layer_types`, or from `default` (is layer i sliding?) where the file has no such list."""
    types = src.cfg.get("layer_types")
    if types is None:
        types = ["sliding_attention" if default(i) else "full_attention" for i in range(num_layers)]
    if (
        not isinstance(types, list)
        or len(types) != num_layers
        or not set(types) <= {"sliding_attention", "full_attention"}
    ):
        raise src.cfg.bad("layer_types", types, f"{num_layers} of sliding_attention and full_attention")
    if "sliding_attention" in types and not window:
        raise src.cfg.bad("sliding_window", window, "the number of visible tokens, since some layers are sliding")
    return [full_window(window, max_len) if kind == "sliding_attention" else 0 for kind in types]

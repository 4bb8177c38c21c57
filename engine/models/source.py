"""What a family reads: the description of one checkpoint, and answers about its tensors that it leaves open.

Invariant: no weight is read here, except small rotary factor tables that GGUF keeps as tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.models import registry
from octavo.engine.models.compressed import Scheme, has_matrix, read_schemes
from octavo.engine.models.encoder_spec import EncoderSpec
from octavo.engine.models.family import EncoderFamily, Family, Source
from octavo.engine.models.head_kinds import KINDS, kind_of
from octavo.engine.models.heads import HeadSpec
from octavo.engine.models.names import Names
from octavo.engine.models.raw import floats_of
from octavo.engine.models.reader import Description
from octavo.engine.models.spec import DecoderSpec
from octavo.platforms.types import RawTensor

_Spec = TypeVar("_Spec")


@dataclass
class CheckpointSource:
    """`family.Source` over an open checkpoint. `limit`: the caller's length limit in tokens, None for none."""

    cfg: Description
    checkpoint: Checkpoint
    limit: int | None = None

    def max_len(self, max_positions: int) -> int:
        """The smaller of the two limits."""
        if max_positions < 2:
            raise ModelError(
                f"{self.cfg.where}: the model's context length is {max_positions}; it must be at least 2 tokens, one of a "
                "prompt and one of an answer"
            )
        if self.limit is None:
            return max_positions
        if not 2 <= self.limit <= max_positions:
            raise ModelError(
                f"{self.cfg.where}: a context of {self.limit} tokens was asked for (--max-model-len); allowed: "
                f"2 to {max_positions}"
            )
        return self.limit

    def has(self, tensor: str) -> bool:
        """Whether the checkpoint holds the tensor."""
        return tensor in self.checkpoint

    def rows(self, tensor: str) -> int:
        """The matrix's first dimension; GGUF files may store one of a single row as a vector."""
        shape = self.checkpoint.info(tensor).shape
        return 1 if len(shape) == 1 else shape[0]

    def floats(self, tensor: str) -> list[float]:
        """A small tensor's values, claimed; empty if absent."""
        if tensor not in self.checkpoint:
            return []
        return [float(x) for x in floats_of(raw_tensor(self.checkpoint, tensor)).reshape(-1)]


def raw_tensor(checkpoint: Checkpoint, name: str) -> RawTensor:
    """Claims a tensor and gives it as stored."""
    checkpoint.claim(name)
    form, shape, data = checkpoint.raw(name)
    return RawTensor(name, form, shape, data)


def describe(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None = None, *, max_len: int | None = None
) -> tuple[Family, DecoderSpec, Names, tuple[Scheme, ...]]:
    """The family, description, name map and declared quantization of a checkpoint; reads no weights.

    `config`: config.json, for safetensors.

    ModelError if the architecture is not served, or if a key that may change results is not understood.
    """
    where = checkpoint.describe()
    schemes: tuple[Scheme, ...] = ()
    if checkpoint.kind == "gguf":
        architecture, cfg = _gguf(checkpoint)
        family = registry.gguf_family(architecture, where)
        pooling = cfg.get("pooling_type")
        if pooling:
            raise ModelError(
                f"{where}: {architecture}.pooling_type is {pooling}: the model gives vectors or scores, not tokens; use "
                "octavo.Embedder"
            )
        names, read = _of_gguf(family, where)
    else:
        family = registry.hf_family(architecture_of(config, where), where)
        cfg = Description(config or {}, where)
        names, read = family.hf, family.from_hf
        schemes = read_schemes(cfg)
        cfg.expect("is_encoder_decoder", False)
    return family, _read(read, CheckpointSource(cfg, checkpoint, max_len)), names, schemes


def describe_bare(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None = None, *, max_len: int | None = None
) -> tuple[DecoderSpec, Names, tuple[Scheme, ...]]:
    """The same of a decoder that serves as an embedder, with its head or saved without."""
    where = checkpoint.describe()
    if checkpoint.kind == "gguf":
        architecture, cfg = _gguf(checkpoint)
        names, read = _of_gguf(registry.gguf_family(architecture, where), where)
        cfg.skip("pooling_type")  # of what follows the decoder
        return _read(read, CheckpointSource(cfg, checkpoint, max_len)), names, ()
    family = registry.bare_family(architecture_of(config, where), where)
    cfg = Description(config or {}, where)
    schemes = read_schemes(cfg)
    cfg.expect("is_encoder_decoder", False)
    return _read(family.from_hf, CheckpointSource(cfg, checkpoint, max_len)), family.hf, schemes


def describe_encoder(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None = None, *, max_len: int | None = None
) -> tuple[EncoderFamily, EncoderSpec, Names, tuple[Scheme, ...]]:
    """The same of an encoder."""
    where = checkpoint.describe()
    if checkpoint.kind == "gguf":
        architecture, cfg = _gguf(checkpoint)
        family = registry.gguf_encoder_family(architecture, where)
        if family.from_gguf is None:
            raise ModelError(f"{where}: {family.name} is not served from GGUF files; use safetensors")
        spec = _read(family.from_gguf, CheckpointSource(cfg, checkpoint, max_len))
        return family, spec, _names(family.gguf, checkpoint), ()
    family = registry.encoder_family(architecture_of(config, where), where)
    cfg = Description(config or {}, where)
    schemes = read_schemes(cfg)
    cfg.expect("is_encoder_decoder", False, family.is_half)
    return (
        family,
        _read(family.from_hf, CheckpointSource(cfg, checkpoint, max_len)),
        _names((family.hf, *family.others), checkpoint),
        schemes,
    )


def _gguf(checkpoint: Checkpoint) -> tuple[str, Description]:
    """The architecture that a GGUF file names, and what it says of it."""
    where, first = checkpoint.describe(), checkpoint.files[0]
    assert isinstance(first, GGUFFile)
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError(f"{where}: general.architecture is missing; it must name the model's architecture")
    return architecture, Description(first.metadata, where, prefix=f"{architecture}.")


def _of_gguf(family: Family, where: str) -> tuple[Names, Callable[[Source], DecoderSpec]]:
    """How a decoder's GGUF file is read."""
    if family.gguf is None or family.from_gguf is None:
        raise ModelError(f"{where}: {family.name} is not served from GGUF files; use safetensors")
    return family.gguf, family.from_gguf


def _names(spellings: tuple[Names, ...], checkpoint: Checkpoint) -> Names:
    """The spelling that the checkpoint's tensors have."""
    for names in spellings:
        stems = [names.stem(role) for role in ("down", "up", "gate", "gate_up", "up_gate") if role in names.roles]
        for cut in ("", names.optional_prefix):
            if all(has_matrix(checkpoint, stem.removeprefix(cut)) for stem in stems):
                return names
    return spellings[0]


def describe_head(checkpoint: Checkpoint, config: Mapping[str, Any] | None, family: EncoderFamily) -> HeadSpec:
    """The head of an encoder's checkpoint, which it must have. Keys that it does not read, the encoder has."""
    where = checkpoint.describe()
    if checkpoint.kind == "gguf":
        if family.gguf_head is None:
            raise ModelError(f"{where}: scores of {family.name} are not served from GGUF files; use safetensors")
        return family.gguf_head(CheckpointSource(_gguf(checkpoint)[1], checkpoint))
    architecture = architecture_of(config, where)
    kind = kind_of(architecture)
    if kind is None or family.head is None:
        raise ModelError(
            f"{where}: {architecture} has no head: it gives hidden states, of which octavo.Embedder makes vectors; scores and "
            f"labels come from architectures that end in {', '.join(KINDS)}"
        )
    return family.head(Description(config or {}, where), kind)


def architecture_of(config: Mapping[str, Any] | None, where: str) -> str:
    """The one architecture that a config.json names."""
    if config is None:
        raise ModelError(f"{where}: safetensors need the model's config.json, and none was given")
    listed = config.get("architectures")
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
        raise ModelError(f"{where}: architectures in config.json is {listed!r}; it must be a list of one name")
    return listed[0]


def _read(read: Callable[[Source], _Spec], source: CheckpointSource) -> _Spec:
    """The description, of which every key was understood."""
    try:
        spec = read(source)
    except (ArithmeticError, MemoryError) as error:  # sizes or factors that nobody can compute with
        raise ModelError(
            f"{source.cfg.where}: the description's numbers make no model: {error or type(error).__name__}"
        ) from None
    source.cfg.finish()
    return spec

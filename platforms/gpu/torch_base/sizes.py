"""What a model asks for, found by walking its forward pass with widths instead of arrays: its ops, formats and widest rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from octavo.platforms.ops import Ops
from octavo.platforms.platform import Model
from octavo.platforms.types import Batch


@dataclass(frozen=True)
class Width:
    """Stands for an array [rows, width]; `is_head`: its rows are those that logits are made of, not the step's tokens."""

    width: int
    is_head: bool = False


@dataclass
class Sizes:
    """`widest`: values of the widest row per token; `ops`: names of the ops, `formats` those of the linear weights."""

    widest: int = 0
    ops: set[str] = field(default_factory=set)
    formats: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def op(*args: Any, **options: Any) -> Any:
            self.ops.add(name)
            return self._result(name, args, options)

        return op

    def _result(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if name in ("kv_append", "segment"):
            return None
        given = args[0]
        if name == "embedding":
            return self._seen(Width(given.width))
        if name == "split":
            return [
                self._seen(Width(width, given.is_head)) for width in (args[1] if len(args) > 1 else options["widths"])
            ]
        weights = [arg for arg in (*args[1:], *options.values()) if hasattr(arg, "num_out")]
        self.formats |= {weight.format for weight in weights}
        for weight in weights[:-1]:
            self._seen(Width(weight.num_out, given.is_head))
        width = weights[-1].num_out if weights else given.width
        return self._seen(Width(width, given.is_head or name == "gather_rows"))

    def _seen(self, made: Width) -> Width:
        if not made.is_head:
            self.widest = max(self.widest, made.width)
        return made


def sizes_of(model: Model) -> Sizes:
    """Of a model whose weights are loaded, or were sized (dry)."""
    sizes = Sizes()
    model.forward(cast(Ops, sizes), cast(Batch, None))
    return sizes

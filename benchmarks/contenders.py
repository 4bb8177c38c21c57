"""Who is compared: each engine's program under `peers`, its environment, its form of a model by weight width.

A peer is installed in its own virtual environment, FOLDER/NAME (`benchmarks/peers/install FOLDER NAME`); its program runs
under that environment's Python and speaks the protocol of `peers/protocol.py`. A form is a name of `benchmarks.models`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PEERS_HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "octavo-benchmarks" / "peers"
WIDTHS = ("16", "8", "4")
OURS = "octavo"


@dataclass(frozen=True)
class Engine:
    """One engine; `forms`: weight width -> forms it may run, the first being its usual one."""

    name: str
    script: str
    folder: str  # of the virtual environment; "": this Python
    forms: Mapping[str, tuple[str, ...]]
    env: Mapping[str, str] = field(default_factory=dict)
    caps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # level -> environment that keeps it there

    def python(self, home: Path) -> str:
        """The Python that runs its program."""
        return str(home / self.folder / "bin" / "python") if self.folder else sys.executable


_GGUF = {"16": ("gguf-bf16",), "8": ("q8_0",), "4": ("q4_0", "q4_1", "q4_k")}
_HF = {"16": ("bf16",), "8": ("w8a8",), "4": ("w4a16",)}

ENGINES = {
    engine.name: engine
    for engine in (
        Engine(OURS, "ours.py", "", {"16": ("bf16", "gguf-bf16"), "8": ("q8_0", "w8a8"),
                                     "4": ("q4_0", "q4_1", "q4_k", "w4a16")},
               caps={"avx2": {"OCTAVO_ISA": "scalar,avx2"},
                     "avx512": {"OCTAVO_ISA": "scalar,avx2,avx512,avx512vnni,avx512bf16,avx512fast"}}),
        Engine("octavo-fast", "ours.py", "", {"16": ("bf16", "gguf-bf16")}, env={"OCTAVO_NUMERICS": "fast"}),
        Engine("llamacpp", "llamacpp.py", "llamacpp", _GGUF),
        Engine("llamacpp-avx2", "llamacpp.py", "llamacpp-avx2", _GGUF, caps={"avx2": {}}),
        Engine("llamacpp-avx512", "llamacpp.py", "llamacpp-avx512", _GGUF, caps={"avx512": {}}),
        Engine("vllm", "vllm_cpu.py", "vllm", _HF),
        Engine("openvino", "openvino_cpu.py", "openvino", {"8": ("ov-int8",), "4": ("ov-int4",)}),
        Engine("ctranslate2", "ct2.py", "ctranslate2", {"8": ("ct2-int8",)},
               caps={"avx2": {"CT2_FORCE_CPU_ISA": "AVX2"}, "avx512": {"CT2_FORCE_CPU_ISA": "AVX512"}}),
        Engine("ipex", "ipex.py", "ipex", {"16": ("bf16",)}),
    )
}  # fmt: skip
USUAL = (OURS, "octavo-fast", "llamacpp", "vllm", "openvino", "ctranslate2")


@dataclass(frozen=True)
class Contender:
    """An engine with a form of a model."""

    engine: Engine
    form: str

    @property
    def key(self) -> str:
        """`llamacpp:q8_0`."""
        return f"{self.engine.name}:{self.form}"

    @property
    def is_ours(self) -> bool:
        """Whether it is Octavo, in any of its ways."""
        return not self.engine.folder


def chosen(names: Iterable[str], width: str, level: str = "") -> list[Contender]:
    """Contenders of a width: NAME (its usual form) or NAME:FORM (that form, at the width it has).

    With `level` (avx2, avx512) only engines that can be kept at it. ValueError for what there is not.
    """
    out = []
    for text in names:
        name, _, form = text.partition(":")
        engine = ENGINES.get(name)
        if engine is None:
            raise ValueError(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
        allowed = [one for forms in engine.forms.values() for one in forms]
        if form and form not in allowed:
            raise ValueError(f"{name} has no form {form!r}; it has {', '.join(allowed)}")
        if level and level not in engine.caps:
            continue
        forms = engine.forms.get(width, ())
        if form:
            out += [Contender(engine, form)] if form in forms else []
        elif forms:
            out.append(Contender(engine, forms[0]))
    return out

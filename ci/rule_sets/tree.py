"""The tracked files of a checkout, as the rules see them: relative paths, text and syntax trees, each read once."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: folders of the installed package: repository folder -> module prefix
PACKAGES = {"engine": "octavo.engine", "platforms": "octavo.platforms", "quant": "octavo.quant", "src/octavo": "octavo"}


@dataclass
class Tree:
    """Files of the checkout at `root`: those git tracks, or every file below it where there is no git."""

    root: Path
    _texts: dict[str, str] = field(default_factory=dict)
    _trees: dict[str, ast.Module] = field(default_factory=dict)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Relative paths with '/', links left out, sorted."""
        if (self.root / ".git").exists():
            listing = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            out = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
            names = [name for name in out.split("\0") if name]
        else:
            names = [p.relative_to(self.root).as_posix() for p in self.root.rglob("*")]
        return tuple(sorted(n for n in names if (self.root / n).is_file() and not (self.root / n).is_symlink()))

    def select(self, *folders: str, ends: str | tuple[str, ...] = "") -> Iterator[str]:
        """Paths below any of `folders` (all if none) with one of the endings."""
        for path in self.paths:
            if path.endswith(ends) and (not folders or any(path.startswith(f"{folder}/") for folder in folders)):
                yield path

    def text(self, path: str) -> str:
        """A file's text; bytes that are not UTF-8 are replaced."""
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]

    def syntax(self, path: str) -> ast.Module:
        """A Python file's syntax tree."""
        if path not in self._trees:
            self._trees[path] = ast.parse(self.text(path), path)
        return self._trees[path]

    def package_files(self) -> Iterator[str]:
        """Python files of the installed package."""
        yield from self.select(*PACKAGES, ends=".py")


def module_name(path: str) -> str:
    """`engine/kv/blocks.py` -> `octavo.engine.kv.blocks`."""
    for folder, prefix in PACKAGES.items():
        if path.startswith(f"{folder}/"):
            inner = path[len(folder) + 1 :].removesuffix(".py").replace("/", ".")
            return f"{prefix}.{inner}".removesuffix(".__init__")
    return path.removesuffix(".py").replace("/", ".")

"""Readers of the small text files in which the kernel describes a machine; an unreadable or odd one says nothing."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str:
    """A file's text, "" where it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def number(text: str) -> int | None:
    """The whole number that a text is, if it is one."""
    text = text.strip()
    return int(text) if text.removeprefix("-").isdigit() else None


def pairs(text: str) -> dict[str, int]:
    """Lines of "name number"."""
    fields = (line.split() for line in text.splitlines())
    return {f[0]: int(f[1]) for f in fields if len(f) == 2 and f[1].isdigit()}


def meminfo(text: str) -> dict[str, int]:
    """{name: bytes} of lines "Name:   123 kB"."""
    fields = (line.replace(":", " ").split() for line in text.splitlines())
    return {f[0]: int(f[1]) << 10 for f in fields if len(f) >= 2 and f[1].isdigit()}


def cpu_list(text: str) -> list[int]:
    """ "0-3,8" -> [0, 1, 2, 3, 8]; odd parts are left out."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            cpus += range(int(first), min(int(last or first), int(first) + 8191) + 1)
    return cpus

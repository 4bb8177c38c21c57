"""Readers of the small text files in which the kernel describes a machine; an unreadable or odd one says nothing."""

from __future__ import annotations

from pathlib import Path

MAX_DIGITS = 20  # of a number that the kernel writes: 64 bits


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
    return int(text) if _is_number(text.removeprefix("-")) else None


def _is_number(text: str) -> bool:
    return text.isdigit() and len(text) <= MAX_DIGITS


def pairs(text: str) -> dict[str, int]:
    """Lines of "name number"."""
    fields = (line.split() for line in text.splitlines())
    return {f[0]: int(f[1]) for f in fields if len(f) == 2 and _is_number(f[1])}


def meminfo(text: str) -> dict[str, int]:
    """{name: bytes} of lines "Name:   123 kB"."""
    fields = (line.replace(":", " ").split() for line in text.splitlines())
    return {f[0]: int(f[1]) << 10 for f in fields if len(f) >= 2 and _is_number(f[1])}


def cpu_list(text: str) -> list[int]:
    """ "0-3,8" -> [0, 1, 2, 3, 8]; odd parts are left out."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if _is_number(first) and _is_number(last or first):
            cpus += range(int(first), min(int(last or first), int(first) + 8191) + 1)
    return cpus

"""Rules about any tracked file: size, words left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ci.rule_sets.tree import Tree

MAX_FILE_BYTES = 200_000
LEFT_BEHIND = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")


def small_files(tree: Tree) -> Iterator[str]:
    """No binary or tensor over 200 kB in git."""
    for path in tree.paths:
        size = (tree.root / path).stat().st_size
        if size > MAX_FILE_BYTES:
            yield f"{path}: {size} bytes; at most {MAX_FILE_BYTES} in git; make it smaller or generate it in the test"


def no_words_left_behind(tree: Tree) -> Iterator[str]:
    """What is not done is said in the docs or an issue, not in a comment."""
    for path in tree.paths:
        if path.endswith((".npz", ".gguf", ".png", ".json")):
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            found = LEFT_BEHIND.search(line)
            if found:
                yield f"{path}:{number}: the word {found[0]}; do it, or describe the limit where users read about it"


RULES = (small_files, no_words_left_behind)

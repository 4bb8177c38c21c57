"""The repository's own rules: `python -m ci.rules` (from ci/check) prints every breach as `path:line: what; what to do`.

Sources are read as text and syntax trees; rules about built objects run where a build is there (build/) and say so where not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ci.rule_sets import cpp, files, imports, objects, python
from ci.rule_sets.tree import Tree

RULES: tuple[Callable[[Tree], Iterator[str]], ...] = (
    *files.RULES,
    *python.RULES,
    *imports.RULES,
    *cpp.RULES,
    *objects.RULES,
)


def check(root: Path) -> list[str]:
    """Every breach in the checkout at `root`."""
    tree = Tree(root)
    return [f"{problem} [{rule.__name__}]" for rule in RULES for problem in rule(tree)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci.rules", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    root = parser.parse_args().root
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    built = objects.newest_build(root)
    nothing = "no objects of today's kernels under build/, so their rules did not run"
    where = f"objects of {built.relative_to(root)}" if built else nothing
    print(f"rules: {len(RULES)} checked ({where}), {len(problems)} breaches")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Tables of the docs that come from the sources: `python -m ci.docs` writes them, `--check` (in ci/check) fails if one is stale.

A table stands in a page between `<!-- begin NAME: written by ci/docs.py -->` and `<!-- end NAME -->`. Rows come from the
registries that the engine and the tests use, so a page cannot claim what no test covers.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- begin (\w+): written by ci/docs\.py -->\n).*?(<!-- end \2 -->)", re.DOTALL)
ROW = re.compile(r"^OCTAVO_KERNEL\((\w+), (\w+),", re.MULTILINE)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def models() -> str:
    """One row per Hugging Face architecture: its GGUF name and the golden cases that hold it to the oracle."""
    from tests.golden import tiny

    from octavo.engine.models import registry

    gguf = {row: name for name, row in registry.GGUF.items()}
    rows = []
    for name, row in registry.HF.items():
        cases = [case for case, config in tiny.CASES.items() if config["architectures"][0] == name]
        in_gguf = f"`{gguf[row]}`" if row in gguf else "as `llama`" if row[0] == "llama" else "no"
        rows.append((f"`{name}`", in_gguf, f"[{row[0]}.py](engine/models/{row[0]}.py)", ", ".join(cases)))
    return table(("architecture (config.json)", "in GGUF files", "code", "golden cases"), rows)


#: GGUF architectures of encoders whose files hold more than one of config.json's
_IN_GGUF = {
    **dict.fromkeys(("BertModel", "RobertaModel", "XLMRobertaModel", "DistilBertModel"), "bert"),
    **dict.fromkeys(("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"), "bert"),
    "NomicBertModel": "nomic-bert",
    "JinaBertModel": "jina-bert-v2",
    "ModernBertModel": "modern-bert",
}


def encoders() -> str:
    """One row per architecture that gives vectors, scores or labels: its GGUF name and its golden cases."""
    from tests.golden import tiny_encoders, tiny_heads, tiny_rankers, tiny_tokens

    from octavo.engine.models import registry

    rows = []
    gguf = {row: name for name, row in {**registry.GGUF_ENCODERS, **registry.GGUF}.items()}
    plain = {**_IN_GGUF, **{name: gguf[row] for name, row in registry.BARE.items() if row in gguf}}
    for name, (module, _) in {**registry.ENCODERS, **registry.BARE, **registry.SCORED}.items():
        cases = [case for case, config in tiny_encoders.ALL.items() if config["architectures"][0] == name]
        cases += [case for case in tiny_heads.CASES if tiny_heads.config(case)["architectures"][0] == name]
        cases += [case for case, (how, _) in tiny_tokens.CASES.items() if how == "stanford" and name == "HF_ColBERT"]
        cases += [case for case in tiny_rankers.CASES if tiny_rankers.architecture(case) == name]
        cases = list(dict.fromkeys(cases))  # one name may be in both
        in_gguf = f"`{plain[name]}`" if name in plain else "no"
        rows.append((f"`{name}`", in_gguf, f"[{module}.py](engine/models/{module}.py)", ", ".join(cases)))
    return table(("encoder (config.json)", "in GGUF files", "code", "golden cases"), rows)


def formats() -> str:
    """Weight formats that linear layers may have."""
    from octavo.quant.formats import FORMATS

    rows = []
    for form in FORMATS:
        if (form.is_quantized and form.is_supported) or form.name in ("f32", "f16", "bf16"):
            bits = f"{form.bits_per_weight:g}"
            group = "a row" if form.group == 0 else str(form.group) if form.group > 1 else "-"
            where = [
                kind
                for kind, is_read in (
                    ("GGUF", form.gguf_type is not None),
                    ("safetensors", form.safetensors_dtype is not None),
                    ("compressed-tensors", form.has_scales_apart and form.name != "mxfp8"),
                    ("fp8", form.name in ("f8row", "f8g128")),
                )
                if is_read
            ]
            if where:
                rows.append((f"`{form.name}`", bits, group, ", ".join(where) + " (GPUs)" * form.is_gpu_only))
    return table(("format", "bits per weight", "weights per scale", "read from"), rows)


def kernels() -> str:
    """x86 kernels: op by level."""
    return _kernels_of("csrc_avx")


def arm_kernels() -> str:
    """Arm kernels: op by level."""
    return _kernels_of("csrc_neon")


def _kernels_of(folder: str) -> str:
    text = (ROOT / folder / "kernels.inc").read_text()
    header = (ROOT / folder / "cpu_features.h").read_text()
    levels = re.findall(r'^\s*\{"(\w+)", ', header, re.MULTILINE)
    ops: dict[str, set[str]] = {}
    for op, level in ROW.findall(text):
        ops.setdefault(op, set()).add(level)
    rows = [(f"`{op}`", *("x" if level in found else "" for level in levels)) for op, found in sorted(ops.items())]
    return table(("op", *levels), rows)


def environment() -> str:
    """The environment variables."""
    from octavo.engine.config import ENVIRONMENT

    return table(("variable", "what it does"), [(f"`{name}`", text) for name, text in ENVIRONMENT.items()])


TABLES: dict[str, Callable[[], str]] = {
    "models": models,
    "encoders": encoders,
    "formats": formats,
    "kernels": kernels,
    "arm_kernels": arm_kernels,
    "environment": environment,
}


def pages() -> Iterator[Path]:
    """Every page that may hold tables."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))


def written(text: str) -> str:
    """A page with its tables made anew; KeyError for a table nobody makes."""
    return BLOCK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Links of a page to files and headings that are not there."""
    for target, heading in re.findall(r"\]\(([^)#\s]*)(#[^)\s]+)?\)", text):
        if "://" in target:
            continue
        path = page.parent / target if target else page
        if target and not path.exists():
            yield f"{page.relative_to(ROOT)}: links to {target}, which is not there"
        elif heading and heading[1:] not in anchors(path.read_text() if target else text):
            yield f"{page.relative_to(ROOT)}: links to {target}{heading}, and there is no such heading"


def anchors(text: str) -> set[str]:
    """What links to a page's headings end in, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_tables(page: Path, text: str) -> Iterator[str]:
    """Rows of tables that nothing shows as such: those behind an empty line, and those with more or fewer cells."""
    lines = [*text.splitlines(), ""]
    is_code, cells = False, 0
    for number, (line, after) in enumerate(pairwise(lines), 1):
        is_code ^= line.startswith("```")
        if is_code or not line.startswith("|"):
            cells = 0
            continue
        here = len(re.sub(r"`[^`]*`|\\\|", "", line).split("|")) - 2
        if not cells and not re.match(r"\|[ :]*-", after):
            yield f"{page.relative_to(ROOT)}:{number}: a row outside of a table; join it to the one above or give it a header"
        elif cells and here != cells:
            yield f"{page.relative_to(ROOT)}:{number}: {here} cells in a table of {cells}"
        cells = here


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail where a page is stale")
    is_check = parser.parse_args().check
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    problems = []
    for page in pages():
        text = page.read_text()
        new = written(text)
        problems += [*broken_links(page, new), *broken_tables(page, new)]
        if new != text and is_check:
            problems.append(f"{page.relative_to(ROOT)}: its tables are stale; run python -m ci.docs")
        elif new != text:
            page.write_text(new)
            print(f"{page.relative_to(ROOT)}: written")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())

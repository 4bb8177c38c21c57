"""`octavo bench` over a folder of toy benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.engine.errors import OctavoError
from octavo.engine.server.cli import main
from octavo.engine.server.commands import bench

BENCH = '''"""Counts to three.

More."""
import json, sys
import octavo
from sub.parts import row
if __name__ == "__main__":
    print("warming up")
    if "--broken" in sys.argv:
        del row["median"]
    print(json.dumps(row))
    sys.exit(7 if "--fail" in sys.argv else 0)
'''
PARTS = """
machine = {"cpu": "toy", "threads": 2}
row = {"name": "count", "unit": "us", "min": 1, "median": 2, "max": 3, "n": 3, "machine": machine, "peer": "snail", "ratio": 2.0}
"""


def test_bench_lists_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "measures"
    (root / "sub").mkdir(parents=True)
    (root / "peers").mkdir()
    (root / "sub" / "count.py").write_text(BENCH.replace("sub.parts", "measures.sub.parts"))
    (root / "sub" / "parts.py").write_text(PARTS)
    (root / "peers" / "snail.py").write_text(BENCH)
    (root / "_shared.py").write_text("")
    folder = ["--folder", str(root)]
    assert main(["bench", *folder]) == 0
    assert capsys.readouterr().out == "sub/count  Counts to three.\n"
    assert main(["bench", "sub/count", *folder, "--json"]) == 0
    taken = capsys.readouterr()
    assert json.loads(taken.out)["median"] == 2
    assert taken.err == "warming up\n"
    assert main(["bench", "sub/count", *folder]) == 0
    shown = capsys.readouterr().out
    assert "2x snail" in shown and "machine: cpu toy, threads 2" in shown
    assert main(["bench", "sub/count", *folder, "--", "--fail"]) == 1
    assert main(["bench", "sub/count", *folder, "--", "--broken"]) == 1
    assert "without median" in capsys.readouterr().err


def test_bench_rows_must_be_whole() -> None:
    assert bench.parse_row("hello") is None
    assert bench.parse_row("{not json") is None
    with pytest.raises(OctavoError, match="unit"):
        bench.parse_row('{"name": "x"}')

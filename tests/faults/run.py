"""Plants every fault and demands that its test fails: `python -m tests.faults.run [--quick] [--only WORD] [--list]`.

Per fault: the module is built with the fault, the named test runs on it, and at least one assertion of that test must fail; a
crash, an import error or a hang is not a catch. At the end the unmodified build must pass the same tests. Writes
build/faults/report.json and exits 1 unless every fault was caught.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.build import ROOT, Builder, BuildError
from tests.faults.fault import Fault, faults

TIMEOUT_S = 180
HEALTHY = "unmodified"


@dataclass
class Outcome:
    """`caught` by an assertion, `survived` (the test passed) or `broken` (says why)."""

    fault: str
    test: str
    outcome: str
    seconds: float
    detail: str = ""


def pytest_outcome(module: Path, tests: list[str], match: str, folder: Path) -> tuple[str, str]:
    """(passed | failed | broken, detail): failed only if an assertion of one of `tests` failed and nothing else went wrong."""
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--native-module={module}"]
    command += [f"--junitxml={report}", "-k", match, *tests]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OCTAVO_")}
    if folder.name != HEALTHY:
        command.append("-x")
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "broken", f"still running after {TIMEOUT_S} s"
    if done.returncode not in (0, 1) or not report.exists():
        return "broken", f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
    cases = list(ElementTree.parse(report).iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None]
    if any(case.find("error") is not None for case in cases) or not ran:
        return "broken", f"errors, or nothing ran: {done.stdout[-600:]}"
    messages = [str(f.get("message")) for case in cases if (f := case.find("failure")) is not None]
    if not messages:
        return "passed", f"{len(ran)} passed"
    if any("assert" not in message.lower() for message in messages):
        return "broken", f"not an assertion: {messages[0][:300]}"
    return "failed", messages[0].splitlines()[0][:160]


def plant(builder: Builder, fault: Fault) -> Outcome:
    start = time.monotonic()
    try:
        module = builder.faulty(fault)
        result, detail = pytest_outcome(module, [fault.test], fault.match, module.parent)
        module.unlink()
    except BuildError as error:
        result, detail = "broken", str(error)
    outcome = {"failed": "caught", "passed": "survived"}.get(result, "broken")
    return Outcome(fault.name, fault.test, outcome, round(time.monotonic() - start, 1), detail)


def runnable_levels(module: Path) -> set[str]:
    """Levels of a build that this processor runs."""
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('_avx', sys.argv[1]); m = u.module_from_spec(s); "
        "s.loader.exec_module(m); "
        "print(*{level for _, _, level, need, _ in m.kernels() if not need & ~m.available_features()})"
    )
    return set(
        subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, check=True).stdout.split()
    )


def healthy(builder: Builder, some: list[Fault]) -> Outcome:
    """The unmodified build under the tests of all faults."""
    start = time.monotonic()
    module = builder.module(HEALTHY, {})
    tests = sorted({fault.test for fault in some})
    match = " or ".join(sorted({f"({fault.match})" for fault in some}))
    result, detail = pytest_outcome(module, tests, match, module.parent)
    return Outcome(HEALTHY, f"{len(tests)} tests", result, round(time.monotonic() - start, 1), detail)


def show(outcome: Outcome) -> None:
    tail = "" if outcome.outcome == "caught" else f"  {outcome.detail}"
    print(f"{outcome.outcome:<9}{outcome.seconds:>6.1f} s  {outcome.fault}  by {outcome.test}{tail}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ci/test faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the short set")
    parser.add_argument("--only", metavar="WORD", help="faults whose name holds this")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args(arguments)
    some = [f for f in faults() if (f.is_quick or not args.quick) and (args.only or "") in f.name]
    if args.list or not some:
        print("\n".join(f"{f.name}: {f.file or ' '.join(f.flags)} -> {f.test}" for f in some) or "no such fault")
        return 0 if some else 2
    folder = ROOT / "build/faults"
    start = time.monotonic()
    builder = Builder(ROOT, folder)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda unit: builder.compile(unit, ROOT), builder.commands))
        print(f"built the unmodified objects in {time.monotonic() - start:.0f} s", flush=True)
        levels = runnable_levels(builder.module(HEALTHY, {}))
        for fault in (f for f in some if not levels & set(f.levels)):
            print(f"passed over: {fault.name}, this processor lacks {', '.join(fault.levels)}", flush=True)
        some = [f for f in some if levels & set(f.levels)]
        if not some:
            return 0
        outcomes = []
        for outcome in pool.map(lambda fault: plant(builder, fault), some):
            show(outcome)
            outcomes.append(outcome)
    last = healthy(builder, some)
    show(last)
    report = {
        "seconds": round(time.monotonic() - start, 1),
        "faults": [asdict(o) for o in outcomes],
        HEALTHY: asdict(last),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    caught = sum(o.outcome == "caught" for o in outcomes)
    print(f"{caught} of {len(some)} planted faults caught in {report['seconds']} s; unmodified build {last.outcome}")
    return 0 if caught == len(some) and last.outcome == "passed" else 1


if __name__ == "__main__":
    raise SystemExit(main())

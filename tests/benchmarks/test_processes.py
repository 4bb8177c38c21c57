"""Peers answer line by line, first output is timed, memory and children are read from /proc, labels of metrics are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks import processes
from benchmarks.processes import PeerProcess, children, labelled_metrics, memory_bytes, seconds_to_first_output

PEER = """
import json, sys
print("loading")
print(json.dumps({"peer": "toy", "version": "1"}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "die":
        sys.exit(3)
    if command["do"] == "fail":
        print(json.dumps({"error": "cannot"}), flush=True)
        continue
    print("noise")
    print(json.dumps({"seconds": command["new"]}), flush=True)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(processes, "PEERS", tmp_path)
    (tmp_path / "toy.py").write_text(PEER)
    return "toy.py"


def test_peer_says_who_it_is_and_answers(toy: str) -> None:
    with PeerProcess(sys.executable, toy) as peer:
        assert (peer.name, peer.version) == ("toy", "1")
        assert [peer.ask(do="x", new=n)["seconds"] for n in (1, 2)] == [1, 2]
    assert peer.process.returncode == 0


def test_peer_that_ends_is_an_error(toy: str) -> None:
    with PeerProcess(sys.executable, toy) as peer, pytest.raises(RuntimeError, match="status 3"):
        peer.ask(do="die")


def test_first_output_is_timed_and_failures_are_errors() -> None:
    code = "import time; print('a', flush=True); time.sleep(0.2); print('b', flush=True)"
    first = seconds_to_first_output([sys.executable, "-c", code])
    later = seconds_to_first_output([sys.executable, "-c", code], marker=b"b")
    assert first > 0 and later >= 0.2
    for bad in ("raise SystemExit(2)", "pass"):
        with pytest.raises(RuntimeError, match="status"):
            seconds_to_first_output([sys.executable, "-c", bad])


def test_children_and_memory_are_read_from_proc() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert process.pid in children(os.getpid())
        assert memory_bytes(process.pid, "VmHWM") > 1 << 20
        assert memory_bytes(process.pid, "NoSuchLine") == 0
    finally:
        process.communicate(b"\n")
    with pytest.raises(OSError):
        memory_bytes(process.pid)


def test_labels_of_metrics_are_kept() -> None:
    text = '# HELP a b\n# TYPE a counter\na{x="1"} 2\na{x="2"} 3.5\nb 1e-3\n'
    assert labelled_metrics(text) == {'a{x="1"}': 2, 'a{x="2"}': 3.5, "b": 0.001}


def test_children_run_the_same_sources() -> None:
    code = "import octavo, benchmarks.common; print(octavo.__version__)"
    subprocess.run([sys.executable, "-c", code], env=processes.environment(), check=True, cwd="/", capture_output=True)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_peer_sleeps_and_wakes(toy: str) -> None:
    with PeerProcess(sys.executable, toy) as peer:
        peer.sleep()
        end = time.monotonic() + 10
        while state(peer.process.pid) != "T" and time.monotonic() < end:
            time.sleep(0.01)
        assert state(peer.process.pid) == "T"
        peer.wake()
        assert peer.ask(do="x", new=3)["seconds"] == 3
        peer.sleep()
    assert peer.process.returncode == 0


def test_peers_errors_are_raised(toy: str) -> None:
    with PeerProcess(sys.executable, toy) as peer, pytest.raises(RuntimeError, match="toy: cannot"):
        peer.ask(do="fail")


def test_peer_gets_the_environment_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PEERS", tmp_path)
    (tmp_path / "env.py").write_text('import json, os; print(json.dumps({"peer": os.environ["A"], "version": ""}))')
    with PeerProcess(sys.executable, "env.py", env={"A": "b"}) as peer:
        assert peer.name == "b"


def test_sleeping_peer_ends_with_whoever_started_it(toy: str, tmp_path: Path) -> None:
    code = f"""
import os, pathlib, signal, sys
from benchmarks import processes
processes.PEERS = pathlib.Path({str(tmp_path)!r})
peer = processes.PeerProcess(sys.executable, {toy!r})
peer.sleep()
print(peer.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, env=processes.environment(), stdout=subprocess.PIPE, text=True).stdout
    end = time.monotonic() + 10
    while Path(f"/proc/{shown.strip()}").exists() and state(int(shown)) != "Z" and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(f"/proc/{shown.strip()}").exists() or state(int(shown)) == "Z"

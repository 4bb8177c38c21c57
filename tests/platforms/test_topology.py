"""Which cores, nodes and caches count, and where threads go, on machines from one core to two sockets of 192."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.platforms.machines import MACHINES, Machine

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.module import load
from octavo.platforms.limits import read_limits
from octavo.platforms.topology import Node, Topology, read_topology

GIB = 1 << 30


def topology(root: Path, machine: Machine, allowed: set[int] | None = None) -> Topology:
    return read_limits(machine.write(root), allowed).topology


@pytest.mark.parametrize(
    ("name", "fast", "cores", "nodes", "l2_kib", "l3_mib"),
    [
        ("Raspberry Pi 5", range(4), 4, 1, 512, 2),
        ("Raspberry Pi 4", range(4), 4, 1, 1024, 0),
        ("RK3588, 4 + 4", range(4, 8), 8, 1, 512, 3),
        ("phone, 4 + 3 + 1", range(4, 8), 8, 1, 512, 4),
        ("Graviton2, 1 vCPU", range(1), 1, 1, 1024, 32),
        ("Graviton2", range(64), 64, 1, 1024, 32),
        ("Graviton3", range(64), 64, 1, 1024, 32),
        ("Graviton4, 2 x 96", range(192), 192, 2, 2048, 36),
        ("Altra", range(80), 80, 1, 1024, 32),
        ("Altra in quadrants", range(80), 80, 4, 1024, 32),
        ("AmpereOne, 2 x 192", range(384), 384, 2, 2048, 64),
        ("Grace with a GPU", range(72), 72, 1, 1024, 114),
        ("two Graces", range(144), 144, 2, 1024, 114),
    ],
)
def test_what_a_machine_has(
    tmp_path: Path, name: str, fast: range, cores: int, nodes: int, l2_kib: int, l3_mib: int
) -> None:
    found = topology(tmp_path, MACHINES[name])
    assert (found.fast_cpus, found.num_cores, len(found.nodes)) == (tuple(fast), cores, nodes)
    assert (found.l2_bytes, found.l3_bytes) == (l2_kib << 10, l3_mib << 20)
    assert read_limits(tmp_path, set(range(cores))).num_compute_threads == len(fast)


def test_memory_divided_into_nodes_with_the_same_cpus_is_one_node(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["Raspberry Pi 5"])
    assert found.nodes == (Node(0, (0, 1, 2, 3), 8 * GIB),)
    assert found.places(4) == ()


def test_nothing_is_bound_where_the_system_may_choose(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["Graviton3"])
    assert [found.places(threads) for threads in (1, 2, 63, 64, 100)] == [()] * 5


def test_threads_stay_off_little_cores_unless_all_are_asked_for(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["RK3588, 4 + 4"])
    assert found.places(4) == ((4, 5, 6, 7),) * 4
    assert found.places(2) == ((4, 5, 6, 7),) * 2
    assert found.places(5) == found.places(8) == ()


def test_a_process_that_has_little_cores_only_takes_them_as_they_are(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["RK3588, 4 + 4"], {1, 2, 3})
    assert (found.fast_cpus, found.l2_bytes, found.places(3)) == ((1, 2, 3), 128 << 10, ())


def test_two_sockets_share_the_threads_in_order_and_few_threads_stay_on_one(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["Graviton4, 2 x 96"])
    first, second = tuple(range(96)), tuple(range(96, 192))
    assert found.places(192) == (first,) * 96 + (second,) * 96
    assert found.places(100) == (first,) * 50 + (second,) * 50
    assert found.places(96) == (first,) * 96
    assert found.places(1) == (first,)


def test_nodes_share_the_threads_by_the_cpus_that_are_allowed(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["Altra in quadrants"], {*range(10), *range(20, 40)})
    assert [(node.index, len(node.cpus)) for node in found.nodes] == [(0, 10), (1, 20)]
    assert [len(cpus) for cpus in found.places(30)] == [10] * 10 + [20] * 20
    assert [len(cpus) for cpus in found.places(24)] == [10] * 8 + [20] * 16
    assert set(found.places(20)) == {tuple(range(20, 40))}


def test_memory_of_a_gpu_is_no_node(tmp_path: Path) -> None:
    found = topology(tmp_path, MACHINES["Grace with a GPU"])
    assert found.nodes == (Node(0, tuple(range(72)), 480 * GIB),)


@pytest.mark.parametrize("capacity", ["0", "-5", "none", ""])
def test_all_cores_count_where_no_capacity_is_one(tmp_path: Path, capacity: str) -> None:
    for cpu in range(2):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        folder.mkdir(parents=True)
        (folder / "cpu_capacity").write_text(capacity)
    assert read_topology(tmp_path, (0, 1), GIB).fast_cpus == (0, 1)


def test_cores_for_background_work_of_intel_are_slow(tmp_path: Path) -> None:
    for name, text in (("cpu/online", "0-19"), ("../cpu_core/cpus", "0-11"), ("../cpu_atom/cpus", "12-19")):
        file = tmp_path / "sys/devices/system" / name
        os.makedirs(file.parent, exist_ok=True)
        file.write_text(text)
    found = read_limits(tmp_path, set(range(20)))
    assert (found.topology.fast_cpus, found.num_compute_threads) == (tuple(range(12)), 12)
    assert found.topology.places(12) == (tuple(range(12)),) * 12
    assert "8 of them slow" in found.summary()


def test_cpus_that_no_node_lists_are_not_lost(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/devices/system/node"
    for node, cpus in enumerate(("0-3", "3-5")):
        (nodes / f"node{node}").mkdir(parents=True)
        (nodes / f"node{node}/cpulist").write_text(cpus)
    (nodes / "online").write_text("0-1")
    found = read_topology(tmp_path, tuple(range(8)), GIB)
    assert [node.cpus for node in found.nodes] == [(0, 1, 2, 3, 6, 7), (4, 5)]


@given(
    st.sampled_from(sorted(MACHINES)),
    st.integers(1, 400),
    st.sets(st.integers(0, 383), min_size=1, max_size=40),
    st.booleans(),
)
def test_every_thread_has_a_place_that_is_allowed(
    tmp_path_factory: Any, name: str, threads: int, some: set[int], is_limited: bool
) -> None:
    root = tmp_path_factory.getbasetemp() / name.replace(" ", "_")
    if not root.exists():
        MACHINES[name].write(root)
    found = read_limits(root, some if is_limited else None).topology
    assert sorted(cpu for node in found.nodes for cpu in node.cpus) == list(found.cpus)
    places = found.places(threads)
    assert len(places) in (0, threads)
    for cpus in places:
        assert cpus and set(cpus) <= set(found.cpus)
    if places and threads >= len(found.cpus):
        assert set().union(*places) == set(found.cpus)
    assert set(found.fast_cpus) <= set(found.cpus) and found.fast_cpus


@pytest.fixture(scope="module")
def native() -> Any:
    try:
        return load()
    except PlatformError as error:
        pytest.skip(str(error))


def test_a_team_runs_where_it_was_placed_and_its_caller_is_left_alone(native: Any) -> None:
    mine, before = os.sched_getaffinity(0), thread_ids()
    team = native.Team(3, 10)
    assert team.place([[min(mine)], [min(mine)], [max(mine)]]) == 0
    found = [os.sched_getaffinity(thread) for thread in thread_ids() - before]
    assert sorted(found, key=min) == [{min(mine)}, {max(mine)}]
    assert os.sched_getaffinity(0) == mine


def test_a_refused_place_is_told_and_costs_nothing(native: Any) -> None:
    team = native.Team(2, 10)
    assert os.strerror(team.place([[0], [100_000]])) == "Invalid argument"
    assert team.place([[], []]) != 0
    with pytest.raises(ValueError, match="1 places for 2 threads"):
        team.place([[0]])


def thread_ids() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}

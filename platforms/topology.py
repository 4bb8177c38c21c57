"""Cores, NUMA nodes and caches of this machine, as far as this process may use them, and where compute threads run best.

A pure function of a file tree, like `octavo.platforms.limits`, which is how the engine gets at it. Sources: kernel
documentation ABI/stable/sysfs-devices-node, ABI/stable/sysfs-devices-system-cpu (topology, cache), admin-guide/cputopology,
arch/arm/cpu-capacity; tools/perf and util-linux for Intel's lists of core kinds.

Rules:
  1. CPUs that this process may not use do not exist
  2. a core is slow that does less than `SLOW_SHARE` of what the fastest one here does (the little ones of big.LITTLE, Intel's E
     cores); where the system does not say, all are fast
  3. NUMA nodes with the same CPUs are one (memory that is only divided up, as on a Raspberry Pi 5); nodes without any
     (memory of a GPU) are none
  4. threads are bound to all CPUs of a node or kind, never to one CPU: the system keeps its choice, and nothing is bound at all
     where the choice is free
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from octavo.platforms.kernel_files import cpu_list, meminfo, number, read_text

#: of the fastest core's work per time. Middle cores of three-tier phones have 0.7 and more, little ones 0.2 to 0.55.
SLOW_SHARE = 0.6


@dataclass(frozen=True)
class Node:
    """One NUMA node, with only the CPUs this process may run on."""

    index: int
    cpus: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True)
class Topology:
    """What the allowed CPUs have in common. `fast_cpus`: those on cores that are not slow, all where none is."""

    cpus: tuple[int, ...]
    fast_cpus: tuple[int, ...]
    num_cores: int
    nodes: tuple[Node, ...]
    l1d_bytes: int  # of a fast core; 0: not known
    l2_bytes: int
    l3_bytes: int

    def summary(self) -> str:
        """Part of a line for the log."""
        slow = len(self.cpus) - len(self.fast_cpus)
        nodes = f"{len(self.nodes)} NUMA node{'s' if len(self.nodes) > 1 else ''}"
        caches = f"L2 {self.l2_bytes >> 10} KiB, L3 {self.l3_bytes >> 20} MiB"
        return f"{self.num_cores} cores{f', {slow} of them slow' if slow else ''}); {nodes}; {caches}"

    def places(self, num_threads: int) -> tuple[tuple[int, ...], ...]:
        """The CPUs of each thread, neighbours in number on the same node; () where the system's choice is as good.

        As many threads as there are fast CPUs, or fewer, stay off the slow ones; as many as a node has CPUs stay on one.
        """
        pool = set(self.fast_cpus if num_threads <= len(self.fast_cpus) else self.cpus)
        sets = [tuple(cpu for cpu in node.cpus if cpu in pool) for node in self.nodes]
        sets = [cpus for cpus in sets if cpus]
        widest = max(sets, key=len)
        if num_threads <= len(widest):
            sets = [widest]
        if sets == [self.cpus]:
            return ()
        owners = [cpus for cpus in sets for _ in cpus]
        return tuple(owners[(2 * t + 1) * len(owners) // (2 * num_threads)] for t in range(num_threads))


def read_topology(root: Path, cpus: tuple[int, ...], host_memory: int) -> Topology:
    """Of the allowed `cpus`, at least one; `host_memory` is what a machine that shows no nodes has."""
    fast = _fast(root, cpus)
    caches = _caches(root, fast[0])
    return Topology(
        cpus=cpus,
        fast_cpus=fast,
        num_cores=_num_cores(root, cpus),
        nodes=_nodes(root, cpus, host_memory),
        l1d_bytes=caches.get((1, "Data"), 0),
        l2_bytes=caches.get((2, "Unified"), 0),
        l3_bytes=caches.get((3, "Unified"), 0),
    )


def _fast(root: Path, cpus: tuple[int, ...]) -> tuple[int, ...]:
    folder = root / "sys/devices/system/cpu"
    capacities = {cpu: number(read_text(folder / f"cpu{cpu}/cpu_capacity")) for cpu in cpus}
    known = [capacity for capacity in capacities.values() if capacity and capacity > 0]
    if known:
        least = SLOW_SHARE * max(known)
        return tuple(cpu for cpu, capacity in capacities.items() if capacity is None or capacity >= least)
    slow = set(cpu_list(read_text(root / "sys/devices/cpu_atom/cpus")))
    return tuple(cpu for cpu in cpus if cpu not in slow) or cpus


def _num_cores(root: Path, cpus: Iterable[int]) -> int:
    seen: set[int] = set()
    count = 0
    for cpu in cpus:
        if cpu not in seen:
            folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
            text = read_text(folder / "core_cpus_list") or read_text(folder / "thread_siblings_list")
            seen |= {cpu, *cpu_list(text)}
            count += 1
    return count


def _nodes(root: Path, cpus: tuple[int, ...], host_memory: int) -> tuple[Node, ...]:
    """Nodes with at least one allowed CPU, each CPU in one of them; one node of everything where the kernel shows none."""
    folder = root / "sys/devices/system/node"
    found: dict[tuple[int, ...], Node] = {}
    left = set(cpus)
    for index in cpu_list(read_text(folder / "online")):
        listed = set(cpu_list(read_text(folder / f"node{index}/cpulist")))
        text = read_text(folder / f"node{index}/meminfo").replace(f"Node {index} ", "")
        memory = meminfo(text).get("MemTotal", 0)
        key = tuple(sorted(listed & set(cpus)))
        if key in found:
            found[key] = Node(found[key].index, found[key].cpus, found[key].memory_bytes + memory)
        elif listed & left:
            found[key] = Node(index, tuple(sorted(listed & left)), memory)
            left -= listed
    if left and found:  # CPUs that no node lists
        first, node = next(iter(found.items()))
        found[first] = Node(node.index, tuple(sorted({*node.cpus, *left})), node.memory_bytes)
    return tuple(found.values()) or (Node(0, cpus, host_memory),)


def _caches(root: Path, cpu: int) -> dict[tuple[int, str], int]:
    """{(level, type): bytes} of one CPU; an instruction cache is not reported."""
    found = {}
    for index in range(8):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        level, kind = number(read_text(folder / "level")), read_text(folder / "type").strip()
        if level is None:
            break
        size = read_text(folder / "size").strip()
        scale = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        found[level, kind] = (number(size.rstrip("KM")) or 0) * scale
    return found

"""File trees of Arm machines as their kernels show them: what lscpu and the vendors publish of cores, nodes and caches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Kind:
    """CPUs `first` to `last`. `capacity` 0: the kernel does not say (servers)."""

    first: int
    last: int
    l1d: str
    l2: str
    l3: str = ""
    capacity: int = 0


@dataclass(frozen=True)
class Machine:
    """`nodes`: CPU list and GiB of each NUMA node; none: a kernel without NUMA."""

    kinds: tuple[Kind, ...]
    nodes: tuple[tuple[str, int], ...] = ()
    threads_per_core: int = 1

    def write(self, root: Path) -> Path:
        last = self.kinds[-1].last
        files = {"sys/devices/system/cpu/online": f"0-{last}" if last else "0"}
        for kind in self.kinds:
            for cpu in range(kind.first, kind.last + 1):
                folder = f"sys/devices/system/cpu/cpu{cpu}"
                core = cpu - cpu % self.threads_per_core
                same = f"{core}-{core + self.threads_per_core - 1}" if self.threads_per_core > 1 else f"{cpu}"
                files[f"{folder}/topology/core_cpus_list"] = same
                if kind.capacity:
                    files[f"{folder}/cpu_capacity"] = f"{kind.capacity}"
                caches = [(1, "Data", kind.l1d), (1, "Instruction", kind.l1d), (2, "Unified", kind.l2)]
                for index, (level, what, size) in enumerate([*caches, (3, "Unified", kind.l3)] if kind.l3 else caches):
                    files |= {
                        f"{folder}/cache/index{index}/level": f"{level}",
                        f"{folder}/cache/index{index}/type": what,
                        f"{folder}/cache/index{index}/size": size,
                    }
        for index, (cpus, gib) in enumerate(self.nodes):
            folder = f"sys/devices/system/node/node{index}"
            files |= {f"{folder}/cpulist": cpus, f"{folder}/meminfo": f"Node {index} MemTotal:  {gib * MIB} kB"}
        if self.nodes:
            files["sys/devices/system/node/online"] = f"0-{len(self.nodes) - 1}" if len(self.nodes) > 1 else "0"
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"{content}\n")
        return root


MACHINES = {
    # Its memory is divided into eight nodes that all have all CPUs (numa=fake=8 on the command line of its system).
    "Raspberry Pi 5": Machine((Kind(0, 3, "64K", "512K", "2M", 1024),), nodes=(("0-3", 1),) * 8),
    "Raspberry Pi 4": Machine((Kind(0, 3, "32K", "1M", "", 1024),)),
    "RK3588, 4 + 4": Machine((Kind(0, 3, "32K", "128K", "3M", 530), Kind(4, 7, "64K", "512K", "3M", 1024))),
    "phone, 4 + 3 + 1": Machine(
        (
            Kind(0, 3, "32K", "128K", "4M", 250),
            Kind(4, 6, "64K", "512K", "4M", 800),
            Kind(7, 7, "64K", "1M", "4M", 1024),
        )
    ),
    "Graviton2, 1 vCPU": Machine((Kind(0, 0, "64K", "1M", "32M"),), nodes=(("0", 4),)),
    "Graviton2": Machine((Kind(0, 63, "64K", "1M", "32M"),), nodes=(("0-63", 128),)),
    "Graviton3": Machine((Kind(0, 63, "64K", "1M", "32M"),), nodes=(("0-63", 128),)),
    "Graviton4, 2 x 96": Machine((Kind(0, 191, "64K", "2M", "36M"),), nodes=(("0-95", 192), ("96-191", 192))),
    "Altra": Machine((Kind(0, 79, "64K", "1M", "32M"),), nodes=(("0-79", 256),)),
    "Altra in quadrants": Machine(
        (Kind(0, 79, "64K", "1M", "32M"),), nodes=(("0-19", 64), ("20-39", 64), ("40-59", 64), ("60-79", 64))
    ),
    "AmpereOne, 2 x 192": Machine((Kind(0, 383, "64K", "2M", "64M"),), nodes=(("0-191", 512), ("192-383", 512))),
    # GPU memory shows up as nodes without CPUs.
    "Grace with a GPU": Machine((Kind(0, 71, "64K", "1M", "114M"),), nodes=(("0-71", 480), ("", 96), ("", 0), ("", 0))),
    "two Graces": Machine((Kind(0, 143, "64K", "1M", "114M"),), nodes=(("0-71", 240), ("72-143", 240))),
}

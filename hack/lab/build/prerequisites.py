"""Checks that this machine can run the lab and its demo: lists all that is missing, before any installation or build.

It needs nothing but Python: `make demo` begins with `python3.11 -m hack.lab.build.prerequisites`. It judges facts and
repairs nothing. What could not be found out is not reported: a machine that may work is never rejected.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from hack.lab.base import paths
from hack.lab.base.progress import LabError
from hack.lab.build import catalog, machine, tools
from hack.lab.build.machine import Machine, Place

GB = 10**9
MEMORY = 65 * GB // 10
"""The demo took 6.0 GB at most, of which three clusters have 3.5 when it has ended (measured)."""
_TWO_LABS = 11 * GB
"""All tests in lanes, on two labs and with Ray, took 9.3 GB (measured)."""
_RUNS = 37 * GB // 10  # what a lab that already runs uses of it
# An idle lab takes a third of a processor; starting one takes 75 s of one (measured). On two processors a second lab
# cost more than the parallel tests gained, and tests that wait for seconds turned red.
_PROCESSORS = 4

# Measured with du, rounded down: a little less space may still suffice. What Go compiles, and its 3.3 GB of temporary
# files, is deleted before the clusters start, which take twice their space while they unpack images.
_CACHE = 25 * GB // 10  # programs 0.5, the base system 0.3, layers and images 1.7
_STATE = 48 * GB // 10  # every cluster unpacks Ray
_MODULES = 18 * GB // 10  # sources 1.4, and as they were downloaded 0.3
_COMPILED = 5 * GB

_ARCHITECTURES = ("x86_64", "aarch64")  # those that all of our upstreams support
_CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})  # what the kubelet insists on
_PROGRAMS = {
    "apt-get": "the lab runs on Debian and Ubuntu only, for it installs their packages",
    "dpkg-query": "the lab runs on Debian and Ubuntu only, for it installs their packages",
    "cc": "one small program is in C: install gcc and libc6-dev",
}
_KERNEL = {
    "namespaces": "network and mount namespaces, for a cluster is one: run on a machine of its own "
    "or in a privileged container",
    "bridge": "bridges, which join the clusters: use a kernel with CONFIG_BRIDGE",
    "veth": "veth pairs, which join the clusters: use a kernel with CONFIG_VETH",
    "nftables": "nftables, which cut links: use a kernel with CONFIG_NF_TABLES",
    "iptables": "iptables' nat table, which kube-proxy fills: use a kernel with CONFIG_NF_NAT",
    "overlayfs": f"overlayfs below {paths.STATE.parent}, which containers stand on: use a kernel with "
    "CONFIG_OVERLAY_FS, and a disk of its own there",
}


@dataclass(frozen=True)
class Need:
    """How much of a place the lab fills."""

    place: Place
    bytes: int
    what: str


def judge(found: Machine, needs: Iterable[Need] = (), *, built: bool = False) -> list[str]:
    """What is missing, a sentence each: the object, what was found, what to do.

    `built`: nothing is compiled any more.
    """
    return [*_system(found, built), *_memory(found), *_disk(needs), *_cgroups(found), *_kernel(found)]


def check() -> None:
    """Refuse a machine that cannot run the lab."""
    built = _built()
    missing = judge(machine.read(tuple(_PROGRAMS), paths.STATE), _needs(built), built=built)
    if missing:
        raise LabError("\n  ".join(["This machine cannot run the lab yet:", *missing]))


def lanes(found: Machine) -> int:
    """How many parts of the tests run at once: three where memory and processors suffice for two labs, else two.

    One part needs no lab.
    """
    roomy = found.memory is None or found.memory + _RUNS * found.lab >= _TWO_LABS
    return 3 if roomy and found.processors >= _PROCESSORS else 2


def _system(found: Machine, built: bool) -> Iterable[str]:
    if found.system != "Linux" or found.architecture not in _ARCHITECTURES:
        yield (
            f"System: this is {found.system} on {found.architecture}; "
            f"the lab needs Linux on {' or '.join(_ARCHITECTURES)}."
        )
    if not found.root:
        yield "Rights: you are not root; the lab makes network namespaces, mounts and cgroups: run it with sudo."
    for reason in dict.fromkeys(_PROGRAMS[name] for name in sorted(found.missing) if not (built and name == "cc")):
        names = [name for name in sorted(found.missing) if _PROGRAMS[name] == reason]
        yield f"Programs: {' and '.join(names)} not found; {reason}."


def _memory(found: Machine) -> Iterable[str]:
    if found.memory is not None and not found.lab and found.memory < MEMORY:
        yield (
            f"Memory: {_gb(found.memory)} can be had, and three clusters with the demo take {_gb(MEMORY)}: "
            "end other programs, or use a larger machine."
        )


def _disk(needs: Iterable[Need]) -> Iterable[str]:
    """Places on one disk share its room."""
    ordered = sorted(needs, key=lambda need: need.place.device)
    for _, group in groupby(ordered, key=lambda need: need.place.device):
        shared = [need for need in group if need.bytes > 0]
        wanted, free = sum(need.bytes for need in shared), min((need.place.free for need in shared), default=0)
        if wanted > free:
            whose = ", ".join(f"{need.what} in {need.place.path} {_gb(need.bytes)}" for need in shared)
            yield f"Disk: {_gb(free)} are free, and {_gb(wanted)} will be filled ({whose}): make room there."


def _cgroups(found: Machine) -> Iterable[str]:
    lacking = sorted(_CONTROLLERS - found.controllers) if found.controllers is not None else []
    if lacking:
        yield (
            f"Cgroups: no hierarchy that can be written to has {', '.join(lacking)}, which the kubelet needs: mount "
            "/sys/fs/cgroup writable, with them (a privileged container or a machine of its own has it so)."
        )


def _kernel(found: Machine) -> Iterable[str]:
    for name, said in _KERNEL.items():
        if found.kernel.get(name) is False:
            yield f"Kernel: it makes no {said}."


def _gb(size: int) -> str:
    return f"{size / GB:.1f} GB"


def _built() -> bool:
    return all(tools.home(tool).is_dir() for tool in catalog.ALL)


def _needs(built: bool) -> list[Need]:
    """The space that a first demo fills, less what is there already. That is measured only where space is short: it is
    slow.
    """
    home = Path.home()
    modules = os.environ.get("GOMODCACHE") or Path(os.environ.get("GOPATH") or home / "go") / "pkg" / "mod"
    compiled = os.environ.get("GOCACHE") or tools.COMPILED
    whole = [
        Need(machine.place(paths.CACHE), _CACHE, "programs and images"),
        Need(machine.place(paths.STATE), _STATE, "the clusters"),
    ]
    if not built:
        whole += [
            Need(machine.place(Path(modules)), _MODULES, "Go modules"),
            Need(machine.place(Path(compiled)), _COMPILED, "what Go compiles"),
        ]
    return [_rest(need) for need in whole] if any(_disk(whole)) else whole


def _rest(need: Need) -> Need:
    return replace(need, bytes=max(0, need.bytes - machine.held(need.place.path)))


def main(argv: Sequence[str] | None = None) -> int:
    """Say what is missing; the status is 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m hack.lab.build.prerequisites", description=main.__doc__)
    parser.add_argument(
        "--lanes", action="store_true", help="print how many parts of the tests this machine runs at once"
    )
    if parser.parse_args(argv).lanes:
        print(lanes(machine.read((), paths.STATE)))
        return 0
    try:
        check()
    except LabError as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Brings the lab up: the first time, again, after an interruption, or after a hard stop.

Every step makes only what is missing, so all four are one path. A cluster whose anchor is gone has lost its mounts and
with them its node, so it is wiped and made again. One that only lost a process gets that process back.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hack.lab import teardown
from hack.lab.base import commands, sidebyside, versions
from hack.lab.base import lab as definition
from hack.lab.base.lab import Cluster, Lab
from hack.lab.base.progress import LabError, step
from hack.lab.build import catalog, prerequisites, system, tools
from hack.lab.cluster import (
    addons,
    certificates,
    cgroups,
    containerd,
    control_plane,
    isolation,
    kernel,
    kwok,
    network,
    node,
    processes,
)
from hack.lab.images import images

_EVERYWHERE = ("pause", "coredns")  # a node cannot become useful without these, nor without Kueue
_LAST = "ray"  # large, and nothing of ours waits for it
_OURS = "rayspan"


def up(lab: Lab) -> None:
    """Bring up this lab. One with other clusters on this machine is taken down first; fake nodes are
    only ever added."""
    prerequisites.check()
    lab = _with_nodes_that_stand(lab)
    _make_room(lab)
    system.prepare()
    archives = _made(lab)
    if definition.find() != lab:
        definition.save(lab)
    kernel.prepare()
    _wipe_broken(lab)
    network.ensure(lab)
    _side_by_side(lambda cluster: _cluster(lab, cluster, archives), lab.clusters)


def _with_nodes_that_stand(lab: Lab) -> Lab:
    """Reuse a lab that differs only in its fake nodes: more are added, and none are removed, since they may be in
    use."""
    old = definition.find()
    most = replace(lab, fake_nodes=max(lab.fake_nodes, old.fake_nodes)) if old else lab
    return most if old and replace(old, fake_nodes=most.fake_nodes) == most else lab


def _make_room(lab: Lab) -> None:
    """A lab with another or an unknown definition is taken down first: labs are never mixed."""
    old = definition.find()
    if old is not None and replace(old, fake_nodes=lab.fake_nodes) != lab:
        teardown.take_over(old)
    elif old is None and teardown.remains():
        with step("removing what an unknown lab left behind"):
            teardown.down()


def _wipe_broken(lab: Lab) -> None:
    broken = [cluster for cluster in lab.clusters if not processes.alive(cluster, isolation.ANCHOR)]
    _side_by_side(teardown.wipe, broken)


def _made(lab: Lab) -> dict[str, Path]:
    """Build what is missing, and return the images' archives. Compiling takes every core; large images mostly the
    network.

    It builds all of today's tools, also those that only fake nodes need: they take seconds beside the others, and a
    minute or two alone.
    """
    large: dict[str, Path] = {}
    wanted = [tool.key for tool in catalog.ALL] + _asked_for(lab)
    sidebyside.run((lambda: tools.build(wanted), lambda: large.update(_large())))
    first = {name for cluster in lab.clusters for name in _first(cluster) if name != _OURS}
    return large | {name: images.archive_for(name) for name in sorted(first)}


def _asked_for(lab: Lab) -> list[str]:
    """The versions that clusters run other than today's."""
    each = [versions.called(*one) for cluster in lab.clusters for one in cluster.runs._asdict().items()]
    return sorted({name for name in each if "@" in name})


def _first(cluster: Cluster) -> list[str]:
    """The images with which a cluster begins."""
    kueue, kuberay = (versions.called(name, getattr(cluster.runs, name)) for name in ("kueue", "kuberay"))
    return [*_EVERYWHERE, kueue, *((kuberay, _OURS) if cluster.is_manager else ())]


def _large() -> dict[str, Path]:
    """The images without a Go program.

    Ours may be missing while it is being changed: a lab without it is useful, too.
    """
    found = {_LAST: images.archive_for(_LAST)}
    try:
        return {**found, _OURS: images.archive_for(_OURS)}
    except (LabError, OSError) as failure:
        commands.check()
        print(f"note   the image {_OURS} is left out: {failure}", file=sys.stderr)
        return found


def _cluster(lab: Lab, cluster: Cluster, archives: dict[str, Path]) -> None:
    with step(f"{cluster.name}: control plane"):
        _begin(cluster)
        _bring(cluster, _first(cluster), archives)
        control_plane.ensure_clients(cluster)
    with step(f"{cluster.name}: node"):
        _join(lab, cluster)
    with step(f"{cluster.name}: {', '.join(addon.name for addon in addons.of(cluster))}"):
        addons.ensure(cluster)
        _bring(cluster, (_LAST,), archives)
        addons.await_ready(cluster)


def _begin(cluster: Cluster) -> None:
    """Start what needs nothing else, so that it starts side by side."""
    cgroups.create(cluster)
    certificates.ensure(cluster)
    new = isolation.open_for(cluster)
    control_plane.ensure_servers(cluster)
    containerd.ensure(cluster)
    containerd.await_ready(cluster)
    if new:
        containerd.forget_containers(cluster)


def _join(lab: Lab, cluster: Cluster) -> None:
    node.ensure(cluster)
    node.await_ready(cluster)
    if not cluster.is_manager:
        node.give_gpus(cluster)
    kwok.ensure(cluster, lab.fake_nodes)


def _bring(cluster: Cluster, names: Iterable[str], archives: dict[str, Path]) -> None:
    for name in names:
        if name in archives:
            containerd.bring(cluster, name, archives[name])


def _side_by_side(work: Callable[[Cluster], None], clusters: Sequence[Cluster]) -> None:
    """Do it for all clusters at once."""
    sidebyside.run([functools.partial(work, cluster) for cluster in clusters])

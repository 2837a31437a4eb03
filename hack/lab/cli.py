"""The lab's commands: each is a few lines that call the module which does the work.

A failure ends in one sentence on standard error and status 1; a usage error in argparse's status 2.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from hack.lab import faults, logs, startup, status, teardown
from hack.lab.base import choice, lock, sidebyside
from hack.lab.base import lab as definition
from hack.lab.base.lab import MOST_WORKERS, Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError, step
from hack.lab.cluster import containerd, kubectl
from hack.lab.images import images

_Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    command: _Command = asked.command
    try:
        return command(asked)
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sidebyside.leave("Interrupted; the same command goes on from here, and `down` cleans up.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.lab", description="Real Kubernetes clusters on one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _lifecycle(commands)
    _reading(commands)
    _faults(commands)
    return parser


def _lifecycle(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = _add(commands, "up", _up, "start the clusters, or what is missing of them")
    up.add_argument("--workers", type=_workers, default=2, metavar="N", help="worker clusters beside mgr (default 2)")
    up.add_argument("--fake-nodes", type=_count, default=0, metavar="N", help="kwok nodes per cluster (default 0)")
    kinds = "; ".join(f"{name}: {what}" for name, what in definition.NETWORKS.items())
    up.add_argument("--network", choices=tuple(definition.NETWORKS), default="flat", help=kinds)
    for component, purpose in choice.HELP.items():
        up.add_argument(f"--{component}", action="append", default=[], metavar="[CLUSTER=]VERSION", help=purpose)
    _add(commands, "down", _down, "end everything and leave nothing behind")
    load = _add(commands, "load", _load, "build an image and import it into a cluster")
    load.add_argument("image", choices=images.NAMES)
    load.add_argument("--into", metavar="NAME", default=definition.MANAGER, help="the cluster (default mgr)")


def _reading(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _add(commands, "status", _status, "one line per cluster")
    _named(_add(commands, "kubeconfig", _kubeconfig, "print a cluster's kubeconfig"))
    kubectl_ = _named(_add(commands, "kubectl", _kubectl, "kubectl on one cluster"))
    kubectl_.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="what kubectl shall do")
    logs_ = _add(commands, "logs", _logs, "list the logs, or print one")
    logs_.add_argument("name", nargs="?", metavar="NAME", help="the cluster")
    logs_.add_argument("component", nargs="?", metavar="COMPONENT", help="for instance kubelet")


def _faults(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    cut = _named(_add(commands, "cut", _cut, "cut a cluster off from the others"))
    what = cut.add_mutually_exclusive_group()
    for scope in faults.SCOPES:
        what.add_argument(f"--{scope}", dest="scope", action="store_const", const=scope, help=faults.SCOPES[scope])
    how = cut.add_mutually_exclusive_group()
    for way in faults.WAYS:
        how.add_argument(f"--{way}", dest="way", action="store_const", const=way, help=faults.WAYS[way])
    cut.set_defaults(scope="all", way="drop")
    lose = _named(_add(commands, "lose", _lose, "lose packets between a cluster and the others"))
    lose.add_argument("percent", type=_percent, metavar="PERCENT", help="of the packets in each direction")
    _add(commands, "heal", _heal, "end all cuts and losses")


def _up(asked: argparse.Namespace) -> int:
    usual = Lab(workers=asked.workers, fake_nodes=asked.fake_nodes, network=asked.network)
    words = {component: getattr(asked, component) for component in choice.HELP}
    lab = replace(usual, versions=choice.versions(words, [cluster.name for cluster in usual.clusters]))
    with _alone(), step(f"lab: {teardown.describe(lab)}"):
        startup.up(lab)
    return 0


def _down(asked: argparse.Namespace) -> int:
    with _alone(), step("taking the lab down"):
        teardown.down()
    return 0


def _load(asked: argparse.Namespace) -> int:
    cluster = definition.load().cluster(asked.into)
    with _alone(), step(f"{cluster.name}: image {asked.image}"):
        containerd.bring(cluster, asked.image, images.archive_for(asked.image))
    return 0


def _status(asked: argparse.Namespace) -> int:
    lab = definition.load()
    rows = status.table(lab)
    print(status.text(rows), *status.network_lines(lab), sep="\n")
    return 0 if all(row.healthy for row in rows) else 1


def _kubeconfig(asked: argparse.Namespace) -> int:
    print(kubectl.config(definition.load().cluster(asked.name)), end="")
    return 0


def _kubectl(asked: argparse.Namespace) -> int:
    kubectl.become(definition.load().cluster(asked.name), asked.words)
    return 0


def _logs(asked: argparse.Namespace) -> int:
    print(logs.text(definition.load(), asked.name, asked.component))
    return 0


def _cut(asked: argparse.Namespace) -> int:
    lab = definition.load()
    with _alone():
        faults.cut(lab, lab.cluster(asked.name), scope=asked.scope, way=asked.way)
    return 0


def _lose(asked: argparse.Namespace) -> int:
    lab = definition.load()
    with _alone():
        faults.lose(lab, lab.cluster(asked.name), percent=asked.percent)
    return 0


def _heal(asked: argparse.Namespace) -> int:
    with _alone():
        faults.heal(definition.load())
    return 0


def _alone() -> AbstractContextManager[None]:
    """One command changes the lab at a time, whichever checkout it comes from."""
    return lock.held(STATE / "lock", "waiting for another command on the lab")


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, command: _Command, purpose: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
    parser.set_defaults(command=command)
    return parser


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="NAME", help="the cluster, for instance east")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _workers(text: str) -> int:
    number = _count(text)
    if number > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"the lab has addresses for {MOST_WORKERS}")
    return number


def _percent(text: str) -> int:
    number = _count(text)
    if number > 100:
        raise argparse.ArgumentTypeError("must be at most 100")
    return number

"""How are the verbs typed by which a cluster becomes a worker of a manager, its login is renewed, and it leaves?"""

import argparse
from datetime import timedelta

from adapter.cli.commands import options
from adapter.cli.commands.options import VerbParsers, add_verb

_JOIN_DESCRIPTION = """\
Makes a cluster a worker of the manager. In the worker cluster: an account (rayspan-worker in rayspan-system) that may look at queues,
nodes and pods, and create workers in the namespaces that -n names, and a token of it that ends. In the manager: a Secret of that name
in rayspan-system with a kubeconfig, and a WorkerCluster. Nothing is started in the worker cluster. No token is ever shown.

You need an administrator's rights in both clusters. Doing it again changes nothing; with another -n, --server or context, that is changed.
"""
_JOIN_EPILOG = """\
example:
  kubectl rayspan join east --context manager --worker-context east -n research
  kubectl rayspan join east --worker-kubeconfig east.yaml --server https://10.1.2.3:6443 --expires 30d
  kubectl rayspan join east --worker-context east -o yaml

Whoever may create pods in a namespace can have them read its Secrets, so open only namespaces that hold none but their own.

exit code: 0 it has joined, 3 it has, but something would keep workers away, 2 the command line is wrong, 1 anything else
"""
_ROTATE_DESCRIPTION = """\
Renews the login by which the manager reaches a worker cluster: a new token of the account that `kubectl rayspan join` made, in the same
kubeconfig. Nothing is restarted, and what runs goes on. The token before it is good until it ends by itself. No token is ever shown.

You need an administrator's rights in both clusters.
"""
_ROTATE_EPILOG = """\
example:
  kubectl rayspan rotate east --context manager --worker-context east
  manager cluster: secret/east configured
  The token ends 2027-02-21 08:00 UTC, in 90 days. Renew it before, by `kubectl rayspan rotate east --context manager --worker-context east`.
  The token before it ends 2026-12-01 10:30 UTC, in 7 days.

exit code: 0 it is renewed, 2 the command line is wrong, 1 anything else
"""
_LEAVE_DESCRIPTION = """\
Takes a worker cluster out of the manager, for good. New workers are kept away and those that run there move to other clusters, as by
`kubectl rayspan drain`, or end with their jobs. When the last one is gone, the WorkerCluster and its Secret are deleted, and then the
account in the worker cluster with its roles and bindings. Your queues, namespaces and policies stay.

It says what it will delete, and does not ask. It may be stopped at any time; the same command goes on.
You need an administrator's rights in both clusters.
"""
_LEAVE_EPILOG = """\
example:
  kubectl rayspan leave east --context manager --worker-context east
  kubectl rayspan leave east --worker-kubeconfig east.yaml --timeout 10m

exit code: 0 nothing is left of it, 3 the time is up and workers are left, 2 the command line is wrong, 1 anything else
"""


def add(verbs: VerbParsers) -> None:
    """Add them and their options to the command line."""
    _add_join(verbs)
    rotate = add_verb(
        verbs,
        "rotate",
        _run_rotate,
        "renew the manager's login to a worker cluster",
        _ROTATE_DESCRIPTION,
        _ROTATE_EPILOG,
    )
    options.add_membership_options(rotate)
    options.add_token_lifetime(rotate)
    _add_leave(verbs)


def _add_join(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "join", _run_join, "make a cluster a worker of the manager", _JOIN_DESCRIPTION, _JOIN_EPILOG)
    options.add_membership_options(verb)
    verb.add_argument(
        "--server",
        default="",
        metavar="URL",
        help="the worker cluster's API server as the manager's pods reach it (default: as you do)",
    )
    verb.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="where the manager may run workers; repeat (default: default)",
    )
    options.add_token_lifetime(verb)
    verb.add_argument("-o", "--output", choices=("yaml",), help="print the objects of both clusters, and write nothing")


def _add_leave(verbs: VerbParsers) -> None:
    verb = add_verb(
        verbs,
        "leave",
        _run_leave,
        "take a worker cluster out of the manager, for good",
        _LEAVE_DESCRIPTION,
        _LEAVE_EPILOG,
    )
    options.add_membership_options(verb)
    verb.add_argument(
        "--timeout",
        type=options.parse_duration,
        default=timedelta(0),
        help="how long to wait for its workers, such as 10m (default: until they are gone)",
    )


def _run_join(args: argparse.Namespace) -> int:
    from adapter.cli.membership import join

    return join.main(args)


def _run_rotate(args: argparse.Namespace) -> int:
    from adapter.cli.membership import rotate

    return rotate.main(args)


def _run_leave(args: argparse.Namespace) -> int:
    from adapter.cli.membership import leave

    return leave.main(args)

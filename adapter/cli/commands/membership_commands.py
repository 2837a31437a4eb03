"""Verbs about the membership of a worker cluster: join, rotate and leave."""

import argparse
from datetime import timedelta

from adapter.cli.commands import options
from adapter.cli.commands.options import VerbParsers, add_verb

_JOIN_DESCRIPTION = """\
Add a worker cluster to the manager. In the worker cluster, this creates an account (rayspan-worker in rayspan-system)
that may read queues, nodes and pods, and may create workers in the namespaces that -n names, and a token that expires.
In the manager cluster, it creates a Secret of the same name with a kubeconfig in rayspan-system, and a WorkerCluster.
Nothing is started in the worker cluster. Tokens are never shown.

You need an administrator's rights in both clusters. If you run the command again, nothing changes, except for another
-n, --server or context.
"""
_JOIN_EPILOG = """\
example:
  kubectl rayspan join east --context manager --worker-context east -n research
  kubectl rayspan join east --worker-kubeconfig east.yaml --server https://10.1.2.3:6443 --expires 30d
  kubectl rayspan join east --worker-context east -o yaml

A user who may create pods in a namespace can read its Secrets with them. Open only namespaces that have no Secrets of
other users.

exit code: 0 the cluster has joined, 3 it has joined, but something would keep workers away, 2 the command line is
wrong, 1 any other failure
"""
_ROTATE_DESCRIPTION = """\
Renew the manager's token for a worker cluster: write a new token of the account that `kubectl rayspan join` created
into the same kubeconfig. Nothing is restarted, and workers keep running. The previous token stays valid until it
expires. Tokens are never shown.

You need an administrator's rights in both clusters.
"""
_ROTATE_EPILOG = """\
example:
  kubectl rayspan rotate east --context manager --worker-context east
  manager cluster: secret/east configured
  The token expires 2027-02-21 08:00 UTC, in 90 days. Renew it before that with `kubectl rayspan rotate east --context \
manager --worker-context east`.
  The previous token expires 2026-12-01 10:30 UTC, in 7 days.

exit code: 0 the token is renewed, 2 the command line is wrong, 1 any other failure
"""
_LEAVE_DESCRIPTION = """\
Remove a worker cluster from the manager permanently. New workers are kept away; running ones move to other clusters, as
with `kubectl rayspan drain`, or end with their jobs. When the last one is gone, the WorkerCluster and its Secret are
deleted, and then the account in the worker cluster with its roles and bindings. Your queues, namespaces and policies
stay.

The command prints what it will delete, and does not ask for confirmation. You may stop it at any time; run it again to
continue. You need an administrator's rights in both clusters.
"""
_LEAVE_EPILOG = """\
example:
  kubectl rayspan leave east --context manager --worker-context east
  kubectl rayspan leave east --worker-kubeconfig east.yaml --timeout 10m

exit code: 0 the cluster is removed, 3 the timeout has passed and workers remain, 2 the command line is wrong,
1 any other failure
"""


def add(verbs: VerbParsers) -> None:
    """Add the verbs and their options."""
    _add_join(verbs)
    rotate = add_verb(
        verbs,
        "rotate",
        _run_rotate,
        "renew the manager's token for a worker cluster",
        _ROTATE_DESCRIPTION,
        _ROTATE_EPILOG,
    )
    options.add_membership_options(rotate)
    options.add_token_lifetime(rotate)
    _add_leave(verbs)


def _add_join(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "join", _run_join, "add a worker cluster to the manager", _JOIN_DESCRIPTION, _JOIN_EPILOG)
    options.add_membership_options(verb)
    verb.add_argument(
        "--server",
        default="",
        metavar="URL",
        help="URL at which the manager's pods reach the worker cluster's API server "
        "(default: that of an earlier join, else that of your kubeconfig)",
    )
    verb.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="namespace where the manager may run workers; may be repeated "
        "(default: default at the first join, then none)",
    )
    options.add_token_lifetime(verb)
    verb.add_argument("-o", "--output", choices=("yaml",), help="print the objects of both clusters and write nothing")


def _add_leave(verbs: VerbParsers) -> None:
    verb = add_verb(
        verbs,
        "leave",
        _run_leave,
        "remove a worker cluster from the manager",
        _LEAVE_DESCRIPTION,
        _LEAVE_EPILOG,
    )
    options.add_membership_options(verb)
    verb.add_argument(
        "--timeout",
        type=options.parse_duration,
        default=timedelta(0),
        help="how long to wait until its workers are gone, such as 10m (default: no limit)",
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

"""What can be counted from outside: Prometheus metrics of the controller, each with what it is good for."""

import contextlib

from prometheus_client import Counter, Gauge

LEADER = Gauge("rayspan_leader", "1 in the process that decides and writes, 0 in one that stands by.")
LOOKS = Counter("rayspan_looks_total", "Reconciliations by kind of key: a hot loop shows here first.", ["kind"])
ACTIONS = Counter("rayspan_actions_total", "Actions done, by kind and worker cluster.", ["kind", "cluster"])
CONNECTED = Gauge("rayspan_cluster_connected", "1 while a worker cluster can be seen, else 0.", ["cluster"])


def forget(cluster: str) -> None:
    """Drop what is told about a worker cluster that is not registered any more."""
    with contextlib.suppress(KeyError):  # it was never told
        CONNECTED.remove(cluster)

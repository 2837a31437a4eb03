"""What can be counted from outside: Prometheus metrics of the controller, each with what it is good for.

Labels take few values: a registered worker cluster (empty: the manager, or none yet), a kind, a stage; never a pod or a job.
What is told of the present moment is in shell/controller/measurements.py; docs/metrics.md lists all of them, with alerts.
"""

import contextlib

from prometheus_client import Counter, Gauge, Histogram

from adapter import __version__, names

# Stages of a dispatch.
CREATED, RUNNING = "created", "running"
# Why something remote was an orphan.
POD_GONE, SLOT_ELSEWHERE, NO_SHARE = "pod-gone", "slot-elsewhere", "no-share"
# In place of a reason or state that is none of ours: what others write there shall not decide how many labels there are.
OTHER = "other"

# The API tells when a pod was created in whole seconds, so finer buckets would tell nothing. Ten minutes is when a gated pod
# is an alert.
_DISPATCH_BUCKETS = (1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600)
# From a small fleet to one of a hundred clusters with a thousand queues each (`hack.bench planner`): factors of three.
_DECISION_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
# Reserving takes seconds; what waits for room may wait for hours. A day is where a mean says nothing any more.
_READY_BUCKETS = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 43_200, 86_400)

BUILD = Gauge("rayspan_build_info", "1, with the version that this process runs.", ["version"])
BUILD.labels(__version__).set(1)
LEADER = Gauge("rayspan_leader", "1 in the process that decides and writes, 0 in one that stands by.")
RECONCILES = Counter("rayspan_looks_total", "Reconciliations by kind of key: a hot loop shows here first.", ["kind"])
ACTIONS = Counter("rayspan_actions_total", "Actions done, by kind and worker cluster.", ["kind", "cluster"])
CONNECTED = Gauge("rayspan_cluster_connected", "1 while a worker cluster can be seen, else 0.", ["cluster"])
REQUESTS = Counter(
    "rayspan_api_requests_total",
    "Requests to API servers by how they were answered; code is none where no answer came. Who loads whom, and who refuses.",
    ["cluster", "verb", "kind", "code"],
)
MALFORMED_OBJECTS = Counter(
    "rayspan_odd_objects_total",
    "Answers and events that hold what no API server writes where an object should be. They are left out.",
    ["cluster", "kind"],
)
WATCHES = Gauge(
    "rayspan_watches", "Watches that are open: one for each kind that is followed, else one leaks.", ["cluster", "kind"]
)
DISPATCH = Histogram(
    "rayspan_dispatch_duration_seconds",
    "From the creation of the manager's pod to that of its copy (created), and to where the pod says Running (running). "
    "Up to a second too long: the API tells whole seconds.",
    ["cluster", "stage"],
    buckets=_DISPATCH_BUCKETS,
)
DECISION = Histogram(
    "rayspan_decision_seconds",
    "How long one plan of a gang takes; meanwhile no other gang is planned.",
    buckets=_DECISION_BUCKETS,
)
GANG_READY = Histogram(
    "rayspan_gang_ready_seconds",
    "From where Kueue reserved the manager's quota for a gang to where its check says Ready: its workers have their quota. "
    "Up to a second too long: the API tells whole seconds.",
    buckets=_READY_BUCKETS,
)
WORKERS_LOST = Counter(
    "rayspan_workers_lost_total",
    "Workers that had a place in a cluster and failed there, by the reason on the manager's pod: KubeRay replaces them.",
    ["cluster", "reason"],
)
ROLLBACKS = Counter(
    "rayspan_gang_rollbacks_total", "Rounds of which every share was given back, because one was not admitted in time."
)
SPILLS = Counter(
    "rayspan_spills_total", "Shares that a worker cluster did not admit in time: others are asked instead.", ["cluster"]
)
ORPHANS = Counter(
    "rayspan_orphans_deleted_total",
    "Remote objects deleted because nothing stood for them any more. pod-gone is how every worker ends; slot-elsewhere and "
    "no-share are what a crash, a second writer or a refused share left.",
    ["cluster", "reason"],
)
TASK_FAILURES = Counter(
    "rayspan_task_failures_total",
    "Faults that nobody expected, by the task that met them: each was contained, and the log has its trace.",
    ["task"],
)


_registered_clusters: set[str] = set()  # worker clusters that are registered, or were


def register_cluster(cluster: str) -> None:
    """Tell zeros of a worker cluster of which nothing was counted yet: in Prometheus the first loss would else be no increase."""
    _registered_clusters.add(cluster)
    SPILLS.labels(cluster)
    for reason in (*names.LOSSES, OTHER):
        WORKERS_LOST.labels(cluster, reason)
    for reason in (SLOT_ELSEWHERE, NO_SHARE):
        ORPHANS.labels(cluster, reason)


def cluster_label(cluster: str) -> str:
    """A worker cluster's name as a label's value: what a user wrote into a pod's slot is none."""
    return cluster if cluster in _registered_clusters else OTHER


def unregister_cluster(cluster: str) -> None:
    """Drop what is told about a worker cluster that is not registered any more."""
    with contextlib.suppress(KeyError):  # it was never told
        CONNECTED.remove(cluster)

"""Prometheus metrics that are counted as events occur. docs/metrics.md describes all, with alerts.

Labels take few values: a registered worker cluster (empty: the manager, or none yet), a kind or a stage, never a pod or
job. shell/controller/measurements.py has gauges of the current state.
"""

import contextlib

from prometheus_client import Counter, Gauge, Histogram

from adapter import __version__, names

CREATED, RUNNING = "created", "running"
# The label value for names that users wrote: users must not decide how many label values there are.
OTHER = "other"

# The API has creation times in whole seconds. An alert exists for a pod gated for ten minutes.
_DISPATCH_BUCKETS = (1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600)
# From a small fleet to a hundred clusters with a thousand queues each (`hack.bench planner`).
_PLAN_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
# Reserving takes seconds; a gang without capacity may wait for hours. Beyond a day a mean says nothing.
_CHECK_WAIT_BUCKETS = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 43_200, 86_400)

BUILD = Gauge("rayspan_build_info", "Always 1, with the version of this process.", ["version"])
BUILD.labels(__version__).set(1)
LEADER = Gauge("rayspan_leader", "1 in the process that decides and writes, 0 in one that stands by.")
RECONCILES = Counter(
    "rayspan_reconciles_total", "Reconciliations by kind of key: a hot loop shows here first.", ["kind"]
)
ACTIONS = Counter("rayspan_actions_total", "Actions done, by kind and worker cluster.", ["kind", "cluster"])
CONNECTED = Gauge("rayspan_cluster_connected", "1 while a worker cluster is reachable, else 0.", ["cluster"])
REQUESTS = Counter(
    "rayspan_api_requests_total",
    "Requests to API servers, by the status code of the answer; `none` where no answer came.",
    ["cluster", "verb", "kind", "code"],
)
MALFORMED_OBJECTS = Counter(
    "rayspan_malformed_objects_total",
    "Answers and events that hold what no API server writes where an object should be. They are left out.",
    ["cluster", "kind"],
)
WATCHES = Gauge("rayspan_watches", "Open watches. There is one for each kind that is followed.", ["cluster", "kind"])
DISPATCH = Histogram(
    "rayspan_dispatch_duration_seconds",
    "Time from the creation of the manager pod until its remote pod is created, and until it is Running. "
    "Up to a second too long, since the API has whole seconds.",
    ["cluster", "stage"],
    buckets=_DISPATCH_BUCKETS,
)
PLAN_DURATION = Histogram(
    "rayspan_plan_duration_seconds",
    "Duration of one plan of a gang. No other gang is planned meanwhile.",
    buckets=_PLAN_BUCKETS,
)
GANG_READY = Histogram(
    "rayspan_admission_check_wait_time_seconds",
    "Time from the quota reservation in the manager cluster until the gang's admission check is Ready. "
    "Up to a second too long, since the API has whole seconds.",
    buckets=_CHECK_WAIT_BUCKETS,
)
WORKERS_LOST = Counter(
    "rayspan_workers_lost_total",
    "Workers with a slot in a worker cluster that failed, by the reason of the manager pod. KubeRay replaces them.",
    ["cluster", "reason"],
)
ROLLBACKS = Counter(
    "rayspan_gang_rollbacks_total", "Rounds that were withdrawn because a share was not admitted in time."
)
SPILLS = Counter(
    "rayspan_spills_total",
    "Shares that a worker cluster did not admit in time. Other clusters are planned instead.",
    ["cluster"],
)
ORPHANS = Counter(
    "rayspan_orphans_deleted_total",
    "Remote objects that were deleted because no object of the manager stands for them.",
    ["cluster", "reason"],
)
TASK_FAILURES = Counter(
    "rayspan_task_failures_total",
    "Unexpected exceptions, by task. Each is contained, and the log has its trace.",
    ["task"],
)


_registered_clusters: set[str] = set()  # the clusters that are registered now or were earlier


def register_cluster(cluster: str) -> None:
    """Set a cluster's counters to zero: otherwise the first loss is no increase for Prometheus."""
    _registered_clusters.add(cluster)
    SPILLS.labels(cluster)
    for reason in (*names.LOSS_REASONS, OTHER):
        WORKERS_LOST.labels(cluster, reason)
    for reason in (names.OrphanReason.SLOT_ELSEWHERE, names.OrphanReason.NO_SHARE):
        ORPHANS.labels(cluster, reason)


def cluster_label(cluster: str) -> str:
    """A cluster's label value; OTHER for what a user wrote into a pod's slot."""
    return cluster if cluster in _registered_clusters else OTHER


def unregister_cluster(cluster: str) -> None:
    with contextlib.suppress(KeyError):  # it was never set
        CONNECTED.remove(cluster)

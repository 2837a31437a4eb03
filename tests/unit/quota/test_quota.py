"""How many pods a worker cluster's Kueue would admit now: tables from its rules, and properties over random cohort
trees.

The oracle at the end is kueue v0.19.2 pkg/cache/scheduler/resource_node.go, written again as recursion over the raw
objects. It shares no code with the code under test.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.objects import pod_requests
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import RawDict as Raw
from adapter.quota.tree import QuotaTree, Shortfall, build, local_queue_target
from tests.unit.quota.rooms import Room, admits, charge

Limits = tuple[int, int | None, int | None]  # nominal, borrowing limit, lending limit; whole cores or devices

FEW_CORES = {"cpu": 500}
FITS_ANYWHERE: Raw = {}


def rows(cells: Mapping[tuple[str, str], Limits]) -> list[Raw]:
    """One resource group: (flavor, resource) -> limits, flavors in the order of their first mention."""
    flavors = list(dict.fromkeys(flavor for flavor, _ in cells))
    covered = list(dict.fromkeys(resource for _, resource in cells))
    listed = [{"name": f, "resources": [row(r, cells[f, r]) for r in covered if (f, r) in cells]} for f in flavors]
    return [{"coveredResources": covered, "flavors": listed}] if cells else []


def row(resource: str, limits: Limits) -> Raw:
    keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
    return {"name": resource} | {k: str(v) for k, v in zip(keys, limits, strict=True) if v is not None}


def queue(
    name: str,
    *groups: Mapping[tuple[str, str], Limits],
    cohort: str = "",
    used: Mapping[tuple[str, str], object] | None = None,
    **spec: Any,
) -> Raw:
    listed = [{"name": f, "resources": [{"name": r, "total": str(v)}]} for (f, r), v in (used or {}).items()]
    groups_spec = [group for one in groups for group in rows(one)]
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": cohort, "resourceGroups": groups_spec, "namespaceSelector": {}, **spec},
        "status": {"flavorsReservation": listed, "conditions": [{"type": "Active", "status": "True"}]},
    }


def cohort(name: str, parent: str = "", cells: Mapping[tuple[str, str], Limits] | None = None) -> Raw:
    return {"metadata": {"name": name}, "spec": {"parentName": parent, "resourceGroups": rows(cells or {})}}


def flavor(name: str, **spec: Any) -> Raw:
    return {"metadata": {"name": name}, "spec": spec}


def cpus(nominal: int, borrowing: int | None = None, lending: int | None = None) -> dict[tuple[str, str], Limits]:
    return {("a", "cpu"): (nominal, borrowing, lending)}


A, B = flavor("a"), flavor("b")
CORE = {"cpu": 1000}
USED = ("a", "cpu")

COUNTS = [
    pytest.param(
        [queue("q", cpus(4), used={USED: 1})], [], (3, 0, 4), "nominal less reserved", id="a queue without a cohort"
    ),
    pytest.param(
        [queue("q", cpus(4, 1), used={USED: 1})],
        [],
        (3, 0, 4),
        "available: a root looks at no limit",
        id="a borrowing limit without a cohort means nothing",
    ),
    pytest.param(
        [queue("q", cpus(4), cohort="c"), queue("other", cpus(6), cohort="c")],
        [],
        (4, 6, 10),
        "the Cohort is nobody's object",
        id="a cohort without an object lends all",
    ),
    pytest.param(
        [queue("q", cpus(4, 2), cohort="c"), queue("other", cpus(6), cohort="c")],
        [],
        (4, 2, 6),
        "nominal + borrowingLimit",
        id="a borrowing limit caps",
    ),
    pytest.param(
        [queue("q", cpus(4), cohort="c"), queue("other", cpus(6, None, 1), cohort="c")],
        [],
        (4, 1, 5),
        "localQuota stays at home",
        id="a lending limit keeps quota at home",
    ),
    pytest.param(
        [queue("q", cpus(4), cohort="c"), queue("other", cpus(6), cohort="c", used={USED: 9})],
        [],
        (1, 0, 10),
        "nominal quota that is lent out is not there",
        id="lent quota that others use is not available",
    ),
    pytest.param(
        [queue("q", cpus(4, None, 2), cohort="c"), queue("other", cpus(6), cohort="c", used={USED: 8})],
        [],
        (2, 0, 10),
        "two were never lendable",
        id="a lending limit keeps others from borrowing it",
    ),
    pytest.param(
        [queue("q", cpus(4), cohort="c", used={USED: 7}), queue("other", cpus(6), cohort="c")],
        [],
        (0, 3, 10),
        "usage above nominal is borrowed already",
        id="a queue that borrows already",
    ),
    pytest.param(
        [queue("q", cpus(4, 2), cohort="c", used={USED: 5}), queue("other", cpus(6), cohort="c")],
        [],
        (0, 1, 6),
        "usedInParent: the limit is for all that the queue borrows, not for each time",
        id="borrowed quota counts against the borrowing limit",
    ),
    pytest.param(
        [queue("q", cpus(1), cohort="c"), queue("other", cpus(6, None, 2), cohort="c", used={USED: 5})],
        [],
        (1, 1, 3),
        "accumulateFromChild: only usage past localQuota reaches the cohort",
        id="others' usage of their kept quota takes nothing from the cohort",
    ),
    pytest.param(
        [queue("q", cpus(2), cohort="c"), queue("other", cpus(2), cohort="c", used={USED: 9})],
        [],
        (0, 0, 4),
        "Available: never negative",
        id="a cohort in debt has no capacity",
    ),
    pytest.param(
        [queue("q", cpus(4, None, 0), cohort="c"), queue("other", cpus(2), cohort="c", used={USED: 9})],
        [],
        (0, 0, 6),
        "local 4 plus a debt of 7: available adds the parent's negative rest",
        id="a debt of a parent takes quota that is kept at home",
    ),
    pytest.param(
        [queue("q", cpus(1), cohort="c")],
        [cohort("c", cells=cpus(5))],
        (1, 5, 6),
        "a Cohort's own quota",
        id="a cohort with quota",
    ),
    pytest.param(
        [queue("q", cpus(1), cohort="low"), queue("far", cpus(8), cohort="high")],
        [cohort("low", "top"), cohort("high", "top", cells=cpus(0, None, 3))],
        (1, 3, 4),
        "the lending limit of a Cohort counts its whole subtree",
        id="nested cohorts with a lending limit half way",
    ),
    pytest.param(
        [queue("q", cpus(1), cohort="low"), queue("far", cpus(8), cohort="top")],
        [cohort("low", "top", cells=cpus(0, 2)), cohort("top")],
        (1, 2, 3),
        "the borrowing limit of a Cohort counts its whole subtree",
        id="nested cohorts with a borrowing limit half way",
    ),
    pytest.param(
        [queue("q", cpus(1), cohort="c"), queue("off", cpus(3), cohort="c", stopPolicy="Hold")],
        [],
        (1, 3, 4),
        "the cache sums up queues whether they run or not",
        id="a stopped queue still lends",
    ),
    pytest.param(
        [queue("q", {("a", "cpu"): (9, None, None), ("a", "pods"): (2, None, None)})],
        [],
        (2, 0, 2),
        "every pod asks one",
        id="covered pods are counted",
    ),
    pytest.param(
        [queue("q", cpus(3), {("b", "pods"): (2, None, None)})],
        [],
        (2, 0, 2),
        "each group has its own flavor",
        id="the tighter of two groups decides",
    ),
    pytest.param(
        [queue("q", {("a", "cpu"): (10**19, None, None)})],
        [],
        (pod_requests.UNLIMITED, 0, pod_requests.UNLIMITED),
        "resources.Unlimited",
        id="more than 64 bits is no limit",
    ),
]


@pytest.mark.parametrize(("queues", "cohorts", "counts", "why"), COUNTS)
def test_capacity_is_what_kueue_would_admit(
    queues: list[Raw], cohorts: list[Raw], counts: tuple[int, int, int], why: str
) -> None:
    room = admits(build(queues, cohorts, [A, B]), "q", CORE, {})
    assert (room.nominal, room.borrow, room.ever) == counts, why


def closed(**changes: Any) -> Raw:
    return queue("q", cpus(4), **changes)


INACTIVE = {"conditions": [{"type": "Active", "status": "False", "message": "Can't admit new workloads: why not."}]}
DELETED = {"name": "q", "deletionTimestamp": "2026-01-01T00:00:00Z"}
REASONS = [
    pytest.param([], [], "ClusterQueue q does not exist", id="no such queue"),
    pytest.param([closed(stopPolicy="Hold")], [], "ClusterQueue q is stopped (stopPolicy Hold)", id="a stopped queue"),
    pytest.param(
        [closed() | {"status": INACTIVE}],
        [],
        "ClusterQueue q is not active: Can't admit new workloads: why not.",
        id="an inactive queue says what Kueue says",
    ),
    pytest.param([closed() | {"metadata": DELETED}], [], "ClusterQueue q is being deleted", id="a queue being deleted"),
    pytest.param(
        [queue("q", {("gone", "cpu"): (4, None, None)})],
        [],
        "ClusterQueue q names the flavor gone, which does not exist",
        id="a missing flavor closes the queue",
    ),
    pytest.param(
        [queue("q", {("b", "memory"): (4, None, None)})],
        [],
        "ClusterQueue q does not cover cpu",
        id="a resource that is not covered",
    ),
    pytest.param(
        [closed(cohort="c")],
        [cohort("c", "d"), cohort("d", "c")],
        "the Cohorts above ClusterQueue q form a cycle",
        id="a cycle of cohorts",
    ),
    pytest.param(
        [closed(cohort="below")],
        [cohort("below", "c"), cohort("c", "c")],
        "the Cohorts above ClusterQueue q form a cycle",
        id="a cohort that leads into a cycle",
    ),
    pytest.param(
        [closed(namespaceSelector=None)], [], "ClusterQueue q does not select the namespace", id="no selector"
    ),
    pytest.param(
        [closed(namespaceSelector={"matchLabels": {"team": "x"}})],
        [],
        "ClusterQueue q does not select the namespace",
        id="a selector for others",
    ),
    pytest.param(
        [closed(namespaceSelector=["team"])],
        [],
        "the namespaceSelector of ClusterQueue q cannot be read ('list' object has no attribute 'get')",
        id="a selector of no known shape",
    ),
    pytest.param(
        [closed(used={USED: "3750m"})],
        [],
        "cpu in flavor a: 250m free of 4, one worker needs 1",
        id="quota in use",
    ),
    pytest.param(
        [queue("q", {("a", "cpu"): (0, None, None), ("b", "cpu"): (1, None, None)}, used={("b", "cpu"): 1})],
        [],
        "cpu in flavor a: 0 at most, one worker needs 1; cpu in flavor b: 0 free of 1, one worker needs 1",
        id="every flavor is explained",
    ),
    pytest.param(
        [closed() | {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{}]}]}}],
        [],
        "ClusterQueue q cannot be read ({} has no name)",
        id="an unreadable queue",
    ),
    pytest.param(
        [closed(cohort="c")],
        [cohort("c", cells={("a", "cpu"): ("much", None, None)})],  # type: ignore[dict-item]
        "Cohort c cannot be read ('much' is not a quantity such as 500m, 2 or 1.5Gi)",
        id="an unreadable cohort closes the queues below",
    ),
]


@pytest.mark.parametrize(("queues", "cohorts", "reason"), REASONS)
def test_missing_capacity_has_a_reason(queues: list[Raw], cohorts: list[Raw], reason: str) -> None:
    room = admits(build(queues, cohorts, [A, B]), "q", CORE, {}, namespace={"team": "ray"})
    assert (room.nominal, room.borrow, room.flavors, room.reason) == (0, 0, {}, reason)


def test_too_little_capacity_has_a_reason() -> None:
    room = admits(build([closed()], [], [A]), "q", {"cpu": 1500}, {}, wanted=3)
    assert (room.nominal, room.reason) == (2, "cpu in flavor a: 4 free of 4, one worker needs 1500m")


def test_the_tight_resource_is_the_one_that_ends_first() -> None:
    cells = {("a", "cpu"): (9, None, None), ("a", "nvidia.com/gpu"): (4, None, None)}
    room = admits(build([queue("q", cells)], [], [A]), "q", {"cpu": 1000, "nvidia.com/gpu": 1}, {})
    assert room.tight == Shortfall("a", "nvidia.com/gpu", free=4, total=4, need=1)


TAINTED = flavor("a", nodeTaints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
SPOT = flavor("a", nodeLabels={"tier": "spot", "cores": "8"})


def affinity(*terms: list[Raw]) -> Raw:
    listed = [{"matchExpressions": term} for term in terms]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}
    }


def asks(key: str, operator: str, *values: str) -> Raw:
    return {"key": key, "operator": operator, "values": list(values)}


CHOICES = [
    pytest.param(A, {}, "a", "the group's order", id="the first flavor"),
    pytest.param(TAINTED, {}, "b", "NoSchedule", id="a taint turns away"),
    pytest.param(
        flavor("a", nodeTaints=[{"key": "gpu", "effect": "PreferNoSchedule"}]), {}, "a", "it is soft", id="a soft taint"
    ),
    pytest.param(
        TAINTED, {"tolerations": [{"operator": "Exists"}]}, "a", "no key: all", id="a toleration of everything"
    ),
    pytest.param(
        TAINTED, {"tolerations": [{"key": "gpu", "value": "yes"}]}, "a", "Equal by default", id="a toleration by value"
    ),
    pytest.param(
        TAINTED,
        {"tolerations": [{"key": "gpu", "value": "no"}]},
        "b",
        "values differ",
        id="a toleration of another value",
    ),
    pytest.param(
        TAINTED,
        {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]},
        "b",
        "effects differ",
        id="a toleration of another effect",
    ),
    pytest.param(
        flavor("a", nodeTaints=[{"key": "n", "value": "5", "effect": "NoExecute"}]),
        {"tolerations": [{"key": "n", "operator": "Gt", "value": "4"}]},
        "a",
        "5 > 4; kueue enables comparison operators",
        id="a toleration by comparison",
    ),
    pytest.param(
        flavor("a", nodeTaints=[{"key": "gpu", "effect": "NoSchedule"}], tolerations=[{"operator": "Exists"}]),
        {},
        "a",
        "Kueue adds it to the pod",
        id="a flavor tolerates its own taint",
    ),
    pytest.param(SPOT, {"nodeSelector": {"tier": "spot"}}, "a", "labels match", id="a selector that matches"),
    pytest.param(
        SPOT, {"nodeSelector": {"tier": "dear"}}, "b", "b has no such label", id="a selector that does not match"
    ),
    pytest.param(
        SPOT,
        {"nodeSelector": {"disk": "ssd"}},
        "a",
        "only its own keys",
        id="a selector of keys that the flavor does not have",
    ),
    pytest.param(SPOT, affinity([asks("tier", "NotIn", "spot")]), "b", "", id="an affinity that excludes the flavor"),
    pytest.param(
        SPOT,
        affinity([asks("tier", "In", "x")], [asks("disk", "Exists")]),
        "a",
        "",
        id="an affinity with one term about other keys",
    ),
    pytest.param(
        SPOT,
        affinity([asks("tier", "In", "x")], [asks("tier", "Exists")]),
        "a",
        "",
        id="the terms of an affinity are ORed",
    ),
    pytest.param(
        SPOT,
        affinity([asks("tier", "In", "spot"), asks("cores", "Gt", "8")]),
        "b",
        "",
        id="the requirements of a term are ANDed",
    ),
    pytest.param(SPOT, affinity([asks("cores", "Lt", "9")]), "a", "", id="labels compare as numbers"),
    pytest.param(SPOT, affinity([asks("tier", "DoesNotExist")]), "b", "", id="a label that must be absent"),
    pytest.param(SPOT, affinity([asks("tier", "Near", "x")]), "b", "", id="an unknown operator"),
    pytest.param(SPOT, {"affinity": []} | {"nodeSelector": 7}, "", "", id="malformed rules"),
    pytest.param(flavor("a", topologyName="racks"), {}, "b", "b has none", id="a topology among plain flavors"),
    pytest.param({"metadata": {"name": "a"}, "spec": [1]}, {}, "b", "", id="an unreadable flavor"),
]


@pytest.mark.parametrize(("first", "pod", "chosen", "why"), CHOICES)
def test_a_pod_gets_the_first_flavor_that_takes_it(first: Raw, pod: Raw, chosen: str, why: str) -> None:
    cells = {("a", "cpu"): (1, None, None), ("b", "cpu"): (9, None, None)}
    room = admits(build([queue("q", cells)], [], [first, B]), "q", CORE, pod)
    assert room.flavors.get("cpu", "") == chosen, why
    assert bool(room.reason) == (not chosen)


def test_a_topology_flavor_takes_every_pod_where_all_flavors_have_one() -> None:
    tree = build([queue("q", cpus(4))], [], [flavor("a", topologyName="racks")])
    assert admits(tree, "q", CORE, {}).flavors == {"cpu": "a"}


ONE_CORE: Raw = {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]}
IN_RACK = TopologyRequest("required", "example.com/rack")


@pytest.mark.parametrize(
    ("topologies", "chosen"),
    [
        pytest.param({"b": "racks"}, {"cpu": "b"}, id="the flavor with a topology"),
        pytest.param({"a": "racks", "b": "blocks"}, {"cpu": "a"}, id="the first of two"),
        pytest.param({}, {}, id="no flavor has a topology"),
    ],
)
def test_pods_that_request_a_topology_get_a_flavor_with_one(topologies: dict[str, str], chosen: dict[str, str]) -> None:
    cells = {("a", "cpu"): (9, None, None), ("b", "cpu"): (9, None, None)}
    flavors = [flavor(name, **({"topologyName": topologies[name]} if name in topologies else {})) for name in "ab"]
    found = admits(build([queue("q", cells)], [], flavors), "q", CORE, ONE_CORE, topology=IN_RACK)
    assert found.flavors == chosen
    assert chosen or "flavor a has no spec.topologyName" in found.reason


@pytest.mark.parametrize(
    ("resource", "request_"),
    [
        # Kueue's configuration may count credits in place of a resource; no node has them.
        pytest.param("credits", {**CORE, "credits": 2}, id="a generated resource"),
        pytest.param("pods", CORE, id="pods, which no pod requests"),
    ],
)
def test_a_flavor_of_what_no_pod_requests_needs_no_topology(resource: str, request_: dict[str, int]) -> None:
    groups = [
        {"coveredResources": [name], "flavors": [{"name": f, "resources": [{"name": name, "nominalQuota": "9"}]}]}
        for name, f in (("cpu", "racked"), (resource, "plain"))
    ]
    raw = {"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}}
    tree = build([raw], [], [flavor("racked", topologyName="racks"), flavor("plain")])
    found = admits(tree, "q", request_, ONE_CORE, topology=IN_RACK)
    assert found.flavors == {"cpu": "racked", resource: "plain"}


def _effective(cpu: int | None) -> Raw:
    rows = [{"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [
        {"name": "cpu", "nominalQuota": str(cpu)}]}]}]  # fmt: skip
    return {"effectiveQuotas": {"orchestratorRef": {"name": "dqo"}, "resourceGroups": [] if cpu is None else rows}}


@pytest.mark.parametrize(("cpu", "fitting"), [(9, 9), (2, 2), (None, 0)])
def test_effective_quotas_replace_those_of_the_spec(cpu: int | None, fitting: int) -> None:
    """Kueue 0.20 schedules by status.effectiveQuotas where a DynamicQuotaOrchestrator wrote it, also by an empty
    list."""
    raw = {**queue("q", cpus(4)), "status": _effective(cpu)}
    found = admits(build([raw], [], [flavor("a")]), "q", CORE, {}, wanted=20)
    assert found.nominal == fitting


def test_effective_quotas_of_a_cohort_are_borrowed() -> None:
    owner = {"metadata": {"name": "c"}, "spec": {}, "status": _effective(5)}
    found = admits(build([queue("q", cpus(4), cohort="c")], [owner], [flavor("a")]), "q", CORE, {}, wanted=20)
    assert (found.nominal, found.borrow) == (4, 5)


TWO = {("a", "cpu"): (2, None, None), ("b", "cpu"): (6, None, None)}
LENDER = queue("lender", {("a", "cpu"): (9, None, None)}, cohort="c")
CAREFUL = {"whenCanBorrow": "TryNextFlavor"}
WANTED = [
    pytest.param([queue("q", TWO)], 2, "a", (2, 0), "the first that fits", id="the first flavor when it fits all"),
    pytest.param(
        [queue("q", TWO)], 3, "b", (6, 0), "a podset is never split", id="the second flavor when the first is too small"
    ),
    pytest.param([queue("q", TWO)], 9, "b", (6, 0), "as many as can be", id="the larger flavor when none fits all"),
    pytest.param(
        [queue("q", TWO, cohort="c"), LENDER],
        5,
        "a",
        (2, 9),
        "MayStopSearch",
        id="borrowing is no reason to try the next flavor",
    ),
    pytest.param(
        [queue("q", TWO, cohort="c", flavorFungibility=CAREFUL), LENDER],
        5,
        "b",
        (6, 0),
        "b needs no borrowing",
        id="borrowing is a reason if the queue says TryNextFlavor",
    ),
    pytest.param(
        [queue("q", TWO, cohort="c", flavorFungibility=CAREFUL), LENDER],
        8,
        "a",
        (2, 9),
        "b is too small",
        id="borrowing is better than no capacity",
    ),
    pytest.param(
        [
            queue(
                "q",
                {("a", "cpu"): (0, None, None), ("b", "cpu"): (0, None, None)},
                cohort="c",
                flavorFungibility=CAREFUL,
            ),
            queue("far", {("a", "cpu"): (5, None, None)}, cohort="top"),
            queue("near", {("b", "cpu"): (5, None, None)}, cohort="c"),
        ],
        1,
        "b",
        (0, 5),
        "isPreferred: the lower borrowing level",
        id="borrowing from a near cohort is better than from a far one",
    ),
    pytest.param(
        [
            queue(
                "q", {("b", "cpu"): (2, None, None), ("a", "cpu"): (4, None, 0)}, cohort="c", flavorFungibility=CAREFUL
            ),
            queue("near", {("a", "cpu"): (2, None, None), ("b", "cpu"): (3, None, None)}, cohort="c"),
            queue("far", {("b", "cpu"): (9, None, None)}, cohort="top"),
        ],
        6,
        "a",
        (4, 2),
        "four are kept at home, so only two of a must come from c; b needs six from top",
        id="quota kept at home shortens the way",
    ),
]


@pytest.mark.parametrize(("queues", "wanted", "chosen", "counts", "why"), WANTED)
def test_the_flavor_depends_on_how_many_are_wanted(
    queues: list[Raw], wanted: int, chosen: str, counts: tuple[int, int], why: str
) -> None:
    room = admits(build(queues, [cohort("c", "top")], [A, B]), "q", CORE, {}, wanted=wanted)
    assert (room.flavors, room.nominal, room.borrow) == ({"cpu": chosen}, *counts), why


@pytest.mark.parametrize(
    ("spec", "status", "answer"),
    [
        pytest.param({"clusterQueue": "cq"}, {}, ("cq", ""), id="an open LocalQueue"),
        pytest.param(
            {"clusterQueue": "cq", "stopPolicy": "Hold"},
            {},
            ("cq", "LocalQueue lq is stopped (stopPolicy Hold)"),
            id="a stopped LocalQueue",
        ),
        pytest.param({"clusterQueue": "cq"}, INACTIVE,
            ("cq", "LocalQueue lq is not active: Can't admit new workloads: why not."), id="an inactive LocalQueue"),
        pytest.param({}, {}, ("", "the LocalQueue cannot be read ('clusterQueue')"),
            id="a LocalQueue that leads nowhere"),
    ],
)  # fmt: skip
def test_a_local_queue_leads_to_a_cluster_queue(spec: Raw, status: Raw, answer: tuple[str, str]) -> None:
    assert local_queue_target({"metadata": {"name": "lq"}, "spec": spec, "status": status}) == answer


def test_a_pod_without_counted_requests_has_no_limit() -> None:
    room = admits(build([queue("q", cpus(1))], [], [A]), "q", {"pods": 1}, {})
    assert (room.nominal, room.ever, room.tight) == (pod_requests.UNLIMITED, pod_requests.UNLIMITED, None)


# --- random worlds ----------------------------------------------------------------------------------------------------

World = tuple[list[Raw], list[Raw]]
FLAVORS = [A, B]
small = st.integers(0, 6)
limits = st.tuples(small, st.none() | small, st.none() | small)
cells_of = {
    "queue": st.fixed_dictionaries({(f, r): limits for f in "ab" for r in ("cpu", "gpu")}),
    "cohort": st.dictionaries(st.sampled_from([(f, r) for f in "ab" for r in ("cpu", "gpu")]), limits),
}
usage = st.dictionaries(st.sampled_from([("a", "cpu"), ("b", "cpu"), ("a", "gpu"), ("b", "gpu")]), st.integers(0, 9))
fungibility = st.sampled_from([None, {"whenCanBorrow": "MayStopSearch"}, CAREFUL])
requests = st.fixed_dictionaries({"cpu": st.sampled_from([0, 500, 1000, 1500])}, optional={"gpu": st.integers(0, 2)})


@st.composite
def worlds(draw: st.DrawFn, loops: bool = False) -> World:
    """Cohorts c0..c3 (a parent may be implicit), queues q0..q3 below any of them or none."""
    cohorts = []
    for index in range(draw(st.integers(0, 4))):
        parents = range(5) if loops else range(index + 1, 6)
        parent = draw(st.sampled_from([f"c{one}" for one in parents] + [""]))
        cohorts.append(cohort(f"c{index}", parent, draw(cells_of["cohort"])))
    queues = []
    for index in range(draw(st.integers(1, 4))):
        cells, above = draw(cells_of["queue"]), draw(st.sampled_from(["c0", "c0", "c1", "c2", "c9", ""]))
        spec = {"flavorFungibility": draw(fungibility)}
        queues.append(queue(f"q{index}", cells, cohort=above, used=draw(usage), **spec))
    return queues, cohorts


def rooms(tree: QuotaTree, names: list[str], request: Mapping[str, int], wanted: int = 1) -> list[Room]:
    return [admits(tree, name, request, {}, wanted=wanted) for name in names]


def names_of(world: World) -> list[str]:
    return sorted(one["metadata"]["name"] for one in world[0])


@given(worlds(), requests, st.integers(1, 4))
def test_capacity_and_flavors_are_the_oracles(world: World, request: Raw, wanted: int) -> None:
    tree, oracle = build(*world, FLAVORS), Oracle(world)
    for name in names_of(world):
        room = admits(tree, name, request, {}, wanted=wanted)
        fits = {f: oracle.fits(oracle.available, name, f, request) for f in oracle.order(name)}
        ever = max(oracle.fits(oracle.potential, name, f, request) for f in "ab")
        chosen = oracle.choice(name, fits, request, min(wanted, max(fits.values())))
        total = fits[chosen] if chosen else 0
        assert (room.nominal + room.borrow, room.ever, room.flavors.get("cpu")) == (total, ever, chosen)
        nominal = oracle.fits(oracle.nominal, name, chosen, request) if chosen else 0
        assert room.nominal == min(nominal, total)


@given(worlds(), worlds(), requests, st.booleans())
def test_a_tree_built_upon_another_is_the_same(old: World, new: World, request: Raw, other_flavors: bool) -> None:
    """Unchanged objects are not parsed again; a removed flavor closes its queues."""
    flavors = FLAVORS[1:] if other_flavors else FLAVORS
    mixed = ([*new[0][:1], *old[0][1:]], new[1])
    fresh = build(*mixed, flavors)
    upon = build(*mixed, flavors, previous=build(*old, FLAVORS))
    for name in names_of(mixed):
        assert admits(upon, name, request, {}) == admits(fresh, name, request, {})


@given(worlds(loops=True))
def test_exactly_the_queues_below_a_cycle_are_closed_for_it(world: World) -> None:
    tree, oracle = build(*world, FLAVORS), Oracle(world)
    for name in names_of(world):
        assert ("form a cycle" in admits(tree, name, {"cpu": 1}, {}).reason) == oracle.cyclic(name)


@given(worlds(), requests)
def test_what_fits_keeps_every_limit_of_the_queue(world: World, request: Raw) -> None:
    tree, oracle = build(*world, FLAVORS), Oracle(world)
    for name in names_of(world):
        room = admits(tree, name, request, {})
        for resource, of in room.flavors.items():
            need, cell = request.get(resource, 0), (of, resource)
            nominal, borrowing, _ = oracle.limits(("q", name), cell)
            if need and room.nominal + room.borrow and (borrowing is not None or not oracle.parent(("q", name))):
                after = oracle.usage(("q", name), cell) + need * (room.nominal + room.borrow)
                assert after <= nominal + (borrowing if borrowing is not None and oracle.parent(("q", name)) else 0)


@given(worlds(), requests, st.integers(1, 4))
def test_charging_n_pods_takes_exactly_n_from_the_chosen_flavor(world: World, request: Raw, count: int) -> None:
    tree = build(*world, FLAVORS)
    for name in names_of(world):
        room = admits(tree, name, request, {}, wanted=count)
        assume(any(request.values()))
        if room.nominal + room.borrow < count:
            continue
        after = charge(tree, name, room.flavors, request, count)
        pinned = {"nodeSelector": {"flavor": room.flavors["cpu"]}}
        here = admits(pin(after), name, request, pinned)
        before = admits(pin(tree), name, request, pinned)
        assert here.nominal + here.borrow == before.nominal + before.borrow - count
        assert here.ever == before.ever


def pin(tree: QuotaTree) -> QuotaTree:
    """The same tree with labelled flavors, so that a pod can require one."""
    return replace(tree, flavors=build([], [], [flavor(f, nodeLabels={"flavor": f}) for f in "ab"]).flavors)


@given(worlds(), requests, st.integers(0, 5), st.integers(0, 3))
def test_charging_is_the_same_as_rereading_the_usage(world: World, request: Raw, count: int, index: int) -> None:
    names = names_of(world)
    name, tree = names[index % len(names)], build(*world, FLAVORS)
    room = admits(tree, name, request, {}, wanted=count)
    charged = charge(tree, name, room.flavors, request, count)
    raw = next(one for one in world[0] if one["metadata"]["name"] == name)
    for resource, of in room.flavors.items():
        total = pod_requests.format_quantity(
            request.get(resource, 0) * count + Oracle(world).usage(("q", name), (of, resource)), resource
        )
        listed = [
            one
            for one in raw["status"]["flavorsReservation"]
            if (one["name"], one["resources"][0]["name"]) != (of, resource)
        ]
        raw["status"]["flavorsReservation"] = [*listed, {"name": of, "resources": [{"name": resource, "total": total}]}]
    assert rooms(charged, names, request) == rooms(build(*world, FLAVORS), names, request)


@given(worlds(), requests, st.integers(1, 9), st.integers(0, 3), st.sampled_from("ab"))
def test_more_usage_anywhere_never_gives_more_capacity(
    world: World, request: Raw, count: int, index: int, of: str
) -> None:
    names, tree = names_of(world), build(*world, FLAVORS)
    busy = charge(tree, names[index % len(names)], {"cpu": of, "gpu": of}, {"cpu": 700, "gpu": 1}, count)
    everything = 10**6  # so that the choice of flavor cannot hide a change
    for before, after in zip(
        rooms(tree, names, request, everything), rooms(busy, names, request, everything), strict=True
    ):
        assert after.nominal + after.borrow <= before.nominal + before.borrow
        assert after.ever == before.ever


@given(worlds(), requests, st.integers(1, 4))
def test_what_fits_now_would_ever_fit(world: World, request: Raw, wanted: int) -> None:
    for room in rooms(build(*world, FLAVORS), names_of(world), request, wanted):
        assert 0 <= room.nominal + room.borrow <= room.ever
        assert min(room.nominal, room.borrow) >= 0


@given(worlds(loops=True), requests, st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(world: World, request: Raw, dice: random.Random) -> None:
    queues, cohorts = (dice.sample(objects, len(objects)) for objects in world)
    names = names_of(world)
    one, other = build(*world, FLAVORS), build(queues, cohorts, [B, A])
    assert rooms(one, names, request) == rooms(other, names, request)


WORDS = """
    metadata name spec status q c a cohortName parentName resourceGroups coveredResources flavors resources cpu
    nominalQuota borrowingLimit flavorsReservation total conditions type Active namespaceSelector matchLabels
    matchExpressions nodeTaints nodeLabels tolerations effect NoSchedule key operator values In flavorFungibility
    affinity nodeSelector
"""
words = st.sampled_from(WORDS.split())
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def broken(draw: st.DrawFn, whole: Raw) -> Any:
    """A good object with one of its parts, or all of it, replaced by junk."""
    path, here = [], whole
    while isinstance(here, dict | list) and here and draw(st.integers(0, 4)):
        step = draw(st.sampled_from(list(here) if isinstance(here, dict) else list(range(len(here)))))
        path.append(step)
        here = here[step]
    return put(whole, path, draw(junk))


def put(whole: Any, path: list[Any], part: Any) -> Any:
    if not path:
        return part
    copy = whole.copy()
    copy[path[0]] = put(whole[path[0]], path[1:], part)
    return copy


FULL_POD = {"nodeSelector": {"tier": "spot"}, "tolerations": [{"key": "gpu"}], **affinity([asks("tier", "In", "x")])}
FULL_FLAVOR = flavor(
    "a", nodeLabels={"tier": "spot"}, nodeTaints=[{"key": "gpu", "effect": "NoSchedule"}], tolerations=[{}]
)
FULL_QUEUE = queue(
    "q", cpus(4, 1, 1), cohort="c", used={USED: 1}, namespaceSelector={"matchExpressions": [asks("x", "In", "y")]}
)


@given(broken(FULL_QUEUE), broken(cohort("c", "d", cpus(1, 1, 1))), broken(FULL_FLAVOR), broken(FULL_POD))
def test_malformed_objects_never_raise(one: Any, above: Any, of: Any, pod: Any) -> None:
    tree = build([one, closed()], [above], [of, B])
    for name in ("q", "a", "c"):
        room = admits(tree, name, {"cpu": 1}, pod if isinstance(pod, dict) else {}, namespace={"x": "y"})
        charge(tree, name, room.flavors, {"cpu": 1}, 1)
        assert room.reason or room.nominal + room.borrow
    local_queue_target(one)


class Oracle:
    """resource_node.go as recursion over the raw objects; a node is ("q", name) or ("c", name)."""

    def __init__(self, world: World) -> None:
        self.raw = {("q", one["metadata"]["name"]): one for one in world[0]}
        self.raw |= {("c", one["metadata"]["name"]): one for one in world[1]}

    def parent(self, node: tuple[str, str]) -> tuple[str, str] | None:
        spec = self.raw.get(node, {}).get("spec", {})
        above = spec.get("cohortName") or spec.get("parentName")
        return ("c", above) if above else None

    def cyclic(self, name: str) -> bool:
        seen: list[Any] = []
        step: tuple[str, str] | None = ("q", name)
        while step is not None and step not in seen:
            seen.append(step)
            step = self.parent(step)
        return step is not None

    def children(self, node: tuple[str, str]) -> list[tuple[str, str]]:
        referred = [self.parent(one) for one in self.raw]
        everyone = dict.fromkeys([*self.raw, *(one for one in referred if one)])
        return [one for one in everyone if self.parent(one) == node]

    def limits(self, node: tuple[str, str], cell: tuple[str, str]) -> Limits:
        for group in self.raw.get(node, {}).get("spec", {}).get("resourceGroups", []):
            for of in group["flavors"]:
                for one in of["resources"]:
                    if (of["name"], one["name"]) == cell:
                        unit = 1000 if cell[1] == "cpu" else 1
                        read = [one.get(key) for key in ("nominalQuota", "borrowingLimit", "lendingLimit")]
                        found = [None if text is None else int(text) * unit for text in read]
                        return found[0] or 0, found[1], found[2]
        return 0, None, None

    def usage(self, node: tuple[str, str], cell: tuple[str, str]) -> int:
        if node[0] == "c":
            return sum(max(0, self.usage(child, cell) - self.local(child, cell)) for child in self.children(node))
        listed = self.raw[node]["status"]["flavorsReservation"]
        texts = [r["total"] for of in listed for r in of["resources"] if (of["name"], r["name"]) == cell]
        return sum(pod_requests.parse_quantity(text, cell[1]) for text in texts)

    def subtree(self, node: tuple[str, str], cell: tuple[str, str]) -> int:
        lent = sum(self.subtree(child, cell) - self.local(child, cell) for child in self.children(node))
        return self.limits(node, cell)[0] + lent

    def local(self, node: tuple[str, str], cell: tuple[str, str]) -> int:
        lending = self.limits(node, cell)[2]
        return 0 if lending is None else max(0, self.subtree(node, cell) - lending)

    def nominal(self, node: tuple[str, str], cell: tuple[str, str]) -> int:
        return self.limits(node, cell)[0] - self.usage(node, cell)

    def available(self, node: tuple[str, str], cell: tuple[str, str]) -> int:
        above, borrowing = self.parent(node), self.limits(node, cell)[1]
        if above is None:
            return self.subtree(node, cell) - self.usage(node, cell)
        local, used, rest = self.local(node, cell), self.usage(node, cell), self.available(above, cell)
        if borrowing is not None:
            rest = min(rest, self.subtree(node, cell) - local - max(0, used - local) + borrowing)
        return max(0, local - used) + rest

    def potential(self, node: tuple[str, str], cell: tuple[str, str]) -> int:
        above, borrowing = self.parent(node), self.limits(node, cell)[1]
        if above is None:
            return self.subtree(node, cell)
        most = self.local(node, cell) + self.potential(above, cell)
        return most if borrowing is None else min(most, self.subtree(node, cell) + borrowing)

    def order(self, name: str) -> list[str]:
        return [of["name"] for of in self.raw["q", name]["spec"]["resourceGroups"][0]["flavors"]]

    def fits(self, amount: Any, name: str, of: str, request: Mapping[str, int]) -> int:
        asked = {resource: need for resource, need in request.items() if need}
        each = [max(0, amount(("q", name), (of, resource))) // need for resource, need in asked.items()]
        return min(each, default=pod_requests.UNLIMITED)

    def choice(self, name: str, fits: Mapping[str, int], request: Mapping[str, int], count: int) -> str | None:
        able = [of for of in fits if fits[of] >= count > 0]
        careful = self.raw["q", name]["spec"].get("flavorFungibility") == CAREFUL
        levels = {of: max(self.level(("q", name), (of, r), need * count) for r, need in request.items()) for of in able}
        free = [of for of in able if levels[of] == 0]
        if not able or not careful:
            return able[0] if able else None
        return free[0] if free else min(able, key=lambda of: levels[of])

    def level(self, node: tuple[str, str], cell: tuple[str, str], amount: int) -> int:
        """FindHeightOfLowestSubtreeThatFits, with the heights that Kueue takes."""
        if self.usage(node, cell) + amount <= self.subtree(node, cell):
            return self.height(node)
        above = self.parent(node)
        left = amount - max(0, self.local(node, cell) - self.usage(node, cell))
        return self.height(node) if above is None else self.level(above, cell, left)

    def height(self, node: tuple[str, str]) -> int:
        return max((self.height(child) + 1 for child in self.children(node)), default=0)

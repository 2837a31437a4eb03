"""Evaluates preflight facts: findings, tables, the document, and the condition of a WorkerCluster."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.cli.preflight import table
from adapter.objects.unstructured import RawDict as Raw
from adapter.preflight import evaluation, reachability
from adapter.preflight.preflight_facts import MANAGER, ClusterFacts, Finding, PreflightOptions
from adapter.preflight.probe import PathResult
from tests.unit.builders import at, make_condition, make_worker_cluster, stamp

ASKED = PreflightOptions("demo", ["ray"], "rayspan/rayspan:dev")
WELL = PathResult("", 0.3, 9400.0, -0.001)
HERE = "10.0.0.5"


def side(name: str, *others: str, **more: Any) -> ClusterFacts:
    """A healthy cluster with paths to these clusters."""
    queues = {} if name == MANAGER else {"ray": ""}
    address = {MANAGER: HERE, "east": "10.1.0.5", "west": "10.2.0.5"}[name]
    known: Raw = {"queues": queues, "probe_address": address, "dns_error": "", "paths": dict.fromkeys(others, WELL)}
    return ClusterFacts(name, **{**known, **more})


def fleet(**more: dict[str, Any]) -> list[ClusterFacts]:
    """The manager, east and west, which reach each other; `more` changes fields by cluster."""
    names = (MANAGER, "east", "west")
    made = {name: side(name, *(other for other in names if other != name)) for name in names}
    return [replace(made[name], **more.get(name.removeprefix("the "), {})) for name in names]


def paths(**found: PathResult | None) -> Raw:
    """The results of a cluster's paths to the others; None: not tried."""
    named = {MANAGER if name == "manager" else name: path for name, path in found.items()}
    return {"paths": {name: path for name, path in named.items() if path}}


def trouble(sides: list[ClusterFacts], asked: PreflightOptions = ASKED) -> list[tuple[str, str, str, str]]:
    return [
        (" ".join(one.clusters), one.check, one.outcome, one.message)
        for one in evaluation.evaluate_clusters(sides, asked)
        if one.outcome != "ok"
    ]


def test_healthy_clusters_have_no_findings() -> None:
    findings = evaluation.evaluate_clusters(fleet(), ASKED)
    assert evaluation.is_ready(findings) and {one.outcome for one in findings} == {"ok"}
    looked = {(" ".join(one.clusters), one.check) for one in findings}
    assert {("east", check) for check in ("API", "Rights", "Namespace", "Queue", "Image", "DNS")} <= looked
    ways = {one.clusters for one in findings if one.check == "Path"}
    assert len(ways) == 6 and ("east", "west") in ways and ("west", "east") in ways


FAILURES = [
    pytest.param(
        {"api_error": "Secret east does not exist in rayspan-system; create it with a kubeconfig.", "paths": {}},
        ("east", "API", "failure", "Secret east does not exist in rayspan-system; create it with a kubeconfig."),
        id="no login",
    ),
    pytest.param(
        {"missing_rights": ["list nodes", "create pods in namespace demo"]},
        (
            "east",
            "Rights",
            "failure",
            "The account of WorkerCluster east may not list nodes, create pods in namespace demo; apply "
            "kustomize/overlays/worker there, and bind ClusterRole rayspan-worker-tenant to the account in namespace "
            "demo.",
        ),
        id="missing rights",
    ),
    pytest.param(
        {"has_namespace": False, "paths": {}},
        (
            "east",
            "Namespace",
            "failure",
            "There is no namespace demo in east; create it, with a LocalQueue, and bind ClusterRole "
            "rayspan-worker-tenant in it.",
        ),
        id="no namespace",
    ),
    pytest.param(
        {"queues": {"ray": None}},
        ("east", "Queue", "failure", "There is no LocalQueue ray in namespace demo of east; create it."),
        id="no queue",
    ),
    pytest.param(
        {"queues": {"ray": "ClusterQueue ray is stopped"}},
        (
            "east",
            "Queue",
            "failure",
            "LocalQueue ray in namespace demo of east accepts no jobs: ClusterQueue ray is stopped.",
        ),
        id="a queue that is stopped",
    ),
    pytest.param(
        {"probe_error": "ErrImagePull: not found", "image_missing": True, "paths": {}},
        (
            "east",
            "Image",
            "failure",
            (
                "Image rayspan/rayspan:dev cannot be pulled in east: ErrImagePull: not found; push it "
                "where the cluster's nodes can pull it, or name another one with --image."
            ),
        ),
        id="no image",
    ),
    pytest.param(
        {"probe_error": "no node takes it: 0/1 nodes are available", "paths": {}},
        (
            "east",
            "Probe",
            "failure",
            "In east no probe pod ran successfully: no node takes it: 0/1 nodes are available.",
        ),
        id="no node",
    ),
    pytest.param(
        {"dns_error": "Name or service not known", "head_strategy": "ServiceMirror"},
        (
            "east",
            "DNS",
            "failure",
            (
                "A pod in east cannot resolve kubernetes.default.svc: Name or service not known; see the "
                "pods of the cluster's DNS. Without DNS, workers do not find the head."
            ),
        ),
        id="no DNS, where names are needed",
    ),
]
WARNINGS = [
    pytest.param(
        {"dns_error": "Name or service not known"},
        (
            "east",
            "DNS",
            "warning",
            "A pod in east cannot resolve kubernetes.default.svc: Name or service not known; see the pods of the "
            "cluster's DNS. Workers find the head by its address, but your own code may need names.",
        ),
        id="no DNS, where addresses suffice",
    ),
    pytest.param(
        {"network_error": "its nodes and pods cannot be listed"},
        (
            "east",
            "PodNetwork",
            "warning",
            "Its pod network is not compared with the others: its nodes and pods cannot be listed.",
        ),
        id="network unknown",
    ),
]


@pytest.mark.parametrize(("more", "want"), FAILURES + WARNINGS)
def test_a_fault_of_a_cluster_is_reported_once(more: Raw, want: tuple[str, str, str, str]) -> None:
    """Checks that the fault made impossible are not reported too."""
    manager = paths(east=None, west=WELL) if more.get("paths") == {} else {}
    west = paths(east=None, manager=WELL) if more.get("paths") == {} else {}
    sides = fleet(east=more, west=west, manager=manager)
    assert trouble(sides) == [want]
    assert evaluation.is_ready(evaluation.evaluate_clusters(sides, ASKED)) is (want[2] != "failure")


def test_a_manager_without_dns_cannot_run_ray_jobs() -> None:
    ((_, _, outcome, message),) = trouble(fleet(manager={"dns_error": "timed out"}))
    assert outcome == "failure" and message.endswith("Without DNS, the submitter of a RayJob does not find the head.")


def test_a_preflight_without_a_queue_says_so() -> None:
    found = trouble(fleet(), replace(ASKED, queues=[]))
    assert [one[:3] for one in found] == [("east", "Queue", "warning"), ("west", "Queue", "warning")]


PATHS = [
    (
        PathResult("timeout"),
        "NoRoute",
        "no answer in 5 s; see routes, firewalls and NetworkPolicies, and open all ports",
    ),
    (
        PathResult("unreachable"),
        "NoRoute",
        "there is no route; make the pod networks of both clusters route to each other.",
    ),
    (
        PathResult("refused"),
        "ConnectionRefused",
        "the connection is refused; see firewalls and NetworkPolicies, and open all ports",
    ),
    (
        PathResult("stranger"),
        "AddressesOverlap",
        "something else answers there; see whether both clusters use the same",
    ),
    (PathResult("broken"), "ConnectionBroken", "the connection broke; see the network devices between the clusters."),
    (PathResult("[Errno 22] Invalid argument"), "ConnectionBroken", "[Errno 22] Invalid argument."),
]


@pytest.mark.parametrize(("path", "reason", "words"), PATHS, ids=[path.error for path, _, _ in PATHS])
def test_a_failed_path_names_both_ends(path: PathResult, reason: str, words: str) -> None:
    sides = fleet(manager=paths(east=path, west=WELL))
    ((subject, check, outcome, message),) = trouble(sides)
    assert (subject, check, outcome) == ("the manager east", "Path", "failure")
    assert message.startswith(f"A pod in the manager cannot reach one in east at 10.1.0.5 port 18273: {words}")
    assert [one.reason for one in evaluation.evaluate_clusters(sides, ASKED) if one.reason] == [reason]


@pytest.mark.parametrize("other", ["timeout", "unreachable"])
def test_a_missing_route_is_reported_once_for_both_directions(other: str) -> None:
    cut, other_cut = PathResult("timeout"), PathResult(other)
    sides = fleet(
        manager=paths(west=cut, east=WELL),
        west=paths(manager=other_cut, east=cut),
        east=paths(manager=WELL, west=other_cut),
    )
    assert trouble(sides) == [
        (
            "the manager west",
            "Path",
            "failure",
            "There is no route from west to the pods of the manager, nor back: at port 18273 neither 10.0.0.5 nor "
            "10.2.0.5 answers the other; connect the pod networks, open all ports between them, join west by "
            "the relay (spec.network of its WorkerCluster), or cordon west.",
        ),
        (
            "east west",
            "Path",
            "failure",
            "There is no route from west to the pods of east, nor back: at port 18273 neither 10.1.0.5 nor 10.2.0.5 "
            "answers the other; connect the pod networks, open all ports between them, join west by the relay "
            "(spec.network of its WorkerCluster), or keep each job in one of them (gang SameCluster).",
        ),
    ]
    assert reached(sides) == {"east": YES, "west": NO}


@pytest.mark.parametrize("error", ["timeout", "unreachable", "stranger", "refused"])
def test_overlapping_networks_explain_paths_that_fail(error: str) -> None:
    """A packet to such an address stays in its cluster, so the path proves nothing about a route."""
    broken, shared = PathResult(error), {"networks": ["10.0.0.0/8"]}
    sides = fleet(east=shared | paths(manager=WELL, west=broken), west=shared | paths(manager=WELL, east=broken))
    assert trouble(sides) == [
        (
            "east west",
            "PodNetwork",
            "failure",
            "Nodes of east give their pods addresses of 10.0.0.0/8, and nodes of west of 10.0.0.0/8, so pods of the "
            "two clusters cannot be distinguished; give one of the clusters another pod network, as NAT between them "
            "does not help, or join west by the relay (spec.network of its WorkerCluster).",
        )
    ]
    assert reached(sides) == {"east": (False, "AddressesOverlap"), "west": (False, "AddressesOverlap")}


def test_nat_on_the_way_is_a_warning() -> None:
    translated = replace(WELL, seen_address="192.0.2.7")
    sides = fleet(east=paths(manager=translated, west=WELL))
    assert trouble(sides) == [
        (
            "east the manager",
            "NAT",
            "warning",
            "There is NAT from east to the manager, which sees a pod of east at 192.0.2.7, not at the pod's own "
            "address; a NAT forgets idle connections, so exclude the pod network of the manager from masquerading in "
            "east.",
        )
    ]
    assert reached(sides) == {"east": YES, "west": YES}


def test_lost_large_packets_are_reported() -> None:
    ((_, _, _, message),) = trouble(fleet(east=paths(manager=WELL, west=PathResult("stalled", 0.3))))
    assert message == (
        "From a pod in east to one in west, small packets arrive and large ones do not; lower the MTU of the pod "
        "network, or let ICMP pass."
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            PathResult("", 180.4, 900.0, 0.0),
            (
                "It takes 180 ms from east to west and back; keep jobs whose tasks communicate a lot in "
                "one cluster (gang SameCluster)."
            ),
        ),
        (
            PathResult("", 0.3, 12.4, 0.0),
            ("Only 12 Mbit/s go from east to west; Ray sends objects and the results of tasks on this path."),
        ),
        (
            PathResult("", 0.3, 900.0, -3.24),
            "The clock in west is 3.2 s behind the one in east; let both follow the same time servers.",
        ),
        (
            PathResult("", 0.3, 900.0, 3.24),
            "The clock in west is 3.2 s ahead of the one in east; let both follow the same time servers.",
        ),
    ],
)
def test_a_poor_path_is_a_warning(path: PathResult, message: str) -> None:
    ((subject, _, outcome, found),) = trouble(fleet(east=paths(manager=WELL, west=path)))
    assert (subject, outcome, found) == ("east west", "warning", message)


def test_a_wrong_clock_is_reported_once_for_both_directions() -> None:
    back, forth = PathResult("", 0.3, 900.0, -3.0), PathResult("", 0.3, 900.0, 3.0)
    found = trouble(fleet(east=paths(manager=WELL, west=forth), west=paths(manager=WELL, east=back)))
    assert [one[0] for one in found] == ["east west"]


@pytest.mark.parametrize(
    ("east", "west", "want"),
    [
        (["10.1.0.0/24"], ["10.2.0.0/24"], ""),
        (["10.1.0.0/24", "fd00:1::/64"], ["10.2.0.0/24", "fd00:2::/64"], ""),
        (["10.1.0.0/16"], ["10.1.128.0/24"], ""),  # the address of west's pod is outside its nodes' networks
        (
            ["10.0.0.0/8"], ["10.2.0.0/24"],
            "Nodes of east give their pods addresses of 10.0.0.0/8, and nodes of west of",
        ),
        (["10.2.0.0/16"], ["10.2.0.0/24"], ""),  # the address of east's pod is outside its nodes' networks
    ],
)  # fmt: skip
def test_overlapping_networks_are_reported_where_they_are_in_use(east: list[str], west: list[str], want: str) -> None:
    found = trouble(fleet(east={"networks": east}, west={"networks": west}))
    assert [one[3].startswith(want) for one in found] == ([True] if want else [])
    assert [one[:3] for one in found] == ([("east west", "PodNetwork", "failure")] if want else [])


def test_one_address_in_two_clusters_is_reported_without_node_networks() -> None:
    ((subject, _, _, message),) = trouble(fleet(east={"addresses": ["10.9.0.1"]}, west={"addresses": ["10.9.0.1"]}))
    assert subject == "east west"
    assert message.startswith(
        "Address 10.9.0.1 is that of a pod in east and of one in west, so pods of the two clusters cannot be"
    )


# --- which queues ----------------------------------------------------------------------------------------------------


def test_the_queues_whose_jobs_are_dispatched() -> None:
    def local(name: str, target: str) -> Raw:
        return {"metadata": {"name": name, "has_namespace": "demo"}, "spec": {"clusterQueue": target}}

    def queue(name: str, *checks: str) -> Raw:
        listed = [{"name": check} for check in checks]
        return {
            "metadata": {"name": name},
            "spec": {"admissionChecksStrategy": {"admissionChecks": listed}} if checks else {},
        }

    def check(name: str, controller: str) -> Raw:
        return {"metadata": {"name": name}, "spec": {"controllerName": controller}}

    found = evaluation.dispatching_queues(
        [local("ray", "all"), local("other", "plain"), local("lost", "gone"), local("multi", "kueue")],
        [queue("all", "ours", "theirs"), queue("plain"), queue("kueue", "theirs")],
        [check("ours", "rayspan.dev/dispatch"), check("theirs", "kueue.x-k8s.io/multikueue")],
    )
    assert found == ["ray"]


# --- the output -----------------------------------------------------------------------------------------------------


def shown(sides: list[ClusterFacts]) -> str:
    findings = evaluation.evaluate_clusters(sides, ASKED)
    return table.render(sides, ASKED, findings, verdicts(sides, findings))


def verdicts(sides: list[ClusterFacts], findings: list[Finding]) -> dict[str, reachability.Reachability]:
    by_name = {one.name: one for one in sides}
    found = {
        one.name: reachability.cluster_reachability(one.name, by_name, findings) for one in sides if not one.is_manager
    }
    return {name: one for name, one in found.items() if one}


def test_the_table() -> None:
    cut = paths(manager=PathResult("timeout"), west=WELL)
    sides = fleet(east=cut | {"queues": {"ray": None}}, west=paths(manager=PathResult("", 120.0, 80.0, 2.0), east=None))
    assert shown(sides) == (
        """\
Namespace demo, LocalQueue ray, image rayspan/rayspan:dev

CLUSTER       API   RIGHTS   NAMESPACE   QUEUE     NAMES   IMAGE   DNS   PODNETWORK   PROBE   REACHABLE
the manager   ok    -        ok          -         -       ok      ok    ok           -       -
east          ok    ok       ok          failure   -       ok      ok    ok           -       False
west          ok    ok       ok          ok        -       ok      ok    ok           -       True

FROM          TO            RESULT       LATENCY    BANDWIDTH    CLOCK
the manager   east          ok           0.30 ms    9.4 Gbit/s   +0.00 s
the manager   west          ok           0.30 ms    9.4 Gbit/s   +0.00 s
east          the manager   timeout      -          -            -
east          west          ok           0.30 ms    9.4 Gbit/s   +0.00 s
west          the manager   ok           120.0 ms   80 Mbit/s    +2.00 s
west          east          not tested   -          -            -

Failure: There is no LocalQueue ray in namespace demo of east; create it.
Failure: A pod in east cannot reach one in the manager at 10.0.0.5 port 18273: no answer in 5 s; \
see routes, firewalls and NetworkPolicies, and open all ports between the pod networks of both clusters.
Warning: It takes 120 ms from west to the manager and back; \
keep jobs whose tasks communicate a lot in one cluster (gang SameCluster).
Warning: Only 80 Mbit/s go from west to the manager; Ray sends objects and the results of tasks on this path.

Not ready: 2 failures and 2 warnings.
"""
    )


def test_the_table_of_healthy_clusters() -> None:
    assert shown(fleet()).endswith("\n\nReady: nothing was found that would keep workers from joining.\n")
    one = fleet(east={"dns_error": "timed out"})
    assert shown(one).endswith("\n\nReady with 1 warning: nothing was found that would keep workers from joining.\n")


def test_the_document() -> None:
    sides = fleet(east=paths(manager=PathResult("timeout"), west=None))
    findings = evaluation.evaluate_clusters(sides, ASKED)
    found = table.build_document(sides, ASKED, findings, verdicts(sides, findings))
    assert (found["ready"], found["namespace"], found["queues"]) == (False, "demo", ["ray"])
    assert [(one["name"], one["manager"], one["reachable"]) for one in found["clusters"]] == [
        (MANAGER, True, None),
        ("east", False, False),
        ("west", False, True),
    ]
    assert found["clusters"][1]["checks"]["Rights"] == "ok" and "Probe" not in found["clusters"][1]["checks"]
    ways = {(one.pop("from"), one.pop("to")): one for one in found["paths"]}
    assert ways["west", "east"] == {
        "byRelay": False,
        "reached": True,
        "error": None,
        "latencyMilliseconds": 0.3,
        "bandwidthMegabitsPerSecond": 9400.0,
        "clockAheadSeconds": -0.001,
        "seenAddress": None,
    }
    assert (ways["east", MANAGER]["reached"], ways["east", MANAGER]["error"]) == (False, "timeout")
    assert ways["east", "west"]["reached"] is None
    (failure,) = (one for one in found["findings"] if one["outcome"] == "failure")
    assert (failure["clusters"], failure["check"]) == (["east", MANAGER], "Path")


# --- the condition ---------------------------------------------------------------------------------------------------


def reached(sides: list[ClusterFacts]) -> dict[str, tuple[bool, str]]:
    found = verdicts(sides, evaluation.evaluate_clusters(sides, ASKED))
    return {name: (one.reached, one.reason) for name, one in found.items()}


CUT = PathResult("timeout")
YES, NO = (True, "Reachable"), (False, "NoRoute")


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({}, {"east": YES, "west": YES}, id="all clusters reach each other"),
        pytest.param(
            {"manager": paths(east=CUT, west=WELL)}, {"east": NO, "west": YES}, id="the head reaches no worker",
        ),
        pytest.param(
            {"east": paths(manager=CUT, west=WELL)}, {"east": NO, "west": YES}, id="no worker reaches the head",
        ),
        pytest.param(
            {
                "manager": paths(east=CUT, west=WELL), "east": paths(manager=CUT, west=CUT),
                "west": paths(manager=WELL, east=CUT),
            },
            {"east": NO, "west": YES},
            id="east reaches no cluster: west is reachable",
        ),
        pytest.param(
            {"east": paths(manager=WELL, west=CUT)}, {"east": NO, "west": NO},
            id="east does not reach west: both count as not reachable",
        ),
        pytest.param(
            {
                "manager": paths(west=WELL), "east": {"probe_error": "no image", "paths": {}},
                "west": paths(manager=WELL),
            },
            {"west": YES},
            id="east was not tried and has no verdict",
        ),
        pytest.param({"east": paths(west=WELL)}, {"west": YES}, id="a path of east was not tried: it has no verdict"),
        pytest.param(
            {"manager": paths(east=CUT), "east": paths(), "west": paths()}, {"east": NO},
            id="one failed path is enough",
        ),
        pytest.param(
            {"east": {"networks": ["10.0.0.0/8"]}, "west": {"networks": ["10.2.0.0/16"]}},
            {"east": (False, "AddressesOverlap"), "west": (False, "AddressesOverlap")},
            id="addresses that overlap",
        ),
        pytest.param(
            {"east": {"queues": {"ray": None}}}, {"east": YES, "west": YES}, id="a missing queue does not count",
        ),
    ],
)  # fmt: skip
def test_which_clusters_are_reachable(more: dict[str, Raw], want: dict[str, tuple[bool, str]]) -> None:
    assert reached(fleet(**more)) == want


def test_the_condition_has_the_result() -> None:
    sides = fleet()
    found = verdicts(sides, evaluation.evaluate_clusters(sides, ASKED))
    assert found["east"].message == (
        "Pods there and in the manager reach each other (0.3 ms there and back, 9400.0 Mbit/s), and so do those of "
        "west."
    )
    sides = fleet(manager=paths(east=CUT, west=WELL), east=paths(manager=CUT, west=CUT))
    told = verdicts(sides, evaluation.evaluate_clusters(sides, ASKED))["east"].message
    assert told.startswith("There is no route from east to the pods of the manager, nor back: ")
    assert told.count("cannot reach one in") == 1 and "A pod in east cannot reach one in west" in told


ADDRESS = "relay.example.com:30443"
RELAYED: Raw = {"relay_address": ADDRESS, "relay_error": "", "paths": {}}


def test_relayed_cluster_needs_no_path_and_no_addresses_of_its_own() -> None:
    """East has the pod network of the others, and reaches the relay's port alone."""
    networks = {"networks": ["10.0.0.0/8"]}
    sides = fleet(manager={**networks, **paths(west=WELL)}, east={**networks, **RELAYED}, west=paths(manager=WELL))
    findings = evaluation.evaluate_clusters(sides, ASKED)
    assert evaluation.is_ready(findings) and not [
        one for one in findings if len(one.clusters) == 2 and "east" in one.clusters
    ]
    assert reached(sides) == {"east": YES, "west": YES}
    assert verdicts(sides, findings)["east"].message == (
        f"Pods there connect to {ADDRESS}, the relay's address in spec.network. What answers there was not tested."
    )
    text = table.render(sides, ASKED, findings, verdicts(sides, findings))
    assert "   RELAY   PROBE" in text and text.count("by relay") == 4
    assert "RELAY" not in table.render(fleet(), ASKED, [], {})


def test_relay_that_is_not_reached_is_a_failure_of_its_cluster_alone() -> None:
    sides = fleet(manager=paths(west=WELL), east=RELAYED | {"relay_error": "timeout"}, west=paths(manager=WELL))
    message = (
        f"A pod in east cannot connect to the relay at {ADDRESS} (timeout); let its pods connect to that port, or "
        "correct spec.network.address of WorkerCluster east."
    )
    assert trouble(sides) == [("east", "Relay", "failure", message)]
    assert reached(sides) == {"east": (False, "RelayNotReached"), "west": YES}


def test_relay_that_was_not_tried_has_no_verdict() -> None:
    assert reached(fleet(east=RELAYED | {"relay_error": None, "probe_error": "no image"})).keys() == {"west"}


def test_result_of_another_network_does_not_count() -> None:
    relayed = make_worker_cluster(network={"mode": "Relay", "address": ADDRESS, "image": "relay"})
    status = reachability.status_patch(relayed, FOUND, at(9))["status"]
    assert status["triedSource"] == f"Secret east by the relay at {ADDRESS}"
    assert reachability.unproven_reason({**relayed, "status": status}) == ""
    assert reachability.unproven_reason({**make_worker_cluster(), "status": status}) == (
        f"the last preflight tested Secret east by the relay at {ADDRESS} and not Secret east: run "
        "`kubectl rayspan preflight`"
    )


FOUND = reachability.Reachability(True, "Reachable", "It is.")


def test_the_condition_is_applied_alone_and_to_this_object() -> None:
    patch = reachability.status_patch(make_worker_cluster(conditions=[make_condition("Connected")]), FOUND, at(9))
    assert patch["metadata"] == {"name": "east", "uid": "uid-of-east"}
    assert patch["status"]["conditions"] == [
        {
            "type": "Reachable",
            "status": "True",
            "reason": "Reachable",
            "message": "It is.",
            "observedGeneration": 3,
            "lastTransitionTime": stamp(9),
        }
    ]


BY_SECRET = {"kubeConfig": {"secretRef": {"name": "other"}}}
BY_MULTIKUEUE = {"multiKueueClusterRef": {"name": "east"}}
BY_PROFILE = {"clusterProfileRef": {"name": "east", "has_namespace": "fleet"}}


@pytest.mark.parametrize("source", [BY_SECRET, BY_MULTIKUEUE, BY_PROFILE])
def test_the_result_of_another_cluster_does_not_count(source: Raw) -> None:
    """Another source counts as another cluster. A cordon changes no result."""
    before = make_worker_cluster()
    told = reachability.status_patch(before, FOUND, at(9))["status"]
    assert reachability.unproven_reason({**before, "status": told}) == ""
    assert reachability.unproven_reason({**make_worker_cluster(cordoned=True), "status": told}) == ""
    assert reachability.unproven_reason({**make_worker_cluster(source=source), "status": told}) == (
        f"the last preflight tested Secret east and not {reachability._login_source({'spec': {'source': source}})}: "
        "run `kubectl rayspan preflight`"
    )
    assert reachability.unproven_reason({**before, "status": {"conditions": told["conditions"]}})
    assert reachability.status_patch(make_worker_cluster(source=BY_MULTIKUEUE), FOUND, at(9))["status"][
        "triedSource"
    ] == ("MultiKueueCluster east")


@pytest.mark.parametrize(("status", "want"), [("True", stamp(2)), ("False", stamp(9))])
def test_a_conditions_time_is_that_of_its_change(status: str, want: str) -> None:
    before = {"type": "Reachable", "status": status, "lastTransitionTime": stamp(2)}
    patch = reachability.status_patch(make_worker_cluster(conditions=[before]), FOUND, at(9))
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == want


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        ([], ("no preflight has tested it, and the policy requires that: run `kubectl rayspan preflight`")),
        (
            [{"type": "Reachable", "status": "False", "reason": "NoRoute"}],
            ("the last preflight found it unreachable (NoRoute): fix that, and run `kubectl rayspan preflight`"),
        ),
        ([{"type": "Reachable", "status": "True", "reason": "Reachable"}], ""),
    ],
)
def test_the_reason_to_exclude_a_cluster(conditions: list[Raw], want: str) -> None:
    assert reachability.unproven_reason(make_worker_cluster(conditions=conditions)) == want


@pytest.mark.parametrize(
    ("status", "spec", "want"),
    [
        pytest.param(
            "False", {}, "The last preflight found: No way. Fix that, and run `kubectl rayspan preflight`.",
            id="not reachable",
        ),
        pytest.param("True", {}, "", id="reachable"),
        pytest.param("False", {"source": BY_MULTIKUEUE}, "", id="not reachable, of another MultiKueueCluster"),
        pytest.param("False", {"source": BY_PROFILE}, "", id="not reachable, of another ClusterProfile"),
        pytest.param(
            "False", {"cordoned": True},
            "The last preflight found: No way. Fix that, and run `kubectl rayspan preflight`.",
            id="not reachable and cordoned",
        ),
    ],
)  # fmt: skip
def test_a_preflights_result_counts_for_the_tested_cluster_alone(status: str, spec: Raw, want: str) -> None:
    entry = {"type": "Reachable", "status": status, "reason": "NoRoute", "message": "No way."}
    cluster = make_worker_cluster(conditions=[entry], **spec)
    assert reachability.cut_off_reason(cluster) == want
    assert reachability.cut_off_reason({**cluster, "status": {"conditions": [entry]}}) == "", (
        "who tried did not say what"
    )


def test_no_preflight_is_no_obstacle() -> None:
    assert reachability.cut_off_reason(make_worker_cluster()) == ""


OFF = ["batch/job", "ray.io/rayjob", "ray.io/raycluster"]


@pytest.mark.parametrize(
    ("known", "want"),
    [
        pytest.param(
            {"frameworks": [*OFF, "ray.io/rayservice"], "has_service_policy": False}, [], id="no RayService in a queue",
        ),
        pytest.param({"ray_services": ["chat"], "frameworks": OFF}, [], id="Kueue is configured for RayServices"),
        pytest.param(
            {"ray_services": ["chat", "sum"], "frameworks": [*OFF, "ray.io/rayservice"]},
            [
                (
                    "failure",
                    ("Kueue's configuration has ray.io/rayservice in integrations.frameworks, so RayService "
"chat and 1 more would be rejected; remove it, and restart Kueue."),
                ),
            ],
            id="Kueue takes each for one job",
        ),
        pytest.param(
            {"ray_services": ["chat"], "frameworks": None},
            [
                (
                    "warning",
                    ("You may not read Kueue's configuration: for RayService chat, ray.io/rayservice must not "
"be in its integrations.frameworks."),
                ),
            ],
            id="Kueue's configuration may not be read",
        ),
        pytest.param(
            {"ray_services": ["chat"], "frameworks": ["batch/job"]},
            [
                (
                    "failure",
                    "Kueue's configuration lacks ray.io/raycluster in integrations.frameworks, so no RayCluster of "
                    "RayService chat would be queued; add it, and restart Kueue.",
                ),
            ],
            id="Kueue does not queue RayClusters",
        ),
        pytest.param(
            {"ray_services": ["chat"], "frameworks": OFF, "has_service_policy": False},
            [
                (
                    "warning",
                    "There is no MutatingAdmissionPolicy rayspan-rayservice: KubeRay 1.6.2 starts the RayClusters of "
                    "RayService chat whenever Kueue stops them; apply kustomize/components/rayservice.",
                ),
            ],
            id="the policy that holds KubeRay is missing",
        ),
    ],
)  # fmt: skip
def test_whether_services_can_be_dispatched(known: dict[str, Any], want: list[tuple[str, str]]) -> None:
    said = [(outcome, text) for _, check, outcome, text in trouble(fleet(manager=known)) if check == "Services"]
    assert said == want


def test_settings_of_kueue_in_a_worker_cluster_are_reported() -> None:
    known = {"kueue_notes": ["A note."], "kueue_faults": ["A fault."]}
    found = [(check, outcome, text) for _, check, outcome, text in trouble(fleet(east=known))]
    assert found == [("Queue", "failure", "In east: A fault."), ("Queue", "warning", "In east: A note.")]


@pytest.mark.parametrize(
    "odd", [{"networks": ["x"]}, {"networks": [7.5]}, {"probe_address": "x", "networks": ["10.1.0.0/16"]}]
)
def test_an_unreadable_cluster_is_one_failure_and_the_others_are_judged(odd: dict[str, Any]) -> None:
    findings = evaluation.evaluate_clusters(fleet(east=odd), ASKED)
    failures = [finding for finding in findings if finding.outcome == "failure"]
    assert [(finding.clusters, finding.check) for finding in failures] == [(("east",), "PodNetwork")]
    assert "What east reports" in failures[0].message
    assert {finding.clusters for finding in findings if finding.check == "Path"} == {
        (MANAGER, "west"),
        ("west", MANAGER),
    }
    row = next(line for line in table.render(fleet(east=odd), ASKED, findings, {}).splitlines() if "east" in line)
    assert "failure" in row

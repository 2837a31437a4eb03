"""What is made of what was seen: each finding in its sentence, the tables, the document, and the condition of a WorkerCluster."""

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
    """A cluster in which all is well, and from which these were reached."""
    queues = {} if name == MANAGER else {"ray": ""}
    address = {MANAGER: HERE, "east": "10.1.0.5", "west": "10.2.0.5"}[name]
    known: Raw = {"queues": queues, "probe_address": address, "dns_error": "", "paths": dict.fromkeys(others, WELL)}
    return ClusterFacts(name, **{**known, **more})


def fleet(**more: dict[str, Any]) -> list[ClusterFacts]:
    """The manager, east and west, which reach each other; `more` differs."""
    names = (MANAGER, "east", "west")
    made = {name: side(name, *(other for other in names if other != name)) for name in names}
    return [replace(made[name], **more.get(name.removeprefix("the "), {})) for name in names]


def paths(**found: PathResult | None) -> Raw:
    """What a cluster found on its way to the others; None: not tried."""
    named = {MANAGER if name == "manager" else name: path for name, path in found.items()}
    return {"paths": {name: path for name, path in named.items() if path}}


def trouble(sides: list[ClusterFacts], asked: PreflightOptions = ASKED) -> list[tuple[str, str, str, str]]:
    return [
        (" ".join(one.clusters), one.check, one.outcome, one.message)
        for one in evaluation.evaluate_clusters(sides, asked)
        if one.outcome != "ok"
    ]


def test_all_is_well() -> None:
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
            "The account of WorkerCluster east may not list nodes, create pods in namespace demo; apply kustomize/overlays/worker "
            "there, and bind ClusterRole rayspan-worker-tenant to the account in namespace demo.",
        ),
        id="rights",
    ),
    pytest.param(
        {"has_namespace": False, "paths": {}},
        (
            "east",
            "Namespace",
            "failure",
            "There is no namespace demo in east; create it, with a LocalQueue, and bind ClusterRole rayspan-worker-tenant in it.",
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
            "LocalQueue ray in namespace demo of east takes no job: ClusterQueue ray is stopped.",
        ),
        id="a queue that is stopped",
    ),
    pytest.param(
        {"probe_error": "ErrImagePull: not found", "image_missing": True, "paths": {}},
        (
            "east",
            "Image",
            "failure",
            "Image rayspan/rayspan:dev cannot be had in east: ErrImagePull: not found; push it where its nodes may pull it, or name "
            "another by --image.",
        ),
        id="no image",
    ),
    pytest.param(
        {"probe_error": "no node takes it: 0/1 nodes are available", "paths": {}},
        (
            "east",
            "Probe",
            "failure",
            "In east no probe pod could do its work: no node takes it: 0/1 nodes are available.",
        ),
        id="no node",
    ),
    pytest.param(
        {"dns_error": "Name or service not known", "head_strategy": "ServiceMirror"},
        (
            "east",
            "DNS",
            "failure",
            "A pod in east cannot resolve kubernetes.default.svc: Name or service not known; see the pods of the cluster's DNS. "
            "By name workers find the head.",
        ),
        id="no DNS where it is needed",
    ),
]
WARNINGS = [
    pytest.param(
        {"dns_error": "Name or service not known"},
        (
            "east",
            "DNS",
            "warning",
            "A pod in east cannot resolve kubernetes.default.svc: Name or service not known; see the pods of the cluster's DNS. "
            "Workers find the head by its address, but your own code may need names.",
        ),
        id="no DNS",
    ),
    pytest.param(
        {"network_error": "its nodes and pods may not be listed"},
        (
            "east",
            "PodNetwork",
            "warning",
            "Its pod network is not compared with the others: its nodes and pods may not be listed.",
        ),
        id="network unknown",
    ),
]


@pytest.mark.parametrize(("more", "want"), FAILURES + WARNINGS)
def test_what_is_wrong_with_a_cluster_is_told_once(more: Raw, want: tuple[str, str, str, str]) -> None:
    """What could not be tried on its account is not told as well."""
    manager = paths(east=None, west=WELL) if more.get("paths") == {} else {}
    west = paths(east=None, manager=WELL) if more.get("paths") == {} else {}
    sides = fleet(east=more, west=west, manager=manager)
    assert trouble(sides) == [want]
    assert evaluation.is_ready(evaluation.evaluate_clusters(sides, ASKED)) is (want[2] != "failure")


def test_a_manager_without_names_is_no_place_for_ray_jobs() -> None:
    ((_, _, outcome, message),) = trouble(fleet(manager={"dns_error": "timed out"}))
    assert outcome == "failure" and message.endswith("By name the submitter of a RayJob finds the head.")


def test_that_no_queue_was_looked_for_is_told() -> None:
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
    (PathResult("broken"), "ConnectionBroken", "the connection broke; see what sits between the clusters."),
    (PathResult("[Errno 22] Invalid argument"), "ConnectionBroken", "[Errno 22] Invalid argument."),
]


@pytest.mark.parametrize(("path", "reason", "words"), PATHS, ids=[path.error for path, _, _ in PATHS])
def test_a_way_that_does_not_work_is_told_with_both_ends(path: PathResult, reason: str, words: str) -> None:
    sides = fleet(manager=paths(east=path, west=WELL))
    ((subject, check, outcome, message),) = trouble(sides)
    assert (subject, check, outcome) == ("the manager east", "Path", "failure")
    assert message.startswith(f"A pod in the manager cannot reach one in east at 10.1.0.5 port 18273: {words}")
    assert [one.reason for one in evaluation.evaluate_clusters(sides, ASKED) if one.reason] == [reason]


def test_packets_that_are_too_large_are_told_as_such() -> None:
    ((_, _, _, message),) = trouble(fleet(east=paths(manager=WELL, west=PathResult("stalled", 0.3))))
    assert message == (
        "From a pod in east to one in west, small packets arrive and large ones do not; lower the MTU of the pod network, or let "
        "ICMP pass."
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            PathResult("", 180.4, 900.0, 0.0),
            "It takes 180 ms from east to west and back; keep jobs whose tasks talk much in one cluster (gang SameCluster).",
        ),
        (
            PathResult("", 0.3, 12.4, 0.0),
            "Only 12 Mbit/s go from east to west; objects and results of tasks travel that way.",
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
def test_what_a_job_may_live_with_is_a_warning(path: PathResult, message: str) -> None:
    ((subject, _, outcome, found),) = trouble(fleet(east=paths(manager=WELL, west=path)))
    assert (subject, outcome, found) == ("east west", "warning", message)


def test_a_clock_is_told_once_for_both_ways() -> None:
    back, forth = PathResult("", 0.3, 900.0, -3.0), PathResult("", 0.3, 900.0, 3.0)
    found = trouble(fleet(east=paths(manager=WELL, west=forth), west=paths(manager=WELL, east=back)))
    assert [one[0] for one in found] == ["east west"]


@pytest.mark.parametrize(
    ("east", "west", "want"),
    [
        (["10.1.0.0/24"], ["10.2.0.0/24"], ""),
        (["10.1.0.0/24", "fd00:1::/64"], ["10.2.0.0/24", "fd00:2::/64"], ""),
        (["10.1.0.0/16"], ["10.1.128.0/24"], ""),  # west's own pod has another: its network does not keep to these
        (["10.0.0.0/8"], ["10.2.0.0/24"], "Nodes of east give their pods addresses of 10.0.0.0/8, and nodes of west of"),
        (["10.2.0.0/16"], ["10.2.0.0/24"], ""),  # nor does east's
    ],
)  # fmt: skip
def test_networks_that_overlap_are_told_where_they_are_in_use(east: list[str], west: list[str], want: str) -> None:
    found = trouble(fleet(east={"networks": east}, west={"networks": west}))
    assert [one[3].startswith(want) for one in found] == ([True] if want else [])
    assert [one[:3] for one in found] == ([("east west", "PodNetwork", "failure")] if want else [])


def test_an_address_in_two_clusters_is_told_where_nodes_tell_nothing() -> None:
    ((subject, _, _, message),) = trouble(fleet(east={"addresses": ["10.9.0.1"]}, west={"addresses": ["10.9.0.1"]}))
    assert subject == "east west"
    assert message.startswith("Address 10.9.0.1 is that of a pod in east and of one in west, so a pod of one cannot be")


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


# --- how it looks ----------------------------------------------------------------------------------------------------


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

CLUSTER       API   RIGHTS   NAMESPACE   QUEUE     IMAGE   DNS   PODNETWORK   PROBE   REACHABLE
the manager   ok    -        ok          -         ok      ok    ok           -       -
east          ok    ok       ok          failure   ok      ok    ok           -       False
west          ok    ok       ok          ok        ok      ok    ok           -       True

FROM          TO            RESULT      LATENCY    BANDWIDTH    CLOCK
the manager   east          ok          0.30 ms    9.4 Gbit/s   +0.00 s
the manager   west          ok          0.30 ms    9.4 Gbit/s   +0.00 s
east          the manager   timeout     -          -            -
east          west          ok          0.30 ms    9.4 Gbit/s   +0.00 s
west          the manager   ok          120.0 ms   80 Mbit/s    +2.00 s
west          east          not tried   -          -            -

Failure: There is no LocalQueue ray in namespace demo of east; create it.
Failure: A pod in east cannot reach one in the manager at 10.0.0.5 port 18273: no answer in 5 s; see routes, firewalls and NetworkPolicies, and open all ports between the pod networks of both clusters.
Warning: It takes 120 ms from west to the manager and back; keep jobs whose tasks talk much in one cluster (gang SameCluster).
Warning: Only 80 Mbit/s go from west to the manager; objects and results of tasks travel that way.

Not ready: 2 failures and 2 warnings.
"""
    )


def test_when_all_is_well_the_table_says_so() -> None:
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
        "reached": True,
        "error": None,
        "latencyMilliseconds": 0.3,
        "bandwidthMegabitsPerSecond": 9400.0,
        "clockAheadSeconds": -0.001,
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
        pytest.param({}, {"east": YES, "west": YES}, id="all"),
        pytest.param({"manager": paths(east=CUT, west=WELL)}, {"east": NO, "west": YES}, id="the head reaches no worker"),
        pytest.param({"east": paths(manager=CUT, west=WELL)}, {"east": NO, "west": YES}, id="no worker reaches the head"),
        pytest.param(
            {"manager": paths(east=CUT, west=WELL), "east": paths(manager=CUT, west=CUT), "west": paths(manager=WELL, east=CUT)},
            {"east": NO, "west": YES},
            id="east is cut off from all: west is not to blame",
        ),
        pytest.param({"east": paths(manager=WELL, west=CUT)}, {"east": NO, "west": NO}, id="who of the two is to blame?"),
        pytest.param(
            {"manager": paths(west=WELL), "east": {"probe_error": "no image", "paths": {}}, "west": paths(manager=WELL)},
            {"west": YES},
            id="not tried: nothing is told of east",
        ),
        pytest.param({"east": paths(west=WELL)}, {"west": YES}, id="one way was not tried"),
        pytest.param({"manager": paths(east=CUT), "east": paths(), "west": paths()}, {"east": NO}, id="one way is enough to fail"),
        pytest.param(
            {"east": {"networks": ["10.0.0.0/8"]}, "west": {"networks": ["10.2.0.0/16"]}},
            {"east": (False, "AddressesOverlap"), "west": (False, "AddressesOverlap")},
            id="addresses that overlap",
        ),
        pytest.param({"east": {"queues": {"ray": None}}}, {"east": YES, "west": YES}, id="a queue is no network"),
    ],
)  # fmt: skip
def test_which_clusters_are_reachable(more: dict[str, Raw], want: dict[str, tuple[bool, str]]) -> None:
    assert reached(fleet(**more)) == want


def test_the_condition_says_what_was_found() -> None:
    sides = fleet()
    found = verdicts(sides, evaluation.evaluate_clusters(sides, ASKED))
    assert found["east"].message == (
        "Pods there and in the manager reach each other (0.3 ms there and back, 9400.0 Mbit/s), and so do those of west."
    )
    sides = fleet(manager=paths(east=CUT, west=WELL), east=paths(manager=CUT, west=CUT))
    told = verdicts(sides, evaluation.evaluate_clusters(sides, ASKED))["east"].message
    assert told.count("cannot reach one in") == 3 and "A pod in east cannot reach one in west" in told


FOUND = reachability.Reachability(True, "Reachable", "It is.")


def test_the_condition_is_applied_alone_and_to_this_very_object() -> None:
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
def test_what_was_found_of_another_cluster_counts_no_more(source: Raw) -> None:
    """Another source is another cluster, for all that is known. A cordon changes nothing of what was tried."""
    before = make_worker_cluster()
    told = reachability.status_patch(before, FOUND, at(9))["status"]
    assert reachability.unproven_reason({**before, "status": told}) == ""
    assert reachability.unproven_reason({**make_worker_cluster(cordoned=True), "status": told}) == ""
    assert reachability.unproven_reason({**make_worker_cluster(source=source), "status": told}) == (
        "its spec.source has changed since the last preflight, which tried Secret east: run `kubectl rayspan preflight`"
    )
    assert reachability.unproven_reason({**before, "status": {"conditions": told["conditions"]}})
    assert reachability.status_patch(make_worker_cluster(source=BY_MULTIKUEUE), FOUND, at(9))["status"][
        "triedSource"
    ] == ("MultiKueueCluster east")


@pytest.mark.parametrize(("status", "want"), [("True", stamp(2)), ("False", stamp(9))])
def test_its_time_is_that_of_its_change(status: str, want: str) -> None:
    before = {"type": "Reachable", "status": status, "lastTransitionTime": stamp(2)}
    patch = reachability.status_patch(make_worker_cluster(conditions=[before]), FOUND, at(9))
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == want


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        ([], "no preflight has tried it, and the policy requires that: run `kubectl rayspan preflight`"),
        (
            [{"type": "Reachable", "status": "False", "reason": "NoRoute"}],
            "the last preflight found it not reachable (NoRoute): mend that, and run `kubectl rayspan preflight`",
        ),
        ([{"type": "Reachable", "status": "True", "reason": "Reachable"}], ""),
    ],
)
def test_why_a_policy_passes_a_cluster_over(conditions: list[Raw], want: str) -> None:
    assert reachability.unproven_reason(make_worker_cluster(conditions=conditions)) == want


@pytest.mark.parametrize(
    ("status", "spec", "want"),
    [
        pytest.param("False", {}, "The last preflight found: No way. Mend that, and run `kubectl rayspan preflight`.", id="now"),
        pytest.param("True", {}, "", id="it is reached"),
        pytest.param("False", {"source": BY_MULTIKUEUE}, "", id="it was found of another cluster"),
        pytest.param("False", {"source": BY_PROFILE}, "", id="it was found of another profile"),
        pytest.param("False", {"cordoned": True}, "The last preflight found: No way. Mend that, and run `kubectl rayspan preflight`.", id="now, and it is cordoned"),
    ],
)  # fmt: skip
def test_what_a_preflight_found_counts_for_the_cluster_that_it_tried(status: str, spec: Raw, want: str) -> None:
    entry = {"type": "Reachable", "status": status, "reason": "NoRoute", "message": "No way."}
    cluster = make_worker_cluster(conditions=[entry], **spec)
    assert reachability.cut_off_reason(cluster) == want
    assert reachability.cut_off_reason({**cluster, "status": {"conditions": [entry]}}) == "", (
        "who tried did not say what"
    )


def test_nobody_has_tried() -> None:
    assert reachability.cut_off_reason(make_worker_cluster()) == ""


OFF = ["batch/job", "ray.io/rayjob", "ray.io/raycluster"]


@pytest.mark.parametrize(
    ("known", "want"),
    [
        pytest.param({"frameworks": [*OFF, "ray.io/rayservice"], "has_service_policy": False}, [], id="there is none in a queue"),
        pytest.param({"ray_services": ["chat"], "frameworks": OFF}, [], id="all is well"),
        pytest.param(
            {"ray_services": ["chat", "sum"], "frameworks": [*OFF, "ray.io/rayservice"]},
            [("failure", "Kueue's configuration has ray.io/rayservice in integrations.frameworks, so RayService chat and 1 more would be refused; take it out, and restart Kueue.")],
            id="Kueue takes each for one job",
        ),
        pytest.param(
            {"ray_services": ["chat"], "frameworks": None},
            [("warning", "Kueue's configuration cannot be read by your rights: for RayService chat, ray.io/rayservice must not be in its integrations.frameworks.")],
            id="nobody may look",
        ),
        pytest.param(
            {"ray_services": ["chat"], "frameworks": ["batch/job"]},
            [("failure", "Kueue's configuration lacks ray.io/raycluster in integrations.frameworks, so no RayCluster of RayService chat would be queued; add it, and restart Kueue.")],
            id="nobody queues its RayClusters",
        ),
        pytest.param(
            {"ray_services": ["chat"], "frameworks": OFF, "has_service_policy": False},
            [("warning", "There is no MutatingAdmissionPolicy rayspan-rayservice: KubeRay 1.6.2 starts the RayClusters of RayService chat whenever Kueue stops them; apply kustomize/components/rayservice.")],
            id="KubeRay is not held",
        ),
    ],
)  # fmt: skip
def test_whether_services_can_be_dispatched(known: dict[str, Any], want: list[tuple[str, str]]) -> None:
    said = [(outcome, text) for _, check, outcome, text in trouble(fleet(manager=known)) if check == "Services"]
    assert said == want

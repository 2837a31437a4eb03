"""A layout that cannot work has one sentence; one that can work has none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import yaml

from adapter import names
from adapter.admission import queue_layout
from adapter.objects.queues import read_cluster_queue, read_flavor, read_local_queue
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO

POOL = names.POOL_LABEL
TAINT = {"key": POOL, "value": "remote", "effect": "NoSchedule"}
LOCAL = {"nodeLabels": {POOL: "local"}}
REMOTE = {"nodeLabels": {POOL: "remote"}, "nodeTaints": [TAINT]}
OURS, MULTIKUEUE = "rayspan.dev/dispatch", "kueue.x-k8s.io/multikueue"
HERE = "ClusterQueue ray: "


def queue(name: str, namespace: str = "team", *, pool: str = "remote", of: str = "ray") -> Raw:
    labels = {"labels": {POOL: pool}} if pool else {}
    return {"metadata": {"name": name, "namespace": namespace, **labels}, "spec": {"clusterQueue": of}}


@dataclass(frozen=True)
class Case:
    """A ClusterQueue `ray` with the check `rayspan`, and the sentences about it."""

    id: str
    flavors: Mapping[str, Raw] = field(default_factory=lambda: {"local": LOCAL, "remote": REMOTE})
    on: Sequence[str] = ("remote",)
    groups: Sequence[tuple[Sequence[str], Sequence[str]]] = ((("cpu", "memory"), ("local", "remote")),)
    others: Mapping[str, str] = field(default_factory=dict)  # other checks that it lists, and their controllers
    queues: Sequence[Raw] = (queue("ray"),)
    want: Sequence[str] = ()


CASES = [
    Case("local and remote as shipped"),
    Case("one flavor for everything", flavors={"ray": {}}, on=(), groups=[(("cpu",), ("ray",))]),
    Case(
        "kinds of GPUs, all of them remote",
        flavors={"a100": {"nodeLabels": {"gpu": "a100"}}, "h100": {"nodeLabels": {"gpu": "h100"}}},
        on=(),
        groups=[(("cpu", "nvidia.com/gpu"), ("a100", "h100"))],
    ),
    Case(
        "GPUs are remote, and heads ask for none",
        flavors={"ray": {}, "gpu": {"nodeLabels": {"gpu": "a100"}}},
        on=("gpu",),
        groups=[(("cpu",), ("ray",)), (("nvidia.com/gpu",), ("gpu",))],
    ),
    Case(
        "two remote flavors",
        flavors={"local": LOCAL, "near": REMOTE, "far": {**REMOTE, "nodeLabels": {POOL: "remote", "at": "far"}}},
        on=("near", "far"),
        groups=[(("cpu",), ("local", "near", "far"))],
    ),
    Case("the LocalQueue of another ClusterQueue", queues=[queue("ray"), queue("other", pool="", of="other")]),
    Case("a flavor that is not there yet", flavors={"remote": REMOTE}),
    Case(
        "a typing error in onFlavors",
        on=("remote", "remoat"),
        want=[
            HERE
            + ("onFlavors of AdmissionCheck rayspan names remoat, which is not one of its flavors; correct the name.")
        ],
    ),
    Case(
        "a topology",
        flavors={"local": LOCAL, "remote": {**REMOTE, "topologyName": "racks"}},
        want=[
            HERE
            + "AdmissionCheck rayspan is on ResourceFlavor remote, whose spec.topologyName is racks: Kueue would use "
            "the manager's nodes for remote workers; use a flavor without a topology."
        ],
    ),
    Case(
        "a topology on one flavor for everything",
        flavors={"ray": {"topologyName": "racks"}},
        on=(),
        groups=[(("cpu",), ("ray",))],
        want=[
            HERE
            + "AdmissionCheck rayspan is on ResourceFlavor ray, whose spec.topologyName is racks: Kueue would use the "
            "manager's nodes for remote workers; use a flavor without a topology."
        ],
    ),
    Case("a topology on the flavor local", flavors={"local": {**LOCAL, "topologyName": "racks"}, "remote": REMOTE}),
    Case(
        "onFlavors forgotten",
        on=(),
        want=[
            HERE
            + "AdmissionCheck rayspan has no onFlavors, but local and remote differ in rayspan.dev/pool: every job "
            "would be dispatched, local ones too; name the flavor of remote workers in onFlavors."
        ],
    ),
    Case(
        "no label on local",
        flavors={"local": {}, "remote": REMOTE},
        want=[
            HERE
            + "no key of spec.nodeLabels has different values in ResourceFlavors local and remote, so Kueue counts "
            "remote workers in local; give rayspan.dev/pool to both, with a value of its own."
        ],
    ),
    Case(
        "different keys",
        flavors={"local": {"nodeLabels": {"here": "yes"}}, "remote": REMOTE},
        want=[
            HERE
            + "no key of spec.nodeLabels has different values in ResourceFlavors local and remote, so Kueue counts "
            "remote workers in local; give rayspan.dev/pool to both, with a value of its own."
        ],
    ),
    Case(
        "the same value",
        flavors={"local": {"nodeLabels": {"at": "home"}}, "remote": {**REMOTE, "nodeLabels": {"at": "home"}}},
        want=[
            HERE
            + "no key of spec.nodeLabels has different values in ResourceFlavors local and remote, so Kueue counts "
            "remote workers in local; give at to both, with a value of its own."
        ],
    ),
    Case(
        "no taint",
        flavors={"local": LOCAL, "remote": {"nodeLabels": {POOL: "remote"}}},
        want=[
            HERE
            + "ResourceFlavor remote has spec.nodeLabels but no taint that keeps heads out, so they are counted there "
            "as soon as the other flavors are full, and cannot start; give it spec.nodeTaints and no "
            "spec.tolerations."
        ],
    ),
    Case(
        "a taint that Kueue does not look at",
        flavors={"local": LOCAL, "remote": {**REMOTE, "nodeTaints": [{**TAINT, "effect": "PreferNoSchedule"}]}},
        want=[
            HERE
            + "ResourceFlavor remote has spec.nodeLabels but no taint that keeps heads out, so they are counted there "
            "as soon as the other flavors are full, and cannot start; give it spec.nodeTaints and no "
            "spec.tolerations."
        ],
    ),
    Case(
        "a flavor that lets every pod tolerate its taint",
        flavors={"local": LOCAL, "remote": {**REMOTE, "tolerations": [{"key": POOL, "operator": "Exists"}]}},
        want=[
            HERE
            + "ResourceFlavor remote has spec.nodeLabels but no taint that keeps heads out, so they are counted there "
            "as soon as the other flavors are full, and cannot start; give it spec.nodeTaints and no "
            "spec.tolerations."
        ],
    ),
    Case(
        "nothing for heads",
        flavors={"remote": REMOTE},
        groups=[(("cpu", "memory"), ("remote",))],
        want=[
            HERE
            + "ResourceFlavor remote with spec.nodeLabels is in onFlavors, and no other flavor has cpu and memory: "
            "heads get these labels too, and cannot start; add a flavor for them."
        ],
    ),
    Case(
        "a LocalQueue without the label",
        queues=[queue("ray"), queue("ray", "labs", pool="")],
        want=[
            "LocalQueue ray in labs has no label rayspan.dev/pool=remote, so workers of its jobs run in the manager "
            "unless they ask for rayspan.dev/pool themselves; add the label."
        ],
    ),
    Case(
        "a key of one's own, so users ask for it themselves",
        flavors={
            "local": {"nodeLabels": {"at": "home"}},
            "remote": {"nodeLabels": {"at": "large"}, "nodeTaints": [{**TAINT, "key": "at"}]},
        },
        queues=[queue("ray", pool="")],
    ),
    Case(
        "a LocalQueue named default",
        queues=[queue("default")],
        want=[
            "LocalQueue default in team: a job that names no queue gets this one too late for rayspan.dev/pool, so its "
            "workers run in the manager; give the LocalQueue another name."
        ],
    ),
    Case(
        "a LocalQueue named default where nothing needs a pool",
        flavors={"ray": {}},
        on=(),
        groups=[(("cpu",), ("ray",))],
        queues=[queue("default", pool="")],
    ),
    Case(
        "two checks of ours",
        others={"second": OURS},
        want=["ClusterQueue ray lists rayspan and second; leave one of them there."],
    ),
    Case(
        "MultiKueue in the same queue",
        others={"mk": MULTIKUEUE},
        want=[
            "ClusterQueue ray lists rayspan and mk, a check of MultiKueue; give each of them a ClusterQueue of its own."
        ],
    ),
    Case("a check of somebody else", others={"prov": "kueue.x-k8s.io/provisioning-request"}),
]


def cluster_queue(case: Case) -> Raw:
    groups = [{"coveredResources": list(r), "flavors": [{"name": f} for f in fs]} for r, fs in case.groups]
    ours = {"name": "rayspan", **({"onFlavors": list(case.on)} if case.on else {})}
    listed = [ours, *({"name": other} for other in case.others)]
    return {
        "metadata": {"name": "ray"},
        "spec": {"resourceGroups": groups, "admissionChecksStrategy": {"admissionChecks": listed}},
    }


def read_queues(
    cluster_queues: Sequence[Raw],
    local_queues: Sequence[Raw] = (),
    flavors: Sequence[Raw] = (),
    controllers: Mapping[str, str] | None = None,
) -> queue_layout.QueueLayout:
    return queue_layout.QueueLayout(
        [read_cluster_queue(raw) for raw in cluster_queues],
        [read_local_queue(raw) for raw in local_queues],
        {flavor.name: flavor for flavor in map(read_flavor, flavors)},
        controllers or {},
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_layout(case: Case) -> None:
    flavors = [{"metadata": {"name": name}, "spec": spec} for name, spec in case.flavors.items()]
    queues = read_queues([cluster_queue(case)], case.queues, flavors, {"rayspan": OURS, **case.others})
    assert queue_layout.problems("rayspan", queues) == list(case.want)


def test_only_the_queues_that_list_the_check_count() -> None:
    wrong = Case("", flavors={"remote": REMOTE}, groups=[(("cpu",), ("remote",))])
    assert queue_layout.problems("another", read_queues([cluster_queue(wrong)])) == []
    assert queue_layout.problems("rayspan", read_queues([{"metadata": {"name": "empty"}, "spec": None}])) == []


@pytest.mark.parametrize("folder", ["manager", "local-remote"])
def test_the_shipped_layouts_have_no_fault(folder: str) -> None:
    objects = list(yaml.safe_load_all((REPO / "manifests" / "queues" / folder / "queues.yaml").read_text()))

    def of(kind: str) -> list[Raw]:
        return [found for found in objects if found["kind"] == kind]

    queues = read_queues(of("ClusterQueue"), of("LocalQueue"), of("ResourceFlavor"), {"rayspan": OURS})
    assert queue_layout.problems("rayspan", queues) == []


@pytest.mark.parametrize(
    ("controllers", "want"),
    [
        pytest.param({"a": OURS}, "", id="one check of ours"),
        pytest.param(
            {"a": OURS, "b": OURS},
            "Queue q lists a and b; leave one of them there.",
            id="two checks of ours in one queue",
        ),
        pytest.param({"b": MULTIKUEUE}, "", id="one check of MultiKueue"),
        pytest.param(
            {"b": MULTIKUEUE, "a": OURS},
            "Queue q lists a and b, a check of MultiKueue; give each of them a ClusterQueue of its own.",
            id="a check of ours and one of MultiKueue",
        ),
    ],
)
def test_a_queue_with_two_dispatching_checks(controllers: dict[str, str], want: str) -> None:
    assert queue_layout.conflicting_checks("Queue q", controllers) == want

"""The pod mapping of a WorkerCluster applies to pod, reservation and plan, and never to labels and annotations of
ours."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.objects import specs
from adapter.objects.specs import NO_MAPPING, PodMapping
from adapter.objects.unstructured import Raw
from adapter.rewrite import group_workload, pod_mapping, stripping
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from tests.unit import builders
from tests.unit.stores import Sight, fill, make_group, make_member, make_ray_job

TAINT = {"key": "ray", "value": "only", "effect": "NoSchedule"}
TOLERATION = {"key": "ray", "operator": "Equal", "value": "only", "effect": "NoSchedule"}
WRITTEN = {
    "nodeSelector": {"pool": "ray"},
    "tolerations": [TOLERATION],
    "serviceAccountName": "ray-worker",
    "schedulerName": "volcano",
    "runtimeClassName": "gvisor",
    "imageRegistries": {"docker.io/rayproject": "mirror.east/rayproject"},
    "labels": {"team": "fleet", "node-selection": "luna"},
    "annotations": {"karpenter.sh/do-not-disrupt": "4h"},
}
TARGET = Target(
    cluster="east", zone="east", queue="q", manager="m", workload="w", workload_uid="u", placement="p", share="p-1",
    round=1
)  # fmt: skip


def mapped(**pods: Any) -> Target:
    spec = specs.parse_worker_cluster(builders.make_worker_cluster(pods=pods))
    return replace(TARGET, pods=spec.pods)


ALL = mapped(**WRITTEN)


def rewrite(spec: Raw, target: Target = ALL, **metadata: Any) -> Raw:
    pod = {"metadata": {"name": "p", "uid": "pod-uid", **metadata}, "spec": spec}
    return remote_pod(
        pod, head=HeadAddress.from_pod(pod, "10.0.0.1"), target=target, role="r", slot="s", anchor_uid="a"
    )


RAY = {"name": "ray", "image": "rayproject/ray:2.60.0"}


def test_the_whole_mapping_is_on_the_pod() -> None:
    out = rewrite({"containers": [RAY], "initContainers": [RAY]})
    spec = out["spec"]
    assert spec["nodeSelector"] == {"pool": "ray"}
    assert spec["tolerations"] == [TOLERATION]
    assert (spec["serviceAccountName"], spec["schedulerName"], spec["runtimeClassName"]) == (
        "ray-worker",
        "volcano",
        "gvisor",
    )
    for kind in ("containers", "initContainers"):
        assert spec[kind][0]["image"] == "mirror.east/rayproject/ray:2.60.0"
    assert out["metadata"]["labels"]["node-selection"] == "luna"
    assert out["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "4h"


def test_an_empty_mapping_changes_nothing() -> None:
    assert specs.parse_worker_cluster(builders.make_worker_cluster()).pods == NO_MAPPING
    spec = {"containers": [RAY], "nodeSelector": {"a": "b"}, "volumes": [{"name": "v", "image": {"reference": "x"}}]}
    assert pod_mapping.apply_to_spec(spec, NO_MAPPING) is spec
    assert pod_mapping.apply_to_spec(spec, mapped(tolerations=[TOLERATION]).pods) == {
        **spec,
        "tolerations": [TOLERATION],
    }


def test_the_mapping_overrides_the_pod_and_our_labels_override_both() -> None:
    target = mapped(
        nodeSelector={"gpu": "l4"},
        labels={"team": "fleet", names.CLUSTER_LABEL: "forged", names.QUEUE_LABEL: "forged"},
        annotations={"note": "theirs", names.SLOT_ANNOTATION: "forged"},
        runtimeClassName="gvisor",
    )
    spec = {"containers": [RAY], "nodeSelector": {"gpu": "a100", "disk": "ssd"}, "runtimeClassName": "kata"}
    out = rewrite(spec, target, labels={"team": "mine", "app": "x"}, annotations={"note": "mine"})
    assert out["spec"]["nodeSelector"] == {"gpu": "l4", "disk": "ssd"}
    assert out["spec"]["runtimeClassName"] == "gvisor"
    labels, annotations = out["metadata"]["labels"], out["metadata"]["annotations"]
    assert (labels["team"], labels["app"]) == ("fleet", "x")
    assert (labels[names.CLUSTER_LABEL], labels[names.QUEUE_LABEL]) == ("east", "q")
    assert (annotations["note"], annotations[names.SLOT_ANNOTATION]) == ("theirs", "s")


def test_an_existing_toleration_is_not_added_again() -> None:
    out = rewrite({"containers": [RAY], "tolerations": [{"key": "gpu"}, TOLERATION]})
    assert out["spec"]["tolerations"] == [{"key": "gpu"}, TOLERATION]


def test_the_reservation_agrees_with_the_pod_in_all_scheduling_fields() -> None:
    """Kueue chooses the flavor, and so the nodes, by the reservation. The pod must be able to run there."""
    spec = {
        "containers": [{**RAY, "resources": {"requests": {"cpu": "1"}}}],
        "nodeSelector": {"gpu": "a100", "rayspan.dev/pool": "remote"},
        "tolerations": [{"key": "gpu"}],
        "schedulerName": "yunikorn",
        "affinity": {"podAntiAffinity": {}},
    }
    out, reserved = rewrite(spec)["spec"], group_workload.reserved_template({"spec": spec}, ALL)["spec"]
    looked_at = ("nodeSelector", "tolerations", "affinity", "schedulerName", "runtimeClassName", "serviceAccountName")
    assert {key: out.get(key) for key in looked_at} == {key: reserved.get(key) for key in looked_at}
    assert reserved["nodeSelector"] == {"gpu": "a100", "pool": "ray"}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param("default-scheduler", "default-scheduler", id="the default scheduler is everywhere"),
        pytest.param("volcano", None, id="another scheduler may not run there"),
        pytest.param(None, None, id="no scheduler is named"),
    ],
)
def test_a_scheduler_that_the_mapping_does_not_name_is_removed(found: str | None, want: str | None) -> None:
    spec = {"containers": [RAY]} | ({"schedulerName": found} if found else {})
    assert rewrite(spec, TARGET)["spec"].get("schedulerName") == want


def test_annotations_for_the_managers_scheduler_are_removed() -> None:
    """KubeRay names its own PodGroup there; Volcano would wait for one of that name."""
    target = mapped(schedulerName="volcano", labels={"volcano.sh/queue-name": "east"})
    labels = {"volcano.sh/queue-name": "mgr", "kai.scheduler/queue": "k", "scheduling.x-k8s.io/pod-group": "g"}
    annotations = {"scheduling.k8s.io/group-name": "ray-x-pg", "volcano.sh/task-spec": "workers",
                   "yunikorn.apache.org/task-groups": "[]", "scheduling.volcano.sh/queue-name": "mgr"}  # fmt: skip
    out = rewrite({"containers": [RAY]}, target, labels=labels, annotations=annotations)
    foreign = [key for kind in ("labels", "annotations") for key in out["metadata"][kind] if "rayspan.dev" not in key]
    ours = {names.DO_NOT_DISRUPT_ANNOTATION, names.SAFE_TO_EVICT_ANNOTATION}
    assert [key for key in foreign if names.KUEUE_DOMAIN not in key and key not in ours] == ["volcano.sh/queue-name"]
    assert out["metadata"]["labels"]["volcano.sh/queue-name"] == "east"


# --- node autoscalers -------------------------------------------------------------------------------------------------

KARPENTER, AUTOSCALER = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.mark.parametrize(
    ("template", "cluster", "want"),
    [
        pytest.param({}, {}, ("true", "false"), id="by default the worker's node stays"),
        pytest.param({KARPENTER: "false"}, {}, ("false", "false"), id="the template overrides one default"),
        pytest.param(
            {KARPENTER: "4h", AUTOSCALER: "true"}, {}, ("4h", "true"), id="the template overrides both defaults"
        ),
        pytest.param({}, {AUTOSCALER: "true"}, ("true", "true"), id="the mapping overrides a default"),
        pytest.param(
            {AUTOSCALER: "false"}, {AUTOSCALER: "true"}, ("true", "true"), id="the mapping overrides the template"
        ),
    ],
)
def test_no_node_autoscaler_empties_a_workers_node(template: Raw, cluster: Raw, want: tuple[str, str]) -> None:
    found = rewrite({"containers": [RAY]}, mapped(annotations=cluster), annotations=template)["metadata"]["annotations"]
    assert (found[KARPENTER], found[AUTOSCALER]) == want


# --- images -----------------------------------------------------------------------------------------------------------

HUB, RAYS = {"docker.io": "hub.east"}, {"docker.io/rayproject": "mirror.east/rays"}
PORT = {"reg.local:5000": "mirror.east"}
IMAGES = [
    ("rayproject/ray:2.60.0", RAYS, "mirror.east/rays/ray:2.60.0", "a bare name is of Docker Hub"),
    ("docker.io/rayproject/ray:2.60.0", RAYS, "mirror.east/rays/ray:2.60.0", "a name with docker.io is of Docker Hub"),
    ("index.docker.io/rayproject/ray", RAYS, "mirror.east/rays/ray", "a name with index.docker.io is of Docker Hub"),
    ("rayproject/ray@sha256:ab", RAYS, "mirror.east/rays/ray@sha256:ab", "a digest stays"),
    ("busybox", HUB, "hub.east/library/busybox", "a name without a path is in the library"),
    ("busybox:1.36", HUB, "hub.east/library/busybox:1.36", "the tag of a name without a path stays"),
    ("rayprojects/ray", RAYS, "rayprojects/ray", "a longer name is another repository"),
    ("ghcr.io/rayproject/ray", RAYS, "ghcr.io/rayproject/ray", "another registry is not replaced"),
    ("docker.io/rayproject:v1", RAYS, "mirror.east/rays:v1", "a prefix may be a whole name"),
    ("rayproject/ray", {**HUB, **RAYS}, "mirror.east/rays/ray", "the longest prefix counts"),
    ("other/ray", {**HUB, **RAYS}, "hub.east/other/ray", "a shorter prefix takes the rest"),
    ("reg.local:5000/team/ray", PORT, "mirror.east/team/ray", "a registry has a port"),
    ("reg.local/team/ray", PORT, "reg.local/team/ray", "another port is another registry"),
    ("localhost/ray", {"localhost": "mirror.east"}, "mirror.east/ray", "localhost is a registry"),
    ("rayproject/ray", {}, "rayproject/ray", "an empty mapping"),
    ("", HUB, "hub.east/library/", "no valid image name"),
]


@pytest.mark.parametrize(("name", "registries", "want", "why"), IMAGES, ids=[row[3] for row in IMAGES])
def test_image_registries_are_replaced(name: str, registries: dict[str, str], want: str, why: str) -> None:
    assert pod_mapping.replace_registry(name, registries) == want, why


def test_the_image_of_a_volume_is_replaced_and_a_missing_image_stays_missing() -> None:
    spec = {
        "containers": [{"name": "c"}],
        "volumes": [{"name": "v", "image": {"reference": "rayproject/x"}}, {"name": "w", "emptyDir": {}}],
    }
    out = pod_mapping.apply_to_spec(spec, ALL.pods)
    assert out["volumes"] == [
        {"name": "v", "image": {"reference": "mirror.east/rayproject/x"}},
        {"name": "w", "emptyDir": {}},
    ]
    assert out["containers"] == [{"name": "c"}]


def test_applying_the_mapping_again_changes_nothing() -> None:
    spec = {"containers": [RAY], "tolerations": [{"key": "x"}], "nodeSelector": {"pool": "any"}}
    once = stripping.portable_spec(spec, ALL)
    assert pod_mapping.apply_to_spec(once, ALL.pods) == once


# --- plans ------------------------------------------------------------------------------------------------------------


def planned(pods: Raw, *, labels: Raw | None = None, taints: Any = (), template: Raw | None = None) -> Raw:
    """The plan for two workers where east has only this node."""
    sight = Sight({"east": 4})
    member = make_member("east", 4, pods=pods)
    sight.members["east"] = member
    sight.fleet.caches()["east"] = member
    (node,) = member._node_objects
    fill(
        member._node_objects,
        {**node, "metadata": {"name": "n", "labels": labels or {}}, "spec": {"taints": list(taints)}},
    )
    group = make_group(2)
    group["template"]["spec"] |= template or {}
    return dict(asyncio.run(sight.preview.preview_plan(make_ray_job(group), builders.NAMESPACE, builders.START)))


def test_a_plan_looks_for_nodes_with_the_mappings_node_selector() -> None:
    assert planned({"nodeSelector": {"pool": "ray"}}, labels={"pool": "ray"})["fits"]
    short = planned({"nodeSelector": {"pool": "ray"}})
    assert not short["fits"]
    assert "none of its 1 ready nodes matches the worker's node selector" in short["clusters"][0]["reason"]


def test_a_plan_counts_nodes_whose_taint_the_mapping_tolerates() -> None:
    assert planned({"tolerations": [TOLERATION]}, taints=[TAINT])["fits"]
    assert not planned({}, taints=[TAINT])["fits"]


# --- a service account ------------------------------------------------------------------------------------------------


def refused(pods: dict[str, Raw], template: Raw) -> str:
    """The problem of a job with that template, with these WorkerClusters in the policy."""
    sight = Sight({name: 4 for name in pods})
    sight.manager.worker_clusters.replace([builders.make_worker_cluster(name, pods=pod) for name, pod in pods.items()])
    for name, pod in pods.items():
        sight.fleet.caches()[name] = make_member(name, 4, pods=pod)
    group = make_group(2)
    group["template"]["spec"] |= template
    return str(
        asyncio.run(sight.preview.preview_plan(make_ray_job(group), builders.NAMESPACE, builders.START)).get("sentence")
    )


NAMED = {"serviceAccountName": "ray"}
GIVEN = {"serviceAccountName": "there"}


def test_a_template_may_name_an_account_where_a_cluster_sets_one() -> None:
    assert "serviceAccountName is ray" not in refused({"east": GIVEN, "west": GIVEN}, NAMED)
    assert refused({"east": GIVEN, "west": {}}, NAMED).startswith("2 of 2 workers to east; west passed over: ")
    assert "serviceAccountName is ray" in refused({"east": {}}, NAMED)


def test_a_job_goes_to_the_clusters_that_name_what_it_needs() -> None:
    claim = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "models"}}]}
    named = {"persistentVolumeClaims": [{"name": "models", "namespaces": [builders.NAMESPACE]}]}
    others = {"persistentVolumeClaims": [{"name": "models", "namespaces": ["other"]}]}
    assert refused({"east": others, "west": named}, claim) == (
        "2 of 2 workers to west; east passed over: worker group workers: spec.volumes[d].persistentVolumeClaim is "
        "models: its WorkerCluster does not name it; add spec.pods.persistentVolumeClaims: [{name: models, "
        "namespaces: [demo]}] to it."
    )
    assert "no WorkerCluster of the policy names it for namespace demo" in refused({"east": others}, claim)


def test_an_account_of_the_mapping_excuses_nothing_else() -> None:
    assert "hostNetwork is true" in refused({"east": GIVEN}, {**NAMED, "hostNetwork": True})


def test_the_pod_runs_as_the_mappings_account_and_never_as_its_own() -> None:
    spec = {"containers": [RAY], "serviceAccountName": "ray", "serviceAccount": "ray"}
    there = rewrite(spec, mapped(**GIVEN))["spec"]
    assert (there["serviceAccountName"], there.get("serviceAccount")) == ("there", None)
    assert "serviceAccountName" not in rewrite(spec, TARGET)["spec"]


def test_an_invalid_mapping_is_reported() -> None:
    with pytest.raises(specs.InvalidSpec, match=r"WorkerCluster east: spec\.pods\.labels\.a: .* found 5"):
        specs.parse_worker_cluster(builders.make_worker_cluster(pods={"labels": {"a": 5}}))
    assert PodMapping() == NO_MAPPING

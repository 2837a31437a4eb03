"""A job is refused only if no cluster of its policy names what it needs, with the line that would name it."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapter.admission import job_validation
from adapter.admission.policy import ResolvedPolicy
from adapter.objects.rayjob import read_ray_job
from adapter.objects.specs import parse_dispatch_policy
from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, parse_workload
from tests.unit.builders import CHECK, make_policy, make_worker_cluster, make_workload
from tests.unit.stores import make_ray_job, make_template

CLAIM = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "models"}}]}
ACCOUNT = {"serviceAccountName": "raydata"}
NAMES_ACCOUNT = {"serviceAccounts": [{"name": "raydata"}]}
NAMES_CLAIM = {"persistentVolumeClaims": [{"name": "models"}]}
LINE = "spec.pods.serviceAccounts: [{name: raydata, namespaces: [demo]}]"
UNNAMED = "spec.serviceAccountName is raydata: no WorkerCluster of the policy names it for namespace demo; "


def rejection(groups: list[Raw], clusters: Mapping[str, Raw], *, known: bool = True, **spec: Any) -> str:
    """The rejection of a job with a worker group for each template, by WorkerClusters with these `spec.pods`."""
    chosen = ResolvedPolicy(parse_dispatch_policy(make_policy(clusters=[*clusters] or ["x"], **spec)), (*clusters,))
    podsets = [
        PodSet(f"g{index}", 1, make_template("1", **template), frozenset()) for index, template in enumerate(groups)
    ]
    raws = [make_worker_cluster(name, pods=pods) for name, pods in clusters.items()]
    workload = parse_workload(make_workload(owner="RayJob"))
    text = job_validation.workload_rejection(
        workload, read_ray_job(make_ray_job()), CHECK, podsets, chosen if known else None, raws, submitted=False
    )
    return text.removeprefix("RayJob train: ").removesuffix(".")


@pytest.mark.parametrize(
    ("groups", "clusters", "want"),
    [
        pytest.param([ACCOUNT], {"east": NAMES_ACCOUNT, "west": {}}, "", id="one cluster names it"),
        pytest.param([ACCOUNT, CLAIM], {"east": NAMES_ACCOUNT, "west": NAMES_CLAIM}, "", id="each group has a cluster"),
        pytest.param([{}], {"east": {}}, "", id="nothing is needed"),
        pytest.param([{"runtimeClassName": "kata"}], {"east": {}}, "", id="a RuntimeClass, and no list of them"),
        pytest.param([{"runtimeClassName": "kata"}], {}, "", id="a RuntimeClass, and no cluster"),
        pytest.param(
            [{"runtimeClassName": "kata"}], {"east": {"runtimeClasses": [{"name": "gvisor"}]}},
            "worker group g0: spec.runtimeClassName is kata: no WorkerCluster of the policy names it for namespace "
            "demo; an administrator can add spec.pods.runtimeClasses: [{name: kata, namespaces: [demo]}] to "
            "WorkerCluster east, or remove it to use the default runtime there",
            id="a RuntimeClass that is not in the list",
        ),
        pytest.param(
            [{"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}], {"east": {}},
            "worker group g0: spec.resourceClaims[gpu].resourceClaimTemplateName is one-gpu: no WorkerCluster of the "
            "policy names it for namespace demo; an administrator can add spec.pods.resourceClaimTemplates: [{name: "
            "one-gpu, namespaces: [demo], resources: {example.com/gpu: 1}}] to WorkerCluster east, with the resources "
            "that Kueue there counts for one such claim, or ask for devices in resources.limits",
            id="a ResourceClaimTemplate that is not named",
        ),
        pytest.param(
            [ACCOUNT], {"east": {}, "west": {}},
            f"worker group g0: {UNNAMED}an administrator can add {LINE} to WorkerCluster east or west, or remove it to "
            "use the default account there",
            id="no cluster names it",
        ),
        pytest.param(
            [ACCOUNT], {"a": {}, "b": {}, "c": {}, "d": {}},
            f"worker group g0: {UNNAMED}an administrator can add {LINE} to WorkerCluster a, b, c or another of the "
            "policy, or remove it to use the default account there",
            id="many clusters",
        ),
        pytest.param(
            [ACCOUNT], {},
            f"worker group g0: {UNNAMED}an administrator can add {LINE} to a WorkerCluster of the policy, or remove it "
            "to use the default account there",
            id="no cluster is registered",
        ),
        pytest.param(
            [ACCOUNT], {"east": {"serviceAccounts": [{"name": "raydata", "namespaces": ["other"]}]}},
            f"worker group g0: {UNNAMED}an administrator can add {LINE} to WorkerCluster east, or remove it to use the "
            "default account there",
            id="it is named for another namespace",
        ),
        pytest.param(
            [{"volumes": [{"name": "d", "hostPath": {"path": "/a/../etc"}}]}], {"east": {}},
            "worker group g0: spec.volumes[d].hostPath is /a/../etc: no WorkerCluster can name it; use emptyDir or "
            "object storage",
            id="a path that no one can name",
        ),
        pytest.param(
            [{**ACCOUNT, **CLAIM}], {"east": NAMES_ACCOUNT, "west": NAMES_CLAIM},
            "worker group g0: no WorkerCluster of the policy names all that its pods need; on east, "
            "spec.volumes[d].persistentVolumeClaim is models: its WorkerCluster does not name it; add "
            "spec.pods.persistentVolumeClaims: [{name: models, namespaces: [demo]}] to it; on west, "
            f"spec.serviceAccountName is raydata: its WorkerCluster does not name it; add {LINE} to it",
            id="no cluster names all",
        ),
    ],
)  # fmt: skip
def test_a_job_is_refused_if_no_cluster_names_what_it_needs(
    groups: list[Raw], clusters: Mapping[str, Raw], want: str
) -> None:
    assert rejection(groups, clusters) == want


def test_groups_of_one_cluster_need_one_that_names_all() -> None:
    clusters = {"east": NAMES_ACCOUNT, "west": NAMES_CLAIM}
    assert rejection([ACCOUNT, CLAIM], clusters, gang="SameCluster").startswith(
        "no WorkerCluster of the policy names all that its pods need; on east, "
    )
    assert rejection([ACCOUNT, CLAIM], {**clusters, "c": {**NAMES_ACCOUNT, **NAMES_CLAIM}}, gang="SameCluster") == ""
    assert rejection([ACCOUNT, CLAIM], {"east": {}}, gang="SameCluster").startswith("worker group g0: "), "each once"


def test_nothing_is_refused_for_good_while_clusters_cannot_be_read() -> None:
    assert rejection([ACCOUNT], {"east": {}}, known=False) == ""
    assert rejection([ACCOUNT], {"east": {}, "west": {"labels": {"a": 5}}}) == ""

"""A dry run creates the pod that a remote pod would be, without private data. Its answer becomes the reservation or
a denial."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.objects.pod_requests import parse_quantity, pod_requests
from adapter.objects.unstructured import Raw
from adapter.rewrite import dry_run_pod, group_workload
from adapter.rewrite.dry_run_pod import DryRunResult
from tests.unit.builders import make_target

EAST = make_target("east")
ROLE = group_workload.role_of_group("workers")
TIGHT = {"runAsNonRoot": True}
RAY = {
    "name": "ray-worker",
    "image": "ray",
    "securityContext": TIGHT,
    "command": ["secret-program"],
    "args": ["secret"],
    "env": [{"name": "TOKEN", "value": "secret"}],
    "envFrom": [{"secretRef": {"name": "secret"}}],
    "resources": {"requests": {"cpu": "1"}},
}


def template(*containers: Raw, **spec: Any) -> Raw:
    metadata = {"labels": {"team": "a", "ray.io/x": "y"}, "annotations": {"sidecar.istio.io/inject": "true"}}
    return {"metadata": metadata, "spec": {"containers": list(containers or (RAY,)), **spec}}


def tried(found: Raw | None = None) -> Raw:
    return dry_run_pod.build_pod(found or template(), "workers", EAST, "demo")


def test_it_has_the_labels_of_a_remote_pod() -> None:
    """So it is selected by the same labels, annotations or owners; Kueue's webhook gates it, and wants no quota for
    it."""
    metadata = tried()["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert {key: metadata["labels"][key] for key in (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.QUEUE_LABEL)} == {
        names.MANAGER_LABEL: "mgr", names.CLUSTER_LABEL: "east", names.QUEUE_LABEL: EAST.queue,
    }  # fmt: skip
    assert metadata["labels"][names.MANAGED_LABEL] == "true"
    assert not any(key.startswith("ray.io/") for key in metadata["labels"])
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "true"
    assert metadata["annotations"][names.SUSPENDING_PARENT_ANNOTATION] == names.DOMAIN
    share = metadata["annotations"][names.GROUP_NAME_ANNOTATION]
    assert share == metadata["annotations"][names.PREBUILT_ANNOTATION] == f"{EAST.placement}-0", "no round has this one"
    assert metadata["ownerReferences"][0]["name"] == share and metadata["ownerReferences"][0]["uid"]
    assert (metadata["name"], metadata["namespace"]) == (f"rayspan-trial-{ROLE}", "demo")


def test_private_data_is_left_out() -> None:
    assert "secret" not in str(tried())
    assert "secret" in str(template())


def test_the_termination_message_policy_changes_neither_digest_nor_reservation() -> None:
    """A remote pod has another policy than its template. Plan, share and PodExceedsShare do not depend on it."""
    said = {**RAY, "terminationMessagePolicy": "File"}
    assert dry_run_pod.digest(template(said), "workers", EAST) == dry_run_pod.digest(template(), "workers", EAST)
    answer = tried(template(said))
    assert "FallbackToLogsOnError" in str(answer)
    found = dry_run_pod.parse_response(answer, template(said), EAST)
    assert found.reserved_template == group_workload.reserved_template(template(), EAST) and "termination" not in str(
        found.reserved_template
    )
    assert group_workload.excess_requests(answer["spec"], found.reserved_template) == ""


def test_the_pod_has_the_init_container_of_kuberay() -> None:
    """Pod Security and the bounds of a LimitRange apply to it, too, and it requests as much as the worker."""
    (waiter,) = tried()["spec"]["initContainers"]
    amounts = {"cpu": "1", "memory": "256Mi"}
    assert waiter == {
        "name": "wait-gcs-ready",
        "image": "ray",
        "securityContext": TIGHT,
        "resources": {"requests": amounts, "limits": amounts},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    own = {"name": "wait-gcs-ready", "image": "mine", "terminationMessagePolicy": "FallbackToLogsOnError"}
    assert tried(template(initContainers=[own]))["spec"]["initContainers"] == [own], "not a second one of that name"


def test_the_ray_container_has_the_probes_of_kuberay() -> None:
    """The user's own probes stay."""
    mine = {"httpGet": {"port": 80}}
    (ray,) = tried(template({**RAY, "livenessProbe": mine}))["spec"]["containers"]
    assert ray["livenessProbe"] == mine and ray["readinessProbe"]


NOWHERE = make_target("", queue="ray")
SHAPE = dry_run_pod.digest(template(), "workers", NOWHERE)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({**RAY, "env": [], "command": ["another"]}, id="another program"),
        pytest.param({**RAY, "args": ["--another"]}, id="other arguments"),
    ],
)
def test_jobs_of_the_same_shape_have_one_digest(other: Raw) -> None:
    assert dry_run_pod.digest(template(other), "workers", NOWHERE) == SHAPE


@pytest.mark.parametrize(
    ("found", "group", "target"),
    [
        pytest.param(template({**RAY, "resources": {"requests": {"cpu": "2"}}}), "workers", NOWHERE, id="requests"),
        pytest.param(template({**RAY, "securityContext": {}}), "workers", NOWHERE, id="security context"),
        pytest.param(template(volumes=[{"name": "v", "emptyDir": {}}]), "workers", NOWHERE, id="volumes"),
        pytest.param({**template(), "metadata": {}}, "workers", NOWHERE, id="labels and annotations"),
        pytest.param(template(priorityClassName="gold"), "workers", NOWHERE, id="priority class"),
        pytest.param(template(schedulerName="volcano"), "workers", NOWHERE, id="scheduler"),
        pytest.param(template(), "gpu", NOWHERE, id="the worker group, which is a label"),
        pytest.param(template(), "workers", replace(NOWHERE, queue="other"), id="queue"),
    ],
)
def test_what_admission_may_depend_on_changes_the_digest(found: Raw, group: str, target: Any) -> None:
    assert dry_run_pod.digest(found, group, target) != SHAPE


def answer(**more: Any) -> Raw:
    """The pod of the dry run with an API server's defaults, and further fields."""
    pod = tried()
    defaults = {"dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "priority": 0}
    unready = [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for state in ("not-ready", "unreachable")
    ]
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    return {**pod, "spec": {**pod["spec"], **defaults, "tolerations": unready, "schedulingGates": gates, **more}}


def container(name: str, **requests: str) -> Raw:
    return {"name": name, "image": name, "resources": {"requests": requests}, "env": [{"name": "X", "value": "secret"}]}


PLAIN = group_workload.reserved_template(template(), EAST)


@pytest.mark.parametrize(
    ("more", "asks"),
    [
        pytest.param({}, {"cpu": 1000}, id="nothing is added"),
        pytest.param(
            {"containers": [container("ray-worker", cpu="1"), container("mesh", cpu="250m")]},
            {"cpu": 1250},
            id="a sidecar is added",
        ),
        pytest.param(
            {"initContainers": [{**container("mesh", cpu="250m"), "restartPolicy": "Always"}]},
            {"cpu": 1250},
            id="a sidecar is added as an init container",
        ),
        pytest.param(
            {"containers": [container("ray-worker", cpu="1", memory="1Gi")]},
            {"cpu": 1000, "memory": 2**30},
            id="a LimitRange adds a default",
        ),
        pytest.param(
            {"overhead": {"cpu": "500m"}, "runtimeClassName": "kata"}, {"cpu": 1500}, id="a RuntimeClass adds overhead"
        ),
    ],
)
def test_the_reservation_is_made_for_the_pod_of_the_dry_run(more: Raw, asks: dict[str, int]) -> None:
    found = dry_run_pod.parse_response(answer(**more), template(), EAST)
    assert not (found.denied_reason or found.unknown_reason)
    assert found.request == {**asks, "pods": 1} == pod_requests(found.reserved_template["spec"])
    assert "secret" not in str(found.reserved_template)


def _resources(requests: Raw, limits: Raw | None = None) -> Raw:
    return {"requests": requests, **({"limits": limits} if limits else {})}


LARGE = {**RAY, "resources": _resources({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"})}
SMALL = {**RAY, "resources": _resources({"cpu": "10m"})}


@pytest.mark.parametrize(
    ("given", "admitted"),
    [
        pytest.param(
            template(LARGE),
            {"containers": [{**LARGE, "resources": _resources({"cpu": "1", "memory": "4Gi"}, {"cpu": "4"})}]},
            id="requests are lowered to a part of the limits",
        ),
        pytest.param(
            template(LARGE),
            {"containers": [{**LARGE, "resources": _resources({"cpu": "1"}, {"cpu": "1", "memory": "1Gi"})}]},
            id="requests and limits are lowered",
        ),
        pytest.param(template(LARGE), {"containers": [{**LARGE, "resources": {}}]}, id="resources are removed"),
        pytest.param(
            template(LARGE),
            {"containers": [{**LARGE, "resources": _resources({"cpu": "1"})}, container("mesh", cpu="1")]},
            id="requests are lowered and a sidecar is added",
        ),
        pytest.param(template(LARGE), {"resources": _resources({"cpu": "1"})}, id="a lower sum at pod level is added"),
        pytest.param(
            template(SMALL),
            {"initContainers": [{"name": "wait-gcs-ready", "resources": _resources({"cpu": "1m", "memory": "1Mi"})}]},
            id="KubeRay's init container is lowered",
        ),
    ],
)
def test_a_share_holds_what_the_template_requests_where_admission_lowers_requests(given: Raw, admitted: Raw) -> None:
    """The remote pod, before admission, is compared with the share: it would never be created on a lower one."""
    sent = tried(given)
    result = dry_run_pod.parse_response({"spec": {**sent["spec"], **admitted}}, given, EAST)
    assert not result.unknown_reason
    assert group_workload.excess_requests(sent["spec"], result.reserved_template) == ""
    for holder in (*result.reserved_template["spec"]["containers"], result.reserved_template["spec"]):
        _assert_within_limits(holder.get("resources") or {})


def _assert_within_limits(resources: Raw) -> None:
    """Kueue admits no Workload with a request above its limit."""
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        assert parse_quantity(amount, name) <= parse_quantity(limits.get(name, amount), name)


def test_a_pod_that_requests_more_than_a_lowered_template_still_exceeds_its_share() -> None:
    result = dry_run_pod.parse_response(
        answer(containers=[{**RAY, "resources": _resources({"cpu": "250m"})}]), template(), EAST
    )
    larger = template({**RAY, "resources": _resources({"cpu": "2"})})
    assert group_workload.excess_requests(larger["spec"], result.reserved_template) == "cpu: 2 instead of 1"


def test_without_additions_the_reservation_is_that_of_the_template() -> None:
    """Byte for byte: an API server's defaults are no requests."""
    assert dry_run_pod.parse_response(answer(), template(), EAST).reserved_template == PLAIN


def test_added_tolerations_and_node_selectors_are_reserved() -> None:
    """So nodes that only the cluster's own admission opens to the pods are counted."""
    mine = {"key": "team-a", "operator": "Exists"}
    held = dry_run_pod.parse_response(
        answer(tolerations=[mine], nodeSelector={"pool": "a"}), template(), EAST
    ).reserved_template
    assert (held["spec"]["tolerations"], held["spec"]["nodeSelector"]) == ([mine], {"pool": "a"})


def test_an_answer_that_is_no_pod_is_unknown() -> None:
    assert dry_run_pod.parse_response({"spec": {"containers": [7]}}, template(), EAST) == DryRunResult(
        unknown_reason="its answer cannot be read: AttributeError"
    )


NAME = f"rayspan-trial-{ROLE}"
POD_OF_NAME: Raw = {"metadata": {"name": NAME}}
_SECURITY = f'pods "{NAME}" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false.'
_RIGHT = 'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "demo"'


@pytest.mark.parametrize(
    ("status", "said", "refused"),
    [
        pytest.param(403, _SECURITY, True, id="Pod Security denies"),
        pytest.param(403, f'pods "{NAME}" is forbidden: exceeded quota: small', True, id="a ResourceQuota denies"),
        pytest.param(403, 'admission webhook "no.example.com" denied the request: no', True, id="a webhook denies"),
        pytest.param(422, f'Pod "{NAME}" is invalid: spec: no', True, id="the pod is invalid, or a policy denies"),
        pytest.param(
            400,
            ('admission webhook "no.example.com" denied the request without explanation'),
            True,
            id="a webhook denies without an explanation",
        ),
        pytest.param(
            400,
            'admission webhook "old.example.com" does not support dry run',
            False,
            id="a webhook does not support dry runs",
        ),
        pytest.param(403, _RIGHT, False, id="no right to create pods, which the creation of the share reports"),
        pytest.param(409, "exists", False, id="a pod of that name exists"),
        pytest.param(429, "", False, id="the API server is busy"),
        pytest.param(500, 'failed calling webhook "x": timeout', False, id="a webhook is down"),
    ],
)
def test_a_denial_is_distinguished_from_an_unknown_result(status: int, said: str, refused: bool) -> None:
    found = dry_run_pod.parse_error(POD_OF_NAME, status, said)
    assert bool(found.denied_reason) == refused and bool(found.unknown_reason) == (not refused)
    assert NAME not in found.denied_reason + found.unknown_reason and not (found.reserved_template or found.request)


def test_a_denial_is_quoted() -> None:
    """Without the pod's name, which no user's pod has, and without the full stop."""
    want = 'pods "*" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
    assert dry_run_pod.parse_error(POD_OF_NAME, 403, _SECURITY).denied_reason == want


RANGED = {
    **POD_OF_NAME,
    "spec": {
        "containers": [
            {"name": "ray", "resources": {"requests": {"cpu": "0.1"}, "limits": {"cpu": "4"}}},
            {"name": "side", "resources": {"requests": {"cpu": "1"}}}
        ],
        "initContainers": [{"name": "wait-gcs-ready", "resources": {"requests": {"cpu": "200m"}}}],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("denied", "want"),
    [
        ("minimum cpu usage per Container is 250m, but request is 100m", "ray"),
        ("[minimum cpu usage per Container is 250m, but request is 100m, minimum cpu usage per Container is 250m, but "
         "request is 200m]", "ray; wait-gcs-ready, which KubeRay adds"),
        ("maximum cpu usage per Container is 2, but limit is 4", "ray"),
        ("minimum cpu usage per Container is 250m, but request is 50m", "that the admission of the worker cluster "),
        ("maximum cpu usage per Pod is 1, but request is 100m", ""),
        ("minimum cpu usage per Container is 250m, but request is odd", ""),
    ],
)  # fmt: skip
def test_a_limit_ranges_denial_names_the_container(denied: str, want: str) -> None:
    """The API server names neither the container nor who added it."""
    reason = dry_run_pod.parse_error(RANGED, 403, f'pods "{NAME}" is forbidden: {denied}').denied_reason
    assert (f"container {want}" in reason) if want else ("container" not in reason)


def _required(*terms: Any) -> Raw:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    "more",
    [
        {"tolerations": ["x"]},
        {"tolerations": {"a": 1}},
        {"nodeSelector": ["x"]},
        {"nodeSelector": {"a": ["b"]}},
        {"affinity": ["x"]},
        {"affinity": {"nodeAffinity": "x"}},
        {"affinity": _required(5)},
        {"affinity": _required({"matchExpressions": [{"key": ["x"], "operator": "Exists"}]})},
        {"affinity": _required({"matchExpressions": [{"key": "x", "operator": "In", "values": 5}]})},
        {"affinity": _required({"matchExpressions": [{"key": "x", "operator": "In", "values": [["y"]]}]})},
        {"resources": {"requests": {"cpu": "-5"}}},
        {"affinity": {"podAffinity": "x" * dry_run_pod.MAX_TEMPLATE_BYTES}},
    ],
)
def test_a_malformed_answer_is_unknown(more: Raw) -> None:
    """Otherwise the plan of this gang and of all behind it would fail. The size of an answer is bounded."""
    found = dry_run_pod.parse_response({"spec": {**tried()["spec"], **more}}, template(), EAST)
    assert (
        found.unknown_reason.startswith("its answer cannot be read")
        and not found.reserved_template
        and not found.request
    )


def test_image_pull_secrets_are_named_like_copied_objects() -> None:
    """A policy may require one in every pod."""
    (named,) = tried(template(imagePullSecrets=[{"name": "registry"}]))["spec"]["imagePullSecrets"]
    assert named["name"] != "registry"

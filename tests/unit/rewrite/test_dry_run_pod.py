"""A dry run asks about a pod as a real copy is, without what is private; its answer becomes what the share holds, or why not."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.objects.pod_requests import pod_requests
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


def test_it_is_marked_as_a_copy_is() -> None:
    """Who selects copies by labels, annotations or owners selects it; Kueue's webhook gates it, and looks for no quota of its own."""
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


def test_what_is_private_in_it_stays_at_home() -> None:
    assert "secret" not in str(tried())
    assert "secret" in str(template())


def test_where_its_last_words_go_changes_nothing_that_is_asked_or_held() -> None:
    """The copy has another termination message policy than its template; neither plan, share nor PodExceedsShare see it."""
    said = {**RAY, "terminationMessagePolicy": "File"}
    assert dry_run_pod.digest(template(said), "workers", EAST) == dry_run_pod.digest(template(), "workers", EAST)
    answer = tried(template(said))
    assert "FallbackToLogsOnError" in str(answer)
    found = dry_run_pod.parse_response(answer, template(said), EAST)
    assert found.reserved_template == group_workload.reserved_template(template(), EAST) and "termination" not in str(
        found.reserved_template
    )
    assert group_workload.excess_requests(answer["spec"], found.reserved_template) == ""


def test_kuberays_init_container_is_there_as_kuberay_makes_it() -> None:
    """Pod Security and a LimitRange's bounds hold for that one, too."""
    (waiter,) = tried()["spec"]["initContainers"]
    amounts = {"cpu": "200m", "memory": "256Mi"}
    assert waiter == {
        "name": "wait-gcs-ready",
        "image": "ray",
        "securityContext": TIGHT,
        "resources": {"requests": amounts, "limits": amounts},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    own = {"name": "wait-gcs-ready", "image": "mine", "terminationMessagePolicy": "FallbackToLogsOnError"}
    assert tried(template(initContainers=[own]))["spec"]["initContainers"] == [own], "not a second one of that name"


def test_the_ray_container_has_probes_as_kuberay_gives_them() -> None:
    """Its user's own stay."""
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
def test_jobs_of_one_shape_are_one_question(other: Raw) -> None:
    assert dry_run_pod.digest(template(other), "workers", NOWHERE) == SHAPE


@pytest.mark.parametrize(
    ("found", "group", "target"),
    [
        pytest.param(template({**RAY, "resources": {"requests": {"cpu": "2"}}}), "workers", NOWHERE, id="requests"),
        pytest.param(template({**RAY, "securityContext": {}}), "workers", NOWHERE, id="security context"),
        pytest.param(template(volumes=[{"name": "v", "emptyDir": {}}]), "workers", NOWHERE, id="volumes"),
        pytest.param({**template(), "metadata": {}}, "workers", NOWHERE, id="labels and annotations"),
        pytest.param(template(), "gpu", NOWHERE, id="worker group, which is a label"),
        pytest.param(template(), "workers", replace(NOWHERE, queue="other"), id="queue"),
    ],
)
def test_what_a_cluster_may_look_at_makes_it_another(found: Raw, group: str, target: Any) -> None:
    assert dry_run_pod.digest(found, group, target) != SHAPE


def answer(**more: Any) -> Raw:
    """The pod of the dry run with what an API server writes into each, and more."""
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
            id="a sidecar",
        ),
        pytest.param(
            {"initContainers": [{**container("mesh", cpu="250m"), "restartPolicy": "Always"}]},
            {"cpu": 1250},
            id="one of the new kind",
        ),
        pytest.param(
            {"containers": [container("ray-worker", cpu="1", memory="1Gi")]},
            {"cpu": 1000, "memory": 2**30},
            id="a LimitRange's default",
        ),
        pytest.param(
            {"overhead": {"cpu": "500m"}, "runtimeClassName": "kata"}, {"cpu": 1500}, id="a RuntimeClass's overhead"
        ),
    ],
)
def test_the_share_holds_what_will_run(more: Raw, asks: dict[str, int]) -> None:
    found = dry_run_pod.parse_response(answer(**more), template(), EAST)
    assert not (found.denied_reason or found.unknown_reason)
    assert found.request == {**asks, "pods": 1} == pod_requests(found.reserved_template["spec"])
    assert "secret" not in str(found.reserved_template)


def test_where_nothing_is_added_it_holds_what_it_always_did() -> None:
    """Byte for byte: what an API server writes into every pod is no wish of it."""
    assert dry_run_pod.parse_response(answer(), template(), EAST).reserved_template == PLAIN


def test_what_the_cluster_lets_it_tolerate_counts_as_well() -> None:
    """Nodes that only its own admission opens to pods are counted for them."""
    mine = {"key": "team-a", "operator": "Exists"}
    held = dry_run_pod.parse_response(
        answer(tolerations=[mine], nodeSelector={"pool": "a"}), template(), EAST
    ).reserved_template
    assert (held["spec"]["tolerations"], held["spec"]["nodeSelector"]) == ([mine], {"pool": "a"})


def test_an_answer_that_is_no_pod_says_nothing() -> None:
    assert dry_run_pod.parse_response({"spec": {"containers": [7]}}, template(), EAST) == DryRunResult(
        unknown_reason="its answer cannot be read: TypeError"
    )


NAME = f"rayspan-trial-{ROLE}"
_SECURITY = f'pods "{NAME}" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false.'
_RIGHT = 'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "demo"'


@pytest.mark.parametrize(
    ("status", "said", "refused"),
    [
        pytest.param(403, _SECURITY, True, id="Pod Security"),
        pytest.param(403, f'pods "{NAME}" is forbidden: exceeded quota: small', True, id="a ResourceQuota"),
        pytest.param(403, 'admission webhook "no.example.com" denied the request: no', True, id="a webhook"),
        pytest.param(422, f'Pod "{NAME}" is invalid: spec: no', True, id="an invalid pod, or a policy"),
        pytest.param(
            400, 'admission webhook "no.example.com" denied the request without explanation', True, id="a rude one"
        ),
        pytest.param(400, 'admission webhook "old.example.com" does not support dry run', False, id="no dry runs"),
        pytest.param(403, _RIGHT, False, id="no right, which is said where the share is made"),
        pytest.param(409, "exists", False, id="a pod of that name"),
        pytest.param(429, "", False, id="busy"),
        pytest.param(500, 'failed calling webhook "x": timeout', False, id="a webhook that is down"),
    ],
)
def test_who_refuses_and_who_only_does_not_know(status: int, said: str, refused: bool) -> None:
    found = dry_run_pod.parse_error(NAME, status, said)
    assert bool(found.denied_reason) == refused and bool(found.unknown_reason) == (not refused)
    assert NAME not in found.denied_reason + found.unknown_reason and not (found.reserved_template or found.request)


def test_a_refusal_is_in_the_clusters_words() -> None:
    """Without the name, since no pod that anybody sees has it, and without the end of the sentence."""
    want = 'pods "*" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
    assert dry_run_pod.parse_error(NAME, 403, _SECURITY).denied_reason == want


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
def test_an_answer_that_no_plan_can_go_by_is_none(more: Raw) -> None:
    """A plan of this gang would fail, and those of all behind it; and what is kept is bounded."""
    found = dry_run_pod.parse_response({"spec": {**tried()["spec"], **more}}, template(), EAST)
    assert (
        found.unknown_reason.startswith("its answer cannot be read")
        and not found.reserved_template
        and not found.request
    )


def test_the_secrets_that_its_image_is_pulled_with_are_named_as_a_copy_names_its_own() -> None:
    """A policy may want every pod to name one."""
    (named,) = tried(template(imagePullSecrets=[{"name": "registry"}]))["spec"]["imagePullSecrets"]
    assert named["name"] != "registry"

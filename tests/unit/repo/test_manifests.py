"""The manifests parse, refer to existing objects, and use the code's words. Integration tests render them."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.access import grant
from adapter.objects import specs
from adapter.objects.placement import PlacementState
from adapter.preflight import preflight_facts
from adapter.relay.relay_network import router_service
from adapter.shell.admission import admission_server
from adapter.worker import service_endpoints
from hack.lab.base.paths import REPO

_MANIFESTS = REPO / "manifests"
_KUSTOMIZE = REPO / "kustomize"
_KUSTOMIZATIONS = sorted(path.parent for root in (_MANIFESTS, _KUSTOMIZE) for path in root.rglob("kustomization.yaml"))
_FILES = sorted(path for root in (_MANIFESTS, _KUSTOMIZE) for path in root.rglob("*.yaml"))
_CLUSTER_SCOPED = {
    "Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
    "ResourceFlavor", "ClusterQueue", "AdmissionCheck", "MultiKueueConfig", "WorkerCluster", "DispatchPolicy",
}  # fmt: skip


def _short(path: Path) -> str:
    return str(path.relative_to(REPO))


def _objects(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _find(path: str, kind: str, name: str = "") -> dict[str, Any]:
    """The one object of that kind (and name) in a file below manifests/ or kustomize/."""
    found = [
        document
        for document in _objects(REPO / path)
        if document["kind"] == kind and name in ("", document["metadata"]["name"])
    ]
    assert len(found) == 1, f"{path} has {len(found)} {kind} {name}"
    return found[0]


def _dig(value: Any, *path: str | int) -> Any:
    for step in path:
        value = value[step]
    return value


# --- every file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", _FILES, ids=_short)
def test_file_holds_whole_objects(path: Path) -> None:
    objects = _objects(path)
    assert objects
    for document in objects:
        assert document["apiVersion"] and document["kind"]
        if document["kind"] in ("Kustomization", "Component"):
            continue
        namespaced = document["kind"] not in _CLUSTER_SCOPED
        # A file that is applied by itself must name its namespace.
        assert ("namespace" in document["metadata"]) == namespaced, document["metadata"]["name"]


@pytest.mark.parametrize("directory", _KUSTOMIZATIONS, ids=_short)
def test_kustomization_lists_what_exists(directory: Path) -> None:
    for resource in _listed(directory):
        target = directory / resource
        assert target.is_file() or (target / "kustomization.yaml").is_file(), resource


def _listed(directory: Path) -> list[str]:
    found = _objects(directory / "kustomization.yaml")[0]
    return [*found.get("resources", ()), *found.get("components", ())]


def test_every_manifest_is_installed_by_some_overlay() -> None:
    listed = {(directory / resource).resolve() for directory in _KUSTOMIZATIONS for resource in _listed(directory)}
    left = [_short(path) for path in _FILES if path.name != "kustomization.yaml" and path.resolve() not in listed]
    assert [path for path in left if not path.startswith("manifests/samples/")] == []


def test_our_policies_have_our_label() -> None:
    """They judge writes of others. `kubectl get -l app.kubernetes.io/name=rayspan` lists them beside the controller."""
    policies = [each for path in _FILES for each in _objects(path) if "AdmissionPolicy" in each["kind"]]
    assert len(policies) > 5
    name = _find(_DEPLOYMENT, "Deployment")["metadata"]["labels"]["app.kubernetes.io/name"]
    wanted = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": "admission"}
    assert [each["metadata"]["name"] for each in policies if each["metadata"].get("labels") != wanted] == []


# --- the same words as the code --------------------------------------------------------------------------------------

_GATE_POLICY = "manifests/gate-policy.yaml"
_GUARD = "manifests/workercluster-guard.yaml"
_POD_STATUS_BOUNDS = "manifests/pod-status-bounds.yaml"
_MANAGER_RBAC = "manifests/rbac/manager.yaml"
_QUEUES = "manifests/queues/manager/queues.yaml"
_POOL_QUEUES = "manifests/queues/local-remote/queues.yaml"
_POOL_POLICY = "manifests/queues/local-remote/pool-policy.yaml"
_DEPLOYMENT = "manifests/controller.yaml"
_WORKER_RBAC = "manifests/rbac/worker.yaml"
_TENANT_RBAC = "manifests/rbac/worker-tenant.yaml"
_COPIES_RBAC = "manifests/rbac/manager-copies.yaml"
_COPIES_EVERYWHERE = "kustomize/components/copies-everywhere/binding.yaml"
_MULTIKUEUE_RBAC = "kustomize/components/multikueue/secrets.yaml"
_AGGREGATOR_RBAC = "kustomize/components/quota-aggregator/rights.yaml"
_JOB_LABELS_RBAC = "kustomize/components/job-labels/rights.yaml"
_JOB_LABELS_BOUNDS = "kustomize/components/job-labels/bounds.yaml"
_SERVICE_HOLD = "kustomize/components/rayservice/hold.yaml"
_SERVICE_GUARD = "kustomize/components/rayservice/guard.yaml"
_ENDPOINTS_RBAC = "kustomize/components/rayservice-endpoints/rights.yaml"
_ENDPOINTS_BOUNDS = "kustomize/components/rayservice-endpoints/bounds.yaml"
_ACCESS = "kustomize/components/worker-access"
_ACCESS_KIND, _ACCESS_POLICY = f"{_ACCESS}/workeraccesses.yaml", f"{_ACCESS}/policy.yaml"
_ACCESS_RBAC, _ACCESS_SERVER = f"{_ACCESS}/rights.yaml", f"{_ACCESS}/server.yaml"
_LOGS_RBAC, _EXEC_RBAC = (f"kustomize/overlays/worker-{what}/role.yaml" for what in ("logs", "exec"))
_RELAY_RBAC = "kustomize/components/relay/rights.yaml"
_ADMISSION = "kustomize/components/admission"
_WEBHOOKS, _WEBHOOKS_RBAC = f"{_ADMISSION}/webhook.yaml", f"{_ADMISSION}/rights.yaml"
_GATE_WEBHOOK = f"{_ADMISSION}-gate/webhook.yaml"
_WEBHOOKS_RUN, _CERTIFICATE = f"{_ADMISSION}/deployment.yaml", f"{_ADMISSION}/certificate.yaml"
_SAMPLE = "manifests/samples/rayjob-pi.yaml"

_SERVICE_OF = ("webhooks", 0, "clientConfig", "service")
_AGREEMENTS: tuple[tuple[str, str, tuple[str | int, ...], str], ...] = (
    # file, kind, path, what the code says
    (_GATE_POLICY, "MutatingAdmissionPolicy", ("metadata", "name"), names.GATE_POLICY),
    (_GATE_POLICY, "MutatingAdmissionPolicyBinding", ("metadata", "name"), names.GATE_POLICY),
    (_GATE_POLICY, "MutatingAdmissionPolicyBinding", ("spec", "policyName"), names.GATE_POLICY),
    (
        _GATE_POLICY,
        "MutatingAdmissionPolicy",
        ("spec", "matchConstraints", "objectSelector", "matchExpressions", 0, "key"),
        names.PLACEMENT_LABEL,
    ),
    (_MANAGER_RBAC, "Namespace", ("metadata", "name"), names.SYSTEM_NAMESPACE),
    (_MANAGER_RBAC, "ServiceAccount", ("metadata", "namespace"), names.SYSTEM_NAMESPACE),
    (_MANAGER_RBAC, "RoleBinding", ("subjects", 0, "namespace"), names.SYSTEM_NAMESPACE),
    (_MANAGER_RBAC, "ClusterRoleBinding", ("subjects", 0, "namespace"), names.SYSTEM_NAMESPACE),
    (_MANAGER_RBAC, "ServiceAccount", ("metadata", "name"), names.CONTROLLER_ACCOUNT),
    (_COPIES_EVERYWHERE, "ClusterRoleBinding", ("roleRef", "name"), names.COPIED_OBJECTS_ROLE),
    (_COPIES_EVERYWHERE, "ClusterRoleBinding", ("subjects", 0, "name"), names.CONTROLLER_ACCOUNT),
    (_COPIES_EVERYWHERE, "ClusterRoleBinding", ("subjects", 0, "namespace"), names.SYSTEM_NAMESPACE),
    (_MULTIKUEUE_RBAC, "Role", ("metadata", "namespace"), names.KUEUE_NAMESPACE),
    (_MULTIKUEUE_RBAC, "RoleBinding", ("metadata", "namespace"), names.KUEUE_NAMESPACE),
    (_MULTIKUEUE_RBAC, "RoleBinding", ("subjects", 0, "namespace"), names.SYSTEM_NAMESPACE),
    (_AGGREGATOR_RBAC, "ClusterRoleBinding", ("subjects", 0, "namespace"), names.SYSTEM_NAMESPACE),
    (_DEPLOYMENT, "Deployment", ("metadata", "namespace"), names.SYSTEM_NAMESPACE),
    (_DEPLOYMENT, "Deployment", ("metadata", "name"), names.DEPLOYMENT),
    (_DEPLOYMENT, "Service", ("metadata", "name"), names.SERVICE),
    (_DEPLOYMENT, "Service", ("metadata", "namespace"), names.SYSTEM_NAMESPACE),
    (_DEPLOYMENT, "Service", ("spec", "ports", 0, "name"), names.PLAN_PORT_NAME),
    (_WORKER_RBAC, "Namespace", ("metadata", "name"), names.SYSTEM_NAMESPACE),
    (_WORKER_RBAC, "Role", ("metadata", "namespace"), names.SYSTEM_NAMESPACE),
    (_WORKER_RBAC, "RoleBinding", ("metadata", "namespace"), names.SYSTEM_NAMESPACE),
    (_WORKER_RBAC, "ServiceAccount", ("metadata", "namespace"), names.SYSTEM_NAMESPACE),
    (_WORKER_RBAC, "ServiceAccount", ("metadata", "name"), names.WORKER_ACCOUNT),
    (_TENANT_RBAC, "RoleBinding", ("roleRef", "name"), names.TENANT_ROLE),
    (_TENANT_RBAC, "RoleBinding", ("subjects", 0, "name"), names.WORKER_ACCOUNT),
    (_TENANT_RBAC, "RoleBinding", ("subjects", 0, "namespace"), names.SYSTEM_NAMESPACE),
    (_QUEUES, "AdmissionCheck", ("spec", "controllerName"), names.CONTROLLER_NAME),
    (_QUEUES, "AdmissionCheck", ("spec", "parameters", "apiGroup"), names.DOMAIN),
    (_QUEUES, "AdmissionCheck", ("spec", "parameters", "kind"), names.DISPATCH_POLICY_KIND),
    (_QUEUES, "AdmissionCheck", ("apiVersion",), names.KUEUE_API_VERSION),
    (_QUEUES, "ClusterQueue", ("apiVersion",), names.KUEUE_API_VERSION),
    (_POOL_QUEUES, "AdmissionCheck", ("spec", "controllerName"), names.CONTROLLER_NAME),
    (_POOL_POLICY, "MutatingAdmissionPolicy", ("spec", "paramKind", "apiVersion"), names.KUEUE_API_VERSION),
    (
        _POOL_POLICY,
        "MutatingAdmissionPolicyBinding",
        ("spec", "paramRef", "selector", "matchLabels", names.POOL_LABEL),
        names.POOL_REMOTE,
    ),
    (_POOL_QUEUES, "LocalQueue", ("metadata", "labels", names.POOL_LABEL), names.POOL_REMOTE),
    (_SERVICE_HOLD, "MutatingAdmissionPolicy", ("metadata", "name"), names.SERVICE_POLICY),
    (_SERVICE_HOLD, "MutatingAdmissionPolicyBinding", ("metadata", "name"), names.SERVICE_POLICY),
    (_SERVICE_HOLD, "MutatingAdmissionPolicyBinding", ("spec", "policyName"), names.SERVICE_POLICY),
    (_ENDPOINTS_BOUNDS, "ValidatingAdmissionPolicy", ("metadata", "name"), names.SERVING_POLICY),
    (_ENDPOINTS_BOUNDS, "ValidatingAdmissionPolicyBinding", ("spec", "policyName"), names.SERVING_POLICY),
    (_ENDPOINTS_BOUNDS, "ValidatingAdmissionPolicyBinding", ("spec", "validationActions", 0), "Deny"),
    (_ACCESS_POLICY, "ValidatingAdmissionPolicy", ("metadata", "name"), names.ACCESS_POLICY),
    (_ACCESS_POLICY, "ValidatingAdmissionPolicy", ("spec", "failurePolicy"), "Fail"),
    (_ACCESS_POLICY, "ValidatingAdmissionPolicyBinding", ("metadata", "name"), names.ACCESS_POLICY),
    (_ACCESS_POLICY, "ValidatingAdmissionPolicyBinding", ("spec", "policyName"), names.ACCESS_POLICY),
    (_ACCESS_POLICY, "ValidatingAdmissionPolicyBinding", ("spec", "validationActions", 0), "Deny"),
    (_ACCESS_KIND, "CustomResourceDefinition", ("spec", "names", "kind"), names.WORKER_ACCESS_KIND),
    (_ACCESS_KIND, "CustomResourceDefinition", ("spec", "group"), names.DOMAIN),
    (_ACCESS_RBAC, "ServiceAccount", ("metadata", "name"), names.ACCESS_ACCOUNT),
    (_ACCESS_RBAC, "ClusterRoleBinding", ("subjects", 0, "name"), names.ACCESS_ACCOUNT),
    (_ACCESS_RBAC, "RoleBinding", ("subjects", 0, "name"), names.ACCESS_ACCOUNT),
    (_ACCESS_SERVER, "Deployment", ("spec", "template", "spec", "serviceAccountName"), names.ACCESS_ACCOUNT),
    (_ACCESS_SERVER, "Service", ("metadata", "name"), names.ACCESS_ACCOUNT),
    (_LOGS_RBAC, "RoleBinding", ("roleRef", "name"), names.LOGS_ROLE),
    (_LOGS_RBAC, "RoleBinding", ("subjects", 0, "name"), names.WORKER_ACCOUNT),
    (_EXEC_RBAC, "RoleBinding", ("roleRef", "name"), names.EXEC_ROLE),
    (_EXEC_RBAC, "RoleBinding", ("subjects", 0, "name"), names.WORKER_ACCOUNT),
    (_GATE_WEBHOOK, "MutatingWebhookConfiguration", ("metadata", "name"), names.GATE_POLICY),
    (_GATE_WEBHOOK, "MutatingWebhookConfiguration", ("webhooks", 0, "name"), names.GATE_WEBHOOK),
    (_GATE_WEBHOOK, "MutatingWebhookConfiguration", (*_SERVICE_OF, "path"), names.GATE_PATH),
    (_GATE_WEBHOOK, "MutatingWebhookConfiguration", (*_SERVICE_OF, "name"), names.ADMISSION_COMPONENT),
    (_GATE_WEBHOOK, "MutatingWebhookConfiguration", (*_SERVICE_OF, "namespace"), names.SYSTEM_NAMESPACE),
    (_WEBHOOKS, "ValidatingWebhookConfiguration", ("metadata", "name"), names.WARNINGS_CONFIGURATION),
    (_WEBHOOKS, "ValidatingWebhookConfiguration", ("webhooks", 0, "name"), names.WARNINGS_WEBHOOK),
    (_WEBHOOKS, "ValidatingWebhookConfiguration", (*_SERVICE_OF, "path"), names.WARNINGS_PATH),
    (_WEBHOOKS, "ValidatingWebhookConfiguration", (*_SERVICE_OF, "name"), names.ADMISSION_COMPONENT),
    (_WEBHOOKS, "ValidatingWebhookConfiguration", (*_SERVICE_OF, "namespace"), names.SYSTEM_NAMESPACE),
    (_WEBHOOKS_RUN, "Deployment", ("metadata", "name"), names.ADMISSION_COMPONENT),
    (_WEBHOOKS_RUN, "Service", ("metadata", "name"), names.ADMISSION_COMPONENT),
    (_WEBHOOKS_RBAC, "ServiceAccount", ("metadata", "name"), names.ADMISSION_COMPONENT),
    (_WEBHOOKS_RBAC, "RoleBinding", ("roleRef", "name"), names.PLAN_ROLE),
    (_CERTIFICATE, "Secret", ("metadata", "name"), names.ADMISSION_COMPONENT),
    (_CERTIFICATE, "Job", ("metadata", "name"), names.ADMISSION_CERTIFICATE),
    (_CERTIFICATE, "ServiceAccount", ("metadata", "name"), names.ADMISSION_CERTIFICATE),
)


@pytest.mark.parametrize(
    ("path", "kind", "field", "expected"),
    _AGREEMENTS,
    ids=[f"{Path(path).stem}-{kind}-{'.'.join(map(str, field))}" for path, kind, field, _ in _AGREEMENTS],
)
def test_manifest_says_what_the_code_says(path: str, kind: str, field: tuple[str | int, ...], expected: str) -> None:
    assert _dig(_find(path, kind), *field) == expected


def test_no_token_of_a_worker_clusters_account_is_permanent() -> None:
    """`kubectl rayspan join` requests one that expires; a Secret would hold one that does not."""
    assert "Secret" not in {
        document["kind"] for path in (_WORKER_RBAC, _TENANT_RBAC) for document in _objects(REPO / path)
    }


def test_policy_adds_our_gate_and_no_other() -> None:
    mutations = _find(_GATE_POLICY, "MutatingAdmissionPolicy")["spec"]["mutations"]
    expressions = [mutation["applyConfiguration"]["expression"] for mutation in mutations]
    assert expressions == [
        f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{names.GATE}"}}]}}}}'
    ]


def test_no_label_of_a_template_avoids_the_gate() -> None:
    """A pod with the lock always gets the gate; only one without it may count as a remote pod, which must run."""
    spec = _find(_GATE_POLICY, "MutatingAdmissionPolicy")["spec"]
    (selected,) = spec["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert selected == {"key": names.PLACEMENT_LABEL, "operator": "Exists"}
    (condition,) = spec["matchConditions"]
    assert condition["expression"].split("\n") == [
        f"!('{names.MANAGER_LABEL}' in object.metadata.labels) "
        f"|| (has(object.spec.nodeSelector) && '{names.LOCK_NODE_SELECTOR}' in object.spec.nodeSelector)"
    ]


_CONTROLLERS = (
    "system:serviceaccount:ray-system:kuberay-operator",
    "system:serviceaccount:kueue-system:kueue-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
)


def test_the_webhook_matches_the_policys_pods_and_fails_closed() -> None:
    policy = _find(_GATE_POLICY, "MutatingAdmissionPolicy")["spec"]
    (webhook,) = _find(_GATE_WEBHOOK, "MutatingWebhookConfiguration")["webhooks"]
    matched = policy["matchConstraints"]
    assert webhook["rules"] == matched["resourceRules"]
    for field in ("objectSelector", "namespaceSelector", "matchPolicy"):
        assert webhook[field] == matched[field]
    for field in ("failurePolicy", "reinvocationPolicy", "matchConditions"):
        assert webhook[field] == policy[field]
    assert webhook["failurePolicy"] == "Fail"


def test_warnings_deny_nothing_and_delay_no_request() -> None:
    """A dry run calls the webhook too, so a plan is available without the plugin."""
    (webhook,) = _find(_WEBHOOKS, "ValidatingWebhookConfiguration")["webhooks"]
    said = webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]
    assert said == ("Ignore", "None", 2) and admission_server.WARNING_SECONDS < 2


@pytest.mark.parametrize(
    ("who", "asked"),
    [
        *((account, False) for account in _CONTROLLERS),
        *(
            (account, True)
            for account in (
                "alice",
                "system:serviceaccount:ci:kuberay-operator-2",
                "system:serviceaccount:argocd:application-controller",
            )
        ),
    ],
)  # fmt: skip
def test_the_users_who_are_warned(who: str, asked: bool) -> None:
    (webhook,) = _find(_WEBHOOKS, "ValidatingWebhookConfiguration")["webhooks"]
    expression = webhook["matchConditions"][0]["expression"]
    (pattern,) = re.findall(r"^!request\.userInfo\.username\.matches\('(.*)'\)$", expression)
    assert (re.search(pattern, who) is None) is asked


def test_the_guards_message_names_the_codes_annotation() -> None:
    (validation,) = _find(_GUARD, "ValidatingAdmissionPolicy")["spec"]["validations"]
    assert f"[?'{names.FORCE_DELETE_ANNOTATION}']" in validation["expression"]
    assert names.FORCE_DELETE_ANNOTATION in validation["messageExpression"]


def test_the_bounds_of_pod_status_use_the_codes_words() -> None:
    """A real API server evaluates the expressions: tests/integration/test_rights.py."""
    spec = _find(_POD_STATUS_BOUNDS, "ValidatingAdmissionPolicy")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods/status"], ["UPDATE"])
    (condition,) = spec["matchConditions"]
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    placement, node, labels, annotations, *_ = (each["expression"] for each in spec["validations"])
    assert placement == f"'{names.PLACEMENT_LABEL}' in variables.oldLabels" and "oldObject.spec.?nodeName" in node
    assert labels.count(f"key == '{names.CLUSTER_LABEL}'") == 2
    assert annotations.count(f"key == '{names.SLOT_ANNOTATION}'") == 2


def test_the_hold_applies_to_kuberays_writes_to_a_services_queued_rayclusters_alone() -> None:
    """Writes of Kueue, of users, and to a RayJob's RayClusters pass. KubeRay's account has one name everywhere."""
    spec = _find(_SERVICE_HOLD, "MutatingAdmissionPolicy")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["rayclusters"], ["UPDATE"])
    assert spec["matchConstraints"]["objectSelector"]["matchExpressions"] == [
        {"key": names.QUEUE_LABEL, "operator": "Exists"},
        {"key": names.RAY_ORIGIN_LABEL, "operator": "In", "values": [names.RAY_SERVICE]},
    ]
    (condition,) = spec["matchConditions"]
    (pattern,) = re.findall(r"username\.matches\('(.*)'\)", condition["expression"])
    whose = {who for who in _ACCOUNTS if re.search(pattern, who)}
    assert whose == {
        "system:serviceaccount:default:kuberay-operator",
        "system:serviceaccount:ray-system:kuberay-operator",
    }


_ACCOUNTS = (
    "system:serviceaccount:default:kuberay-operator",
    "system:serviceaccount:ray-system:kuberay-operator",
    "system:serviceaccount:default:my-kuberay-operator",
    "system:serviceaccount:default:kuberay-operator-2",
    "system:serviceaccount:kueue-system:kueue-controller-manager",
    "kuberay-operator",
)


def test_a_waiting_raycluster_may_be_edited_and_a_running_one_may_not() -> None:
    """A real API server evaluates the expressions on a RayCluster: tests/integration/test_serving.py."""
    spec = _find(_SERVICE_HOLD, "MutatingAdmissionPolicy")["spec"]
    variables = {each["name"]: each["expression"] for each in spec["variables"]}
    assert variables["waits"] == "oldObject.spec.?suspend.orValue(false)"
    held, gated, noted = (mutation["jsonPatch"]["expression"] for mutation in spec["mutations"])
    assert held.split("\n") == [
        '[variables.waits ? JSONPatch{op: "add", path: "/spec/suspend", value: true} '
        ': JSONPatch{op: "replace", path: "/spec", value: oldObject.spec}]'
    ]
    assert variables["elasticGate"].startswith("variables.waits && ")
    assert f"[?'{names.ELASTIC_ANNOTATION}']" in variables["elasticGate"]
    assert f"'name': '{names.ELASTIC_GATE}'" in variables["elasticGate"]
    assert gated.count("value: variables.elasticGate") == 2, "the head and each worker group"
    assert noted.startswith("variables.notes.map(key, ") and "escapeKey(key)" in noted
    assert variables["notes"].startswith("variables.waits ||")  # a waiting RayCluster has a record of its original spec


def test_the_guard_of_services_denies_the_codes_forbidden_upgrade_and_a_missing_annotation() -> None:
    """A real API server evaluates the expressions: tests/integration/test_serving.py."""
    spec = _find(_SERVICE_GUARD, "ValidatingAdmissionPolicy", names.SERVICE_POLICY)["spec"]
    conditions = {condition["name"]: condition["expression"] for condition in spec["matchConditions"]}
    assert conditions["in-a-queue"] == f"object.metadata.?labels[?'{names.QUEUE_LABEL}'].hasValue()"
    upgrade, annotation = spec["validations"]
    assert f"'{names.INCREMENTAL_UPGRADE}'" in upgrade["expression"]
    assert names.INCREMENTAL_UPGRADE in upgrade["messageExpression"]
    (variable,) = spec["variables"]
    for expression in (variable["expression"], annotation["expression"]):
        assert f"[?'{names.ELASTIC_ANNOTATION}'].orValue('') != 'true'" in expression
    assert f'{names.ELASTIC_ANNOTATION}: "true"' in annotation["messageExpression"]
    edits = _find(_SERVICE_GUARD, "ValidatingAdmissionPolicy", "rayspan-rayservice-edits")["spec"]["validations"]
    assert edits[-1]["expression"].count(f"[?'{names.ELASTIC_ANNOTATION}']") == 2
    actions = {
        document["metadata"]["name"]: document["spec"]["validationActions"]
        for document in _objects(REPO / _SERVICE_GUARD)
        if document["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert actions == {names.SERVICE_POLICY: ["Deny"], "rayspan-rayservice-edits": ["Warn"]}


def test_the_bounds_of_slices_use_the_codes_words() -> None:
    """A real API server evaluates the expressions: tests/integration/test_serving.py."""
    spec = _find(_ENDPOINTS_BOUNDS, "ValidatingAdmissionPolicy")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["endpointslices"], ["CREATE", "UPDATE", "DELETE"])
    condition, relayed = spec["matchConditions"]
    assert f"'{names.SYSTEM_NAMESPACE}'" in relayed["expression"]
    assert f".startsWith('{router_service('')}')" in relayed["expression"]
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    said = " ".join(one["expression"] for part in ("variables", "validations") for one in spec[part])
    assert said.count(f"'{names.SERVING_SLICES_MANAGER}'") == 3
    assert f"'{names.SERVICE_NAME_LABEL}'" in said and f"'{names.SLICE_MANAGED_BY_LABEL}'" in said
    assert service_endpoints.slice_name("chat", "IPv6") == "chat-rayspan-ipv6"
    assert "variables.service + '-rayspan-' + object.addressType.lowerAscii()" in said


def test_the_layouts_have_the_same_check_and_local_queue() -> None:
    """A change between the layouts changes the ClusterQueue, its flavors, and one label alone."""
    assert _find(_QUEUES, "AdmissionCheck") == _find(_POOL_QUEUES, "AdmissionCheck")
    shared, pools = (_find(path, "LocalQueue") for path in (_QUEUES, _POOL_QUEUES))
    assert pools["metadata"].pop("labels") == {names.POOL_LABEL: names.POOL_REMOTE}
    assert shared == pools


def test_the_pools_share_one_key_and_the_policy_names_the_remote_pool() -> None:
    """Both must have the key (docs/upstream.md, "A selector meets a flavor's own keys only")."""
    local, remote = (_find(_POOL_QUEUES, "ResourceFlavor", name)["spec"] for name in ("local", "remote"))
    assert local == {"nodeLabels": {names.POOL_LABEL: "local"}}
    assert remote["nodeLabels"] == {names.POOL_LABEL: "remote"}
    (taint,) = remote["nodeTaints"]
    assert taint == {"key": names.POOL_LABEL, "value": "remote", "effect": "NoSchedule"}
    (listed,) = _find(_POOL_QUEUES, "ClusterQueue")["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert listed["onFlavors"] == ["remote"]
    tolerate, select = (
        mutation["jsonPatch"]["expression"]
        for mutation in _find(_POOL_POLICY, "MutatingAdmissionPolicy")["spec"]["mutations"]
    )
    escaped = names.POOL_LABEL.replace("/", "~1")
    assert f'/nodeSelector/{escaped}", value: "remote"' in select and f'{{"{names.POOL_LABEL}": "remote"}}' in select
    toleration = f'{{"key": "{names.POOL_LABEL}", "operator": "Equal", "value": "remote", "effect": "NoSchedule"}}'
    assert tolerate.count(toleration) == 2


_KINDS: Mapping[str, tuple[str, str]] = {
    names.WORKER_CLUSTER_KIND: ("workerclusters", "Cluster"),
    names.DISPATCH_POLICY_KIND: ("dispatchpolicies", "Cluster"),
    names.PLACEMENT_KIND: ("placements", "Namespaced"),
}


def _crd(kind: str) -> dict[str, Any]:
    return _objects(_MANIFESTS / "crds" / f"{_KINDS[kind][0]}.yaml")[0]


def _schema(kind: str, *path: str) -> Any:
    value = _dig(_crd(kind), "spec", "versions", 0, "schema", "openAPIV3Schema")
    for step in path:
        value = value["properties"][step]
    return value


@pytest.mark.parametrize("kind", _KINDS)
def test_definition_has_our_names(kind: str) -> None:
    plural, scope = _KINDS[kind]
    crd = _crd(kind)
    assert crd["metadata"]["name"] == f"{plural}.{names.DOMAIN}"
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == (names.DOMAIN, scope)
    assert (crd["spec"]["names"]["kind"], crd["spec"]["names"]["plural"]) == (kind, plural)
    versions = crd["spec"]["versions"]
    assert [f"{names.DOMAIN}/{version['name']}" for version in versions] == [names.API_VERSION]
    assert "status" in versions[0]["subresources"] and "status" in _schema(kind)["properties"]


@pytest.mark.parametrize("kind", [names.WORKER_CLUSTER_KIND, names.DISPATCH_POLICY_KIND])
def test_readiness_is_shown(kind: str) -> None:
    ready = f'.status.conditions[?(@.type=="{names.READY}")]'
    shown = {one["name"]: one["jsonPath"] for one in _crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]}
    assert (shown["Ready"], shown["Reason"], shown["Message"]) == (
        f"{ready}.status",
        f"{ready}.reason",
        f"{ready}.message",
    )
    assert _schema(kind, "status", "observedGeneration")["type"] == "integer"


def test_short_names_differ_from_each_other() -> None:
    short = [name for kind in _KINDS for name in _crd(kind)["spec"]["names"]["shortNames"]]
    assert len(short) == len(set(short)) == len(_KINDS)


@pytest.mark.parametrize("kind", _KINDS)
def test_every_field_is_explained(kind: str) -> None:
    """`kubectl explain` documents every field of ours; metadata and conditions are Kubernetes' own."""

    def unexplained(schema: Mapping[str, Any], path: str) -> Iterator[str]:
        if path == "status.conditions":
            return
        for name, field in schema.get("properties", {}).items():
            where = f"{path}.{name}".removeprefix(".")
            if not field.get("description") and where not in {"apiVersion", "kind", "metadata"}:
                yield where
            yield from unexplained(field.get("items", field), where)

    assert list(unexplained(_schema(kind), "")) == []


def test_placement_knows_every_state() -> None:
    states = {*PlacementState}
    assert set(_schema(names.PLACEMENT_KIND, "status", "state")["enum"]) == states


@pytest.mark.parametrize(
    ("kind", "model"),
    [(names.WORKER_CLUSTER_KIND, specs.WorkerCluster), (names.DISPATCH_POLICY_KIND, specs.DispatchPolicy)],
)
def test_definition_has_the_fields_that_the_code_reads(kind: str, model: Any) -> None:
    assert set(_schema(kind, "spec")["properties"]) == {
        field.alias or name for name, field in model.model_fields.items()
    }


def test_defaults_of_a_policy_are_those_of_the_code() -> None:
    fields = _schema(names.DISPATCH_POLICY_KIND, "spec")["properties"]
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    stored = {"metadata": {"name": "p"}, "spec": {"clusters": {"names": ["east"]}, **defaults}}
    smallest = {"metadata": {"name": "p"}, "spec": {"clusters": {"names": ["east"]}}}
    assert specs.parse_dispatch_policy(stored) == specs.parse_dispatch_policy(smallest)


def test_the_cap_of_priorities_is_that_of_the_code() -> None:
    spec = specs.parse_worker_cluster(
        {"metadata": {"name": "c"}, "spec": {"source": {"kubeConfig": {"secretRef": {"name": "s"}}}}}
    )
    assert _schema(names.WORKER_CLUSTER_KIND, "spec", "maxPriority")["default"] == spec.max_priority


def test_the_code_reads_the_demo_fleet() -> None:
    fleet = _objects(_KUSTOMIZE / "overlays/demo-fleet/fleet.yaml")
    clusters = [document for document in fleet if document["kind"] == names.WORKER_CLUSTER_KIND]
    (policy,) = (document for document in fleet if document["kind"] == names.DISPATCH_POLICY_KIND)
    assert [document["metadata"]["name"] for document in clusters] == list(
        specs.parse_dispatch_policy(policy).clusters.names
    )
    for document in clusters:
        assert specs.parse_worker_cluster(document).zone == document["metadata"]["name"]
    assert policy["metadata"]["name"] == _find(_QUEUES, "AdmissionCheck")["spec"]["parameters"]["name"]
    assert all(document["apiVersion"] == names.API_VERSION for document in fleet)


# --- rights ----------------------------------------------------------------------------------------------------------


def _verbs(path: str, kind: str, name: str, resource: str) -> set[str]:
    rules = _find(path, kind, name)["rules"]
    return {verb for rule in rules if resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize(
    ("path", "kind", "name", "resource", "verbs"),
    [
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "secrets", set()),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "pods", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "pods/status", {"patch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "workloads", {"list", "watch", "patch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "admissionchecks", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "clusterqueues", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "localqueues", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "resourceflavors", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "workerclusters", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "workerclusters/status", {"patch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "dispatchpolicies", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "dispatchpolicies/status", {"patch"}),
        (
            _MANAGER_RBAC,
            "ClusterRole",
            "rayspan-controller",
            "placements",
            {"create", "list", "watch", "patch", "delete"},
        ),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "mutatingadmissionpolicies", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "mutatingadmissionpolicybindings", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "namespaces", {"get"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "workloads/status", {"patch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "rayclusters", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "multikueueclusters", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "multikueueconfigs", {"list", "watch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "clusterprofiles", {"list", "watch"}),
        (_MANAGER_RBAC, "Role", "rayspan-controller", "secrets", {"list", "watch"}),
        (_MANAGER_RBAC, "Role", "rayspan-controller", "leases", {"create", "get", "patch"}),
        (_MULTIKUEUE_RBAC, "Role", "rayspan-controller", "secrets", {"list", "watch"}),
        (_AGGREGATOR_RBAC, "ClusterRole", "rayspan-quota-aggregator", "clusterqueues", {"patch"}),
        (_JOB_LABELS_RBAC, "ClusterRole", "rayspan-job-labels", "rayjobs", {"patch"}),
        (_JOB_LABELS_RBAC, "ClusterRole", "rayspan-job-labels", "rayclusters", {"patch"}),
        (_JOB_LABELS_RBAC, "ClusterRole", "rayspan-job-labels", "rayservices", {"patch"}),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "endpointslices", set()),
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", "services", set()),
        (_ENDPOINTS_RBAC, "ClusterRole", names.SERVING_POLICY, "services", {"list", "watch"}),
        (_ENDPOINTS_RBAC, "ClusterRole", names.SERVING_POLICY, "endpointslices", {"list", "watch"}),
        (
            _ENDPOINTS_RBAC,
            "ClusterRole",
            f"{names.SERVING_POLICY}-write",
            "endpointslices",
            {"create", "patch", "delete"},
        ),
        (_RELAY_RBAC, "Role", "rayspan-relay", "services", {"list", "create", "patch", "delete"}),
        (_RELAY_RBAC, "Role", "rayspan-relay", "endpointslices", {"create", "patch"}),
        (_RELAY_RBAC, "Role", "rayspan-relay", "endpointslices/restricted", {"create"}),
        (_RELAY_RBAC, "Role", "rayspan-relay", "secrets", {"create"}),
        (_RELAY_RBAC, "ClusterRole", "rayspan-relay", "secrets", {"create", "patch"}),
        (_RELAY_RBAC, "ClusterRole", "rayspan-relay", "services", {"create", "patch"}),
        (_RELAY_RBAC, "ClusterRole", "rayspan-relay", "endpointslices", set()),
        (_MANAGER_RBAC, "Role", names.PLAN_ROLE, "services/proxy", {"create"}),
        (_MANAGER_RBAC, "ClusterRole", names.DRAIN_ROLE, "workerclusters", {"get", "patch"}),
        (_MANAGER_RBAC, "ClusterRole", names.DRAIN_ROLE, "workerclusters/status", set()),
        (_MANAGER_RBAC, "ClusterRole", names.DRAIN_ROLE, "placements", {"list"}),
        (_MANAGER_RBAC, "ClusterRole", names.DRAIN_ROLE, "pods", {"list"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "pods", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "workloads", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "clusterqueues", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "localqueues", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "cohorts", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "resourceflavors", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "namespaces", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "services", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "endpointslices", {"list", "watch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "configmaps", set()),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "secrets", set()),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "leases", set()),
        (_WORKER_RBAC, "Role", "rayspan-worker", "leases", {"create", "get", "patch"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "pods", {"create", "get", "delete"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "workloads", {"create", "get", "delete"}),
        (
            _WORKER_RBAC,
            "ClusterRole",
            "rayspan-worker-tenant",
            "configmaps",
            {"create", "update", "get", "list", "delete"},
        ),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "secrets", {"create", "update", "delete"}),
        (_COPIES_RBAC, "ClusterRole", names.COPIED_OBJECTS_ROLE, "secrets", {"get"}),
        (_COPIES_RBAC, "ClusterRole", names.COPIED_OBJECTS_ROLE, "configmaps", {"get"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "services", {"create", "get", "patch", "delete"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "endpointslices", {"create", "get", "patch", "delete"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "endpointslices/restricted", {"create"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "podgroups", {"create", "get"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker-tenant", "resourceclaimtemplates", {"get"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", "resourceclaimtemplates", set()),
        (_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT, "workeraccesses", {"get", "list", "delete"}),
        (_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT, "pods", {"get"}),
        (_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT, "workerclusters", {"get"}),
        (_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT, "clusterprofiles", {"get"}),
        (_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT, "multikueueclusters", {"get"}),
        (_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT, "secrets", set()),
        (_ACCESS_RBAC, "Role", names.ACCESS_ACCOUNT, "secrets", {"get"}),
        (_ACCESS_RBAC, "Role", names.ACCESS_ACCOUNT, "leases", {"get"}),
        (_ACCESS_RBAC, "Role", names.ACCESS_ROLE, "services/proxy", {"get", "create"}),
        (_ACCESS_RBAC, "ClusterRole", "rayspan-access-view", "workeraccesses", {"create"}),
        (_LOGS_RBAC, "ClusterRole", names.LOGS_ROLE, "pods/log", {"get"}),
        (_EXEC_RBAC, "ClusterRole", names.EXEC_ROLE, "pods/exec", {"get", "create"}),
        (_EXEC_RBAC, "ClusterRole", names.EXEC_ROLE, "pods/portforward", {"get", "create"}),
    ],
)
def test_rights_are_exactly_these(path: str, kind: str, name: str, resource: str, verbs: set[str]) -> None:
    assert _verbs(path, kind, name, resource) == verbs


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("rayspan-worker", preflight_facts.CLUSTER_RIGHTS),
        ("rayspan-worker-tenant", {**preflight_facts.NAMESPACE_RIGHTS, **preflight_facts.PREFLIGHT_RIGHTS}),
    ],
)
def test_a_preflight_checks_the_rights_of_the_role(name: str, wanted: Mapping[Any, Any]) -> None:
    rules = _find(_WORKER_RBAC, "ClusterRole", name)["rules"]
    given = {
        ((rule["apiGroups"][0], kind), verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]
    }
    assert {(kind, verb) for kind, verbs in wanted.items() for verb in verbs} == given


@pytest.mark.parametrize(
    ("resource", "named"),
    [
        ("mutatingadmissionpolicies", [names.GATE_POLICY]),
        ("mutatingadmissionpolicybindings", [names.GATE_POLICY]),
        ("mutatingwebhookconfigurations", [names.GATE_POLICY]),
        ("namespaces", ["kube-system"]),
    ],
)
def test_a_right_to_one_object_names_it(resource: str, named: list[str]) -> None:
    """In the manager: our own gate, and one namespace's uid."""
    rules = _find(_MANAGER_RBAC, "ClusterRole", "rayspan-controller")["rules"]
    assert [rule.get("resourceNames") for rule in rules if resource in rule["resources"]] == [named]


def test_the_right_to_a_lease_names_the_codes_lease() -> None:
    """Only the right to create is wider, because RBAC cannot name what does not exist."""
    rules = [
        rule for rule in _find(_MANAGER_RBAC, "Role", "rayspan-controller")["rules"] if "leases" in rule["resources"]
    ]
    assert {tuple(rule["verbs"]): rule.get("resourceNames") for rule in rules} == {
        ("create",): None,
        ("get", "patch"): [names.LEASE],
    }


def test_the_right_to_ask_for_plans_is_one_path() -> None:
    (rule,) = _find(_MANAGER_RBAC, "Role", names.PLAN_ROLE)["rules"]
    assert rule["resourceNames"] == [f"{names.SERVICE}:{names.PLAN_PORT_NAME}"]


def test_the_access_server_is_reached_by_one_path_and_judges_by_one_policy() -> None:
    (rule,) = _find(_ACCESS_RBAC, "Role", names.ACCESS_ROLE)["rules"]
    assert rule["resourceNames"] == [names.ACCESS_SERVICE_PROXY]
    (port,) = _find(_ACCESS_SERVER, "Service")["spec"]["ports"]
    assert f"{port['name']}:{names.ACCESS_ACCOUNT}:{port['port']}" == names.ACCESS_SERVICE_PROXY
    rules = _find(_ACCESS_RBAC, "ClusterRole", names.ACCESS_ACCOUNT)["rules"]
    named = {kind: rule.get("resourceNames") for rule in rules for kind in rule["resources"]}
    assert named["validatingadmissionpolicies"] == named["validatingadmissionpolicybindings"] == [names.ACCESS_POLICY]
    assert named["namespaces"] == ["kube-system"]
    own_rules = _find(_ACCESS_RBAC, "Role", names.ACCESS_ACCOUNT)["rules"]
    assert [rule["resourceNames"] for rule in own_rules if "leases" in rule["resources"]] == [[names.LEASE]]
    bound = {document["roleRef"]["name"] for document in _objects(REPO / _ACCESS_RBAC) if "roleRef" in document}
    assert bound == {names.ACCESS_ACCOUNT}, "nobody has the role of users at first"


def test_the_access_server_is_confined_like_the_controller() -> None:
    access, controller = (
        _find(path, "Deployment")["spec"]["template"]["spec"] for path in (_ACCESS_SERVER, _DEPLOYMENT)
    )
    assert access["securityContext"] == controller["securityContext"]
    (access_server,), (other,) = access["containers"], controller["containers"]
    assert access_server["securityContext"] == other["securityContext"] and access_server["image"] == other["image"]
    assert "memory" in access_server["resources"]["limits"]


def test_a_grant_has_the_fields_that_the_code_reads_and_bounds_for_each() -> None:
    (version,) = _find(_ACCESS_KIND, "CustomResourceDefinition")["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    pod = {"metadata": {"namespace": "n", "name": "p", "uid": "u"}}
    words: dict[str, Any] = {"container": "c", "command": ["ls"], "stdin": True, "tty": True}
    assert fields.keys() == grant.manifest(pod, grant.EXEC, "k", **words)["spec"].keys()
    assert fields["subresource"]["enum"] == [*grant.SUBRESOURCES]
    texts = [*(field for field in fields.values() if field["type"] == "string"), fields["command"]["items"]]
    assert all("maxLength" in field or "enum" in field for field in texts) and "maxItems" in fields["command"]
    assert all(field.get("description") for field in fields.values())


def test_roles_for_users_are_bound_to_no_user() -> None:
    bound = {document["roleRef"]["name"] for document in _objects(REPO / _MANAGER_RBAC) if "roleRef" in document}
    assert bound and not bound & {names.PLAN_ROLE, names.DRAIN_ROLE, names.USER_ROLE}


def test_the_service_leads_to_the_controller() -> None:
    service, deployment = _find(_DEPLOYMENT, "Service"), _find(_DEPLOYMENT, "Deployment")
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert [port["targetPort"] in ports for port in service["spec"]["ports"]] == [True]


def test_one_replica_is_always_available_to_take_over() -> None:
    """During a rollout and a drain of nodes, one of two stays; they are selected by the pods' labels."""
    spec = _find(_DEPLOYMENT, "Deployment")["spec"]
    budget = _find(_DEPLOYMENT, "PodDisruptionBudget")["spec"]
    assert (spec["replicas"], budget["minAvailable"]) == (2, 1)
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    (apart,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = spec["template"]["metadata"]["labels"]
    assert apart["podAffinityTerm"]["labelSelector"] == budget["selector"] == {"matchLabels": labels}


@pytest.mark.parametrize(
    ("path", "kind", "name", "read"),
    [
        (_MANAGER_RBAC, "ClusterRole", "rayspan-controller", {"namespaces"}),
        (_MANAGER_RBAC, "Role", "rayspan-controller", {"leases"}),
        (_MULTIKUEUE_RBAC, "Role", "rayspan-controller", set()),
        (_COPIES_RBAC, "ClusterRole", names.COPIED_OBJECTS_ROLE, {"secrets", "configmaps"}),
        (_WORKER_RBAC, "ClusterRole", "rayspan-worker", set()),
        (
            _WORKER_RBAC,
            "ClusterRole",
            "rayspan-worker-tenant",
            {"workloads", "pods", "configmaps", "services", "endpointslices", "podgroups", "resourceclaimtemplates"},
        ),
    ],
)
def test_only_objects_that_are_read_by_name_have_the_right_to_get(
    path: str, kind: str, name: str, read: set[str]
) -> None:
    """All else is listed and watched; an unused right is one too many."""
    rules = _find(path, kind, name)["rules"]
    assert {resource for rule in rules if "get" in rule["verbs"] for resource in rule["resources"]} == read


def test_only_named_secrets_of_kueues_namespace_are_read() -> None:
    """The other Secrets are Kueue's own keys."""
    rules = _find(_MULTIKUEUE_RBAC, "Role")["rules"]
    assert rules and all(rule["resourceNames"] for rule in rules)


@pytest.mark.parametrize(
    "path",
    [
        *(_MANAGER_RBAC, _COPIES_RBAC, _WORKER_RBAC, _MULTIKUEUE_RBAC, _AGGREGATOR_RBAC, _ENDPOINTS_RBAC),
        *(_ACCESS_RBAC, _LOGS_RBAC, _EXEC_RBAC),
        *(_WEBHOOKS_RBAC, _CERTIFICATE),
    ],
)
def test_no_right_is_a_wildcard(path: str) -> None:
    for document in _objects(REPO / path):
        for rule in document.get("rules", ()):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_the_webhooks_write_nothing() -> None:
    rules = _find(_WEBHOOKS_RBAC, "ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}


def test_the_job_for_the_webhooks_certificate_writes_by_name() -> None:
    """It writes three objects of this component."""
    rules = [rule for each in _objects(REPO / _CERTIFICATE) for rule in each.get("rules", ())]
    named = {(rule["resources"][0], *rule["resourceNames"]) for rule in rules}
    assert named == {
        ("secrets", names.ADMISSION_COMPONENT),
        ("mutatingwebhookconfigurations", names.GATE_POLICY),
        ("validatingwebhookconfigurations", names.WARNINGS_CONFIGURATION),
    }
    assert all(rule["verbs"] == ["get", "patch"] for rule in rules)


def test_the_webhooks_service_leads_to_them() -> None:
    service, deployment = _find(_WEBHOOKS_RUN, "Service"), _find(_WEBHOOKS_RUN, "Deployment")
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    job = _find(_CERTIFICATE, "Job")["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= job.items(), "and not to the Job"
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert [port["targetPort"] in ports for port in service["spec"]["ports"]] == [True]


# --- the sample and its queues ---------------------------------------------------------------------------------------


def _milli(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else 1000 * int(quantity)


def _mebi(quantity: str) -> int:
    return {"Mi": 1, "Gi": 1024}[quantity[-2:]] * int(quantity[:-2])


def _quota(path: str, flavor: int = 0) -> tuple[int, int]:
    resources = _dig(_find(path, "ClusterQueue"), "spec", "resourceGroups", 0, "flavors", flavor, "resources")
    quota = {resource["name"]: resource["nominalQuota"] for resource in resources}
    return _milli(quota["cpu"]), _mebi(quota["memory"])


def _requests(group: Mapping[str, Any]) -> tuple[int, int]:
    requests = _dig(group, "template", "spec", "containers", 0, "resources", "requests")
    return _milli(requests["cpu"]), _mebi(requests["memory"])


def test_two_sample_workers_fill_a_worker_queue() -> None:
    (group,) = _find(_SAMPLE, "RayJob")["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    cpu, memory = _requests(group)
    assert _quota("manifests/queues/worker/queues.yaml") == (2 * cpu, 2 * memory)
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 4


def test_the_manager_queue_holds_a_whole_sample() -> None:
    spec = _find(_SAMPLE, "RayJob")["spec"]["rayClusterSpec"]
    (group,) = spec["workerGroupSpecs"]
    submitter = (500, 200)  # KubeRay's default
    need = [
        head + each + group["replicas"] * worker
        for head, each, worker in zip(_requests(spec["headGroupSpec"]), submitter, _requests(group), strict=True)
    ]
    have = _quota(_QUEUES)
    assert need[0] <= have[0] and need[1] <= have[1]


def test_the_pools_hold_a_whole_sample() -> None:
    """Head and submitter in one pool; in the other, as many workers as all worker clusters hold."""
    spec = _find(_SAMPLE, "RayJob")["spec"]["rayClusterSpec"]
    (group,) = spec["workerGroupSpecs"]
    here = [head + each for head, each in zip(_requests(spec["headGroupSpec"]), (500, 200), strict=True)]
    assert _quota(_POOL_QUEUES, 0) == tuple(6 * each for each in here)
    assert _quota(_POOL_QUEUES, 1) == tuple(2 * each for each in _quota("manifests/queues/worker/queues.yaml"))
    assert _quota(_POOL_QUEUES, 1) == tuple(group["replicas"] * each for each in _requests(group))


def test_the_sample_is_stock() -> None:
    """Its one addition is Kueue's queue label: a job must need nothing of ours."""
    job = _find(_SAMPLE, "RayJob")
    queue = _find(_QUEUES, "LocalQueue")["metadata"]
    assert job["metadata"]["labels"] == {names.QUEUE_LABEL: queue["name"]}
    assert job["metadata"]["namespace"] == queue["namespace"]
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    spec = job["spec"]["rayClusterSpec"]
    assert names.DOMAIN not in yaml.safe_dump(job)
    (worker,) = (group["template"]["spec"] for group in spec["workerGroupSpecs"])
    assert "volumes" not in worker  # a worker that needs a ConfigMap cannot run remotely yet


def test_the_sample_program_compiles_and_uses_our_words() -> None:
    program = _find(_SAMPLE, "ConfigMap")["data"]["pi.py"]
    constants = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(program).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert (constants["ZONE"], constants["CLUSTER"]) == (names.RAY_ZONE_LABEL, names.CLUSTER_LABEL)

"""API paths of objects, with a constant for each kind."""

from dataclasses import dataclass
from urllib.parse import quote

from adapter import names


@dataclass(frozen=True, slots=True)
class Resource:
    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """The path of a collection, object or subresource; without a namespace, of a collection in all namespaces.

        Untrusted names are quoted. `.` and `..`, which quoting does not change, raise ValueError.
        """
        if {namespace, name} & {".", ".."}:
            raise ValueError("no object can have such a name")
        parts = ["/api" if "/" not in self.api_version else "/apis", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", _quote_name(namespace)]
        return "/".join([*parts, self.plural, *([_quote_name(name)] if name else []), *([sub] if sub else [])])


def _quote_name(name: str) -> str:
    return quote(name, safe=":")  # a Service's name in a proxy path has a colon before its port


def kind_of(path: str) -> tuple[str, bool]:
    """The plural in a path, with its subresource as in audit logs, and whether the path names one object.

    `/api/v1/namespaces/demo/pods/a/status` gives pods/status; a path outside of the API gives its first word.
    """
    root, *parts = path.strip("/").split("/")
    if root not in ("api", "apis"):
        return root, False
    parts = parts[1 if root == "api" else 2 :]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    plural, *rest = parts or [root]
    return "/".join([plural, *rest[1:2]]), bool(rest)


def controller_proxy_path(path: str) -> str:
    """The path by which the manager's API server proxies to the controller; the RBAC for plans grants it."""
    return SERVICES.path(names.SYSTEM_NAMESPACE, f"{names.SERVICE}:{names.PLAN_PORT_NAME}", f"proxy{path}")


PODS = Resource("v1", "pods")
CONFIG_MAPS = Resource("v1", "configmaps")
SECRETS = Resource("v1", "secrets")
SERVICES = Resource("v1", "services")
ENDPOINT_SLICES = Resource(names.DISCOVERY_API_VERSION, "endpointslices")
EVENTS = Resource("v1", "events")
CLAIMS = Resource("v1", "persistentvolumeclaims")
CLAIM_TEMPLATES = Resource(names.RESOURCE_API_VERSION, "resourceclaimtemplates")
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts")
NODES = Resource("v1", "nodes", namespaced=False)
NAMESPACES = Resource("v1", "namespaces", namespaced=False)
LEASES = Resource(names.LEASE_API_VERSION, "leases")
WORKLOADS = Resource(names.KUEUE_API_VERSION, "workloads")
LOCAL_QUEUES = Resource(names.KUEUE_API_VERSION, "localqueues")
CLUSTER_QUEUES = Resource(names.KUEUE_API_VERSION, "clusterqueues", namespaced=False)
COHORTS = Resource(names.KUEUE_API_VERSION, "cohorts", namespaced=False)
FLAVORS = Resource(names.KUEUE_API_VERSION, "resourceflavors", namespaced=False)
ADMISSION_CHECKS = Resource(names.KUEUE_API_VERSION, "admissionchecks", namespaced=False)
MULTIKUEUE_CLUSTERS = Resource(names.KUEUE_API_VERSION, "multikueueclusters", namespaced=False)
MULTIKUEUE_CONFIGS = Resource(names.KUEUE_API_VERSION, "multikueueconfigs", namespaced=False)
CLUSTER_PROFILES = Resource(names.INVENTORY_API_VERSION, "clusterprofiles")
POD_GROUPS = Resource(names.VOLCANO_API_VERSION, "podgroups")
RAY_JOBS = Resource(names.RAY_API_VERSION, "rayjobs")
RAY_CLUSTERS = Resource(names.RAY_API_VERSION, "rayclusters")
RAY_SERVICES = Resource(names.RAY_API_VERSION, "rayservices")
WORKER_CLUSTERS = Resource(names.API_VERSION, "workerclusters", namespaced=False)
DISPATCH_POLICIES = Resource(names.API_VERSION, "dispatchpolicies", namespaced=False)
PLACEMENTS = Resource(names.API_VERSION, "placements")
WORKER_ACCESSES = Resource(names.API_VERSION, "workeraccesses")
DEPLOYMENTS = Resource("apps/v1", "deployments")
ROLES = Resource("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "rolebindings")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
GATE_POLICIES = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", namespaced=False)
GATE_BINDINGS = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False)
ACCESS_POLICIES = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False)
ACCESS_BINDINGS = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False)
GATE_WEBHOOKS = Resource("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False)
WARNING_WEBHOOKS = Resource("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", namespaced=False)

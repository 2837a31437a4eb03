"""A cluster's membership in a manager's fleet: its objects in both clusters, and the checks against mix-ups.

The worker cluster has the account of manifests/rbac, with an annotation for each manager, which has the cluster's name
in that manager. The manager has a WorkerCluster and a Secret with a kubeconfig, annotated with the identity of the
worker cluster. So each side detects a login to a wrong cluster, also after a crash between two writes.

No requests are made here. Only a kubeconfig contains a token.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from adapter import names
from adapter.objects.unstructured import UNREADABLE, Raw, annotation, format_time, key_of, meta, parse_time

# How long a token is valid: the usual interval of renewals by hand. A stolen kubeconfig is worthless after that time.
TOKEN_LIFETIME: Final = timedelta(days=90)
# The lifetimes that an API server accepts (k8s:pkg/apis/authentication/validation/validation.go).
MIN_TOKEN_LIFETIME: Final = timedelta(minutes=10)
MAX_TOKEN_LIFETIME: Final = timedelta(seconds=2**32)
# A second `join` keeps a token that lasts at least this long, so that there is time for the next steps.
MIN_REMAINING_LIFETIME: Final = timedelta(hours=1)
# The roles that an administrator may also bind to the account (kustomize/overlays/worker-logs and worker-exec). If a
# binding remained after the account, it would apply to the next account of that name.
REACH_ROLES: Final = (names.LOGS_ROLE, names.EXEC_ROLE)
# How early the end of a token is announced: after a week's absence, a working week remains to renew it by hand. A token
# with a shorter lifetime than this is renewed by a job, and its last day is always shown.
EXPIRY_NOTICE: Final = timedelta(days=14)
TOKEN_PLACEHOLDER: Final = "TOKEN"  # stands for a token in output for people


class MembershipError(ValueError):
    """The request cannot be fulfilled; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """How an API server is reached."""

    server: str
    ca_bundle: str = ""  # PEM; empty: the certificates that the machine trusts
    tls_server_name: str = ""  # the name in its certificate, if it differs
    proxy_url: str = ""
    verified: bool = True


@dataclass(frozen=True, slots=True)
class AccountToken:
    """A token that the API server issued."""

    value: str = field(repr=False)  # must never be shown
    expires_at: datetime
    reused: bool = False  # it was issued earlier


@dataclass(frozen=True, slots=True)
class Membership:
    """One cluster as a worker of one manager."""

    name: str  # of the WorkerCluster, and of its Secret
    manager_identity: str  # the cluster identity of the manager
    worker_identity: str


@dataclass(frozen=True, slots=True)
class MembershipState:
    """The observed objects of a membership; None if absent."""

    worker_cluster: Raw | None = None
    secret: Raw | None = None
    service_account: Raw | None = None  # in the worker cluster


def cluster_identity_of(kube_system: Raw) -> str:
    """A short, stable identity of a cluster, from its namespace kube-system."""
    return hashlib.sha256(kube_system["metadata"]["uid"].encode()).hexdigest()[:10]


# --- the objects -----------------------------------------------------------------------------------------------------


def worker_cluster_objects(
    membership: Membership,
    account_objects: Iterable[Raw],
    namespace_binding: Raw,
    namespaces: Iterable[str],
) -> list[Raw]:
    """The objects of a worker cluster, in the order of creation.

    `account_objects` (the account with its roles) and `namespace_binding` (the RoleBinding that opens a namespace to
    it) are from manifests/rbac. The account has the annotation of this manager only: each manager applies as a field
    manager of its own, so that it neither removes nor restores another one's annotation.
    """
    annotations = {f"{names.JOINED_PREFIX}{membership.manager_identity}": membership.name}
    objects = [
        _with_metadata(raw, annotations={**(meta(raw).get("annotations") or {}), **annotations})
        if raw["kind"] == "ServiceAccount"
        else raw
        for raw in account_objects
    ]
    return [*objects, *(_with_metadata(namespace_binding, namespace=namespace) for namespace in namespaces)]


def field_manager(membership: Membership) -> str:
    """The field manager of a manager's objects in a worker cluster."""
    return f"{names.JOIN_FIELD_MANAGER}-{membership.manager_identity}"


def kubeconfig_secret(membership: Membership, kubeconfig: str, expires_at: datetime) -> dict[str, Any]:
    """The manager's Secret with the kubeconfig."""
    annotations = {
        names.CLUSTER_ID_ANNOTATION: membership.worker_identity,
        names.TOKEN_EXPIRES_ANNOTATION: format_time(expires_at),
    }
    metadata = {"name": membership.name, "namespace": names.SYSTEM_NAMESPACE, "annotations": annotations}
    data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def worker_cluster_manifest(name: str) -> dict[str, Any]:
    """The smallest WorkerCluster; its author may set further fields."""
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    header = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": name}}
    return {**header, "spec": {"source": source}}


def token_request(lifetime: timedelta) -> dict[str, Any]:
    spec = {"expirationSeconds": int(lifetime.total_seconds())}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def _with_metadata(raw: Raw, **fields: Any) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], **fields}}


# --- the kubeconfig --------------------------------------------------------------------------------------------------


def build_kubeconfig(address: ApiServerAddress, token: str) -> str:
    """A kubeconfig in the form that the controller accepts: inline data only, no files, no programs."""
    cluster = {"server": address.server}
    if address.ca_bundle:
        cluster["certificate-authority-data"] = base64.b64encode(address.ca_bundle.encode()).decode()
    cluster |= {"tls-server-name": address.tls_server_name} if address.tls_server_name else {}
    cluster |= {"proxy-url": address.proxy_url} if address.proxy_url else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "worker", "cluster": cluster}],
        "users": [{"name": names.WORKER_ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": names.WORKER_ACCOUNT}}],
        "current-context": "worker",
    }
    return yaml.safe_dump(content, sort_keys=False)


def with_token(text: str, token: str) -> str:
    """The kubeconfig with another token.

    Raises MembershipError unless the kubeconfig has one user, with a token and nothing else.
    """
    try:
        content = yaml.safe_load(text)
        (user,) = content["users"]
        if set(user["user"]) != {"token"}:
            raise ValueError
        user["user"] = {"token": token}
    except (yaml.YAMLError, *UNREADABLE):
        raise MembershipError("it is not a kubeconfig with one user that has a token") from None
    return yaml.safe_dump(content, sort_keys=False)


def read_kubeconfig(raw: Raw | None) -> str:
    """The kubeconfig in a Secret; empty if absent."""
    try:
        return base64.b64decode((raw or {})["data"][names.KUBECONFIG_KEY], validate=True).decode()
    except UNREADABLE:
        return ""


def address_in_kubeconfig(text: str) -> ApiServerAddress | None:
    """The address in a kubeconfig that `build_kubeconfig` wrote; None in any other."""
    try:
        cluster = yaml.safe_load(text)["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster.get("certificate-authority-data", ""), validate=True).decode()
        address = ApiServerAddress(
            cluster["server"], authority, cluster.get("tls-server-name", ""), cluster.get("proxy-url", "")
        )
    except (yaml.YAMLError, IndexError, *UNREADABLE):
        return None
    return address if text == build_kubeconfig(address, token_in_kubeconfig(text)) else None


def token_in_kubeconfig(text: str) -> str:
    """The token of a kubeconfig; empty if absent."""
    try:
        return str(yaml.safe_load(text)["users"][0]["user"]["token"])
    except (yaml.YAMLError, IndexError, *UNREADABLE):
        return ""


def token_expires_at(raw: Raw | None) -> datetime | None:
    """When the token in a Secret expires; None if unknown."""
    return parse_time(annotation(raw or {}, names.TOKEN_EXPIRES_ANNOTATION))


def kubeconfig_secret_name(cluster: Raw) -> str:
    """The Secret that a WorkerCluster names for its kubeconfig; empty if it names none."""
    try:
        return str(cluster["spec"]["source"]["kubeConfig"]["secretRef"]["name"])
    except UNREADABLE:
        return ""


def expiry_notice(name: str, expires_at: datetime | None, now: datetime) -> str:
    """A sentence that a WorkerCluster's token ends soon; empty before `EXPIRY_NOTICE`, and if the end is unknown.

    It names the day (UTC), so it changes at most once a day.
    """
    if expires_at is None or expires_at - now >= EXPIRY_NOTICE:
        return ""
    return f"Its token expires on {expires_at:%Y-%m-%d}: renew it with {renewal_command(name)}."


def renewal_command(name: str) -> str:
    return f"`kubectl rayspan rotate {name} --worker-context CONTEXT`"


def reusable_token(
    membership: Membership, state: MembershipState, address: ApiServerAddress, now: datetime
) -> AccountToken | None:
    """The token in the Secret, if it lasts long enough and nothing about the Secret must change; None otherwise.

    Without the account, the token belongs to a deleted account and is not reused. An API server may accept such a token
    for some seconds more (k8s:staging/src/k8s.io/apiserver/pkg/authentication/token/cache).
    """
    text, last = read_kubeconfig(state.secret), token_expires_at(state.secret)
    token = token_in_kubeconfig(text)
    same = (
        bool(token)
        and text == build_kubeconfig(address, token)
        and _secret_cluster_identity(state.secret) == membership.worker_identity
    )
    same &= state.service_account is not None
    return AccountToken(token, last, reused=True) if same and last and last - now >= MIN_REMAINING_LIFETIME else None


def joined_address(membership: Membership, state: MembershipState) -> ApiServerAddress | None:
    """The address by which the manager reaches the cluster since an earlier join; None if it is not known."""
    is_same = _secret_cluster_identity(state.secret) == membership.worker_identity
    return address_in_kubeconfig(read_kubeconfig(state.secret)) if is_same else None


def has_joined(membership: Membership, state: MembershipState) -> bool:
    """Whether the account records an earlier join of this manager."""
    return bool(_joined_name(membership, state))


# --- what must not be mixed up ---------------------------------------------------------------------------------------


def join_problem(membership: Membership, state: MembershipState) -> str:
    """Why the cluster cannot join under that name, as a sentence; empty if it can."""
    known = _joined_name(membership, state)
    if membership.manager_identity == membership.worker_identity:
        return _SAME_CLUSTER
    if known not in ("", membership.name):
        return (
            f"This cluster has joined as {known}: its capacity would be counted twice. Remove it "
            f"first with `kubectl rayspan leave {known}`."
        )
    if state.secret and _secret_cluster_identity(state.secret) not in ("", membership.worker_identity):
        return f"{_other_cluster_text(membership)} Choose another name, or remove that cluster first."
    return source_problem(membership, state)


def source_problem(membership: Membership, state: MembershipState) -> str:
    """Why the WorkerCluster does not use the Secret that join and rotate write, as a sentence; empty if it does."""
    source = (((state.worker_cluster or {}).get("spec") or {}).get("source")) or {}
    ref = (source.get("kubeConfig") or {}).get("secretRef") or {}
    if source.get("multiKueueClusterRef"):
        return (
            f"WorkerCluster {membership.name} uses the kubeconfig of a MultiKueueCluster "
            "(spec.source.multiKueueClusterRef): renew it there, or choose another name."
        )
    if source.get("clusterProfileRef"):
        return (
            f"WorkerCluster {membership.name} uses a ClusterProfile (spec.source.clusterProfileRef), and the token "
            "beside it: renew that, or choose another name."
        )
    if ref and ref.get("name") != membership.name:
        return (
            f"WorkerCluster {membership.name} uses Secret {ref.get('name')} (spec.source.kubeConfig.secretRef), and "
            f"join and rotate write Secret {membership.name}: set that there, or choose another name."
        )
    return ""


def identity_problem(membership: Membership, state: MembershipState) -> str:
    """Why the login leads to another cluster than the named one, as a sentence.

    Empty if it does not, or if no object of the membership exists.
    """
    if membership.manager_identity == membership.worker_identity:
        return _SAME_CLUSTER
    if state.secret and _secret_cluster_identity(state.secret) not in ("", membership.worker_identity):
        return f"{_other_cluster_text(membership)} Name that one with --worker-context."
    known = _joined_name(membership, state)
    if known and known != membership.name:
        return (
            f"The worker cluster that you named has joined as {known}, not as {membership.name}: name "
            "the right one with --worker-context."
        )
    if state.service_account and not known:
        return (
            f"The account {names.WORKER_ACCOUNT} of the worker cluster that you named was not created "
            f"by `kubectl rayspan join {membership.name}` of this manager: name the right one with "
            "--worker-context, or join again first, which adopts it."
        )
    if (
        not state.service_account
        and (state.worker_cluster or state.secret)
        and _secret_cluster_identity(state.secret) != membership.worker_identity
    ):
        return (
            f"The worker cluster that you named has no account {names.WORKER_ACCOUNT}, and nothing "
            f"identifies it as {membership.name}: name the right one with --worker-context, or join "
            "again first, which records it."
        )
    return ""


def other_managers(membership: Membership, account: Raw | None) -> list[str]:
    """The identities of other managers that use the account as well."""
    identities = (key.removeprefix(names.JOINED_PREFIX) for key in _join_annotations(account))
    return sorted(identity for identity in identities if identity != membership.manager_identity)


def is_namespace_binding(binding: Raw) -> bool:
    """Whether a RoleBinding only opens its namespace to the account: to run workers, read logs or run commands."""
    role, subjects = binding.get("roleRef") or {}, binding.get("subjects") or []
    account = {"kind": "ServiceAccount", "namespace": names.SYSTEM_NAMESPACE, "name": names.WORKER_ACCOUNT}
    binds_only_account = len(subjects) == 1 and account.items() <= dict(subjects[0]).items()
    return (
        binds_only_account
        and role.get("kind") == "ClusterRole"
        and role.get("name") in (names.TENANT_ROLE, *REACH_ROLES)
    )


def address_problem(address: ApiServerAddress, *, explicit: bool) -> str:
    """Why the manager's pods cannot, or must not, use this address of an API server, as a sentence; empty if they can.

    `explicit`: the user gave the address, and is taken to know that the controller reaches it.
    """
    url = urlsplit(address.server)
    host = url.hostname or ""
    if url.scheme == "http":
        return (
            f"{address.server} is not https, so the token would be readable on the way: give another "
            "address with --server."
        )
    if not explicit and (host == "localhost" or _is_loopback(host)):
        return (
            f"{address.server} is this machine's own address, which the manager's pods cannot reach: "
            "give theirs with --server."
        )
    if not address.verified:
        return (
            "Your kubeconfig does not verify the API server (insecure-skip-tls-verify): add to it "
            "the certificate-authority-data of the worker cluster."
        )
    return ""


def policies_naming(policies: Iterable[Raw], name: str) -> Sequence[str]:
    """The DispatchPolicies that name the cluster."""
    clusters = ((key_of(raw)[1], (raw.get("spec") or {}).get("clusters") or {}) for raw in policies)
    return sorted(policy for policy, chosen in clusters if name in (chosen.get("names") or ()))


def describe_expiry(expires_at: datetime, now: datetime) -> str:
    """When a token expires, in words."""
    if expires_at < now:
        return f"{expires_at:%Y-%m-%d %H:%M} UTC, which has passed"
    # Half a minute is added so that a lifetime requested a moment ago is still a whole number.
    remaining = expires_at - now + timedelta(seconds=30)
    days, hours, minutes = remaining.days, remaining.seconds // 3600, remaining.seconds // 60
    count, unit = (days, "day") if days else (hours, "hour") if hours else (minutes, "minute")
    return f"{expires_at:%Y-%m-%d %H:%M} UTC, in {count} {unit}{'' if count == 1 else 's'}"


_SAME_CLUSTER: Final = (
    "Both logins lead to the same cluster: name the manager with --context and the worker "
    "cluster with --worker-context."
)


def _other_cluster_text(membership: Membership) -> str:
    return (
        f"{membership.name} is another cluster than the one that you named: "
        f"Secret {membership.name} in {names.SYSTEM_NAMESPACE} leads there."
    )


def _secret_cluster_identity(raw: Raw | None) -> str:
    return annotation(raw or {}, names.CLUSTER_ID_ANNOTATION)


def _joined_name(membership: Membership, state: MembershipState) -> str:
    return annotation(state.service_account or {}, f"{names.JOINED_PREFIX}{membership.manager_identity}")


def _join_annotations(account: Raw | None) -> Mapping[str, str]:
    annotations = meta(account or {}).get("annotations") or {}
    return {key: value for key, value in annotations.items() if key.startswith(names.JOINED_PREFIX)}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

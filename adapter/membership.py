"""What makes a cluster a worker of a manager? Which objects on both sides, whose they are, and what must not be mixed up.

In the worker cluster it is the account of manifests/rbac, which says by an annotation which managers call the cluster what; in the
manager a Secret with a kubeconfig, which says which cluster it leads to, and a WorkerCluster. So either side knows a login to a wrong
cluster, also after a crash between two writes. Nothing here asks anybody, and no text that is made here but a kubeconfig holds a token.
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

# A quarter of a year, which is what people renew certificates by who do it by hand: rarely enough to be done, and a kubeconfig
# that was stolen unseen is worth nothing a season later.
TOKEN_LIFETIME: Final = timedelta(days=90)
# What an API server accepts (k8s:pkg/apis/authentication/validation/validation.go).
MIN_TOKEN_LIFETIME: Final = timedelta(minutes=10)
MAX_TOKEN_LIFETIME: Final = timedelta(seconds=2**32)
# `join` again keeps a token that lasts as long as this: whoever does so is to have time for what comes next.
MIN_REMAINING_LIFETIME: Final = timedelta(hours=1)
# What a worker cluster's administrator adds to the account (kustomize/overlays/worker-logs and worker-exec); what is left of it would be
# the next account's of that name.
REACH_ROLES: Final = (names.LOGS_ROLE, names.EXEC_ROLE)
# Said beforehand of a token that ends: whoever renews by hand, and is away for a week, still has a working week for it. Of 90 days it is
# the last sixth; what lasts no longer than this is renewed by a job, and its day is said all the time.
EXPIRY_NOTICE: Final = timedelta(days=14)
TOKEN_PLACEHOLDER: Final = "TOKEN"  # what stands for a token where people read


class MembershipError(ValueError):
    """What is asked for cannot be done with what is there; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """How an API server is reached."""

    server: str
    ca_bundle: str = ""  # whose certificates are trusted, as PEM; empty: those that the machine trusts
    tls_server_name: str = ""  # the name in its certificate, where that is not the server's
    proxy_url: str = ""
    verified: bool = True


@dataclass(frozen=True, slots=True)
class AccountToken:
    """What the API server gave, and when that ends."""

    value: str = field(repr=False)  # never to be shown
    expires_at: datetime
    reused: bool = False  # it was there before, and nobody asked for another one


@dataclass(frozen=True, slots=True)
class Membership:
    """One cluster as a worker of one manager."""

    name: str  # of the WorkerCluster, and of its Secret
    manager_identity: str  # both clusters' identities
    worker_identity: str


@dataclass(frozen=True, slots=True)
class MembershipState:
    """What stands there of a membership; None where there is nothing."""

    worker_cluster: Raw | None = None  # the WorkerCluster
    secret: Raw | None = None
    service_account: Raw | None = None  # in the worker cluster


def cluster_identity_of(kube_system: Raw) -> str:
    """Tell a cluster from every other one, by its namespace kube-system: short, stable, and not to be configured wrongly."""
    return hashlib.sha256(kube_system["metadata"]["uid"].encode()).hexdigest()[:10]


# --- the objects -----------------------------------------------------------------------------------------------------


def worker_cluster_objects(
    membership: Membership,
    account_objects: Iterable[Raw],
    namespace_binding: Raw,
    namespaces: Iterable[str],
    current_account: Raw | None,
) -> list[Raw]:
    """The objects of a worker cluster, in the order in which they are made.

    `account` and `opening` are those of manifests/rbac: the account with its roles, and what opens a namespace to it. `standing` is
    the account as it is there now: other managers may use it as well.
    """
    signs = {
        **_join_annotations(current_account),
        f"{names.JOINED_PREFIX}{membership.manager_identity}": membership.name,
    }
    made = [
        _with_metadata(raw, annotations={**(meta(raw).get("annotations") or {}), **signs})
        if raw["kind"] == "ServiceAccount"
        else raw
        for raw in account_objects
    ]
    return [*made, *(_with_metadata(namespace_binding, namespace=namespace) for namespace in namespaces)]


def kubeconfig_secret(membership: Membership, kubeconfig: str, expires_at: datetime) -> dict[str, Any]:
    """The manager's Secret, in which the controller finds the kubeconfig."""
    signs = {
        names.CLUSTER_ID_ANNOTATION: membership.worker_identity,
        names.TOKEN_EXPIRES_ANNOTATION: format_time(expires_at),
    }
    made = {"name": membership.name, "namespace": names.SYSTEM_NAMESPACE, "annotations": signs}
    data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": made, "data": data}


def worker_cluster_manifest(name: str) -> dict[str, Any]:
    """The smallest WorkerCluster; what else its spec says is left to whoever wrote it."""
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": name}}
    return {**made, "spec": {"source": source}}


def token_request(lifetime: timedelta) -> dict[str, Any]:
    spec = {"expirationSeconds": int(lifetime.total_seconds())}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def _with_metadata(raw: Raw, **fields: Any) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], **fields}}


# --- the kubeconfig --------------------------------------------------------------------------------------------------


def build_kubeconfig(address: ApiServerAddress, token: str) -> str:
    """A kubeconfig as the controller accepts one: all of it data, no file and no program."""
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
    """The same kubeconfig with another token; raises Unusable where it is none that a token is all of the login of."""
    try:
        content = yaml.safe_load(text)
        (user,) = content["users"]
        if set(user["user"]) != {"token"}:
            raise ValueError
        user["user"] = {"token": token}
    except (yaml.YAMLError, *UNREADABLE):
        raise MembershipError("it is no kubeconfig of one user with a token") from None
    return yaml.safe_dump(content, sort_keys=False)


def read_kubeconfig(raw: Raw | None) -> str:
    """The kubeconfig in a Secret, empty where there is none."""
    try:
        return base64.b64decode((raw or {})["data"][names.KUBECONFIG_KEY], validate=True).decode()
    except UNREADABLE:
        return ""


def token_in_kubeconfig(text: str) -> str:
    """The token of a kubeconfig, empty where there is none."""
    try:
        return str(yaml.safe_load(text)["users"][0]["user"]["token"])
    except (yaml.YAMLError, IndexError, *UNREADABLE):
        return ""


def token_expires_at(raw: Raw | None) -> datetime | None:
    """When the token in a Secret ends, None where that is not known."""
    return parse_time(annotation(raw or {}, names.TOKEN_EXPIRES_ANNOTATION))


def kubeconfig_secret_name(cluster: Raw) -> str:
    """The Secret of ours that a WorkerCluster names for its kubeconfig, empty where it names none."""
    try:
        return str(cluster["spec"]["source"]["kubeConfig"]["secretRef"]["name"])
    except UNREADABLE:
        return ""


def expiry_notice(name: str, expires_at: datetime | None, now: datetime) -> str:
    """That the token of a WorkerCluster ends soon, a sentence with the day (UTC), which is another one once a day at most; empty while
    there is time, or where nothing is known."""
    if expires_at is None or expires_at - now >= EXPIRY_NOTICE:
        return ""
    return f"Its token ends on {expires_at:%Y-%m-%d}: renew it by {renewal_command(name)}."


def renewal_command(name: str) -> str:
    """What to type for a fresh token of a WorkerCluster that has joined."""
    return f"`kubectl rayspan rotate {name} --worker-context CONTEXT`"


def reusable_token(
    membership: Membership, state: MembershipState, address: ApiServerAddress, now: datetime
) -> AccountToken | None:
    """The token that a Secret holds already, if nothing about that is to be changed.

    None is kept where the account was not there before: the token is that of one that was deleted, which an API server may take for some
    seconds more (k8s:staging/src/k8s.io/apiserver/pkg/authentication/token/cache).
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


# --- what must not be mixed up ---------------------------------------------------------------------------------------


def join_problem(membership: Membership, state: MembershipState) -> str:
    """Why the cluster cannot join under that name, a sentence; empty where it can."""
    source = (((state.worker_cluster or {}).get("spec") or {}).get("source")) or {}
    known = _joined_name(membership, state)
    ref = (source.get("kubeConfig") or {}).get("secretRef") or {}
    if membership.manager_identity == membership.worker_identity:
        return _SAME_CLUSTER
    if known not in ("", membership.name):
        return f"This cluster has joined as {known}: it would be counted twice. Let it leave first, by `kubectl rayspan leave {known}`."
    if state.secret and _secret_cluster_identity(state.secret) not in ("", membership.worker_identity):
        return f"{_other_cluster_text(membership)} Choose another name, or let that one leave first."
    if source.get("multiKueueClusterRef"):
        return f"WorkerCluster {membership.name} uses the kubeconfig of a MultiKueueCluster (spec.source.multiKueueClusterRef): renew it there, or choose another name."
    if source.get("clusterProfileRef"):
        return f"WorkerCluster {membership.name} uses a ClusterProfile (spec.source.clusterProfileRef), and the token beside it: renew that, or choose another name."
    if ref and ref.get("name") != membership.name:
        return f"WorkerCluster {membership.name} uses Secret {ref.get('name')} (spec.source.kubeConfig.secretRef), and join writes Secret {membership.name}: set that there, or choose another name."
    return ""


def identity_problem(membership: Membership, state: MembershipState) -> str:
    """Why the cluster behind the login is not the one of that name, a sentence; empty where it is, or where nothing is left of it."""
    if membership.manager_identity == membership.worker_identity:
        return _SAME_CLUSTER
    if state.secret and _secret_cluster_identity(state.secret) not in ("", membership.worker_identity):
        return f"{_other_cluster_text(membership)} Name that one by --worker-context."
    known = _joined_name(membership, state)
    if known and known != membership.name:
        return f"The worker cluster that you named has joined as {known}, not as {membership.name}: name the right one by --worker-context."
    if state.service_account and not known:
        return (
            f"The account {names.WORKER_ACCOUNT} of the worker cluster that you named was not made by `kubectl rayspan join {membership.name}` of this "
            "manager: name the right one by --worker-context, or join again first, which adopts it."
        )
    if (
        not state.service_account
        and (state.worker_cluster or state.secret)
        and _secret_cluster_identity(state.secret) != membership.worker_identity
    ):
        return (
            f"The worker cluster that you named has no account {names.WORKER_ACCOUNT}, and nothing says that it is {membership.name}: name the right one "
            "by --worker-context, or join again first, which notes it."
        )
    return ""


def other_managers(membership: Membership, account: Raw | None) -> list[str]:
    """The identities of other managers that the account serves as well."""
    found = (key.removeprefix(names.JOINED_PREFIX) for key in _join_annotations(account))
    return sorted(identity for identity in found if identity != membership.manager_identity)


def is_namespace_binding(binding: Raw) -> bool:
    """Whether a RoleBinding does nothing but open its namespace to the account: to run workers, to read their logs, or to enter them."""
    role, subjects = binding.get("roleRef") or {}, binding.get("subjects") or []
    account = {"kind": "ServiceAccount", "namespace": names.SYSTEM_NAMESPACE, "name": names.WORKER_ACCOUNT}
    only = len(subjects) == 1 and account.items() <= dict(subjects[0]).items()
    return only and role.get("kind") == "ClusterRole" and role.get("name") in (names.TENANT_ROLE, *REACH_ROLES)


def address_problem(address: ApiServerAddress, *, explicit: bool) -> str:
    """Why the manager's pods cannot, or must not, reach an API server by this address, a sentence; empty where nothing speaks against it.

    `asked`: somebody named it, and so knows where the controller runs.
    """
    url = urlsplit(address.server)
    host = url.hostname or ""
    if url.scheme == "http":
        return f"{address.server} is not https, so the token would be readable on the way: give another address by --server."
    if not explicit and (host == "localhost" or _is_loopback(host)):
        return f"{address.server} is this machine's own address, which the manager's pods cannot reach: give theirs by --server."
    if not address.verified:
        return "Your kubeconfig does not verify who answers there (insecure-skip-tls-verify): give it the certificate-authority-data of the worker cluster."
    return ""


def policies_naming(policies: Iterable[Raw], name: str) -> Sequence[str]:
    """The DispatchPolicies that name the cluster."""
    clusters = ((key_of(raw)[1], (raw.get("spec") or {}).get("clusters") or {}) for raw in policies)
    return sorted(policy for policy, chosen in clusters if name in (chosen.get("names") or ()))


def describe_expiry(expires_at: datetime, now: datetime) -> str:
    """When a token ends, as people say it."""
    if expires_at < now:
        return f"{expires_at:%Y-%m-%d %H:%M} UTC, which is over"
    left = expires_at - now + timedelta(seconds=30)  # what was asked for a moment ago is still a whole number
    days, hours, minutes = left.days, left.seconds // 3600, left.seconds // 60
    count, unit = (days, "day") if days else (hours, "hour") if hours else (minutes, "minute")
    return f"{expires_at:%Y-%m-%d %H:%M} UTC, in {count} {unit}{'' if count == 1 else 's'}"


_SAME_CLUSTER: Final = (
    "Both logins lead to the same cluster: name the manager by --context and the worker cluster by --worker-context."
)


def _other_cluster_text(membership: Membership) -> str:
    return f"{membership.name} is another cluster than the one that you named: Secret {membership.name} in {names.SYSTEM_NAMESPACE} leads there."


def _secret_cluster_identity(raw: Raw | None) -> str:
    return annotation(raw or {}, names.CLUSTER_ID_ANNOTATION)


def _joined_name(membership: Membership, state: MembershipState) -> str:
    return annotation(state.service_account or {}, f"{names.JOINED_PREFIX}{membership.manager_identity}")


def _join_annotations(account: Raw | None) -> Mapping[str, str]:
    noted = meta(account or {}).get("annotations") or {}
    return {key: value for key, value in noted.items() if key.startswith(names.JOINED_PREFIX)}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

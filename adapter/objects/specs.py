"""The specs of WorkerCluster and DispatchPolicy, validated.

The API server validates them by the CRDs' schemas. These models validate again, because an object may have been written
under an older or newer schema.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from adapter import names
from adapter.objects.extended_resources import is_extended_resource
from adapter.objects.location import Location
from adapter.objects.named_objects import NamedClaimTemplate, NamedObject, NamedPath

_DURATION = re.compile(r"^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$")
_PLACEHOLDER = re.compile(r"\{(?:service|namespace|cluster)\}")
_HEAD_PLACEHOLDER = re.compile(r"\{(?:service|cluster)\}")
_HOST_AND_PORT = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:(?P<port>[1-9][0-9]{0,4}))?"
)
_LAST_PORT = 65535
_RELAY_ADDRESS = re.compile(r"(?:\[[0-9a-f:]+\]|[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?):(?P<port>[1-9][0-9]{0,4})")
MAX_REPORTED_FAULTS = 100  # of one object: more faults have a common cause, and each costs time


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_duration(text: object) -> timedelta:
    """Read a duration (`30s`, `5m`, `1h30m`). Raises ValueError for any other text, as pydantic expects."""
    match = _DURATION.match(str(text))
    if not match or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    try:
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def parse_network(text: object) -> Network:
    """Read a CIDR (`10.1.0.0/16`, `fd00:1::/48`). Raises ValueError for any other text, as pydantic expects."""
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a range of addresses such as 10.1.0.0/16 or fd00:1::/48") from None


SpecT = TypeVar("SpecT", bound="_Spec")
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class LocalObjectReference(_Spec):
    name: str


class KubeConfigSource(_Spec):
    secret_ref: LocalObjectReference = Field(alias="secretRef")


class ClusterProfileSource(_Spec):
    """A ClusterProfile with the address of the cluster, and a Secret with the token."""

    name: str
    namespace: str = names.SYSTEM_NAMESPACE
    # None: the Secret has the profile's name.
    token_secret_ref: LocalObjectReference | None = Field(default=None, alias="tokenSecretRef")


class ClusterSource(_Spec):
    """How a cluster is reached; exactly one field is set."""

    kube_config: KubeConfigSource | None = Field(default=None, alias="kubeConfig")
    multi_kueue_cluster_ref: LocalObjectReference | None = Field(default=None, alias="multiKueueClusterRef")
    cluster_profile_ref: ClusterProfileSource | None = Field(default=None, alias="clusterProfileRef")

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        ways = (self.kube_config, self.multi_kueue_cluster_ref, self.cluster_profile_ref)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "must name exactly one of kubeConfig.secretRef, multiKueueClusterRef and clusterProfileRef"
            )
        return self


class HeadSpec(_Spec):
    """How workers find the head, which runs in the manager cluster."""

    address: Literal["PodIP", "ServiceMirror", "ClusterSet", "Static"] = "PodIP"
    template: str = ""  # of address Static: the host name of the head, with an optional port

    @property
    def is_mirrored(self) -> bool:
        return self.address == "ServiceMirror"

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        if (self.address == "Static") != bool(self.template):
            raise ValueError("address Static needs a template, and no other address has one")
        match = _HOST_AND_PORT.fullmatch(_PLACEHOLDER.sub("x", self.template))
        if self.template and not match:
            raise ValueError(
                f"template {self.template!r} is not a host name with an optional port, made of {{service}}, "
                "{namespace} and {cluster}, such as {service}.{namespace}.ray.example.com:6379"
            )
        wrong = []
        if match and int(match["port"] or 0) > _LAST_PORT:
            wrong.append(f"a port above {_LAST_PORT}")
        if self.template and not _HEAD_PLACEHOLDER.search(self.template):
            wrong.append("neither {service} nor {cluster}: every head would have the same name")
        if wrong:
            raise ValueError(f"template {self.template!r} has {', and '.join(wrong)}")
        return self


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a relay's address; an IPv6 host has no brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_relay_address(text: str) -> bool:
    match = _RELAY_ADDRESS.fullmatch(text)
    return match is not None and int(match["port"]) <= _LAST_PORT


class NetworkSpec(_Spec):
    """How the pods of a worker cluster and the head reach each other."""

    mode: Literal["Flat", "Relay"] = "Flat"
    address: str = ""  # of mode Relay: host and port of the relay's routers, as that cluster reaches them
    image: str = ""  # that of the sidecars; with mode Flat, of jobs that have relayed clusters, too

    @property
    def is_relayed(self) -> bool:
        return self.mode == "Relay"

    @property
    def host(self) -> str:
        return split_address(self.address)[0]

    @property
    def port(self) -> int:
        return split_address(self.address)[1]

    @model_validator(mode="after")
    def _check_relay(self) -> Self:
        if not self.is_relayed and self.address:
            raise ValueError("address is of mode Relay")
        if not self.is_relayed:
            return self
        if not is_relay_address(self.address):
            raise ValueError(
                f"address {self.address!r} is not host and port of the relay, such as relay.example.com:30443"
            )
        if not self.image:
            raise ValueError("mode Relay needs the image of the sidecars")
        return self


_StringMap = Mapping[str, str]


def _check_resources(resources: _StringMap) -> _StringMap:
    """Raise ValueError if a name is no extended resource's, or if a value would be renamed again."""
    for name in (*resources, *resources.values()):
        if not is_extended_resource(name):
            raise ValueError(f"{name!r} is not the name of an extended resource such as nvidia.com/gpu")
    if renamed_twice := sorted(resources.keys() & set(resources.values())):
        raise ValueError(f"{renamed_twice[0]!r} is a name in the manager and one there: use other names")
    return resources


def _check_claim_templates(entries: tuple[NamedClaimTemplate, ...]) -> tuple[NamedClaimTemplate, ...]:
    """Raise ValueError for `*`: each template claims other devices, so no `resources` would be right for all."""
    if any(entry.name == "*" for entry in entries):
        raise ValueError("'*' is no ResourceClaimTemplate: name each one, with what Kueue there counts for it")
    return entries


def _check_priority_classes(entries: tuple[NamedObject, ...]) -> tuple[NamedObject, ...]:
    """Raise ValueError for `*`: the manager's default class would count, and any class of the system."""
    if any(entry.name == "*" for entry in entries):
        raise ValueError("'*' is no priority class: name each class")
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMapping:
    """Changes to worker pods in a cluster (`spec.pods`); empty fields change nothing."""

    node_selector: Annotated[_StringMap, Field(alias="nodeSelector")] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    service_account: Annotated[str, Field(alias="serviceAccountName")] = ""
    scheduler: Annotated[str, Field(alias="schedulerName")] = ""
    runtime_class: Annotated[str, Field(alias="runtimeClassName")] = ""
    image_registries: Annotated[_StringMap, Field(alias="imageRegistries")] = field(default_factory=dict)
    labels: _StringMap = field(default_factory=dict)
    annotations: _StringMap = field(default_factory=dict)
    env: _StringMap = field(default_factory=dict)  # of Ray's container
    # The manager's name of an extended resource -> its name there.
    extended_resources: Annotated[_StringMap, Field(alias="extendedResources"), AfterValidator(_check_resources)] = (
        field(default_factory=dict)
    )
    # What pods may use of the cluster, beside what they bring; service_account replaces accounts that are not listed.
    service_accounts: Annotated[tuple[NamedObject, ...], Field(alias="serviceAccounts")] = ()
    claims: Annotated[tuple[NamedObject, ...], Field(alias="persistentVolumeClaims")] = ()
    claim_templates: Annotated[
        tuple[NamedClaimTemplate, ...], Field(alias="resourceClaimTemplates"), AfterValidator(_check_claim_templates)
    ] = ()
    # Without entries every RuntimeClass is kept; a scheduler or a priority class without an entry is removed.
    runtime_classes: Annotated[tuple[NamedObject, ...], Field(alias="runtimeClasses")] = ()
    schedulers: tuple[NamedObject, ...] = ()
    priority_classes: Annotated[
        tuple[NamedObject, ...], Field(alias="priorityClasses"), AfterValidator(_check_priority_classes)
    ] = ()
    host_paths: Annotated[tuple[NamedPath, ...], Field(alias="hostPaths")] = ()


NO_MAPPING = PodMapping()


class WorkerCluster(_Spec):
    """How to reach a worker cluster, its properties for Ray, and its limits for plans."""

    source: ClusterSource
    zone: str = ""  # empty: the object's own name
    region: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, int] = Field(default_factory=dict)
    head: HeadSpec = HeadSpec()
    network: NetworkSpec = NetworkSpec()
    pods: PodMapping = NO_MAPPING
    cordoned: bool = False
    draining: bool = False  # cordoned, and its worker pods are moved away
    # How many workers of a gang a drain may move at once: a worker that moves is missing for a minute, and a job may
    # halt when several are missing.
    max_unavailable: int = Field(default=1, ge=1, alias="maxUnavailable")
    # The default is the highest priority of a user's PriorityClass
    # (kubernetes:pkg/apis/scheduling/types.go, HighestUserDefinablePriority).
    max_priority: int = Field(default=1_000_000_000, alias="maxPriority")
    can_grow: bool = Field(default=False, alias="canGrow")
    # The default of Kueue 0.19 (kueue:apis/config/v1beta2/defaults.go).
    pods_ready_timeout: Duration = Field(default=timedelta(minutes=30), alias="podsReadyTimeout")
    # The ranges of its pods' addresses; empty: any. An address that requests are sent to must be in them.
    pod_cidrs: tuple[Annotated[Network, BeforeValidator(parse_network)], ...] = Field(default=(), alias="podCIDRs")
    price_per_hour: dict[str, Decimal] = Field(
        default_factory=dict, alias="pricePerHour"
    )  # resource -> price of one unit

    def location(self, name: str) -> Location:
        """Where it is; `name`: its own."""
        return Location(self.zone or name, self.region)


class ClusterSelection(_Spec):
    """The clusters of a policy; exactly one field is set."""

    names: tuple[str, ...] = ()  # first choice first
    selector: dict[str, Any] | None = None  # a LabelSelector on the labels of Ray nodes in the cluster
    multi_kueue_config_ref: LocalObjectReference | None = Field(default=None, alias="multiKueueConfigRef")

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if [bool(self.names), self.selector is not None, self.multi_kueue_config_ref is not None].count(True) != 1:
            raise ValueError("must set exactly one of names, selector and multiKueueConfigRef")
        return self


class DispatchPolicy(_Spec):
    """The parameters of an AdmissionCheck: clusters, their order, how gangs are split, and timeouts."""

    clusters: ClusterSelection
    gang: Literal["AllOrNothing", "SameCluster", "BestEffort"] = "AllOrNothing"
    strategy: Literal["FillInOrder", "AvailableCapacity", "Spread", "Cheapest"] = "FillInOrder"
    min_workers: int = Field(default=0, ge=0, alias="minWorkers", validate_default=True)  # of a BestEffort gang
    # A cluster with capacity admits in under a second. Preemption needs the grace period of its victims, 30 s by
    # default. A longer timeout would keep the other shares of the gang reserved and idle.
    reservation_timeout: Duration = Field(default=timedelta(seconds=30), alias="reservationTimeout")
    # Longer than an upgrade of a control plane or the repair of a link. It does not matter once Ray has given up an
    # unreachable node, which takes a minute.
    worker_lost_timeout: Duration = Field(default=timedelta(minutes=5), alias="workerLostTimeout")
    # The default of the cluster-autoscaler's --max-node-provision-time, after which it tries another kind of node, and
    # longer than the pull of an image of 10 GB. Kueue's waitForPodsReady is twice as long and stops the whole job. This
    # timeout moves one worker, and only if there is a slot for it.
    worker_start_timeout: Duration = Field(default=timedelta(minutes=15), alias="workerStartTimeout")
    # No default: a program that goes on with fewer workers, or waits for them, must not be stopped.
    min_workers_timeout: Duration | None = Field(default=None, alias="minWorkersTimeout")
    on_share_lost: Literal["Replace", "Restart"] | None = Field(default=None, alias="onShareLost")
    require_reachable: bool = Field(default=False, alias="requireReachable")
    # A reclaim stops less than one of these shares more than it asks for. docs/policies.md has their price.
    borrowing_shares: int = Field(default=0, ge=0, le=50, alias="borrowingShares")

    @property
    def share_lost_action(self) -> Literal["Replace", "Restart"]:
        """The action when a share of a running gang is lost; a SameCluster gang has lost all workers."""
        return self.on_share_lost or ("Restart" if self.gang == "SameCluster" else "Replace")

    # Validators of single fields, because a model validator runs only if no field has a fault. `data` has the earlier
    # fields without a fault.
    @field_validator("strategy")
    @classmethod
    def _check_strategy(cls, strategy: str, info: ValidationInfo) -> str:
        if strategy == "Spread" and info.data.get("gang") == "SameCluster":
            raise ValueError("strategy Spread and gang SameCluster contradict each other")
        return strategy

    @field_validator("min_workers")
    @classmethod
    def _check_min_workers(cls, least: int, info: ValidationInfo) -> int:
        if "gang" in info.data and (info.data["gang"] == "BestEffort") != (least > 0):
            raise ValueError("gang BestEffort needs minWorkers of 1 or more, and no other gang has one")
        return least


class InvalidSpec(ValueError):
    """A malformed spec; the text is a sentence, the first of `messages`."""

    def __init__(self, first: str, *more: str) -> None:
        super().__init__(first)
        self.messages = (first, *more)


def parse_worker_cluster(raw: Mapping[str, Any]) -> WorkerCluster:
    """Read a WorkerCluster object; raises InvalidSpec."""
    return _parse_spec(WorkerCluster, raw, names.WORKER_CLUSTER_KIND)


def parse_dispatch_policy(raw: Mapping[str, Any]) -> DispatchPolicy:
    """Read a DispatchPolicy object; raises InvalidSpec."""
    return _parse_spec(DispatchPolicy, raw, names.DISPATCH_POLICY_KIND)


def _parse_spec(model: type[SpecT], raw: Mapping[str, Any], kind: str) -> SpecT:
    try:
        return model.model_validate(raw.get("spec") or {})
    except ValidationError as error:
        whose = f"{kind} {(raw.get('metadata') or {}).get('name')}"
        raise InvalidSpec(
            *(f"{whose}: {_describe_fault(model, fault)}." for fault in islice(error.errors(), MAX_REPORTED_FAULTS))
        ) from None


def _describe_fault(model: type[_Spec], fault: Mapping[str, Any]) -> str:
    where = [str(part) for part in fault["loc"]]
    if where and where[0] in model.model_fields:  # pydantic uses the field's name where the field is absent
        where[0] = model.model_fields[where[0]].alias or where[0]
    field, message, value = ".".join(["spec", *where]), fault["msg"].removeprefix("Value error, "), repr(fault["input"])
    if fault["type"] == "unexpected_keyword_argument":
        message = "is no field of this entry; correct its name, or remove it"
    return f"{field}: {message}" if value in message else f"{field}: {message}, found {value}"

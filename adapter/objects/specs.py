"""What people write to us, checked: the specs of WorkerCluster and DispatchPolicy.

The API server has validated them by the CRDs' schemas before we read them; these models are the second reader, which
must survive objects written under an older or newer schema. A spec that does not parse is an `Invalid` with a sentence for each of
its faults, never an exception in a loop. Status shapes are ours alone and stand where they are computed.
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

_DURATION = re.compile(r"^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$")
_PLACEHOLDER = re.compile(r"\{(?:service|namespace|cluster)\}")
_HEAD_PLACEHOLDER = re.compile(r"\{(?:service|cluster)\}")
_HOST_AND_PORT = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:(?P<port>[1-9][0-9]{0,4}))?"
)
_LAST_PORT = 65535
MAX_REPORTED_FAULTS = (
    100  # of all that is told of one object: more faults than that have one cause, and each costs time
)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_duration(text: object) -> timedelta:
    """Read a duration as Kubernetes users write it (`30s`, `5m`, `1h30m`).

    Raises ValueError, which pydantic turns into part of its own error, for anything else.
    """
    match = _DURATION.match(str(text))
    if not match or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    try:
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is longer than anybody can wait") from None


def parse_network(text: object) -> Network:
    """Read a range of addresses (`10.1.0.0/16`, `fd00:1::/48`); raises ValueError for anything else, as pydantic wants it."""
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a range of addresses such as 10.1.0.0/16 or fd00:1::/48") from None


SpecT = TypeVar("SpecT", bound="_Spec")
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class LocalObjectReference(_Spec):
    """A reference to an object by its name."""

    name: str


class KubeConfigSource(_Spec):
    secret_ref: LocalObjectReference = Field(alias="secretRef")


class ClusterProfileSource(_Spec):
    """A ClusterProfile says where the cluster is; the token is in a Secret of ours."""

    name: str
    namespace: str = names.SYSTEM_NAMESPACE
    token_secret_ref: LocalObjectReference | None = Field(
        default=None, alias="tokenSecretRef"
    )  # None: of the profile's name


class ClusterSource(_Spec):
    """How to reach a worker cluster: exactly one of the three is set."""

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
    """How workers there find the head, which runs in the manager cluster."""

    address: Literal["PodIP", "ServiceMirror", "ClusterSet", "Static"] = "PodIP"
    template: str = ""  # of address Static: what the head is called there, with an optional port

    @property
    def is_mirrored(self) -> bool:
        """Whether the head's Service is mirrored there."""
        return self.address == "ServiceMirror"

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        if (self.address == "Static") != bool(self.template):
            raise ValueError("address Static needs a template, and no other address has one")
        read = _HOST_AND_PORT.fullmatch(_PLACEHOLDER.sub("x", self.template))
        if self.template and not read:
            raise ValueError(
                f"template {self.template!r} is no host name with an optional port, made of {{service}}, {{namespace}} and "
                "{cluster}, such as {service}.{namespace}.ray.example.com:6379"
            )
        wrong = []
        if read and int(read["port"] or 0) > _LAST_PORT:
            wrong.append(f"a port above {_LAST_PORT}")
        if self.template and not _HEAD_PLACEHOLDER.search(self.template):
            wrong.append("neither {service} nor {cluster}: every head would have the same name")
        if wrong:
            raise ValueError(f"template {self.template!r} has {', and '.join(wrong)}")
        return self


_StringMap = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMapping:
    """The spec as people write it; everything empty changes nothing."""

    node_selector: Annotated[_StringMap, Field(alias="nodeSelector")] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    service_account: Annotated[str, Field(alias="serviceAccountName")] = ""
    scheduler: Annotated[str, Field(alias="schedulerName")] = ""
    runtime_class: Annotated[str, Field(alias="runtimeClassName")] = ""
    image_registries: Annotated[_StringMap, Field(alias="imageRegistries")] = field(default_factory=dict)
    labels: _StringMap = field(default_factory=dict)
    annotations: _StringMap = field(default_factory=dict)


NO_MAPPING = PodMapping()


class WorkerCluster(_Spec):
    """How to reach a worker cluster, what Ray should know of it, and what plans may reckon with there."""

    source: ClusterSource
    zone: str = ""  # empty: the object's own name
    region: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, int] = Field(default_factory=dict)
    head: HeadSpec = HeadSpec()
    pods: PodMapping = NO_MAPPING
    cordoned: bool = False
    draining: bool = False  # cordoned, and those that run there are moved away
    # One by one, because each worker that moves is one that a job lacks for a minute, and a job that lacks several at once may
    # have nothing left to do its work with.
    max_unavailable: int = Field(default=1, ge=1, alias="maxUnavailable")
    # The highest priority that a user's PriorityClass can have; those of the system are above
    # (kubernetes:pkg/apis/scheduling/types.go, HighestUserDefinablePriority).
    max_priority: int = Field(default=1_000_000_000, alias="maxPriority")
    can_grow: bool = Field(default=False, alias="canGrow")
    # Of the addresses that pods there have; empty: any. What a cluster says of its pods is believed, but where requests are led by it.
    pod_cidrs: tuple[Annotated[Network, BeforeValidator(parse_network)], ...] = Field(default=(), alias="podCIDRs")
    price_per_hour: dict[str, Decimal] = Field(default_factory=dict, alias="pricePerHour")  # resource -> one unit's


class ClusterSelection(_Spec):
    """Which worker clusters a policy considers: exactly one of the three is set."""

    names: tuple[str, ...] = ()  # first choice first
    selector: dict[str, Any] | None = None  # a LabelSelector on what a Ray node there is labelled with
    multi_kueue_config_ref: LocalObjectReference | None = Field(default=None, alias="multiKueueConfigRef")

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if [bool(self.names), self.selector is not None, self.multi_kueue_config_ref is not None].count(True) != 1:
            raise ValueError("must set exactly one of names, selector and multiKueueConfigRef")
        return self


class DispatchPolicy(_Spec):
    """The parameters of an AdmissionCheck: which clusters, who of them first, how much of a gang, for how long."""

    clusters: ClusterSelection
    gang: Literal["AllOrNothing", "SameCluster", "BestEffort"] = "AllOrNothing"
    strategy: Literal["FillInOrder", "AvailableCapacity", "Spread"] = "FillInOrder"
    min_workers: int = Field(default=0, ge=0, alias="minWorkers", validate_default=True)  # of a BestEffort gang
    # A cluster with room admits in under a second; one that must preempt first needs its victims' grace period, which
    # is 30 s by default. Longer would keep the other shares of the gang reserved and idle.
    reservation_timeout: Duration = Field(default=timedelta(seconds=30), alias="reservationTimeout")
    # Longer than a control plane takes to be upgraded, or a link to be mended; Ray itself gives up a node that it cannot
    # reach after a minute, and then nobody waits for this.
    worker_lost_timeout: Duration = Field(default=timedelta(minutes=5), alias="workerLostTimeout")
    # What a cluster-autoscaler gives a node by default before it tries another kind of node (--max-node-provision-time), and
    # longer than an image of 10 GB takes to be pulled. Kueue gives all pods of a job twice as long (waitForPodsReady): it stops
    # the whole job then, and here one worker moves, and only where there is a place for it.
    worker_start_timeout: Duration = Field(default=timedelta(minutes=15), alias="workerStartTimeout")
    on_share_lost: Literal["Replace", "Restart"] | None = Field(default=None, alias="onShareLost")
    require_reachable: bool = Field(default=False, alias="requireReachable")

    @property
    def share_lost_action(self) -> Literal["Replace", "Restart"]:
        """What happens when a share of a running gang is lost: one that must be in one cluster lost all that it had."""
        return self.on_share_lost or ("Restart" if self.gang == "SameCluster" else "Replace")

    # Of a field each, and not of the whole, which would be asked only where no field has a fault: `data` has those before it that have none.
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
    """An object that people wrote does not say what it must; the text is a sentence for them, the first one of `every`."""

    def __init__(self, first: str, *more: str) -> None:
        super().__init__(first)
        self.messages = (first, *more)


def parse_worker_cluster(raw: Mapping[str, Any]) -> WorkerCluster:
    """Read a WorkerCluster object; raises Invalid with object, field and what was found."""
    return _parse_spec(WorkerCluster, raw, names.WORKER_CLUSTER_KIND)


def parse_dispatch_policy(raw: Mapping[str, Any]) -> DispatchPolicy:
    """Read a DispatchPolicy object; raises Invalid with object, field and what was found."""
    return _parse_spec(DispatchPolicy, raw, names.DISPATCH_POLICY_KIND)


def _parse_spec(model: type[SpecT], raw: Mapping[str, Any], kind: str) -> SpecT:
    try:
        return model.model_validate(raw.get("spec") or {})
    except ValidationError as error:
        whose = f"{kind} {(raw.get('metadata') or {}).get('name')}"
        raise InvalidSpec(
            *(f"{whose}: {_describe_fault(model, one)}." for one in islice(error.errors(), MAX_REPORTED_FAULTS))
        ) from None


def _describe_fault(model: type[_Spec], fault: Mapping[str, Any]) -> str:
    """One fault in a fragment: field, what is wrong, what was found."""
    where = [str(part) for part in fault["loc"]]
    if where and where[0] in model.model_fields:  # so it is called where it is left out
        where[0] = model.model_fields[where[0]].alias or where[0]
    field, said, found = ".".join(["spec", *where]), fault["msg"].removeprefix("Value error, "), repr(fault["input"])
    return f"{field}: {said}" if found in said else f"{field}: {said}, found {found}"

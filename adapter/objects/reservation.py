"""Reservations: our group Workloads as observed in a worker cluster, each with the quota of one share.

`parse_reservation` reads the object alone; shell/observe adds `stranded`, `ray_labels` and
`pods_ready_timeout`.
rewrite/group_workload.py builds these Workloads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from adapter import names
from adapter.objects.extended_resources import describe_names, read_names
from adapter.objects.placement import ShareKey
from adapter.objects.reason import clause
from adapter.objects.topology_request import TopologyRequest, podset_topology_request
from adapter.objects.unstructured import (
    Raw,
    annotation,
    condition,
    condition_true_since,
    is_condition_true,
    key_of,
    label,
    mapping_field,
    mapping_list,
    meta,
    parse_number,
    printable,
    text_field,
    uid_of,
)
from adapter.objects.workload import pods_unready_since

# How long before Kueue's timeout unready pods are replaced, beside their grace period; less for a short timeout.
_READINESS_MARGIN = timedelta(minutes=2)
_DEFAULT_GRACE_SECONDS = 30
_MAX_GRACE_SECONDS = 7 * 24 * 3600  # a longer one counts as this


def latest_replacement(pods_ready_timeout: timedelta) -> timedelta:
    """How long workers may be unready before they must be replaced, or their Kueue evicts their share."""
    return pods_ready_timeout - _readiness_margin(pods_ready_timeout)


def _readiness_margin(pods_ready_timeout: timedelta) -> timedelta:
    return min(_READINESS_MARGIN, pods_ready_timeout / 4)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A group Workload of ours, as observed in a worker cluster."""

    cluster: str
    namespace: str
    name: str
    uid: str
    anchor_uid: str
    placement: str
    round: int
    deleting: bool
    ended: bool  # finished or deactivated: it is never admitted again
    admitted: bool
    reserved_at: datetime | None  # None: it holds no quota
    message: str  # its Kueue's message while it waits
    no_fit: bool  # its Kueue tried it, and can neither reserve quota nor preempt
    cluster_queue: str = ""  # of its admission
    version: int = 0  # resourceVersion
    eviction_message: str = ""  # its Kueue's message for an eviction; empty while it is not evicted
    checks_text: str = ""  # the admission checks there that are not Ready, with their messages
    refusal: str = ""  # how an admission check there refused it; empty: none did
    templates: Mapping[str, Raw] = field(default_factory=dict)  # role -> pod template
    counts: Mapping[str, int] = field(default_factory=dict)  # role -> number of pods
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role -> assigned flavors
    usage: Mapping[str, Raw] = field(default_factory=dict)  # role -> resourceUsage of all of its pods
    ray_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # role -> Ray labels of its flavors
    pod_group: str = ""  # the Volcano PodGroup of its pods; empty: none
    # The manager's names of its extended resources -> its own, as when it was created.
    resource_names: Mapping[str, str] = field(default_factory=dict)
    topology_requests: Mapping[str, TopologyRequest] = field(default_factory=dict)  # role -> that of its podset
    # Since when its Kueue counts the time in which not all of its pods are ready; None: all are, or it does not count.
    pods_unready_since: datetime | None = None
    pods_ready_timeout: timedelta = timedelta(minutes=30)  # after which its Kueue evicts it then
    requested_priority: int | None = None  # before admission there; None: an earlier release created it
    stranded: bool = False  # evicted, and without a pod whose end would make Kueue free the quota

    @property
    def key(self) -> ShareKey:
        """The key of its share."""
        return ShareKey(self.cluster, self.round)

    @property
    def workers(self) -> int:
        """The number of workers that it requests quota for."""
        return sum(self.counts.values())

    @property
    def quota_message(self) -> str:
        """Its Kueue's message, with the manager's names of the resources that have another name there."""
        other_names = describe_names(self.resource_names)
        return f"{clause(self.message)}; {other_names}" if self.message and other_names else self.message

    @property
    def is_unprocessed(self) -> bool:
        """Whether its Kueue has not processed it yet."""
        return not (self.message or self.eviction_message or self.deleting or self.reserved_at)

    @property
    def waits_for_quota(self) -> bool:
        """Whether it was never admitted, so no worker can be on it."""
        return self.reserved_at is None and not (self.admitted or self.eviction_message or self.deleting)

    @property
    def pods_ready_due(self) -> datetime | None:
        """When its unready pods must be replaced, so that they have ended before its Kueue would evict it.

        That is as late as their grace period allows, but not before half of the timeout. None while Kueue does not
        count.
        """
        since, timeout = self.pods_unready_since, self.pods_ready_timeout
        if since is None or not self.admitted:
            return None
        return since + timeout - min(self._grace_period + _readiness_margin(timeout), timeout / 2)

    @property
    def _grace_period(self) -> timedelta:
        """The longest grace period of its pods."""
        specs = [template.get("spec") or {} for template in self.templates.values()]
        graces = (spec.get("terminationGracePeriodSeconds") for spec in specs)
        seconds = (_DEFAULT_GRACE_SECONDS if grace is None else grace for grace in graces)
        # A user may write any number of 64 bits, and a timedelta ends at a million years.
        return timedelta(seconds=min(max(seconds, default=_DEFAULT_GRACE_SECONDS), _MAX_GRACE_SECONDS))

    def is_pods_ready_due(self, now: datetime) -> bool:
        """Whether its Kueue is about to evict it because some pods are not ready.

        False once the timeout is over: that Kueue has another one, or none.
        """
        due, since = self.pods_ready_due, self.pods_unready_since
        return due is not None and since is not None and due <= now < since + self.pods_ready_timeout


def parse_reservation(cluster: str, raw: Raw) -> Reservation:
    """Read a group Workload of a worker cluster."""
    namespace, name = key_of(raw)
    podsets = (raw.get("spec") or {}).get("podSets") or ()
    round_text = annotation(raw, names.ROUND_ANNOTATION)
    # Kueue's Finish leaves Admitted as it was (kueue:pkg/workload/finish).
    over = is_condition_true(raw, names.FINISHED) or (raw.get("spec") or {}).get("active") is False
    return Reservation(
        cluster=cluster,
        namespace=namespace,
        name=name,
        uid=uid_of(raw),
        anchor_uid=anchor_uid(raw),
        placement=label(raw, names.PLACEMENT_LABEL),
        round=parse_number(round_text),
        deleting=bool(meta(raw).get("deletionTimestamp")),
        ended=over,
        admitted=is_condition_true(raw, names.ADMITTED) and not is_condition_true(raw, names.EVICTED) and not over,
        reserved_at=condition_true_since(raw, names.QUOTA_RESERVED),
        message=condition(raw, names.QUOTA_RESERVED).get("message") or "",
        no_fit=_is_no_fit(condition(raw, names.QUOTA_RESERVED)),
        cluster_queue=((raw.get("status") or {}).get("admission") or {}).get("clusterQueue") or "",
        version=_parse_version(meta(raw).get("resourceVersion") or ""),
        templates={podset.get("name") or "": podset.get("template") or {} for podset in podsets},
        counts={podset.get("name") or "": parse_number(str(podset.get("count"))) for podset in podsets},
        flavors=_assigned_flavors((raw.get("status") or {}).get("admission") or {}),
        usage=_resource_usage((raw.get("status") or {}).get("admission") or {}),
        pod_group=annotation(raw, names.POD_GROUP_ANNOTATION),
        topology_requests={
            podset.get("name") or "": request for podset in podsets if (request := podset_topology_request(podset))
        },
        resource_names=read_names(annotation(raw, names.RESOURCE_NAMES_ANNOTATION)),
        pods_unready_since=pods_unready_since(raw),
        requested_priority=_parse_priority(annotation(raw, names.PRIORITY_ANNOTATION)),
        checks_text=_describe_checks(_unready_checks(raw)),
        refusal=_describe_refusal(raw),
        eviction_message=str(condition(raw, names.EVICTED).get("message") or "evicted")
        if is_condition_true(raw, names.EVICTED)
        else "",
    )


def _unready_checks(raw: Raw) -> list[Raw]:
    checks = mapping_list(mapping_field(raw, "status"), "admissionChecks")
    return [check for check in checks if text_field(check, "state") != names.CHECK_READY]


def _describe_check(check: Raw) -> str:
    state, message = text_field(check, "state") or names.CHECK_PENDING, text_field(check, "message")
    text = f"AdmissionCheck {printable(text_field(check, 'name'))} there is {printable(state)}"
    return f"{text}: {clause(message)}" if message else text


def _describe_checks(checks: Iterable[Raw]) -> str:
    return "; ".join(map(_describe_check, checks))


def _describe_refusal(raw: Raw) -> str:
    """How an admission check refused a Workload.

    Kueue evicts it then, and sets its checks back to Pending (docs/upstream.md, "What an admission check refuses").
    """
    if is_condition_true(raw, names.EVICTED):
        evicted = condition(raw, names.EVICTED)
        is_refused = text_field(evicted, "reason").endswith(names.CHECK_EVICTION_SUFFIX)
        return clause(text_field(evicted, "message") or "evicted") if is_refused else ""
    refusing = (names.CHECK_RETRY, names.CHECK_REJECTED)
    return _describe_checks(check for check in _unready_checks(raw) if text_field(check, "state") in refusing)


def anchor_references(raw: Raw) -> list[Raw]:
    """The owner references of an object to the anchor of its share."""
    return [owner for owner in meta(raw).get("ownerReferences") or () if owner.get("kind") == "ConfigMap"]


def anchor_uid(raw: Raw) -> str:
    """The uid of the anchor that owns an object; empty where there is none."""
    return next((str(owner.get("uid") or "") for owner in anchor_references(raw)), "")


def _assigned_flavors(admission: Raw) -> dict[str, tuple[str, ...]]:
    assigned = admission.get("podSetAssignments") or ()
    return {podset.get("name") or "": tuple(sorted(set((podset.get("flavors") or {}).values()))) for podset in assigned}


def _resource_usage(admission: Raw) -> dict[str, Raw]:
    assigned = admission.get("podSetAssignments") or ()
    return {podset.get("name") or "": podset.get("resourceUsage") or {} for podset in assigned}


def _is_no_fit(reserved: Raw) -> bool:
    """Whether Kueue has tried it and does not preempt for it.

    Kueue has a reason for this only behind a feature gate that is off by default, but its message says when it preempts
    (kueue:pkg/scheduler/scheduler.go). A misread message only withdraws a share early or late.
    """
    message = str(reserved.get("message") or "").lower()
    return reserved.get("status") == "False" and bool(message) and "preempt" not in message


def _parse_priority(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 11 else None


def _parse_version(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0  # etcd counts in 63 bits

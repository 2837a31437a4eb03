"""What each worker cluster offers a gang: what its Kueue would admit, limited to what its nodes can hold."""

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from adapter.objects.extended_resources import describe_names
from adapter.objects.location import location_mismatch
from adapter.objects.pod_requests import UNLIMITED
from adapter.objects.unstructured import printable
from adapter.planning.plan_request import (
    Candidate,
    GangRequest,
    GroupRequest,
    Offer,
    counted_request_in,
    denied_reason,
    pod_spec_in,
    queue_name,
    quota_request_in,
    request_in,
    resource_names_in,
    scheduling_hash_in,
    uncovered_in,
    uncovered_note,
)
from adapter.quota import node_capacity, tree
from adapter.quota.tree import Demand, Fit, FlavorCapacity, QuotaPath, Resources, Shortfall

AnswerT = TypeVar("AnswerT")

# The cached answers of all kinds of gangs. A kind of one worker group with a handful of sizes has some 20 answers of
# 200 bytes to 1 kB. Many gangs of a crowd are of one kind. When the cache is full, other kinds are not cached, since
# evicting would only thrash. Cached kinds may double the number, for other sizes of their gangs.
MAX_CACHED_ANSWERS = 300


class _OfferCache(NamedTuple):
    dependencies: tuple[Any, ...]  # what the answers depend on beside the quota
    path: QuotaPath
    answers: dict[Hashable, Any]


class Offers:
    """What candidates, which have unique names, offer one gang.

    Each answer is computed once per state of a quota, for all gangs of one kind. That state is a quota path: the
    candidate's own, or one derived from it.
    """

    def __init__(self, request: GangRequest) -> None:
        self.request = request
        self._caches: dict[str, _OfferCache] = {}

    def _cache_for(self, candidate: Candidate) -> _OfferCache:
        if candidate.name not in self._caches:
            self._caches[candidate.name] = self._shared_cache(candidate)
        return self._caches[candidate.name]

    def _shared_cache(self, candidate: Candidate) -> _OfferCache:
        """The cache of all gangs of this kind on the same quota, if all other dependencies are equal.

        Quota with deductions has no such cache, because it has as many states as there are gangs.
        """
        hashes, caches = (
            [scheduling_hash_in(candidate, group) for group in self.request.groups],
            candidate.quota_tree.offer_cache,
        )
        dependencies = _offer_dependencies(self.request, candidate)
        if caches is None or not all(hashes):
            return self._new_cache(candidate, dependencies)
        groups = (
            (group.name, group.role, group.location, group.required, group.hosts, group.topology, group_hash)
            for group, group_hash in zip(self.request.groups, hashes, strict=True)
        )
        key = self.request.namespace, self.request.queue, candidate.asks_kueue, *groups
        cache: _OfferCache | None = caches.get(key)
        answer_count = sum([len(shared.answers) for shared in caches.values()])
        if cache is None or cache.dependencies != dependencies or answer_count > 2 * MAX_CACHED_ANSWERS:
            caches.pop(key, None)
            cache = self._new_cache(candidate, dependencies)
            if answer_count <= MAX_CACHED_ANSWERS:
                caches[key] = cache
        return cache

    def _new_cache(self, candidate: Candidate, dependencies: tuple[Any, ...]) -> _OfferCache:
        return _OfferCache(dependencies, tree.queue_path(candidate.quota_tree, queue_name(self.request, candidate)), {})

    def compute_once(self, candidate: Candidate, key: Hashable, compute: Callable[[], AnswerT]) -> AnswerT:
        """An answer that depends only on the key, the quota and the gang's kind."""
        answers = self._cache_for(candidate).answers
        if key not in answers:
            answers[key] = compute()
        answer: AnswerT = answers[key]
        return answer

    def with_reclaim(self) -> "Offers":
        """The offers if the gang takes back quota that others borrowed."""
        other = copy(self)
        other.request = replace(self.request, reclaims_quota=True)
        return other

    def quota_path(self, candidate: Candidate) -> QuotaPath:
        return self._cache_for(candidate).path

    def empty_path(self, candidate: Candidate, path: QuotaPath) -> QuotaPath:
        return self.compute_once(candidate, ("emptied", path), lambda: tree.without_usage(path))

    def offer_for(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        """How many pods of a group, up to all, the quota in `path` admits."""
        return self._cached_offer(candidate, path, group, self.request.reclaims_quota)

    def shortage_reason(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> str:
        """Why not all pods of a group fit, with both names of the extended resources that have two."""
        reason = self._shortage_text(candidate, path, group)
        other_names = describe_names(resource_names_in((group,), candidate)) if reason else ""
        return "; ".join(filter(None, (reason, other_names)))

    def _shortage_text(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> str:
        if mismatch := _mismatch_reason(self.request, candidate, group):
            return mismatch
        capacity = self._flavor_capacity(candidate, path, group)
        shortage = capacity.shortage_reason(group.count) or (
            ""
            if self._may_add_nodes(candidate)
            else self._pods_on_nodes(candidate, group, capacity.fit(group.count))[1]
        )
        return f"{shortage}, and each replica needs {group.hosts}" if shortage and group.hosts > 1 else shortage

    def shortfall(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Shortfall | None:
        """The resource that runs out first; None if no quota limits the group."""
        return self._flavor_capacity(candidate, path, group).shortfall(group.count)

    def gain_if_uncordoned(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> int:
        """How many more pods of a group the empty candidate could hold at most if it had no cordoned node."""
        if candidate.nodes is None or not candidate.nodes.cordoned or _mismatch_reason(self.request, candidate, group):
            return 0
        by_quota = self._potential_pods(candidate, self._flavor_capacity(candidate, path, group), group)
        return max(0, min(group.count, by_quota) - self.offer_for(candidate, path, group).potential)

    def assigned_flavors(
        self, candidate: Candidate, path: QuotaPath, group: GroupRequest, count: int, *, preempts: bool = False
    ) -> Mapping[str, str]:
        """The flavors of exactly `count` pods, by resource; empty if there is no capacity.

        Kueue's choice depends on `count`.
        """
        capacity = self._flavor_capacity(candidate, path, group)
        flavors = capacity.assigned_flavors(count) or capacity.reclaimable_fit(count).flavors
        return flavors or (capacity.flavors_if_empty(count) if preempts else {})

    def reserve_pods(
        self,
        candidate: Candidate,
        path: QuotaPath,
        group: GroupRequest,
        count: int,
        *,
        preempts: bool = False,
        waiting: bool = False,
    ) -> QuotaPath:
        """The quota path after `count` pods are reserved; a group that `preempts` may exceed the free capacity.

        What `waiting` pods would borrow yields to the nominal quota of other queues.
        """

        def charged() -> QuotaPath:
            flavors = self.assigned_flavors(candidate, path, group, count, preempts=preempts)
            return tree.reserve_pods(path, flavors, self.counted_request(candidate, group), count, waiting=waiting)

        return self.compute_once(candidate, ("charged", path, group.name, count, preempts, waiting), charged)

    def admits_share(self, candidate: Candidate, path: QuotaPath, counts: Mapping[str, int]) -> bool:
        """Whether the cluster's Kueue admits a share at its first try, with the groups sorted by role.

        At a later try Kueue may admit more (quota/tree.py).
        """
        groups = [group for group in self.request.groups_by_role if counts.get(group.name)]
        for group in groups:
            if self.offer_for(candidate, path, group).total < counts[group.name]:
                return False
            if group is not groups[-1]:
                path = self.reserve_pods(candidate, path, group, counts[group.name])
        return True

    def _cached_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest, reclaims: bool) -> Offer:
        def offer() -> Offer:
            compute = self._reclaiming_offer if reclaims else self._free_offer
            if _mismatch_reason(self.request, candidate, group):
                return Offer()
            pods = compute(candidate, path, group)
            return pods if group.hosts == 1 else pods.in_replicas(group.hosts).in_workers(group.hosts)

        return self.compute_once(candidate, ("offer", path, group.name, group.count, reclaims), offer)

    def _free_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        capacity = self._flavor_capacity(candidate, path, group)
        fit, potential = capacity.fit(group.count), self._potential_pods(candidate, capacity, group)
        total, (on_nodes, _) = fit.nominal + fit.borrow, self._pods_on_nodes(candidate, group, fit)
        available = min(total, on_nodes)
        if self._may_add_nodes(candidate):
            return Offer(fit.nominal, total, potential, available)
        return Offer(min(fit.nominal, on_nodes), available, min(potential, on_nodes), available)

    def _reclaiming_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        free = self._cached_offer(candidate, path, group, reclaims=False)
        reclaimable = self._flavor_capacity(candidate, path, group).reclaimable_fit(group.count)
        # Preempt no pod for one that no node could hold.
        on_nodes = max(free.on_nodes, min(reclaimable.nominal, self._pods_on_nodes(candidate, group, reclaimable)[0]))
        # An AdmissionCheck may add no nodes.
        total = max(free.total, on_nodes if _has_node_limit(candidate) else reclaimable.nominal)
        return free._replace(total=total, on_nodes=on_nodes, reclaimed=total - free.total)

    def _flavor_capacity(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> FlavorCapacity:
        def survey() -> FlavorCapacity:
            return tree.flavor_capacity(self._demand_of(candidate, group), path)

        return self.compute_once(candidate, ("survey", path, group.name), survey)

    def _demand_of(self, candidate: Candidate, group: GroupRequest) -> Demand:
        def demand() -> Demand:
            queue, labels = queue_name(self.request, candidate), candidate.namespaces[self.request.namespace]
            counted, spec = self.counted_request(candidate, group), pod_spec_in(candidate, group)
            note = uncovered_note(self.request, candidate) if self.uncovered_resources(candidate) else ""
            return tree.demand_for_pods(candidate.quota_tree, queue, counted, spec, labels, note, group.topology)

        return self.compute_once(candidate, ("demand", group.name), demand)

    def counted_request(self, candidate: Candidate, group: GroupRequest) -> Resources:
        """What Kueue there is thought to count of one pod's requests."""
        if not (candidate.kueue_answers or candidate.asks_kueue):
            return quota_request_in(self.request, candidate, group)
        return self.compute_once(
            candidate, ("counted", group.name), lambda: counted_request_in(self.request, candidate, group)
        )

    def uncovered_resources(self, candidate: Candidate) -> frozenset[str]:
        """The resources of the gang that its ClusterQueue there does not cover, and that Kueue may count."""
        return self.compute_once(candidate, ("uncovered",), lambda: uncovered_in(self.request, candidate))

    def _potential_pods(self, candidate: Candidate, capacity: FlavorCapacity, group: GroupRequest) -> int:
        """How many pods of a group the candidate could hold if empty; equal for all of its quota paths."""
        return self.compute_once(candidate, ("ever", group.name), capacity.potential_pods)

    def _may_add_nodes(self, candidate: Candidate) -> bool:
        """Whether today's nodes are no limit.

        An AdmissionCheck of the ClusterQueue there may be one of Kueue's ProvisioningRequests, which adds nodes before
        it admits a share. The account may not read AdmissionChecks.
        """
        rules = candidate.quota_tree.queues.get(queue_name(self.request, candidate))
        return not _has_node_limit(candidate) or (rules is not None and rules.has_checks)

    def _pods_on_nodes(self, candidate: Candidate, group: GroupRequest, fit: Fit) -> tuple[int, str]:
        """How many pods today's nodes hold if empty, and why not all."""
        nodes = candidate.nodes
        if nodes is None or not fit.flavors:
            return UNLIMITED, ""
        names = tuple(dict.fromkeys(fit.flavors.values()))

        def node_pods() -> tuple[int, str]:
            flavors, spec = [candidate.quota_tree.flavors[name] for name in names], pod_spec_in(candidate, group)
            return node_capacity.pods_that_fit(nodes, spec, request_in(candidate, group), flavors, group.count)

        return self.compute_once(candidate, ("nodes", group.name, group.count, names), node_pods)


def _offer_dependencies(request: GangRequest, candidate: Candidate) -> tuple[Any, ...]:
    """What offers depend on beside the quota.

    Other queues and namespaces are left out: events of thousands of them must not empty the cache.
    """
    cluster_facts = candidate.location, candidate.nodes, candidate.can_grow, candidate.pod_mapping
    queue = queue_name(request, candidate)
    answers = candidate.kueue_answers.get((request.namespace, queue))
    return *cluster_facts, queue, candidate.namespaces.get(request.namespace), answers


def _mismatch_reason(request: GangRequest, candidate: Candidate, group: GroupRequest) -> str:
    if mismatch := location_mismatch(group.location, candidate.location):
        return f"worker group {printable(group.name)} {mismatch}"
    return denied_reason(request, candidate, group)


def _has_node_limit(candidate: Candidate) -> bool:
    """Whether the cluster's nodes are known, and no autoscaler adds others."""
    return not candidate.can_grow and candidate.nodes is not None

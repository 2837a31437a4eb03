"""What each worker cluster offers a gang, with its quota as it stands or as a plan would leave it.

An offer is what the cluster's Kueue would admit, limited to what its nodes can hold. Nothing is chosen here.
"""

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from adapter.objects.pod_requests import UNLIMITED
from adapter.objects.unstructured import printable
from adapter.planning.plan_request import (
    Candidate,
    GangRequest,
    GroupRequest,
    Offer,
    denied_reason,
    pod_spec_in,
    queue_name,
    request_in,
    scheduling_hash_in,
)
from adapter.quota import node_capacity, tree
from adapter.quota.tree import Demand, Fit, FlavorCapacity, QuotaPath, Shortfall

AnswerT = TypeVar("AnswerT")

# The answers cached with a cluster's quota, for gangs of all kinds: some 20 for a kind of one worker group with a
# handful of sizes, of 200 bytes to 1 kB each. In a crowd many gangs are of one kind, since users run the same job again
# and again. When the cache is full, other kinds are not cached: if more kinds alternate than fit, evicting would only
# thrash. Cached kinds may double the number, for other sizes of their gangs.
MAX_CACHED_ANSWERS = 300


class _OfferCache(NamedTuple):
    """The answers of one candidate for gangs of one kind."""

    dependencies: tuple[Any, ...]  # what the answers depend on beside the candidate's quota
    path: QuotaPath  # the candidate's quota as it stands
    answers: dict[Hashable, Any]


class Offers:
    """What candidates offer one gang.

    A plan asks the same questions many times, and so does the plan of the next gang of that kind. Each answer is
    computed once per state of a quota. That state is a quota path: the candidate's own, or one derived from it. No two
    candidates may have the same name.
    """

    def __init__(self, request: GangRequest) -> None:
        self.request = request
        self._caches: dict[str, _OfferCache] = {}

    def _cache_for(self, candidate: Candidate) -> _OfferCache:
        if candidate.name not in self._caches:
            self._caches[candidate.name] = self._shared_cache(candidate)
        return self._caches[candidate.name]

    def _shared_cache(self, candidate: Candidate) -> _OfferCache:
        """The cache of other gangs of this kind on the same quota, if all other dependencies are equal.

        Nothing is cached for quota of which others were promised a part: there are as many states of it as gangs.
        """
        hashes, caches = (
            [scheduling_hash_in(candidate, group) for group in self.request.groups],
            candidate.quota_tree.offer_cache,
        )
        dependencies = _offer_dependencies(self.request, candidate)
        if caches is None or not all(hashes):
            return self._new_cache(candidate, dependencies)
        groups = (
            (group.name, group.role, group.zone, group_hash)
            for group, group_hash in zip(self.request.groups, hashes, strict=True)
        )
        key = self.request.namespace, self.request.queue, *groups
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
        """The answer to a question about a candidate, computed once; it depends on the key, the quota and the gang's
        kind."""
        answers = self._cache_for(candidate).answers
        if key not in answers:
            answers[key] = compute()
        answer: AnswerT = answers[key]
        return answer

    def with_reclaim(self) -> "Offers":
        """The offers for the gang if it takes back quota that others borrowed; common answers stay cached."""
        other = copy(self)  # it shares the caches
        other.request = replace(self.request, reclaims_quota=True)
        return other

    def quota_path(self, candidate: Candidate) -> QuotaPath:
        """The candidate's quota for the gang, as it stands."""
        return self._cache_for(candidate).path

    def empty_path(self, candidate: Candidate, path: QuotaPath) -> QuotaPath:
        """A quota path of the candidate with nothing in use."""
        return self.compute_once(candidate, ("emptied", path), lambda: tree.without_usage(path))

    def offer_for(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        """How many pods of a group, up to all, the candidate could take with the quota in `path`."""
        return self._cached_offer(candidate, path, group, self.request.reclaims_quota)

    def shortage_reason(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> str:
        """Why the candidate could not take all pods of a group."""
        if mismatch := _mismatch_reason(candidate, group):
            return mismatch
        capacity = self._flavor_capacity(candidate, path, group)
        shortage = capacity.shortage_reason(group.count)
        return shortage or (
            "" if _may_add_nodes(candidate) else self._pods_on_nodes(candidate, group, capacity.fit(group.count))[1]
        )

    def shortfall(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Shortfall | None:
        """The resource that runs out first for the group there; None if no quota limits it."""
        return self._flavor_capacity(candidate, path, group).shortfall(group.count)

    def assigned_flavors(
        self, candidate: Candidate, path: QuotaPath, group: GroupRequest, count: int, *, preempts: bool = False
    ) -> Mapping[str, str]:
        """The flavors in which `count` pods of the group are reserved there, by resource; empty if there is no
        capacity.

        Kueue's choice of a flavor depends on the number of pods, so `count` must be exact.
        """
        capacity = self._flavor_capacity(candidate, path, group)
        flavors = capacity.assigned_flavors(count) or capacity.reclaimable_fit(count).flavors
        return flavors or (capacity.flavors_if_empty(count) if preempts else {})

    def reserve_pods(
        self, candidate: Candidate, path: QuotaPath, group: GroupRequest, count: int, *, preempts: bool = False
    ) -> QuotaPath:
        """The quota path after `count` pods of the group are reserved; a group that `preempts` may exceed the free
        capacity."""

        def charged() -> QuotaPath:
            flavors = self.assigned_flavors(candidate, path, group, count, preempts=preempts)
            return tree.reserve_pods(path, flavors, request_in(candidate, group), count)

        return self.compute_once(candidate, ("charged", path, group.name, count, preempts), charged)

    def admits_share(self, candidate: Candidate, path: QuotaPath, counts: Mapping[str, int]) -> bool:
        """Whether the cluster's Kueue admits a share at its first try: group by group by role, each in what the earlier
        ones left.

        At a later try it may admit more (see quota/tree.py).
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
            return Offer() if _mismatch_reason(candidate, group) else compute(candidate, path, group)

        return self.compute_once(candidate, ("offer", path, group.name, group.count, reclaims), offer)

    def _free_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        capacity = self._flavor_capacity(candidate, path, group)
        fit, potential = capacity.fit(group.count), self._potential_pods(candidate, capacity, group)
        total, (on_nodes, _) = fit.nominal + fit.borrow, self._pods_on_nodes(candidate, group, fit)
        available = min(total, on_nodes)
        if _may_add_nodes(candidate):
            return Offer(fit.nominal, total, potential, available)
        return Offer(min(fit.nominal, on_nodes), available, min(potential, on_nodes), available)

    def _reclaiming_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        free = self._cached_offer(candidate, path, group, reclaims=False)
        reclaimable = self._flavor_capacity(candidate, path, group).reclaimable_fit(group.count)
        # No pod may be preempted for one that no node there could hold.
        on_nodes = max(free.on_nodes, min(reclaimable.nominal, self._pods_on_nodes(candidate, group, reclaimable)[0]))
        total = max(free.total, reclaimable.nominal) if _may_add_nodes(candidate) else on_nodes
        return free._replace(total=total, on_nodes=on_nodes, reclaimed=total - free.total)

    def _flavor_capacity(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> FlavorCapacity:
        def survey() -> FlavorCapacity:
            return tree.flavor_capacity(self._demand_of(candidate, group), path)

        return self.compute_once(candidate, ("survey", path, group.name), survey)

    def _demand_of(self, candidate: Candidate, group: GroupRequest) -> Demand:
        def demand() -> Demand:
            queue, labels = queue_name(self.request, candidate), candidate.namespaces[self.request.namespace]
            pod_request, spec = request_in(candidate, group), pod_spec_in(candidate, group)
            return tree.demand_for_pods(candidate.quota_tree, queue, pod_request, spec, labels)

        return self.compute_once(candidate, ("demand", group.name), demand)

    def _potential_pods(self, candidate: Candidate, capacity: FlavorCapacity, group: GroupRequest) -> int:
        """How many pods would fit if nothing were in use; equal for all quota paths of a candidate."""
        return self.compute_once(candidate, ("ever", group.name), capacity.potential_pods)

    def _pods_on_nodes(self, candidate: Candidate, group: GroupRequest, fit: Fit) -> tuple[int, str]:
        """How many pods today's nodes could hold if they were empty, and why fewer than wanted."""
        nodes = candidate.nodes
        if nodes is None or not fit.flavors:
            return UNLIMITED, ""
        names = tuple(dict.fromkeys(fit.flavors.values()))

        def held() -> tuple[int, str]:
            flavors, spec = [candidate.quota_tree.flavors[name] for name in names], pod_spec_in(candidate, group)
            return node_capacity.pods_that_fit(nodes, spec, request_in(candidate, group), flavors, group.count)

        return self.compute_once(candidate, ("nodes", group.name, group.count, names), held)


def _offer_dependencies(request: GangRequest, candidate: Candidate) -> tuple[Any, ...]:
    """What an offer depends on beside the quota.

    Only the gang's own queue and namespace count: a candidate may have thousands of others, parsed at each of their
    events.
    """
    cluster_facts = candidate.zone, candidate.nodes, candidate.can_grow, candidate.pod_mapping
    return *cluster_facts, queue_name(request, candidate), candidate.namespaces.get(request.namespace)


def _mismatch_reason(candidate: Candidate, group: GroupRequest) -> str:
    """Why the group must run elsewhere, whatever the capacity; empty if it need not."""
    if group.zone not in ("", candidate.zone):
        return f"worker group {printable(group.name)} asks for zone {printable(group.zone)}, this is {candidate.zone}"
    return denied_reason(candidate, group)


def _may_add_nodes(candidate: Candidate) -> bool:
    """Whether the candidate may have more nodes for its pods than are known."""
    return candidate.can_grow or candidate.nodes is None

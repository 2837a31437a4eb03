"""What does each worker cluster offer a gang, with its quota as it stands or as a plan would leave it?

Quota and nodes together: what its Kueue would admit, and of that no more than its nodes can hold. Nothing here chooses.
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

# Answers that are kept beside a cluster's quota, of gangs of all kinds: some 20 for a kind of one worker group, with a handful of sizes, and 200
# bytes to 1 kB each. In a crowd many ask alike, for their users run the same again and again. When so many are kept, those of other kinds are
# found anew each time, as if nobody had asked before: to make room for them would help nobody, where more kinds take turns than there is room for.
# Those that are kept may come to twice as many, for other sizes of their gangs.
MAX_CACHED_ANSWERS = 300


class _OfferCache(NamedTuple):
    """What one candidate offers gangs that ask alike, as far as that was asked."""

    dependencies: tuple[Any, ...]  # what it hangs on, beside the candidate's quota
    path: QuotaPath  # the candidate's quota as it stands
    answers: dict[Hashable, Any]


class Offers:
    """What candidates offer one gang. A plan asks the same over and over, and so does the plan of the next gang that asks alike: each
    answer is found once per state of a quota.

    That state is a line: the candidate's own one, or one that comes of it. No two candidates may have the same name.
    """

    def __init__(self, request: GangRequest) -> None:
        self.request = request
        self._caches: dict[str, _OfferCache] = {}

    def _cache_for(self, candidate: Candidate) -> _OfferCache:
        if candidate.name not in self._caches:
            self._caches[candidate.name] = self._shared_cache(candidate)
        return self._caches[candidate.name]

    def _shared_cache(self, candidate: Candidate) -> _OfferCache:
        """What others that ask alike have found on the very same quota, if all else is the same, too. Of quota that others were promised a
        part of nothing is kept: there are as many states of that as gangs."""
        asked, kept = (
            [scheduling_hash_in(candidate, group) for group in self.request.groups],
            candidate.quota_tree.offer_cache,
        )
        facts = _offer_dependencies(self.request, candidate)
        if kept is None or not all(asked):
            return self._new_cache(candidate, facts)
        groups = ((g.name, g.role, g.zone, alike) for g, alike in zip(self.request.groups, asked, strict=True))
        key = self.request.namespace, self.request.queue, *groups
        found: _OfferCache | None = kept.get(key)
        many = sum([len(one.answers) for one in kept.values()])
        if found is None or found.dependencies != facts or many > 2 * MAX_CACHED_ANSWERS:
            kept.pop(key, None)
            found = self._new_cache(candidate, facts)
            if many <= MAX_CACHED_ANSWERS:
                kept[key] = found
        return found

    def _new_cache(self, candidate: Candidate, dependencies: tuple[Any, ...]) -> _OfferCache:
        return _OfferCache(dependencies, tree.queue_path(candidate.quota_tree, queue_name(self.request, candidate)), {})

    def compute_once(self, candidate: Candidate, key: Hashable, compute: Callable[[], AnswerT]) -> AnswerT:
        """The answer to a question about a candidate, which is asked once; it hangs on the question, the quota and the gang's kind."""
        known = self._cache_for(candidate).answers
        if key not in known:
            known[key] = compute()
        answer: AnswerT = known[key]
        return answer

    def with_reclaim(self) -> "Offers":
        """The same for a gang that takes back what others borrowed; what both ask alike is not asked again."""
        other = copy(self)  # it keeps its answers where this one does
        other.request = replace(self.request, reclaims_quota=True)
        return other

    def quota_path(self, candidate: Candidate) -> QuotaPath:
        """The candidate's quota for the gang as it stands."""
        return self._cache_for(candidate).path

    def empty_path(self, candidate: Candidate, path: QuotaPath) -> QuotaPath:
        """A line of the candidate as if nothing at all were in use."""
        return self.compute_once(candidate, ("emptied", path), lambda: tree.without_usage(path))

    def offer_for(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        """Say how many pods of a group, up to all, the candidate could take, were its quota as in `line`."""
        return self._cached_offer(candidate, path, group, self.request.reclaims_quota)

    def shortage_reason(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> str:
        """Say why it could not take all pods of a group."""
        if why := _mismatch_reason(candidate, group):
            return why
        survey = self._flavor_capacity(candidate, path, group)
        short = survey.shortage_reason(group.count)
        return short or (
            "" if _may_add_nodes(candidate) else self._pods_on_nodes(candidate, group, survey.fit(group.count))[1]
        )

    def shortfall(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Shortfall | None:
        """Say which resource ends first for the group there, None where no quota bounds it."""
        return self._flavor_capacity(candidate, path, group).shortfall(group.count)

    def assigned_flavors(
        self, candidate: Candidate, path: QuotaPath, group: GroupRequest, count: int, *, preempts: bool = False
    ) -> Mapping[str, str]:
        """Name the flavors in which `count` pods of the group are reserved there, by resource; none where there is no room for
        so many. Which flavor Kueue takes depends on how many want to go into one: ask for these very ones."""
        survey = self._flavor_capacity(candidate, path, group)
        flavors = survey.assigned_flavors(count) or survey.reclaimable_fit(count).flavors
        return flavors or (survey.flavors_if_empty(count) if preempts else {})

    def reserve_pods(
        self, candidate: Candidate, path: QuotaPath, group: GroupRequest, count: int, *, preempts: bool = False
    ) -> QuotaPath:
        """The line once `count` pods of the group are reserved there; who `preempts` may find no room before."""

        def charged() -> QuotaPath:
            flavors = self.assigned_flavors(candidate, path, group, count, preempts=preempts)
            return tree.reserve_pods(path, flavors, request_in(candidate, group), count)

        return self.compute_once(candidate, ("charged", path, group.name, count, preempts), charged)

    def admits_share(self, candidate: Candidate, path: QuotaPath, counts: Mapping[str, int]) -> bool:
        """Whether the cluster's Kueue admits a share at its first try: group by group by role, each in what those before it
        left. At a later try it may admit more (see quota/tree.py)."""
        groups = [group for group in self.request.groups_by_role if counts.get(group.name)]
        for group in groups:
            if self.offer_for(candidate, path, group).total < counts[group.name]:
                return False
            if group is not groups[-1]:
                path = self.reserve_pods(candidate, path, group, counts[group.name])
        return True

    def _cached_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest, reclaims: bool) -> Offer:
        def offer() -> Offer:
            found = self._reclaiming_offer if reclaims else self._free_offer
            return Offer() if _mismatch_reason(candidate, group) else found(candidate, path, group)

        return self.compute_once(candidate, ("offer", path, group.name, group.count, reclaims), offer)

    def _free_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        survey = self._flavor_capacity(candidate, path, group)
        fit, ever = survey.fit(group.count), self._potential_pods(candidate, survey, group)
        total, (held, _) = fit.nominal + fit.borrow, self._pods_on_nodes(candidate, group, fit)
        now = min(total, held)
        if _may_add_nodes(candidate):
            return Offer(fit.nominal, total, ever, now)
        return Offer(min(fit.nominal, held), now, min(ever, held), now)

    def _reclaiming_offer(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> Offer:
        free = self._cached_offer(candidate, path, group, reclaims=False)
        back = self._flavor_capacity(candidate, path, group).reclaimable_fit(group.count)
        # Nobody shall lose a pod for one that no node there could hold.
        now = max(free.on_nodes, min(back.nominal, self._pods_on_nodes(candidate, group, back)[0]))
        total = max(free.total, back.nominal) if _may_add_nodes(candidate) else now
        return free._replace(total=total, on_nodes=now, reclaimed=total - free.total)

    def _flavor_capacity(self, candidate: Candidate, path: QuotaPath, group: GroupRequest) -> FlavorCapacity:
        def survey() -> FlavorCapacity:
            return tree.flavor_capacity(self._demand_of(candidate, group), path)

        return self.compute_once(candidate, ("survey", path, group.name), survey)

    def _demand_of(self, candidate: Candidate, group: GroupRequest) -> Demand:
        def demand() -> Demand:
            queue, labels = queue_name(self.request, candidate), candidate.namespaces[self.request.namespace]
            asked, spec = request_in(candidate, group), pod_spec_in(candidate, group)
            return tree.demand_for_pods(candidate.quota_tree, queue, asked, spec, labels)

        return self.compute_once(candidate, ("demand", group.name), demand)

    def _potential_pods(self, candidate: Candidate, capacity: FlavorCapacity, group: GroupRequest) -> int:
        """How many would fit were nothing in use: the same on all of a candidate's lines."""
        return self.compute_once(candidate, ("ever", group.name), capacity.potential_pods)

    def _pods_on_nodes(self, candidate: Candidate, group: GroupRequest, fit: Fit) -> tuple[int, str]:
        """How many pods today's nodes could hold were they empty, and why fewer than wanted."""
        there = candidate.nodes
        if there is None or not fit.flavors:
            return UNLIMITED, ""
        names = tuple(dict.fromkeys(fit.flavors.values()))

        def held() -> tuple[int, str]:
            flavors, spec = [candidate.quota_tree.flavors[name] for name in names], pod_spec_in(candidate, group)
            return node_capacity.pods_that_fit(there, spec, request_in(candidate, group), flavors, group.count)

        return self.compute_once(candidate, ("nodes", group.name, group.count, names), held)


def _offer_dependencies(request: GangRequest, candidate: Candidate) -> tuple[Any, ...]:
    """All of it that an offer hangs on but its quota. Of its queues and namespaces the gang's own: of others it may have thousands, read
    anew at each of their events."""
    here = candidate.zone, candidate.nodes, candidate.can_grow, candidate.pod_mapping
    return *here, queue_name(request, candidate), candidate.namespaces.get(request.namespace)


def _mismatch_reason(candidate: Candidate, group: GroupRequest) -> str:
    """Why the group must run elsewhere, whatever room there is; empty when it need not."""
    if group.zone not in ("", candidate.zone):
        return f"worker group {printable(group.name)} asks for zone {printable(group.zone)}, this is {candidate.zone}"
    return denied_reason(candidate, group)


def _may_add_nodes(candidate: Candidate) -> bool:
    """Whether more nodes may hold its pods than we know of."""
    return candidate.can_grow or candidate.nodes is None

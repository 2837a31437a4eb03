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
    Group,
    Offer,
    Request,
    alike_in,
    pod_spec_in,
    queue_name,
    refused,
    request_in,
)
from adapter.quota import node_capacity, tree
from adapter.quota.tree import Demand, Fit, FlavorCapacity, QuotaPath, Shortfall

AnswerT = TypeVar("AnswerT")

# Answers that are kept beside a cluster's quota, of gangs of all kinds: some 20 for a kind of one worker group, with a handful of sizes, and 200
# bytes to 1 kB each. In a crowd many ask alike, for their users run the same again and again. When so many are kept, those of other kinds are
# found anew each time, as if nobody had asked before: to make room for them would help nobody, where more kinds take turns than there is room for.
# Those that are kept may come to twice as many, for other sizes of their gangs.
MOST_ANSWERS = 300


class _Found(NamedTuple):
    """What one candidate offers gangs that ask alike, as far as that was asked."""

    facts: tuple[Any, ...]  # what it hangs on, beside the candidate's quota
    line: QuotaPath  # the candidate's quota as it stands
    answers: dict[Hashable, Any]


class Offers:
    """What candidates offer one gang. A plan asks the same over and over, and so does the plan of the next gang that asks alike: each
    answer is found once per state of a quota.

    That state is a line: the candidate's own one, or one that comes of it. No two candidates may have the same name.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._found: dict[str, _Found] = {}

    def _of(self, candidate: Candidate) -> _Found:
        if candidate.name not in self._found:
            self._found[candidate.name] = self._remembered(candidate)
        return self._found[candidate.name]

    def _remembered(self, candidate: Candidate) -> _Found:
        """What others that ask alike have found on the very same quota, if all else is the same, too. Of quota that others were promised a
        part of nothing is kept: there are as many states of that as gangs."""
        asked, kept = [alike_in(candidate, group) for group in self.request.groups], candidate.tree.offer_cache
        facts = _facts(self.request, candidate)
        if kept is None or not all(asked):
            return self._anew(candidate, facts)
        groups = ((g.name, g.role, g.zone, alike) for g, alike in zip(self.request.groups, asked, strict=True))
        key = self.request.namespace, self.request.queue, *groups
        found: _Found | None = kept.get(key)
        many = sum([len(one.answers) for one in kept.values()])
        if found is None or found.facts != facts or many > 2 * MOST_ANSWERS:
            kept.pop(key, None)
            found = self._anew(candidate, facts)
            if many <= MOST_ANSWERS:
                kept[key] = found
        return found

    def _anew(self, candidate: Candidate, facts: tuple[Any, ...]) -> _Found:
        return _Found(facts, tree.queue_path(candidate.tree, queue_name(self.request, candidate)), {})

    def once(self, candidate: Candidate, question: Hashable, find: Callable[[], AnswerT]) -> AnswerT:
        """The answer to a question about a candidate, which is asked once; it hangs on the question, the quota and the gang's kind."""
        known = self._of(candidate).answers
        if question not in known:
            known[question] = find()
        answer: AnswerT = known[question]
        return answer

    def reclaiming(self) -> "Offers":
        """The same for a gang that takes back what others borrowed; what both ask alike is not asked again."""
        other = copy(self)  # it keeps its answers where this one does
        other.request = replace(self.request, reclaims=True)
        return other

    def line(self, candidate: Candidate) -> QuotaPath:
        """The candidate's quota for the gang as it stands."""
        return self._of(candidate).line

    def emptied(self, candidate: Candidate, line: QuotaPath) -> QuotaPath:
        """A line of the candidate as if nothing at all were in use."""
        return self.once(candidate, ("emptied", line), lambda: tree.without_usage(line))

    def of(self, candidate: Candidate, line: QuotaPath, group: Group) -> Offer:
        """Say how many pods of a group, up to all, the candidate could take, were its quota as in `line`."""
        return self._offer(candidate, line, group, self.request.reclaims)

    def reason(self, candidate: Candidate, line: QuotaPath, group: Group) -> str:
        """Say why it could not take all pods of a group."""
        if why := _elsewhere(candidate, group):
            return why
        survey = self._survey(candidate, line, group)
        short = survey.shortage_reason(group.count)
        return short or ("" if _grows(candidate) else self._held(candidate, group, survey.fit(group.count))[1])

    def tight(self, candidate: Candidate, line: QuotaPath, group: Group) -> Shortfall | None:
        """Say which resource ends first for the group there, None where no quota bounds it."""
        return self._survey(candidate, line, group).shortfall(group.count)

    def flavors(
        self, candidate: Candidate, line: QuotaPath, group: Group, count: int, *, preempts: bool = False
    ) -> Mapping[str, str]:
        """Name the flavors in which `count` pods of the group are reserved there, by resource; none where there is no room for
        so many. Which flavor Kueue takes depends on how many want to go into one: ask for these very ones."""
        survey = self._survey(candidate, line, group)
        flavors = survey.assigned_flavors(count) or survey.reclaimable_fit(count).flavors
        return flavors or (survey.flavors_if_empty(count) if preempts else {})

    def charge(
        self, candidate: Candidate, line: QuotaPath, group: Group, count: int, *, preempts: bool = False
    ) -> QuotaPath:
        """The line once `count` pods of the group are reserved there; who `preempts` may find no room before."""

        def charged() -> QuotaPath:
            flavors = self.flavors(candidate, line, group, count, preempts=preempts)
            return tree.reserve_pods(line, flavors, request_in(candidate, group), count)

        return self.once(candidate, ("charged", line, group.name, count, preempts), charged)

    def admits(self, candidate: Candidate, line: QuotaPath, counts: Mapping[str, int]) -> bool:
        """Whether the cluster's Kueue admits a share at its first try: group by group by role, each in what those before it
        left. At a later try it may admit more (see quota/tree.py)."""
        groups = [group for group in self.request.by_role if counts.get(group.name)]
        for group in groups:
            if self.of(candidate, line, group).total < counts[group.name]:
                return False
            if group is not groups[-1]:
                line = self.charge(candidate, line, group, counts[group.name])
        return True

    def _offer(self, candidate: Candidate, line: QuotaPath, group: Group, reclaims: bool) -> Offer:
        def offer() -> Offer:
            found = self._with_taken_back if reclaims else self._free
            return Offer() if _elsewhere(candidate, group) else found(candidate, line, group)

        return self.once(candidate, ("offer", line, group.name, group.count, reclaims), offer)

    def _free(self, candidate: Candidate, line: QuotaPath, group: Group) -> Offer:
        survey = self._survey(candidate, line, group)
        fit, ever = survey.fit(group.count), self._ever(candidate, survey, group)
        total, (held, _) = fit.nominal + fit.borrow, self._held(candidate, group, fit)
        now = min(total, held)
        if _grows(candidate):
            return Offer(fit.nominal, total, ever, now)
        return Offer(min(fit.nominal, held), now, min(ever, held), now)

    def _with_taken_back(self, candidate: Candidate, line: QuotaPath, group: Group) -> Offer:
        free = self._offer(candidate, line, group, reclaims=False)
        back = self._survey(candidate, line, group).reclaimable_fit(group.count)
        # Nobody shall lose a pod for one that no node there could hold.
        now = max(free.now, min(back.nominal, self._held(candidate, group, back)[0]))
        total = max(free.total, back.nominal) if _grows(candidate) else now
        return free._replace(total=total, now=now, taken_back=total - free.total)

    def _survey(self, candidate: Candidate, line: QuotaPath, group: Group) -> FlavorCapacity:
        def survey() -> FlavorCapacity:
            return tree.flavor_capacity(self._demand(candidate, group), line)

        return self.once(candidate, ("survey", line, group.name), survey)

    def _demand(self, candidate: Candidate, group: Group) -> Demand:
        def demand() -> Demand:
            queue, labels = queue_name(self.request, candidate), candidate.namespaces[self.request.namespace]
            asked, spec = request_in(candidate, group), pod_spec_in(candidate, group)
            return tree.demand_for_pods(candidate.tree, queue, asked, spec, labels)

        return self.once(candidate, ("demand", group.name), demand)

    def _ever(self, candidate: Candidate, survey: FlavorCapacity, group: Group) -> int:
        """How many would fit were nothing in use: the same on all of a candidate's lines."""
        return self.once(candidate, ("ever", group.name), survey.potential_pods)

    def _held(self, candidate: Candidate, group: Group, fit: Fit) -> tuple[int, str]:
        """How many pods today's nodes could hold were they empty, and why fewer than wanted."""
        there = candidate.nodes
        if there is None or not fit.flavors:
            return UNLIMITED, ""
        names = tuple(dict.fromkeys(fit.flavors.values()))

        def held() -> tuple[int, str]:
            flavors, spec = [candidate.tree.flavors[name] for name in names], pod_spec_in(candidate, group)
            return node_capacity.pods_that_fit(there, spec, request_in(candidate, group), flavors, group.count)

        return self.once(candidate, ("nodes", group.name, group.count, names), held)


def _facts(request: Request, candidate: Candidate) -> tuple[Any, ...]:
    """All of it that an offer hangs on but its quota. Of its queues and namespaces the gang's own: of others it may have thousands, read
    anew at each of their events."""
    here = candidate.zone, candidate.nodes, candidate.can_grow, candidate.pods
    return *here, queue_name(request, candidate), candidate.namespaces.get(request.namespace)


def _elsewhere(candidate: Candidate, group: Group) -> str:
    """Why the group must run elsewhere, whatever room there is; empty when it need not."""
    if group.zone not in ("", candidate.zone):
        return f"worker group {printable(group.name)} asks for zone {printable(group.zone)}, this is {candidate.zone}"
    return refused(candidate, group)


def _grows(candidate: Candidate) -> bool:
    """Whether more nodes may hold its pods than we know of."""
    return candidate.can_grow or candidate.nodes is None

"""What does each worker cluster offer a gang, with its quota as it stands or as a plan would leave it?

Quota and nodes together: what its Kueue would admit, and of that no more than its nodes can hold. Nothing here chooses.
"""

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from adapter.objects.podrequests import UNLIMITED
from adapter.objects.raw import quoted
from adapter.planning.request import Candidate, Group, Offer, Request, pod_spec_in, queue_name, refused, request_in
from adapter.quota import nodes, tree
from adapter.quota.tree import Demand, Fit, Line, Shortfall, Survey

# Kinds of gangs of which answers are kept beside one state of a cluster's quota, some kilobytes each: in a crowd many ask alike, for
# their users run the same again and again. Of more kinds than that each is found anew, as if nobody had asked before.
MOST_ALIKE = 50
# States of its quota that are kept of one of these: its own one, and those that come of dividing a gang. Few do, and then it begins anew.
MOST_LINES = 200


@dataclass(slots=True, eq=False)
class _Found:
    """What one candidate offers gangs that ask alike, as far as that was asked; of a line, by the line."""

    facts: tuple[Any, ...]  # what it hangs on, beside the candidate's quota
    request: Request  # holds the objects that its key names by their ids
    line: Line  # the candidate's quota as it stands
    demands: dict[str, Demand] = field(default_factory=dict)
    evers: dict[str, int] = field(default_factory=dict)
    nodes: dict[tuple[str, tuple[str, ...]], tuple[int, str]] = field(default_factory=dict)
    surveys: dict[tuple[Line, str], Survey] = field(default_factory=dict)
    offers: dict[tuple[Line, str, bool], Offer] = field(default_factory=dict)
    charged: dict[tuple[Line, str, int, bool], Line] = field(default_factory=dict)
    emptied: dict[Line, Line] = field(default_factory=dict)
    looks: dict[tuple[Line, bool], Any] = field(default_factory=dict)


class Offers:
    """What candidates offer one gang. A plan asks the same over and over, and so does the plan of the next gang that asks alike: each
    answer is found once per state of a quota.

    That state is a line: the candidate's own one, or one that comes of it. No two candidates may have the same name.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        groups = [(g.name, g.role, g.count, g.zone, g.alike) for g in request.groups]
        known = all(group.alike for group in request.groups)
        self._alike: Hashable = (request.namespace, request.queue, *groups) if known else None
        self._found: dict[str, _Found] = {}

    def _of(self, candidate: Candidate) -> _Found:
        if candidate.name not in self._found:
            self._found[candidate.name] = self._remembered(candidate) if self._alike else self._anew(candidate)
        return self._found[candidate.name]

    def _remembered(self, candidate: Candidate) -> _Found:
        """What others that ask alike have found on the very same quota, if all else is the same, too."""
        key = self._alike, *(id(group.tried.get(candidate.name)) for group in self.request.groups)
        kept = candidate.tree.found
        found: _Found | None = kept.get(key)
        if found is None or found.facts != _facts(candidate) or len(found.surveys) + len(found.charged) > MOST_LINES:
            found = kept[key] = self._anew(candidate)
            if len(kept) > MOST_ALIKE:
                del kept[next(iter(kept))]
        return found

    def _anew(self, candidate: Candidate) -> _Found:
        line = tree.line(candidate.tree, queue_name(self.request, candidate))
        return _Found(_facts(candidate), self.request, line)

    def reclaiming(self) -> "Offers":
        """The same for a gang that takes back what others borrowed; what both ask alike is not asked again."""
        other = copy(self)  # it keeps its answers where this one does
        other.request = replace(self.request, reclaims=True)
        return other

    def line(self, candidate: Candidate) -> Line:
        """The candidate's quota for the gang as it stands."""
        return self._of(candidate).line

    def emptied(self, candidate: Candidate, line: Line) -> Line:
        """A line of the candidate as if nothing at all were in use."""
        known = self._of(candidate).emptied
        if line not in known:
            known[line] = tree.emptied(line)
        return known[line]

    def looks(self, candidate: Candidate) -> dict[tuple[Line, bool], Any]:
        """Where is kept what was found of the whole gang, by line and whether it takes back what others borrowed: see strategy.py."""
        return self._of(candidate).looks

    def of(self, candidate: Candidate, line: Line, group: Group) -> Offer:
        """Say how many pods of a group, up to all, the candidate could take, were its quota as in `line`."""
        return self._offer(candidate, line, group, self.request.reclaims)

    def reason(self, candidate: Candidate, line: Line, group: Group) -> str:
        """Say why it could not take all pods of a group."""
        if why := _elsewhere(candidate, group):
            return why
        survey = self._survey(candidate, line, group)
        short = survey.reason(group.count)
        return short or ("" if _grows(candidate) else self._held(candidate, group, survey.fit(group.count))[1])

    def tight(self, candidate: Candidate, line: Line, group: Group) -> Shortfall | None:
        """Say which resource ends first for the group there, None where no quota bounds it."""
        return self._survey(candidate, line, group).tight(group.count)

    def flavors(
        self, candidate: Candidate, line: Line, group: Group, count: int, *, preempts: bool = False
    ) -> Mapping[str, str]:
        """Name the flavors in which `count` pods of the group are reserved there, by resource; none where there is no room for
        so many. Which flavor Kueue takes depends on how many want to go into one: ask for these very ones."""
        survey = self._survey(candidate, line, group)
        flavors = survey.flavors(count) or survey.reclaimable(count).flavors
        return flavors or (survey.emptied(count) if preempts else {})

    def charge(self, candidate: Candidate, line: Line, group: Group, count: int, *, preempts: bool = False) -> Line:
        """The line once `count` pods of the group are reserved there; who `preempts` may find no room before."""
        key, known = (line, group.name, count, preempts), self._of(candidate).charged
        if key not in known:
            flavors = self.flavors(candidate, line, group, count, preempts=preempts)
            known[key] = tree.reserve(line, flavors, request_in(candidate, group), count)
        return known[key]

    def admits(self, candidate: Candidate, line: Line, counts: Mapping[str, int]) -> bool:
        """Whether the cluster's Kueue admits a share at its first try: group by group by role, each in what those before it
        left. At a later try it may admit more (see quota/tree.py)."""
        groups = [group for group in self.request.by_role if counts.get(group.name)]
        for group in groups:
            if self.of(candidate, line, group).total < counts[group.name]:
                return False
            if group is not groups[-1]:
                line = self.charge(candidate, line, group, counts[group.name])
        return True

    def _offer(self, candidate: Candidate, line: Line, group: Group, reclaims: bool) -> Offer:
        key, known = (line, group.name, reclaims), self._of(candidate).offers
        if key not in known:
            found = self._with_taken_back if reclaims else self._free
            known[key] = Offer() if _elsewhere(candidate, group) else found(candidate, line, group)
        return known[key]

    def _free(self, candidate: Candidate, line: Line, group: Group) -> Offer:
        survey = self._survey(candidate, line, group)
        fit, ever = survey.fit(group.count), self._ever(candidate, survey, group)
        total, (held, _) = fit.nominal + fit.borrow, self._held(candidate, group, fit)
        now = min(total, held)
        if _grows(candidate):
            return Offer(fit.nominal, total, ever, now)
        return Offer(min(fit.nominal, held), now, min(ever, held), now)

    def _with_taken_back(self, candidate: Candidate, line: Line, group: Group) -> Offer:
        free = self._offer(candidate, line, group, reclaims=False)
        back = self._survey(candidate, line, group).reclaimable(group.count)
        # Nobody shall lose a pod for one that no node there could hold.
        now = max(free.now, min(back.nominal, self._held(candidate, group, back)[0]))
        total = max(free.total, back.nominal) if _grows(candidate) else now
        return free._replace(total=total, now=now, taken_back=total - free.total)

    def _survey(self, candidate: Candidate, line: Line, group: Group) -> Survey:
        key, known = (line, group.name), self._of(candidate).surveys
        if key not in known:
            known[key] = tree.survey(self._demand(candidate, group), line)
        return known[key]

    def _demand(self, candidate: Candidate, group: Group) -> Demand:
        known = self._of(candidate).demands
        if group.name not in known:
            queue, labels = queue_name(self.request, candidate), candidate.namespaces[self.request.namespace]
            asked, spec = request_in(candidate, group), pod_spec_in(candidate, group)
            known[group.name] = tree.ask(candidate.tree, queue, asked, spec, labels)
        return known[group.name]

    def _ever(self, candidate: Candidate, survey: Survey, group: Group) -> int:
        """How many would fit were nothing in use: the same on all of a candidate's lines."""
        known = self._of(candidate).evers
        if group.name not in known:
            known[group.name] = survey.ever()
        return known[group.name]

    def _held(self, candidate: Candidate, group: Group, fit: Fit) -> tuple[int, str]:
        """How many pods today's nodes could hold were they empty, and why fewer than wanted."""
        if candidate.nodes is None or not fit.flavors:
            return UNLIMITED, ""
        key, known = (group.name, tuple(dict.fromkeys(fit.flavors.values()))), self._of(candidate).nodes
        if key not in known:
            flavors = [candidate.tree.flavors[name] for name in key[-1]]
            known[key] = nodes.hold(
                candidate.nodes, pod_spec_in(candidate, group), request_in(candidate, group), flavors, group.count
            )
        return known[key]


def _facts(candidate: Candidate) -> tuple[Any, ...]:
    """All of it that an offer hangs on but its quota."""
    here = candidate.zone, candidate.nodes, candidate.can_grow, candidate.pods
    return *here, candidate.queues, candidate.namespaces


def _elsewhere(candidate: Candidate, group: Group) -> str:
    """Why the group must run elsewhere, whatever room there is; empty when it need not."""
    if group.zone not in ("", candidate.zone):
        return f"worker group {quoted(group.name)} asks for zone {quoted(group.zone)}, this is {candidate.zone}"
    return refused(candidate, group)


def _grows(candidate: Candidate) -> bool:
    """Whether more nodes may hold its pods than we know of."""
    return candidate.can_grow or candidate.nodes is None

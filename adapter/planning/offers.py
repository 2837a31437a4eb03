"""What does each worker cluster offer a gang, with its quota as it stands or as a plan would leave it?

Quota and nodes together: what its Kueue would admit, and of that no more than its nodes can hold. Nothing here chooses.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from adapter.objects.podrequests import UNLIMITED
from adapter.objects.raw import quoted
from adapter.planning.request import Candidate, Group, Offer, Request, pod_spec_in, queue_name, refused, request_in
from adapter.quota import nodes, tree
from adapter.quota.tree import Demand, Fit, Line, Shortfall, Survey


class Offers:
    """What candidates offer one gang. A plan asks the same over and over: each answer is found once per state of a quota.

    That state is a line: the candidate's own one, or one that comes of it. No two candidates may have the same name.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._lines: dict[str, Line] = {}
        self._demands: dict[tuple[str, str], Demand] = {}
        self._evers: dict[tuple[str, str], int] = {}
        self._nodes: dict[tuple[str, str, tuple[str, ...]], tuple[int, str]] = {}
        self._surveys: dict[tuple[Line, str], Survey] = {}
        self._offers: dict[tuple[Line, str, bool], Offer] = {}
        self._charged: dict[tuple[Line, str, int, bool], Line] = {}

    def reclaiming(self) -> "Offers":
        """The same for a gang that takes back what others borrowed; what both ask alike is not asked again."""
        other = copy(self)  # it keeps its answers where this one does
        other.request = replace(self.request, reclaims=True)
        return other

    def line(self, candidate: Candidate) -> Line:
        """The candidate's quota for the gang as it stands."""
        if candidate.name not in self._lines:
            self._lines[candidate.name] = tree.line(candidate.tree, queue_name(self.request, candidate))
        return self._lines[candidate.name]

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
        key = (line, group.name, count, preempts)
        if key not in self._charged:
            flavors = self.flavors(candidate, line, group, count, preempts=preempts)
            self._charged[key] = tree.reserve(line, flavors, request_in(candidate, group), count)
        return self._charged[key]

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
        key = (line, group.name, reclaims)
        if key not in self._offers:
            found = self._with_taken_back if reclaims else self._free
            self._offers[key] = Offer() if _elsewhere(candidate, group) else found(candidate, line, group)
        return self._offers[key]

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
        key = (line, group.name)
        if key not in self._surveys:
            self._surveys[key] = tree.survey(self._demand(candidate, group), line)
        return self._surveys[key]

    def _demand(self, candidate: Candidate, group: Group) -> Demand:
        key = (candidate.name, group.name)
        if key not in self._demands:
            queue, labels = queue_name(self.request, candidate), candidate.namespaces[self.request.namespace]
            asked, spec = request_in(candidate, group), pod_spec_in(candidate, group)
            self._demands[key] = tree.ask(candidate.tree, queue, asked, spec, labels)
        return self._demands[key]

    def _ever(self, candidate: Candidate, survey: Survey, group: Group) -> int:
        """How many would fit were nothing in use: the same on all of a candidate's lines."""
        key = (candidate.name, group.name)
        if key not in self._evers:
            self._evers[key] = survey.ever()
        return self._evers[key]

    def _held(self, candidate: Candidate, group: Group, fit: Fit) -> tuple[int, str]:
        """How many pods today's nodes could hold were they empty, and why fewer than wanted."""
        if candidate.nodes is None or not fit.flavors:
            return UNLIMITED, ""
        key = (candidate.name, group.name, tuple(dict.fromkeys(fit.flavors.values())))
        if key not in self._nodes:
            flavors = [candidate.tree.flavors[name] for name in key[-1]]
            self._nodes[key] = nodes.hold(
                candidate.nodes, pod_spec_in(candidate, group), request_in(candidate, group), flavors, group.count
            )
        return self._nodes[key]


def _elsewhere(candidate: Candidate, group: Group) -> str:
    """Why the group must run elsewhere, whatever room there is; empty when it need not."""
    if group.zone not in ("", candidate.zone):
        return f"worker group {quoted(group.name)} asks for zone {quoted(group.zone)}, this is {candidate.zone}"
    return refused(candidate, group)


def _grows(candidate: Candidate) -> bool:
    """Whether more nodes may hold its pods than we know of."""
    return candidate.can_grow or candidate.nodes is None

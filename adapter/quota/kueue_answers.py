"""Which of a pod's requests a worker cluster's Kueue counts, as learned from its answers to our group Workloads.

Kueue's configuration may exclude or transform resources, or ignore those that a ClusterQueue does not cover
(docs/upstream.md, "What Kueue counts"). The configuration cannot be read there. An admission shows what was counted,
and a message names a resource that is counted and not covered. Answers are kept for each namespace, so that no tenant
displaces those of another. Times are seconds of a monotonic clock.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from adapter import names
from adapter.objects.claimed_resources import template_requests
from adapter.objects.pod_requests import PODS, Resources, parse_quantity
from adapter.objects.unstructured import (
    UNREADABLE,
    Key,
    Raw,
    condition,
    condition_true_since,
    is_condition_true,
)

ANSWER_SECONDS: Final = 3600.0  # how long an answer counts, since the configuration may change
# How old an answer is before the next admission renews it, since each change of the answers outdates plans.
RENEW_SECONDS: Final = ANSWER_SECONDS / 4
# When a question without an answer may be repeated. The share was pending for another reason, such as a quota in use.
REPEAT_SECONDS: Final = 300.0
# When a gang that requests less may ask instead. Otherwise a gang that never fits would ask for ever in its place.
UNANSWERED_SECONDS: Final = 30.0
MAX_QUESTIONS: Final = 24  # of one namespace in one ClusterQueue within ANSWER_SECONDS
MAX_CHARGES: Final = 16  # shapes of pods, of one namespace in one ClusterQueue
MAX_QUEUES: Final = 256  # pairs of namespace and ClusterQueue in one cluster
_MAX_RESOURCES: Final = 64  # of one pod; no real pod has more
# kueue:pkg/scheduler/flavorassigner/flavorassigner.go, Message and findFlavorForPodSets
_NOT_COVERED: Final = re.compile(r"pod set (\S+): resource (\S+) unavailable in ClusterQueue")

Shape = frozenset[tuple[str, int]]  # a pod's requests, without `pods`


class Charge(NamedTuple):
    """What Kueue counted for one pod, without `pods`."""

    amounts: Resources
    since: float


class Question(NamedTuple):
    """Whether Kueue counts the resources that a ClusterQueue does not cover, as one gang asks."""

    uncovered: frozenset[str]
    requested: frozenset[tuple[str, int]]  # by all pods of the gang

    def requests_as_much_as(self, other: "Question") -> bool:
        """Whether this gang requests no less of any resource than the other one."""
        amounts = dict(self.requested)
        return all(amounts.get(name, 0) >= amount for name, amount in other.requested)


@dataclass(frozen=True, slots=True)
class QueueAnswers:
    """The answers to one namespace's Workloads in one ClusterQueue."""

    covered: frozenset[str] = frozenset()  # by the ClusterQueue at that time; the answers count for these only
    charges: Mapping[Shape, Charge] = field(default_factory=dict)  # only those that differ from the requests
    # A pod that requests all of these resources is denied; since when that is known.
    denials: Mapping[frozenset[str], float] = field(default_factory=dict)
    awaited: Mapping[Question, float] = field(default_factory=dict)  # those that are not repeated yet
    asked_at: tuple[float, ...] = ()  # the times of all questions that count

    @property
    def uncounted(self) -> frozenset[str]:
        """The resources that some pod requested and Kueue did not count."""
        pairs = ((shape, charge.amounts) for shape, charge in self.charges.items())
        return frozenset(name for shape, amounts in pairs for name, _ in shape if name not in amounts)

    def counted(self, request: Resources) -> Resources:
        """What Kueue counts of a pod's requests, as far as known."""
        if not self.charges:
            return request
        charge = self.charges.get(shape_of(request))
        if charge is not None:
            return {**charge.amounts, PODS: request.get(PODS, 1)}
        uncounted = self.uncounted
        counted = Counter({name: amount for name, amount in request.items() if name not in uncounted})
        counted.update(self._generated_amounts(request))
        return counted

    def _generated_amounts(self, request: Resources) -> Resources:
        """What Kueue counts in place of resources, in proportion to another pod of which it did not count just one."""
        generated: dict[str, dict[str, int]] = {}
        for shape, charge in self.charges.items():
            requested = dict(shape)
            replaced = [name for name in requested if name not in charge.amounts]
            if len(replaced) == 1 and request.get(replaced[0]):
                wanted, known = request[replaced[0]], requested[replaced[0]]
                more = {name: amount for name, amount in charge.amounts.items() if name not in requested}
                generated[replaced[0]] = {name: -(-amount * wanted // known) for name, amount in more.items()}
        total: Counter[str] = Counter()
        for amounts in generated.values():
            total.update(amounts)
        return total

    def is_denied(self, uncovered: frozenset[str]) -> bool:
        return any(denied <= uncovered for denied in self.denials)

    def may_ask(self, question: Question) -> bool:
        return self.asks_again_at(question) is None

    def asks_again_at(self, question: Question) -> float | None:
        """When a share may ask Kueue; None if it may ask now. Expired answers must be dropped before."""
        ends = [since + ANSWER_SECONDS for denied, since in self.denials.items() if denied <= question.uncovered]
        ends += [
            since + (REPEAT_SECONDS if question.requests_as_much_as(asked) else UNANSWERED_SECONDS)
            for asked, since in self.awaited.items()
            if asked.uncovered == question.uncovered
        ]
        ends += [self.asked_at[0] + ANSWER_SECONDS] if len(self.asked_at) >= MAX_QUESTIONS else []
        return max(ends, default=None)


Answers = Mapping[Key, QueueAnswers]  # by namespace and ClusterQueue
NO_ANSWERS: Final = QueueAnswers()


def shape_of(request: Resources) -> Shape:
    return frozenset((name, amount) for name, amount in request.items() if amount and name != PODS)


def answers_for(answers: Answers, key: Key, covered: frozenset[str]) -> QueueAnswers:
    """The answers that count while a ClusterQueue covers these resources."""
    known = answers.get(key, NO_ANSWERS)
    return known if known.covered == covered else QueueAnswers(covered)


def uncovered_resources(request: Resources, covered: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in request.keys() - covered if request[name] and name != PODS)


def record_question(answers: Answers, key: Key, covered: frozenset[str], question: Question, now: float) -> Answers:
    """The answers with a note that a share asks this now."""
    known = answers_for(answers, key, covered)
    awaited = dict([*known.awaited.items(), (question, now)][-MAX_QUESTIONS:])
    asked_at = (*known.asked_at, now)[-MAX_QUESTIONS:]
    return _with_queue(answers, key, replace(known, awaited=awaited, asked_at=asked_at))


def has_answered(before: Raw | None, after: Raw) -> bool:
    """Whether Kueue answered between two observations of a Workload.

    What a Workload shows at its first observation may be older than what the ClusterQueue covers now.
    """
    if before is None:
        return False
    reserved_at = condition_true_since(after, names.QUOTA_RESERVED)
    if reserved_at is not None:
        return reserved_at != condition_true_since(before, names.QUOTA_RESERVED)
    return condition(before, names.QUOTA_RESERVED) != condition(after, names.QUOTA_RESERVED)


def record_answer(answers: Answers, key: Key, covered: frozenset[str], workload: Raw, now: float) -> Answers:
    """The answers with what a group Workload shows; the same object if that is nothing new."""
    before = answers_for(answers, key, covered)
    try:
        after = _learn_podsets(before, workload, now)
    except UNREADABLE:
        return answers
    return answers if after == before else _with_queue(answers, key, after)


def drop_expired(answers: Answers, now: float) -> Answers:
    """The answers that still count; the same object if all do."""
    current = {key: _without_expired(known, now) for key, known in answers.items()}
    if all(current[key] is known for key, known in answers.items()):
        return answers
    return {key: known for key, known in current.items() if known.charges or known.denials or known.asked_at}


def expires_at(answers: Answers) -> float:
    """When the first of the answers or questions expires: `drop_expired` changes nothing before."""
    return min((time for known in answers.values() for time in _expiries(known)), default=math.inf)


def _expiries(known: QueueAnswers) -> Iterator[float]:
    yield from (charge.since + ANSWER_SECONDS for charge in known.charges.values())
    yield from (since + ANSWER_SECONDS for since in (*known.denials.values(), *known.asked_at[:1]))
    yield from (since + REPEAT_SECONDS for since in known.awaited.values())


def _without_expired(known: QueueAnswers, now: float) -> QueueAnswers:
    oldest = now - ANSWER_SECONDS
    current = replace(
        known,
        charges={shape: charge for shape, charge in known.charges.items() if charge.since > oldest},
        denials={denied: since for denied, since in known.denials.items() if since > oldest},
        awaited={asked: since for asked, since in known.awaited.items() if since > now - REPEAT_SECONDS},
        asked_at=tuple(since for since in known.asked_at if since > oldest),
    )
    return known if current == known else current


def _with_queue(answers: Answers, key: Key, known: QueueAnswers) -> Answers:
    """The answers with those of one queue as the newest; the oldest are dropped when there are too many."""
    others = [(other, entry) for other, entry in answers.items() if other != key]
    return dict([*others[-(MAX_QUEUES - 1) :], (key, known)])


def _learn_podsets(known: QueueAnswers, workload: Raw, now: float) -> QueueAnswers:
    podsets = {podset["name"]: podset for podset in workload["spec"].get("podSets") or ()}
    if is_condition_true(workload, names.QUOTA_RESERVED):
        for assignment in ((workload["status"].get("admission") or {}).get("podSetAssignments")) or ():
            known = _learn_charge(known, podsets[assignment["name"]], assignment, now)
        return known
    message = str(condition(workload, names.QUOTA_RESERVED).get("message") or "")
    for role, resource in _NOT_COVERED.findall(message):
        known = _learn_denial(known, podsets[role], resource, now)
    return known


def _learn_charge(known: QueueAnswers, podset: Raw, assignment: Raw, now: float) -> QueueAnswers:
    """Learn from an admitted podset. The newest answer counts: Kueue's configuration changes when it restarts.

    Another charge for the same shape shows such a change, so the charges of other shapes are outdated, too.
    """
    shape, amounts = shape_of(template_requests(podset["template"])), _charged_amounts(podset, assignment)
    if amounts is None or not 0 < len(shape) <= _MAX_RESOURCES:
        return known
    charge = known.charges.get(shape)
    if charge is not None and charge.amounts == amounts and now < charge.since + RENEW_SECONDS:
        return known
    requested = {name for name, _ in shape}
    is_reconfigured = charge is not None and charge.amounts != amounts
    consistent = {
        other: entry
        for other, entry in ({} if is_reconfigured else known.charges).items()
        if other != shape and not any(name in amounts and name not in entry.amounts for name, _ in other)
    }
    own = {} if shape == shape_of(amounts) else {shape: Charge(amounts, now)}
    charges = dict([*consistent.items(), *own.items()][-MAX_CHARGES:])
    denials = {denied: since for denied, since in known.denials.items() if not denied <= requested - set(amounts)}
    return replace(known, charges=charges, denials=denials)


def _charged_amounts(podset: Raw, assignment: Raw) -> Resources | None:
    """What was counted for one pod: the usage with a flavor. None if it cannot be divided.

    The assignment has the number of pods that count: Kueue leaves out those that ended before an admission.
    """
    flavors, usage = assignment.get("flavors") or {}, assignment.get("resourceUsage") or {}
    count = assignment.get("count", podset["count"])
    if len(usage) > _MAX_RESOURCES or count < 1:
        return None
    totals = {name: parse_quantity(usage[name], name) for name in usage if name in flavors and name != PODS}
    if any(total % count for total in totals.values()):
        return None
    return {name: total // count for name, total in totals.items() if total}


def _learn_denial(known: QueueAnswers, podset: Raw, resource: str, now: float) -> QueueAnswers:
    """Learn that a resource is counted; if the pod does not request it, it stems from the uncovered ones."""
    request = template_requests(podset["template"])
    uncovered = uncovered_resources(request, known.covered)
    denied = frozenset({resource}) if resource in request else uncovered
    if not denied or denied in known.denials or resource in known.covered or len(request) > _MAX_RESOURCES:
        return known
    charges = {
        shape: charge
        for shape, charge in known.charges.items()
        if not any(name in denied and name not in charge.amounts for name, _ in shape)
    }
    denials = dict([*known.denials.items(), (denied, now)][-MAX_QUESTIONS:])
    return replace(known, charges=charges, denials=denials)

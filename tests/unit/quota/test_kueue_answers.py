"""What Kueue's answers to group Workloads teach about the requests that it counts."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.pod_requests import format_quantity
from adapter.objects.unstructured import RawDict as Raw
from adapter.quota import kueue_answers
from adapter.quota.kueue_answers import (
    ANSWER_SECONDS,
    MAX_QUESTIONS,
    REPEAT_SECONDS,
    UNANSWERED_SECONDS,
    Answers,
    Question,
)
from tests.unit.builders import NAMESPACE, make_condition

KEY = (NAMESPACE, "team-a")
CPU, RDMA, MIG, CREDITS = "cpu", "rdma/hca", "nvidia.com/mig-1g.5gb", "example.com/credits"
COVERED = frozenset({CPU, CREDITS})
ROLE = "1a2b3c4d"
Amounts = Mapping[str, int]


def workload(request: Amounts, *, count: int = 1, **status: object) -> Raw:
    requests = {name: format_quantity(amount, name) for name, amount in request.items()}
    template = {"spec": {"containers": [{"name": "ray", "resources": {"requests": requests}}]}}
    return {"spec": {"podSets": [{"name": ROLE, "count": count, "template": template}]}, "status": status}


def admitted(
    request: Amounts, counted: Amounts, *, ignored: Amounts | None = None, count: int = 1, pods: int = 0
) -> Raw:
    """An admitted Workload of `pods` pods, of which `count` count; `ignored` has a usage, but no flavor."""
    usage = {name: format_quantity(amount * count, name) for name, amount in {**counted, **(ignored or {})}.items()}
    assignment = {"name": ROLE, "count": count, "flavors": dict.fromkeys(counted, "any"), "resourceUsage": usage}
    admission = {"clusterQueue": "team-a", "podSetAssignments": [assignment]}
    conditions = [make_condition(names.QUOTA_RESERVED)]
    return workload(request, count=pods or count, admission=admission, conditions=conditions)


def pending(request: Amounts, reason: str) -> Raw:
    message = f"couldn't assign flavors to pod set {ROLE}: {reason}"
    return workload(request, conditions=[make_condition(names.QUOTA_RESERVED, False, message=message)])


def asking(*uncovered: str, **requested: int) -> Question:
    return Question(frozenset(uncovered), frozenset((requested or {CPU: 1000}).items()))


def learn(*workloads: Raw, at: float = 0) -> Answers:
    answers: Answers = {}
    for raw in workloads:
        answers = kueue_answers.record_answer(answers, KEY, COVERED, raw, at)
    return answers


def counted(answers: Answers, request: Amounts) -> dict[str, int]:
    amounts = kueue_answers.answers_for(answers, KEY, COVERED).counted({**request, "pods": 1})
    return {name: amount for name, amount in amounts.items() if name != "pods"}


WITH_RDMA, WITH_MIG = {CPU: 1000, RDMA: 1}, {CPU: 1000, MIG: 2}
EXCLUDED = admitted(WITH_RDMA, {CPU: 1000}, count=3)
TRANSFORMED = admitted(WITH_MIG, {CPU: 1000, CREDITS: 10})


@pytest.mark.parametrize(
    ("workloads", "request_", "expected"),
    [
        pytest.param([], WITH_RDMA, WITH_RDMA, id="without an answer all requests count"),
        pytest.param([EXCLUDED], WITH_RDMA, {CPU: 1000}, id="an excluded resource does not count"),
        pytest.param([EXCLUDED], {CPU: 500, RDMA: 4}, {CPU: 500}, id="nor does it in a pod of another size"),
        pytest.param([admitted(WITH_RDMA, {CPU: 1000}, ignored={RDMA: 1})], WITH_RDMA, {CPU: 1000},
            id="a resource with a usage and without a flavor is ignored"),
        pytest.param([admitted(WITH_RDMA, {CPU: 1000}, count=2, pods=4)], WITH_RDMA, {CPU: 1000},
            id="pods that ended before the admission are not counted"),
        pytest.param([TRANSFORMED], WITH_MIG, {CPU: 1000, CREDITS: 10}, id="a transformed resource counts as another"),
        pytest.param([TRANSFORMED], {CPU: 2000, MIG: 3}, {CPU: 2000, CREDITS: 15},
            id="a pod of another size counts in proportion"),
        pytest.param([TRANSFORMED], {CPU: 2000, MIG: 3, CREDITS: 1}, {CPU: 2000, CREDITS: 16},
            id="what is requested and what is generated add up"),
        pytest.param([TRANSFORMED], {CPU: 2000}, {CPU: 2000}, id="a pod without that resource is as it was"),
        pytest.param([admitted({CPU: 1000}, {CPU: 1000})], WITH_RDMA, WITH_RDMA,
            id="an admission without the resource says nothing of it"),
        pytest.param([EXCLUDED, admitted(WITH_RDMA, WITH_RDMA)], {CPU: 500, RDMA: 4}, {CPU: 500, RDMA: 4},
            id="the newest answer counts after Kueue was reconfigured"),
        pytest.param([admitted({MIG: 4}, {CREDITS: 20}), TRANSFORMED, admitted(WITH_MIG, {CPU: 1000, CREDITS: 20})],
            {MIG: 4}, {CREDITS: 40}, id="an admission that contradicts an answer ends those of other sizes"),
        pytest.param([EXCLUDED, pending(WITH_RDMA, f"resource {RDMA} unavailable in ClusterQueue")], WITH_RDMA,
            WITH_RDMA, id="a denial replaces an admission"),
        pytest.param([admitted(WITH_RDMA, {CPU: 333}) | {"spec": {}}], WITH_RDMA, WITH_RDMA,
            id="an unreadable Workload says nothing"),
    ],
)  # fmt: skip
def test_what_kueue_counts_is_learned_from_its_admissions(
    workloads: list[Raw], request_: Amounts, expected: Amounts
) -> None:
    assert counted(learn(*workloads), request_) == expected


@pytest.mark.parametrize(
    ("workloads", "uncovered", "denied"),
    [
        pytest.param([pending(WITH_RDMA, f"resource {RDMA} unavailable in ClusterQueue")], {RDMA}, True,
            id="Kueue names the resource"),
        pytest.param([pending(WITH_RDMA, f"resource {RDMA} unavailable in ClusterQueue")], {RDMA, MIG}, True,
            id="another one beside it does not help"),
        pytest.param([pending(WITH_RDMA, f"resource {RDMA} unavailable in ClusterQueue")], {MIG}, False,
            id="another resource is another question"),
        pytest.param([pending(WITH_MIG, "resource example.com/tokens unavailable in ClusterQueue")], {MIG}, True,
            id="Kueue names a resource that it generates from the uncovered one"),
        pytest.param([pending(WITH_RDMA, "insufficient unused quota for cpu in flavor any, 1 more needed")], {RDMA},
            False, id="a lack of quota is no answer"),
        pytest.param([pending(WITH_RDMA, f"resource {RDMA} unavailable in ClusterQueue"), EXCLUDED], {RDMA}, False,
            id="an admission replaces a denial"),
    ],
)  # fmt: skip
def test_a_denial_is_learned_from_the_message_of_kueue(workloads: list[Raw], uncovered: set[str], denied: bool) -> None:
    answers = kueue_answers.answers_for(learn(*workloads), KEY, COVERED)
    assert answers.is_denied(frozenset(uncovered)) is denied
    assert answers.may_ask(asking(*uncovered)) is not denied


def test_answers_count_only_while_the_queue_covers_the_same_resources_and_for_its_namespace() -> None:
    answers = learn(EXCLUDED)
    assert kueue_answers.answers_for(answers, KEY, COVERED).uncounted == {RDMA}
    assert not kueue_answers.answers_for(answers, KEY, COVERED | {RDMA}).uncounted
    assert not kueue_answers.answers_for(answers, ("other", "team-a"), COVERED).uncounted


def test_the_same_answer_again_changes_nothing() -> None:
    answers = learn(EXCLUDED)
    assert kueue_answers.record_answer(answers, KEY, COVERED, EXCLUDED, 9) is answers
    assert kueue_answers.drop_expired(answers, 9) is answers


def test_admissions_renew_an_answer_so_that_no_question_is_needed() -> None:
    answers = learn(EXCLUDED)
    for now in range(0, 2 * int(ANSWER_SECONDS), 600):
        answers = kueue_answers.record_answer(kueue_answers.drop_expired(answers, now), KEY, COVERED, EXCLUDED, now)
        assert kueue_answers.answers_for(answers, KEY, COVERED).charges
    assert kueue_answers.drop_expired(answers, now + ANSWER_SECONDS / 2)[KEY].charges, "the last one is recent"


def test_answers_and_questions_expire_after_an_hour() -> None:
    answers = learn(EXCLUDED, pending(WITH_MIG, f"resource {MIG} unavailable in ClusterQueue"))
    answers = kueue_answers.record_question(answers, KEY, COVERED, asking("example.com/fpga"), 0)
    assert answers is kueue_answers.drop_expired(answers, REPEAT_SECONDS - 1)
    assert kueue_answers.expires_at(answers) == REPEAT_SECONDS
    answers = kueue_answers.drop_expired(answers, REPEAT_SECONDS)
    assert kueue_answers.expires_at(answers) == ANSWER_SECONDS
    assert kueue_answers.expires_at({}) > ANSWER_SECONDS
    known = kueue_answers.drop_expired(answers, ANSWER_SECONDS - 1)[KEY]
    assert known.charges and known.denials and known.asked_at and not known.awaited
    assert not kueue_answers.drop_expired(answers, ANSWER_SECONDS)


def test_an_unanswered_question_is_repeated_after_minutes() -> None:
    answers, question, asked_at = learn(), asking(RDMA), list[float]()
    for now in range(0, 2 * int(ANSWER_SECONDS), 60):
        answers = kueue_answers.drop_expired(answers, now)
        if kueue_answers.answers_for(answers, KEY, COVERED).may_ask(question):
            answers = kueue_answers.record_question(answers, KEY, COVERED, question, now)
            asked_at.append(now)
    assert min(later - sooner for sooner, later in itertools.pairwise(asked_at)) == REPEAT_SECONDS
    assert len(asked_at) == 2 * ANSWER_SECONDS / REPEAT_SECONDS


@pytest.mark.parametrize(
    ("question", "seconds"),
    [
        pytest.param(asking(RDMA, cpu=8, mig=2), REPEAT_SECONDS, id="the same gang"),
        pytest.param(asking(RDMA, cpu=8, mig=2, memory=1), REPEAT_SECONDS, id="a gang that requests more"),
        pytest.param(asking(RDMA, cpu=16, mig=1), UNANSWERED_SECONDS, id="a gang that requests less of one resource"),
        pytest.param(asking(RDMA, cpu=8), UNANSWERED_SECONDS, id="a gang that does not request one of the resources"),
        pytest.param(asking(MIG, cpu=8, mig=2), None, id="a gang with another question"),
    ],
)
def test_a_gang_that_never_fits_does_not_ask_for_ever_in_place_of_smaller_ones(
    question: Question, seconds: float | None
) -> None:
    answers = kueue_answers.record_question(learn(), KEY, COVERED, asking(RDMA, cpu=8, mig=2), 0)
    assert kueue_answers.answers_for(answers, KEY, COVERED).asks_again_at(question) == seconds


def test_one_namespace_may_ask_about_few_sets_of_resources_within_an_hour() -> None:
    answers = learn()
    for number in range(MAX_QUESTIONS):
        answers = kueue_answers.record_question(answers, KEY, COVERED, asking(f"x/{number}"), number)
    assert kueue_answers.answers_for(answers, KEY, COVERED).asks_again_at(asking("x/new")) == ANSWER_SECONDS
    assert kueue_answers.answers_for(answers, ("other", "team-a"), COVERED).may_ask(asking("x/new"))


@dataclass(frozen=True)
class Configuration:
    """A model of Kueue's `resources`: excluded resources, and transformations by input (kueue:pkg/workload)."""

    excluded: frozenset[str]
    outputs: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    retained: frozenset[str] = frozenset()

    def counts(self, request: Amounts) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for name, amount in request.items():
            if name in self.excluded:
                continue
            if name not in self.outputs or name in self.retained:
                amounts[name] = amounts.get(name, 0) + amount
            if name in self.outputs:
                output, factor = self.outputs[name]
                amounts[output] = amounts.get(output, 0) + amount * factor
        return amounts


RESOURCES = st.sampled_from([CPU, RDMA, MIG, CREDITS])
REQUESTS = st.dictionaries(RESOURCES, st.integers(1, 9), min_size=1)
CONFIGURATIONS = st.builds(
    Configuration,
    st.frozensets(RESOURCES),
    st.dictionaries(RESOURCES, st.tuples(st.sampled_from([CREDITS, "example.com/tokens"]), st.integers(1, 5))),
    st.frozensets(RESOURCES),
)


@given(CONFIGURATIONS, st.lists(REQUESTS, min_size=1, max_size=30), st.integers(1, 4))
def test_the_last_admitted_shape_counts_as_kueue_counted_it(
    configuration: Configuration, requests: list[Amounts], count: int
) -> None:
    answers = learn(*(admitted(request, configuration.counts(request), count=count) for request in requests))
    assert counted(answers, requests[-1]) == configuration.counts(requests[-1])
    assert len(kueue_answers.answers_for(answers, KEY, COVERED).charges) <= kueue_answers.MAX_CHARGES


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda values: st.lists(values)
    | st.dictionaries(st.sampled_from(["name", "count", "flavors", "resourceUsage", "template"]), values)))  # fmt: skip
def test_an_odd_workload_never_raises(value: object) -> None:
    odd = admitted(WITH_RDMA, {CPU: 1000})
    for holder in (odd["spec"]["podSets"][0], odd["status"]["admission"]["podSetAssignments"][0]):
        for name in list(holder):
            before, holder[name] = holder[name], value
            learn(odd)
            holder[name] = before

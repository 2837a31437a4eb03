"""A gang that fits nowhere asks a cluster's Kueue, by a share, whether it counts what its queue does not cover."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from adapter.planning import planner
from adapter.planning.plan_document import planned_document
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import next_question_at, plan
from adapter.quota import kueue_answers
from adapter.quota.kueue_answers import REPEAT_SECONDS, UNANSWERED_SECONDS, Answers, Charge, Question, QueueAnswers
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor

RDMA, CREDITS = "rdma/hca", "example.com/credits"
REQUEST = {"cpu": 1000, RDMA: 1, "pods": 1}
GANG = GangRequest(NAMESPACE, QUEUE, (GroupRequest("workers", "role", 4, {}, REQUEST),))
KEY = (NAMESPACE, "team-a")


def cluster(name: str, cores: int, answers: QueueAnswers | None = None, **covered: int) -> Candidate:
    """A cluster whose queue covers cpu and more."""
    amounts = {"cpu": cores, **{_RESOURCES[name]: amount for name, amount in covered.items()}}
    rows = [{"name": resource, "nominalQuota": str(amount)} for resource, amount in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [{"name": "any", "resources": rows}]}
    tree = build([make_cluster_queue(0, resourceGroups=[group])], [], [make_flavor()])
    known: Answers = {KEY: replace(answers, covered=frozenset(amounts))} if answers else {}
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, kueue_answers=known)


_RESOURCES = {"rdma": RDMA, "credits": CREDITS}
SHAPE = kueue_answers.shape_of(REQUEST)
IGNORED = QueueAnswers(charges={SHAPE: Charge({"cpu": 1000}, 0)})
TRANSFORMED = QueueAnswers(charges={SHAPE: Charge({"cpu": 1000, CREDITS: 3}, 0)})
DENIED = QueueAnswers(denials={frozenset({RDMA}): 0})
ASKED = QueueAnswers(
    awaited={Question(frozenset({RDMA}), frozenset({"cpu": 4000, RDMA: 4, "pods": 4}.items())): 0}, asked_at=(0,)
)


@pytest.mark.parametrize(
    ("candidates", "shares", "asked"),
    [
        pytest.param([cluster("east", 4)], {"east": 4}, ["east"], id="the only cluster is asked"),
        pytest.param([cluster("east", 4), cluster("west", 4, rdma=4)], {"west": 4}, [],
            id="no cluster is asked while another one covers the resource"),
        pytest.param([cluster("east", 4), cluster("west", 4, rdma=2)], {"east": 4}, ["east"],
            id="a cluster is asked if the others are too small"),
        pytest.param([cluster("east", 4, DENIED), cluster("west", 4)], {"west": 4}, ["west"],
            id="a cluster that counts the resource is not asked again"),
        pytest.param([cluster("east", 4, ASKED), cluster("west", 4)], {"west": 4}, ["west"],
            id="a cluster is not asked twice at once"),
        pytest.param([cluster("east", 4, IGNORED)], {"east": 4}, [], id="a known answer needs no question"),
        pytest.param([cluster("east", 4, TRANSFORMED, credits=12)], {"east": 4}, [],
            id="a transformed resource takes the quota of another"),
        pytest.param([cluster("east", 4, TRANSFORMED, credits=11)], {}, [], id="and needs enough of it"),
        pytest.param([cluster("east", 3)], {}, [], id="no cluster is asked that lacks other quota"),
        pytest.param([cluster("east", 4, DENIED)], {}, [], id="no cluster is asked after its denial"),
    ],
)  # fmt: skip
def test_which_clusters_are_asked(candidates: Sequence[Candidate], shares: Mapping[str, int], asked: list[str]) -> None:
    made = plan(GANG, candidates)
    assert {share.cluster: share.workers for share in made.shares} == shares
    assert list(made.questions) == asked
    for name in asked:
        assert f"ClusterQueue team-a does not cover {RDMA} in {name}: the share there shows" in made.sentence


@pytest.mark.parametrize(
    ("candidate", "never", "text"),
    [
        pytest.param(cluster("east", 4, DENIED), True,
            f"ClusterQueue team-a does not cover {RDMA}, which Kueue there counts: extend coveredResources, or exclude "
            "it in Kueue's configuration).", id="Kueue counts the resource"),
        pytest.param(cluster("east", 4, ASKED), False,
            f"ClusterQueue team-a does not cover {RDMA}; whether Kueue there counts that is not known yet).",
            id="Kueue has not answered"),
        pytest.param(cluster("east", 3), True, "cpu in flavor any: 3 free of 3, one worker needs 1). Even empty",
            id="no answer would help"),
    ],
)  # fmt: skip
def test_the_reason_of_a_wait_names_the_answer_of_kueue(candidate: Candidate, never: bool, text: str) -> None:
    made = plan(GANG, [candidate])
    assert not made.shares and made.never_fits is never
    assert text in made.sentence
    assert ("raise a quota" in made.sentence) == ("Even empty" in text)


def test_the_next_question_is_due_when_the_last_one_expires() -> None:
    assert next_question_at(GANG, [cluster("east", 4, ASKED), cluster("west", 4)]) == REPEAT_SECONDS
    smaller = replace(GANG, groups=(replace(GANG.groups[0], count=3),))
    assert next_question_at(smaller, [cluster("east", 4, ASKED)]) == UNANSWERED_SECONDS
    assert next_question_at(GANG, [cluster("east", 4, IGNORED), cluster("west", 4)]) is None


def test_the_quota_of_an_asking_share_is_not_promised_twice() -> None:
    fleet = [cluster("east", 6)]
    left = planner.charge_shares(GANG, fleet, plan(GANG, fleet).shares)
    assert not plan(GANG, left).shares
    assert plan(replace(GANG, mode="BestEffort", min_workers=1), left).shares[0].workers == 2


def test_a_document_shows_the_quota_that_was_planned_on() -> None:
    candidates = [cluster("east", 4)]
    entry = planned_document({}, GANG, candidates, plan(GANG, candidates))["clusters"][0]
    assert (entry["asked"], entry["chosen"], entry["scarcest"]["resource"]) == (1, 4, "cpu")
    learned = [cluster("east", 4, TRANSFORMED, credits=12)]
    rows = planned_document({}, GANG, learned, plan(GANG, learned))["clusters"][0]["quota"]
    assert [row["resource"] for row in rows] == ["cpu", CREDITS]

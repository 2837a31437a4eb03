"""The oracle's pure parts: the draws of a seed, and the detection of wrong arithmetic. Kueue has the right one."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from adapter.objects import pod_requests
from adapter.objects.placement import GroupShare, Share
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest, Offer
from adapter.planning.planner import charge_shares
from hack.oracle import ask, draw, drawpod, judge, predict, rounds
from hack.oracle.draw import Tree
from hack.oracle.judge import Answer
from hack.oracle.predict import Forecast, Seen
from hack.oracle.rounds import Outcome, line, report

TREES = [draw.tree(7, number) for number in range(200)]


def groups(objects: Iterable[Raw]) -> Iterator[Raw]:
    return (group for one in objects for group in one["spec"].get("resourceGroups") or ())


def rows(objects: Iterable[Raw]) -> Iterator[Raw]:
    return (row for group in groups(objects) for flavor in group["flavors"] for row in flavor["resources"])


def changes(tree: Tree) -> list[Raw]:
    return [question.change for question in tree.questions if question.change]


def test_a_seed_always_draws_the_same() -> None:
    assert draw.tree(7, 3) == draw.tree(7, 3)
    assert draw.tree(7, 3).questions != draw.tree(7, 4).questions
    assert draw.tree(8, 3).cluster_queues != draw.tree(7, 3).cluster_queues


def test_kueue_accepts_the_drawn_objects() -> None:
    """Kueue's rules: pkg/webhooks/clusterqueue_webhook.go validateResourceGroups, validateFlavorFungibility."""
    for tree in TREES:
        for one in (*tree.cluster_queues, *tree.cohorts, *changes(tree)):
            flavors = [flavor["name"] for group in groups([one]) for flavor in group["flavors"]]
            assert len(set(flavors)) == len(flavors)
            alone = not (one["spec"].get("cohortName") or one["spec"].get("parentName"))
            for group in groups([one]):
                assert all(
                    [row["name"] for row in each["resources"]] == group["coveredResources"] for each in group["flavors"]
                )
            for row in rows([one]):
                assert not (alone and {"borrowingLimit", "lendingLimit"} & set(row))
                own, lent = (
                    pod_requests.parse_quantity(row.get(key, "0"), row["name"])
                    for key in ("nominalQuota", "lendingLimit")
                )
                assert one["kind"] == "Cohort" or lent <= own


FEATURES: dict[str, Callable[[Tree], bool]] = {
    "a queue without a cohort": lambda tree: any("cohortName" not in one["spec"] for one in tree.cluster_queues),
    "a Cohort under a Cohort": lambda tree: any("parentName" in one["spec"] for one in tree.cohorts),
    "a Cohort with quota": lambda tree: any(groups(tree.cohorts)),
    "a Cohort with limits": lambda tree: any("lendingLimit" in row for row in rows(tree.cohorts)),
    "a Cohort that is nobody's object": lambda tree: any(
        one["spec"].get("cohortName") not in {None, *(each["metadata"]["name"] for each in tree.cohorts)}
        for one in tree.cluster_queues
    ),
    "a borrowing limit": lambda tree: any("borrowingLimit" in row for row in rows(tree.cluster_queues)),
    "a lending limit": lambda tree: any("lendingLimit" in row for row in rows(tree.cluster_queues)),
    "unlimited quota": lambda tree: any(row["nominalQuota"] == "16E" for row in rows(tree.cluster_queues)),
    "two resource groups": lambda tree: any(len(one["spec"]["resourceGroups"]) > 1 for one in tree.cluster_queues),
    "three flavors": lambda tree: any(len(group["flavors"]) > 2 for group in groups(tree.cluster_queues)),
    "covered pods": lambda tree: any(row["name"] == "pods" for row in rows(tree.cluster_queues)),
    "a missing flavor": lambda tree: drawpod.ABSENT in str(tree.cluster_queues),
    "a held ClusterQueue": lambda tree: any(one["spec"]["stopPolicy"] == "Hold" for one in tree.cluster_queues),
    "a drained ClusterQueue": lambda tree: any(
        one["spec"]["stopPolicy"] == "HoldAndDrain" for one in tree.cluster_queues
    ),
    "a held LocalQueue": lambda tree: any(one["spec"]["stopPolicy"] != "None" for one in tree.local_queues),
    "a selector": lambda tree: any(one["spec"].get("namespaceSelector") for one in tree.cluster_queues),
    "no selector": lambda tree: any("namespaceSelector" not in one["spec"] for one in tree.cluster_queues),
    "a missing ClusterQueue": lambda tree: "-missing" in str(tree.local_queues),
    "a missing LocalQueue": lambda tree: any("-missing" in each.queue for each in tree.questions),
    "next flavor before borrowing": lambda tree: "'whenCanBorrow': 'TryNextFlavor'" in str(tree.cluster_queues),
    "a queue that is changed": lambda tree: bool(changes(tree)),
    "a queue that moves": lambda tree: any(
        one["metadata"]["name"] == each["metadata"]["name"]
        and one["spec"].get("cohortName") != each["spec"].get("cohortName")
        for one in changes(tree)
        for each in tree.cluster_queues
    ),
    "two podsets": lambda tree: any(len(each.specs) > 1 for each in tree.questions),
    "tolerations": lambda tree: "tolerations" in str(tree.questions),
    "affinity": lambda tree: "affinity" in str(tree.questions),
    "an init container": lambda tree: "initContainers" in str(tree.questions),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_enough_of_everything_is_drawn(feature: str) -> None:
    """At least five in two hundred trees: a feature that is not drawn is not tested."""
    assert sum(map(FEATURES[feature], TREES)) >= 5


def seen(tree: Tree, before: Seen | None = None) -> Seen:
    """The tree as a cluster shows it, with the use before the questions."""
    active = {key_of(one) for one in draw.active(tree)}
    status = {True: "True", False: "False"}

    def shown(one: Raw) -> Raw:
        conditions = [{"type": "Active", "status": status[key_of(one) in active]}]
        return one | {"status": {"conditions": conditions, "flavorsReservation": reserved(one, before)}}

    return predict.see(
        {
            "clusterqueues": map(shown, tree.cluster_queues),
            "localqueues": map(shown, tree.local_queues),
            "cohorts": tree.cohorts,
            "resourceflavors": draw.flavors(),
            "namespaces": [ask.namespace(name, labels) for name, labels in draw.NAMESPACES.items()],
        }
    )


def reserved(queue: Raw, before: Seen | None) -> list[Raw]:
    """The use before the questions, as far as the queue still covers it, as Kueue shows it."""
    key = ("ClusterQueue", queue["metadata"]["name"])
    used = before.quota_tree.forest.usage(key) if before and key in before.quota_tree.forest.observed_usage else {}
    return [
        {"name": flavor["name"], "resources": [{"name": row["name"], "total": total(used, flavor, row)}]}
        for group in groups([queue])
        for flavor in group["flavors"]
        for row in flavor["resources"]
    ]


def total(used: Mapping[tuple[str, str], int], flavor: Raw, row: Raw) -> str:
    return f"{used.get((flavor['name'], row['name']), 0)}{'m' if row['name'] == 'cpu' else ''}"


def test_the_questions_are_worth_asking() -> None:
    """Most trees have capacity for something, and much of it is borrowed; otherwise the load would be trivial."""
    kinds: Counter[str] = Counter()
    for tree in TREES:
        now = seen(tree)
        for question in tree.questions:
            tree = draw.changed(tree, question.change)
            now = seen(tree, now)
            ours, now = predict.forecast(now, question)
            kinds.update(rounds.kinds(ours))
    assert kinds["room"] > 200 and kinds["borrowing"] > 80 and kinds["two podsets"] > 15 and kinds["two flavors"] > 20


class Kueue:
    """A cluster whose Kueue answers at once with our own, unchanged arithmetic."""

    workload = staticmethod(ask.workload)

    def __init__(self) -> None:
        self._trees: dict[str, Tree] = {}
        self._seen: dict[str, Seen] = {}

    async def clear(self, client: object) -> None:
        self._seen.clear()

    async def build(self, client: object, trees: Sequence[Tree]) -> None:
        self._trees = {tree.name: tree for tree in trees}
        self._seen = {tree.name: seen(tree) for tree in trees}

    async def change(self, client: object, trees: Sequence[Tree], queues: Iterable[Raw]) -> None:
        self._seen = {tree.name: seen(tree, self._seen[tree.name]) for tree in trees}

    async def see(self, client: object) -> Seen:
        (only,) = self._seen.values()
        return only

    async def settled(self, client: object, done: Callable[[Seen], bool], patience: float) -> Seen:
        return await self.see(client)

    async def forget(self, client: object, wave: str) -> None:
        pass

    async def answers(
        self, client: object, wave: str, workloads: Iterable[Raw], patience: float, last: object
    ) -> dict[str, Answer | None]:
        return {one["metadata"]["name"]: self._answer(one, wave) for one in workloads}

    def _answer(self, workload: Raw, wave: str) -> Answer:
        name = workload["metadata"]["name"].removesuffix(f"-{wave}")
        now = self._seen[name]
        _, closed = now.queues.get((workload["metadata"]["namespace"], workload["spec"]["queueName"]), ("", "none"))
        if closed:
            return Answer(False, (), closed)
        after, flavors = now, []
        for podset in workload["spec"]["podSets"]:
            spec, count = podset["template"]["spec"], podset["count"]
            group = GroupRequest("podset", "podset", count, spec, pod_requests.pod_requests(spec))
            asked = GangRequest(workload["metadata"]["namespace"], workload["spec"]["queueName"], (group,))
            offers = Offers(asked)
            line = offers.quota_path(after)
            if offers.offer_for(after, line, group).total < count:
                return Answer(False, (), offers.shortage_reason(after, line, group))
            flavors.append(offers.assigned_flavors(after, line, group, count))
            (after,) = charge_shares(asked, [after], [Share(after.name, (GroupShare("podset", "podset", count),))])
        self._seen[name] = after
        return Answer(True, tuple(flavors), "")


async def played(monkeypatch: pytest.MonkeyPatch, **broken: Any) -> list[str]:
    """Compares forty trees with that cluster, with parts of our planner's arithmetic replaced."""
    outcome = Outcome()
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "ask", Kueue())
        for name, instead in broken.items():
            patch.setattr(predict, name, instead)
        for tree in TREES[:40]:
            await rounds.play(None, [tree], outcome)  # type: ignore[arg-type]
    assert outcome.trees == 40
    return [found.about for found in outcome.disagreements]


async def test_the_same_arithmetic_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await played(monkeypatch) == []


class OneMore(Offers):
    def offer_for(self, *args: Any) -> Offer:
        found = super().offer_for(*args)
        more = 0 < found.nominal < pod_requests.UNLIMITED
        return found._replace(total=found.total + more, potential=found.potential + more)


class OneLess(Offers):
    def offer_for(self, *args: Any) -> Offer:
        found = super().offer_for(*args)
        less = found.total > found.nominal
        return found._replace(total=found.total - less, potential=found.potential - less)


class LastFlavor(Offers):
    def assigned_flavors(self, *args: Any, **how: Any) -> Mapping[str, str]:
        return dict.fromkeys(super().assigned_flavors(*args, **how), "oracle-soft")


class NoLimit(Offers):
    def offer_for(self, *args: Any) -> Offer:
        return super().offer_for(*args)._replace(potential=10**6)


class Shut(Offers):
    def offer_for(self, *_: Any) -> Offer:
        return Offer()


def free(_: GangRequest, among: Sequence[Candidate], __: Sequence[Share]) -> Sequence[Candidate]:
    return among


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param({"Offers": OneMore}, "Kueue did not admit", id="capacity for one worker more"),
        pytest.param({"Offers": OneLess}, "Kueue admitted", id="capacity for one worker less"),
        pytest.param({"Offers": LastFlavor}, "the flavors", id="the last flavor instead of the first"),
        pytest.param({"Offers": NoLimit}, "but ever is 1000000", id="no borrowing limit"),
        pytest.param({"charge_shares": free}, "we charged", id="shares are not charged"),
        pytest.param({"Offers": Shut}, "Kueue admitted", id="an open queue is reported as closed"),
    ],
)
async def test_a_wrong_arithmetic_is_found(monkeypatch: pytest.MonkeyPatch, broken: Raw, said: str) -> None:
    found = await played(monkeypatch, **broken)
    assert found and any(said in about for about in found), found


OVER = (
    "insufficient quota for cpu in flavor {}, previously considered podsets requests (0) + current podset request (3) "
    "> maximum capacity (2)"
)
SHORT = "insufficient unused quota for cpu in flavor {}, 500m more needed"
TAINT = "untolerated taint {{spot yes NoSchedule <nil>}} in flavor {}"
LABEL = "flavor {} doesn't match node affinity"


@pytest.mark.parametrize(
    ("sentences", "forever"),
    [
        pytest.param([OVER.format("a"), SHORT.format("b")], False, id="one flavor is too small and one is short"),
        pytest.param([OVER.format("a"), OVER.format("b")], True, id="all flavors are too small"),
        pytest.param([TAINT.format("a"), OVER.format("b")], True, id="one flavor is tainted and one is too small"),
        pytest.param([LABEL.format("a"), SHORT.format("b")], False, id="one flavor does not match and one is short"),
        pytest.param(
            [OVER.format("a"), SHORT.format("a")],
            True,
            id="one flavor is too small for one resource and short of another",
        ),
        pytest.param(["ClusterQueue q is inactive"], None, id="a message that is not about quota"),
    ],
)
def test_the_messages_of_kueue_that_mean_never(sentences: list[str], forever: bool | None) -> None:
    """The sentences are those of flavorassigner.go, joined as its Status.Message does it."""
    message = "couldn't assign flavors to pod set podset-0: " + ", ".join(sorted(sentences))
    assert judge.says_never(message) is forever


def test_only_a_lasting_answer_counts() -> None:
    def answered(status: str, message: str) -> Answer | None:
        condition = {"type": "QuotaReserved", "status": status, "message": message}
        return judge.read({"status": {"conditions": [condition]}})

    assert judge.read({}) is None
    assert answered("False", "Workload no longer fits after processing another workload") is None
    assert answered("False", "couldn't assign flavors") == Answer(False, (), "couldn't assign flavors")
    assert judge.disagreement(Forecast(None, (1,)), asked=(1,), answer=None) == "Kueue said nothing about 1 pods"


def test_a_disagreement_is_reported_so_that_it_can_be_repeated() -> None:
    tree = TREES[0]
    load = ask.workload(f"{tree.name}-0-fits", tree.questions[0], (2,) * len(tree.questions[0].specs))
    text = report(rounds.Disagreement(tree, tree.questions[1], "Kueue admitted 3 pods", (load,)))
    sentence, _, objects = text.partition("\n")
    assert sentence == "oracle-7-0: Kueue admitted 3 pods"
    kinds = [one["kind"] for one in yaml.safe_load_all(objects)]
    assert kinds.count("ClusterQueue") == len(tree.cluster_queues) and kinds[-2:] == ["Workload", "Workload"]
    assert (
        line(Outcome(trees=200, questions=600), 7, 61.5)
        == "oracle: 200 trees, 600 questions, 0 disagreements, seed 7, 62 s"
    )

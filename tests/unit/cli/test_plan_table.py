"""A whole plan on a terminal: the order of clusters, what fits, what is free, and why."""

import asyncio

from adapter.cli import plan_table
from adapter.planning.plan_document import PlanJson
from tests.unit.builders import NAMESPACE, START, make_cluster_queue
from tests.unit.stores import Sight, fill, make_group, make_member, make_ray_job


def _answer(*, workers: int) -> PlanJson:
    sight = Sight({"east": 3, "west": 1, "north": 5})
    sight.members["east"].spec = make_member("east", 3, pricePerHour={"cpu": "0.12"}, zone="us-east-1a").spec
    sight.members["north"].spec = make_member("north", 3, cordoned=True).spec
    west = [
        make_cluster_queue(1, used=1, cohortName="all"),
        make_cluster_queue(8, cohortName="all", name="lender"),
    ]
    fill(sight.members["west"].cluster_queues, *west)
    job = make_ray_job(make_group(workers), make_group(1, name="big", cpu="2"))
    return asyncio.run(sight.preview.preview_plan(job, NAMESPACE, START))


def test_a_plan_that_fits() -> None:
    assert (
        plan_table.render(_answer(workers=4))
        == """\
RayJob demo/train: 4 workers of group workers, each cpu 1; 1 worker of group big, each cpu 2
LocalQueue team-a, DispatchPolicy default: FillInOrder, AllOrNothing

ASKED   CLUSTER   CHOSEN   NOMINAL   BORROWED   EVER   USED    FREE    PER HOUR   WHY
1       east      2        3         0          4      cpu 0   cpu 3   0.36       1 of workers, 1 of big
2       west      3        0         5          5      cpu 1   cpu 8   -          3 of workers
-       north     0        0         0          0      -       -       -          it is cordoned

Fits: 2 of 5 workers to east, 3 to west; north passed over: it is cordoned.
Price per hour: 0.36, west not counted: no price there.
"""
    )


def test_a_plan_that_does_not_fit() -> None:
    assert (
        plan_table.render(_answer(workers=40))
        == """\
RayJob demo/train: 40 workers of group workers, each cpu 1; 1 worker of group big, each cpu 2
LocalQueue team-a, DispatchPolicy default: FillInOrder, AllOrNothing

ASKED   CLUSTER   CHOSEN   NOMINAL   BORROWED   EVER   USED    FREE    PER HOUR   WHY
1       east      0        3         0          4      cpu 0   cpu 3   -          \
cpu in flavor any: 3 free of 3, one worker needs 1
2       west      0        0         8          10     cpu 1   cpu 8   -          \
cpu in flavor any: 8 free of 9, one worker needs 1
-       north     0        0         0          0      -       -       -          it is cordoned

Does not fit: 41 workers needed at once, 11 fit now: \
east has capacity for 3 (cpu in flavor any: 3 free of 3, one worker needs 1); \
west has capacity for 8 (cpu in flavor any: 8 free of 9, one worker needs 1); \
north has capacity for 0 (it is cordoned).
"""
    )


def test_a_rejection_has_no_columns() -> None:
    answer = asyncio.run(
        Sight({"east": 3}, gang="BestEffort", minWorkers=1).preview.preview_plan(make_ray_job(), NAMESPACE, START)
    )
    assert plan_table.render(answer) == (
        "RayJob demo/train\nLocalQueue team-a, DispatchPolicy default\n\nDoes not fit: RayJob train: its "
        "spec.submissionMode K8sJobMode starts the job only when every worker is ready, and the policy's gang "
        "BestEffort may place fewer; submit it with SidecarMode, or in a queue whose policy places all workers.\n"
    )


def test_unknown_facts_come_last() -> None:
    answer = {**_answer(workers=1), "notes": ["2 jobs wait for the manager's own quota in ClusterQueue all."]}
    assert plan_table.render(answer).splitlines()[-1] == answer["notes"][0]

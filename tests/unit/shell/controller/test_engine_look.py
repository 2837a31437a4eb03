"""A gang is looked at with what no store holds, which takes a moment in which much may happen."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from adapter.gang.facts import Gang
from adapter.shell.clusters.cluster import PROBE
from adapter.shell.clusters.manager import Manager
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.handlers import Waker
from adapter.shell.controller.keys import ANCHOR, CHECK, CLUSTER, GANG, POD, QUEUE
from adapter.shell.controller.looks import Looks
from adapter.shell.controller.workqueue import Postpone
from adapter.shell.kube.client import Unreachable
from adapter.shell.observe.gangs import Gangs
from tests.unit import apiserver
from tests.unit.gang.test_lifecycle import gang


@dataclass
class Looked:
    """Stands in for whoever observes, and for whoever is told: it notes what it is asked."""

    manager: Manager
    news: bool = False
    loses: bool = False
    told: list[str] = field(default_factory=list)

    async def look(self, _: object) -> bool:
        if self.loses:
            self.manager._note(PROBE, Unreachable("no answer in time"))
        return self.news

    def facts(self, *_: object) -> Gang:
        self.told.append("decided")
        return gang(None)

    def turns(self) -> None:
        self.told.append("turns")

    def tried(self, _: object) -> None:
        """What was done is told as well; nothing was."""


@pytest.mark.parametrize(
    ("news", "loses", "told"),
    [(False, False, ["decided"]), (True, False, ["turns", "decided"]), (False, True, [])],
)
async def test_what_a_look_leads_to(news: bool, loses: bool, told: list[str]) -> None:
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        looked = Looked(Manager(nobody), news, loses)
        unasked: Any = None
        looks = Looks(
            manager=looked.manager,
            fleet=unasked,
            gangs=cast(Gangs, looked),
            workers=unasked,
            claims=unasked,
            executor=unasked,
            conditions=unasked,
            aggregator=unasked,
            waker=cast(Waker, looked),
        )
        try:
            await looks.look((GANG, "demo", "train"))
        except Postpone as lost:
            assert loses and "the manager cluster cannot be seen" in str(lost)
        assert looked.told == told


@pytest.mark.parametrize("what", [GANG, POD, CLUSTER, CHECK, QUEUE, ANCHOR])
async def test_nothing_is_looked_at_while_the_manager_cannot_be_seen(what: str) -> None:
    """What a cut link hides must not be taken for gone: the key comes back when it can be."""
    looked: list[str] = []

    class Looks:
        async def look(self, key: tuple[str, str, str]) -> None:
            looked.append(key[0])

    @dataclass
    class Parts:
        looks: Looks

    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        engine = Engine(nobody, None)
        engine._parts, engine._leads = cast(Any, Parts(Looks())), True
        engine.manager._note(PROBE, None)
        await engine._handle((what, "demo", "train"))
        assert looked == [what]
        engine.manager._note(PROBE, Unreachable("no answer in time"))
        with pytest.raises(Postpone, match="the manager cluster cannot be seen: no answer in time"):
            await engine._handle((what, "demo", "train"))
        assert looked == [what]

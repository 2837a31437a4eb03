"""A gang is looked at with what no store holds, which takes a moment in which much may happen."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from adapter.shell.clusters.manager import Home
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.keys import GANG
from adapter.shell.controller.workqueue import Postpone
from adapter.shell.kube.client import Unreachable
from tests.unit import apiserver


@dataclass
class Looked:
    """Stands in for whoever looks, and for whoever is told: it notes what it is asked."""

    home: Home
    news: bool = False
    loses: bool = False
    told: list[str] = field(default_factory=list)

    async def look(self, _: object) -> bool:
        if self.loses:
            self.home._note("probe", Unreachable("no answer in time"))
        return self.news

    def turns(self) -> None:
        self.told.append("turns")

    def tried(self, _: object) -> None:
        """What was done is told as well; nothing was."""

    def _decide(self, *_: object) -> list[Any]:
        self.told.append("decided")
        return []


@pytest.mark.parametrize(
    ("news", "loses", "told"),
    [(False, False, ["decided"]), (True, False, ["turns", "decided"]), (False, True, [])],
)
async def test_what_a_look_leads_to(news: bool, loses: bool, told: list[str]) -> None:
    async with apiserver.connected("http://127.0.0.1:1") as nobody:
        engine: Any = Engine(nobody, None)
        looked = Looked(engine.home, news, loses)
        engine._leads, engine._observer, engine._waker, engine._decide = True, looked, looked, looked._decide
        try:
            await cast(Engine, engine)._handle((GANG, "demo", "train"))
        except Postpone as lost:
            assert loses and "the manager cluster cannot be seen" in str(lost)
        assert looked.told == told

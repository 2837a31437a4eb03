"""Is a head that is asked which nodes it hears from understood, whatever the size of its cluster and whoever wrote its answer?"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from yarl import URL

from adapter import names
from adapter.shell.observe import losses
from adapter.shell.observe.losses import Losses
from tests.unit import apiserver
from tests.unit.apiserver import Answer, streams
from tests.unit.builders import START, make_meta, make_pod
from tests.unit.shell.observe.test_losses import MINUTE, lost_east
from tests.unit.stores import fill

Raw = dict[str, Any]
NODES = 1000
_GOOD, _ODD = "good", "odd"
(OWNER,) = make_pod()["metadata"]["ownerReferences"]  # the RayCluster of `worker`, whatever its name


def nodes(count: int) -> str:
    """As Ray's dashboard answers."""
    found = [{"node_ip": f"10.0.{n // 250}.{n % 250}", "state": "ALIVE", "node_name": "x" * 400} for n in range(count)]
    return json.dumps({"result": True, "data": {"result": {"total": count, "result": found}}})


def parts(text: str, size: int = 14_000) -> Iterator[str]:
    """As a network delivers it."""
    return (text[begin : begin + size] for begin in range(0, len(text), size))


def worker(ray_cluster: str, address: str) -> Raw:
    pod = make_pod(f"{ray_cluster}-worker", placement="train", slot="east/1/workers/0")
    pod["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL] = ray_cluster
    return pod | {"status": {"podIP": address}}


def head(ray_cluster: str, port: int) -> Raw:
    labels = {names.RAY_GCS_CLUSTER_LABEL: ray_cluster, names.RAY_NODE_TYPE_LABEL: names.HEAD}
    ports = [{"name": "dashboard", "containerPort": port}]
    return {
        "metadata": make_meta(f"{ray_cluster}-head", labels=labels, ownerReferences=[OWNER]),
        "spec": {"containers": [{"ports": ports}]},
        "status": {"podIP": "127.0.0.1"},
    }


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(streams("[" * 100_000), id="deeper than a parser goes"),
        pytest.param(streams(*parts(" " * (losses._LARGEST + 1), 1 << 20)), id="without an end"),
        pytest.param(streams('{"data": {"result": {"result": [{"node_ip": {}, "state": []}]}}}'), id="odd nodes"),
        pytest.param(streams("{", then=apiserver.cut), id="half an answer"),
    ],
)
async def test_a_thousand_nodes_are_heard_of_whatever_another_head_says(odd: Answer) -> None:
    sight, heard = lost_east(0), asyncio.Event()
    found = Losses(sight.manager, sight.fleet)
    async with AsyncExitStack() as stack:
        heads = []
        for name, answer in ((_ODD, odd), (_GOOD, streams(*parts(nodes(NODES))))):
            server = await stack.enter_async_context(apiserver.serving())
            server.lists = [answer]
            heads.append(head(name, URL(server.url).port or 0))
        good, odd_one = worker(_GOOD, "10.0.3.249"), worker(_ODD, "10.0.0.0")
        fill(sight.manager.pods, good, odd_one)
        fill(sight.manager.heads, *heads)
        task = asyncio.create_task(found.run(lambda pod: heard.set() if pod is good else None))
        try:
            async with asyncio.timeout(apiserver.PATIENCE):
                await asyncio.wait([task, asyncio.create_task(heard.wait())], return_when=asyncio.FIRST_COMPLETED)
            assert not task.done()
            silence = found.of_pod("east", good, MINUTE)
            assert silence and silence.alive is True and silence.since == START
            nothing = found.of_pod("east", odd_one, MINUTE)
            assert nothing and nothing.alive is None
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

"""When copied objects are written: once for a job and cluster, again when a source changes, never without permission.

The servers answer from scripts; tests/integration/test_copies.py uses real ones.
"""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from adapter import names
from adapter.objects.references import Reference
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.objects.workload import parse_workload
from adapter.rewrite import copied_objects, rewriter
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.observe.source_objects import SourceObjects, SourceUnavailable
from adapter.shell.write.copies import PAUSE_SECONDS, WRITES_PER_TURN, ObjectCopier, take_turns
from tests.unit import apiserver
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import NAMESPACE, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.stores import Sight, fill

MARKER = "a-value-that-nobody-may-show"
ENCODED = base64.b64encode(MARKER.encode()).decode()
TOKEN = Reference("Secret", "token")
FIELD = "spec.containers[ray-worker].env[TOKEN].secretKeyRef"
PLACE = make_placement(make_workload())
SHARE = make_reservation(PLACE)
JOB = SHARE["metadata"]["labels"][names.WORKLOAD_UID_LABEL]
NAME = copied_objects.copy_name(TOKEN, "east", JOB)


@dataclass
class Cluster:
    """An API server that keeps Secrets; `before` answers first."""

    secrets: dict[str, Raw] = field(default_factory=dict)
    before: list[apiserver.Answer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind, _, name = request.path.rpartition("/namespaces/demo/")[2].partition("/")
        self.asked.append(f"{request.method} {kind}")
        if self.before:
            return await self.before.pop(0)(request)
        if request.method == "GET":
            found = self.secrets.get(name)
            return await (says(found) if found else refuses(404, "NotFound"))(request)
        body = await request.json()
        taken = body["metadata"]["name"] in self.secrets
        if taken is (request.method == "POST"):
            return await refuses(*((409, "AlreadyExists") if taken else (404, "NotFound")))(request)
        self.secrets[body["metadata"]["name"]] = body
        return await says(body)(request)


class Scripted(Server):
    """A Server that asks a Cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await self.cluster.answer(request)


def secret(version: int = 1, **more: Any) -> Raw:
    metadata = {"name": "token", "namespace": NAMESPACE, "uid": "s", "resourceVersion": str(version)}
    return {"kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {"k": ENCODED}, **more}


def worker(name: str = "w0", *, optional: bool = False, share: Raw = SHARE) -> tuple[Raw, Raw]:
    """A manager's pod that reads a Secret, and its copy."""
    pod = make_pod(name, slot="east/1/role-workers/0", placement=PLACE["metadata"]["name"])
    pointer = {"name": "token", "key": "k", "optional": optional}
    pod["spec"]["containers"] = [
        {"name": "ray-worker", "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": pointer}}]}
    ]
    remote = make_copy(pod)
    remote["metadata"]["ownerReferences"] = share["metadata"]["ownerReferences"]
    job = share["metadata"]["labels"][names.WORKLOAD_UID_LABEL]
    remote["metadata"]["labels"] |= {names.WORKLOAD_UID_LABEL: job, names.CLUSTER_LABEL: "east"}
    remote["metadata"]["annotations"] |= {
        names.WORKLOAD_ANNOTATION: share["metadata"]["annotations"][names.WORKLOAD_ANNOTATION]
    }
    return pod, remote


class Bench:
    """A manager and a worker cluster with one share, and the copier between them."""

    def __init__(self, home: Client, away: Client, here: Cluster, there: Cluster) -> None:
        self.sight, self.here, self.there = Sight({"east": 9}), here, there
        self.member = self.sight.members["east"]
        self.sight.manager.client, self.member.client = home, away
        self.copier = ObjectCopier(
            self.sight.manager, self.sight.fleet, self.sight.facts.sources, self.sight.facts.worker_observer
        )
        fill(self.member.workloads, SHARE)

    async def ensure(self, *, optional: bool = False) -> None:
        pod, remote = worker(optional=optional)
        await self.copier.ensure_copies(self.member, rewriter.referenced_objects(pod), remote)

    def run(self, *pods: tuple[Raw, Raw]) -> None:
        fill(self.sight.manager.pods, *(pod for pod, _ in pods))
        fill(self.member.pods, *(remote for _, remote in pods))


@asynccontextmanager
async def benched(sources: Iterable[Raw] = ()) -> AsyncIterator[Bench]:
    here, there = Cluster({one["metadata"]["name"]: one for one in sources}), Cluster()
    async with (
        apiserver.serving(Scripted(here)) as home,
        apiserver.serving(Scripted(there)) as away,
        apiserver.connected(home.url) as manager,
        apiserver.connected(away.url) as east,
    ):
        yield Bench(manager, east, here, there)


async def test_one_copied_object_serves_all_pods_of_a_share() -> None:
    async with benched([secret()]) as bench:
        await bench.ensure()
        await bench.ensure()
        assert bench.there.secrets[NAME]["data"] == {"k": ENCODED}
        assert (bench.here.asked, bench.there.asked) == (["GET secrets"], ["POST secrets"])


async def test_a_queued_write_does_not_wait_for_an_unreachable_cluster() -> None:
    async with benched([secret()]) as bench:
        bench.member._note_error("probe", Unreachable("no answer in time"))
        with pytest.raises(Unreachable, match="worker cluster east is unreachable since"):
            await bench.ensure()
        assert (bench.here.asked, bench.there.asked) == ([], [])


async def test_a_copied_object_of_an_earlier_try_is_replaced_unread() -> None:
    async with benched([secret()]) as bench:
        bench.there.secrets[NAME] = {"metadata": {"name": NAME}, "data": {"k": "b2xk"}}
        await bench.ensure()
        assert bench.there.secrets[NAME]["data"] == {"k": ENCODED}
        assert bench.there.asked == ["POST secrets", "PUT secrets"]


async def test_a_missing_source_is_requested_once_for_all_pods() -> None:
    async with benched() as bench:
        for _ in range(3):
            with pytest.raises(SourceUnavailable) as absent:
                await bench.ensure()
        assert str(absent.value) == (
            f"{FIELD} is Secret token, which does not exist in namespace demo; create it, and the job continues"
        )
        assert (bench.here.asked, bench.there.asked) == (["GET secrets"], [])


async def test_a_pod_is_created_without_optional_objects_and_gets_them_later() -> None:
    async with benched() as bench:
        await bench.ensure(optional=True)
        assert bench.there.asked == []
        bench.copier._sources._sources.clear()  # after its time
        bench.here.secrets["token"] = secret()
        bench.run(worker(optional=True))
        await bench.copier.refresh_cluster(bench.member)
        assert NAME in bench.there.secrets


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            refuses(500, message="no key for it"),
            "which cannot be read in namespace demo .500 Forbidden: no key for it.",
        ),
        (refuses(403), "which the controller may not read in namespace demo; bind ClusterRole rayspan-copies"),
        (says(secret(type="kubernetes.io/service-account-token")), "the token's issuer is the manager"),
    ],
)
async def test_a_forbidden_source_is_not_copied(answer: apiserver.Answer, said: str) -> None:
    async with benched() as bench:
        bench.here.before = [answer]
        with pytest.raises(SourceUnavailable, match=said):
            await bench.ensure()
        assert bench.there.asked == []


@pytest.mark.parametrize("name", ["../../kube-system/secrets/token", "..", "token?watch=1", "Token", "a/b", "%2e%2e"])
@pytest.mark.parametrize("optional", [False, True])
async def test_a_name_with_path_segments_is_not_requested(name: str, optional: bool) -> None:
    """An API server accepts such a volume, and HTTP clients resolve the dots, to another namespace's Secret."""
    async with benched([secret()]) as bench:
        pod, remote = worker()
        pod["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": name, "optional": optional}}]
        pod["spec"]["containers"] = []
        if optional:
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        else:
            with pytest.raises(SourceUnavailable, match="which is not a valid object name"):
                await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        await bench.copier._sources.refresh_objects(NAMESPACE, rewriter.referenced_objects(pod))
        assert (bench.here.asked, bench.there.asked) == ([], [])


async def test_a_denied_copied_object_is_reported_differently_from_a_missing_source() -> None:
    async with benched([secret()]) as bench:
        bench.there.before = [refuses(403, message="cannot create resource secrets")]
        with pytest.raises(ApiError) as refusal:
            await bench.ensure()
        assert refusal.value.message == "the copy of Secret token: cannot create resource secrets"
        await bench.ensure()
        assert NAME in bench.there.secrets, "tried again"


async def test_a_copied_object_is_written_again_only_when_its_source_changes() -> None:
    async with benched([secret()]) as bench:
        await bench.ensure()
        bench.run(worker("w0"), worker("w1"))
        bench.there.asked.clear()
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.asked == []
        bench.here.secrets["token"] = secret(2, data={"k": "bmV3"})
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.secrets[NAME]["data"] == {"k": "bmV3"}
        assert bench.there.asked == ["PUT secrets"]
        del bench.here.secrets["token"]
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.secrets[NAME]["data"] == {"k": "bmV3"}, "running pods keep theirs"


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_changed_or_deleted_copied_object_is_restored_after_a_while(
    deleted: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """We may not look: so it is written, whatever stands there. What stands there as it should is no news."""
    caplog.set_level(logging.INFO)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    async with benched([secret()]) as bench:
        await bench.ensure()
        bench.run(worker("w0"), worker("w1"))
        kept = bench.there.secrets
        kept.pop(NAME) if deleted else kept.update({NAME: {**kept[NAME], "data": {"k": "c3BvaWx0"}}})
        bench.there.asked.clear()
        now += 110
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.asked == []
        now += 20
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.secrets[NAME]["data"] == {"k": ENCODED}
        assert bench.there.asked == (["PUT secrets", "POST secrets"] if deleted else ["PUT secrets"])
        assert caplog.text.count("copied Secret token") == 1 + deleted


async def test_an_immutable_copied_object_is_retried_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    async with benched([secret()]) as bench:
        await bench.ensure()
        bench.run(worker("w0"))
        now += 130
        for _ in range(3):
            bench.there.before = [refuses(422, "Invalid", "field is immutable when `immutable` is set")]
            bench.there.asked.clear()
            await bench.copier.refresh_cluster(bench.member)
            now += 30
            assert bench.there.asked == (["PUT secrets"] if now == 1160 else [])


async def test_after_a_restart_each_copied_object_is_written_once() -> None:
    async with benched([secret()]) as bench:
        bench.run(worker("w0"), worker("w1"))
        await bench.copier.refresh_cluster(bench.member)
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.asked == ["POST secrets"]


async def test_a_pod_that_is_no_worker_gets_no_copied_objects() -> None:
    """Its label and slot say so, but no copy of it runs there, or one of an earlier pod of that name."""
    async with benched([secret()]) as bench:
        pod, remote = worker()
        fill(bench.sight.manager.pods, pod)
        await bench.copier.refresh_cluster(bench.member)
        later = {**pod, "metadata": {**pod["metadata"], "uid": "later"}}
        bench.run((later, remote))
        await bench.copier.refresh_cluster(bench.member)
        assert bench.there.asked == []


async def test_an_invalid_answer_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with benched([secret()]) as bench:
        pod, remote = worker()
        bench.run((pod, remote))
        fill(bench.member.workloads, {"metadata": {"name": "share"}, "spec": {"podSets": ["nonsense"]}})
        await bench.copier._refresh_contained(bench.member)
        assert "copies failed at ('', 'share') by " in caplog.text and not bench.copier._refreshing


async def test_nothing_is_remembered_of_a_share_that_is_gone() -> None:
    async with benched([secret()]) as bench:
        await bench.ensure()
        assert bench.copier._job_copies
        fill(bench.member.workloads)
        await bench.copier.refresh_cluster(bench.member)
        assert not bench.copier._job_copies


async def test_a_job_is_not_rejected_for_a_fixed_problem() -> None:
    """The user recreates the Secret and submits again at once. A rejection is final, so it never uses an old answer."""
    async with benched([secret()]) as bench:
        work = make_workload()
        work["spec"]["podSets"][1]["template"] = {"spec": worker()[0]["spec"]}
        home, read = bench.sight.manager, bench.sight.facts
        fill(home.workloads, work)
        account = says(secret(type="kubernetes.io/service-account-token"))
        bench.here.before = [account, account]
        await read.gang_observer.read_uncached(key_of(work))
        assert "use a credential of another kind" in read.sources.uncopyable_reason(
            parse_workload(work), parse_workload(work).podsets
        )
        assert bench.here.asked == ["GET secrets", "GET secrets"], "once more, to be sure"
        await read.gang_observer.read_uncached(key_of(work))
        assert not read.sources.uncopyable_reason(parse_workload(work), parse_workload(work).podsets)
        await read.gang_observer.read_uncached(key_of(work))
        assert len(bench.here.asked) == 3, "what is there is believed for a while"


async def test_a_job_waits_for_a_right_as_for_a_secret() -> None:
    """An administrator may bind the role at any time, and then the job goes on as it is."""
    async with benched([secret()]) as bench:
        raw, sources = asking(1), bench.sight.facts.sources
        work = parse_workload(raw)
        fill(bench.sight.manager.workloads, raw)
        bench.here.before = [refuses(403)]
        await bench.sight.facts.gang_observer.read_uncached(work.key)
        assert not sources.uncopyable_reason(work, work.podsets)
        assert "bind ClusterRole rayspan-copies" in sources.missing_objects(work, work.podsets)
        sources._sources = {one: (found, 0.0) for one, (found, _) in sources._sources.items()}
        assert await bench.sight.facts.gang_observer.read_uncached(work.key)
        assert not sources.missing_objects(work, work.podsets)


async def test_a_busy_manager_deletes_no_share() -> None:
    """Trouble of the manager's API server does not make a known source missing, except in the long run."""
    async with benched([secret()]) as bench:
        raw, sources = asking(1), bench.sight.facts.sources
        work = parse_workload(raw)
        fill(bench.sight.manager.workloads, raw)
        await bench.sight.facts.gang_observer.read_uncached(work.key)
        bench.here.before = [refuses(500, "InternalError", "etcdserver: leader changed")] * 2
        for ago, absent in ((1.0, False), (1000.0, True)):
            sources._sources = {one: (found, time.monotonic() - ago) for one, (found, _) in sources._sources.items()}
            with nullcontext() if absent else pytest.raises(Unreachable):
                await bench.sight.facts.gang_observer.read_uncached(work.key)
            assert bool(sources.missing_objects(work, work.podsets)) is absent


async def test_the_check_remembers_no_values() -> None:
    async with benched([secret()]) as bench:
        sources = SourceObjects(bench.sight.manager)
        await sources.refresh_objects(NAMESPACE, [TOKEN])
        assert [found.size for found, _ in sources._sources.values()] == [len(MARKER)]
        assert not shows(repr(vars(sources)["_sources"]))


def asking(count: int) -> Raw:
    """A Workload whose workers refer to so many Secrets, of which the first is `token`."""
    work = make_workload()
    secrets = [{"secretRef": {"name": f"s{number}" if number else "token"}} for number in range(count)]
    work["spec"]["podSets"][1]["template"]["spec"] = {"containers": [{"name": "ray-worker", "envFrom": secrets}]}
    return work


async def test_gangs_that_start_or_stop_lacking_a_source_are_reported() -> None:
    """Those behind a gang are planned without its share while it lacks something, so they want to hear of it."""
    async with benched() as bench:
        work, read = asking(1), bench.sight.facts
        fill(bench.sight.manager.workloads, work)
        key = (NAMESPACE, work["metadata"]["name"])
        assert [await read.gang_observer.read_uncached(key), await read.gang_observer.read_uncached(key)] == [
            True,
            False,
        ]
        read.sources.forget_old()
        assert read.job_problems.missing_objects(parse_workload(work), "rayspan"), (
            "those who plan others know it as long as it waits"
        )
        read.sources._sources = {one: (found, 0.0) for one, (found, _) in read.sources._sources.items()}
        bench.here.secrets["token"] = secret()
        assert [await read.gang_observer.read_uncached(key), await read.gang_observer.read_uncached(key)] == [
            True,
            False,
        ]


async def test_a_job_that_refers_to_too_many_makes_no_reads() -> None:
    async with benched() as bench:
        work, read = asking(copied_objects.MAX_OBJECTS + 1), bench.sight.facts
        fill(bench.sight.manager.workloads, work)
        await read.gang_observer.read_uncached((NAMESPACE, work["metadata"]["name"]))
        assert bench.here.asked == []
        assert "refer to 33 Secrets and ConfigMaps" in read.sources.uncopyable_reason(
            parse_workload(work), parse_workload(work).podsets
        )


async def test_no_value_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """In no log line down to debug, in no exception, in nothing that is kept."""
    caplog.set_level(logging.DEBUG)
    async with benched([secret()]) as bench:
        told: list[str] = []
        bench.there.before = [
            refuses(422, message="Invalid"),
            refuses(409, "AlreadyExists"),
            refuses(500, message="no"),
        ]
        for _ in range(2):
            with pytest.raises(ApiError) as refusal:
                await bench.ensure()
            told += [repr(refusal.value), str(refusal.value), str(refusal.value.__dict__)]
        await bench.ensure()
        bench.run(worker())
        bench.here.secrets["token"] = secret(2)
        bench.there.before = [refuses(403, message="no more")]
        await bench.copier.refresh_cluster(bench.member)
        told += [record.getMessage() for record in caplog.records]
        told += [repr(bench.copier._job_copies), repr(vars(bench.copier._sources)["_sources"])]
        assert any("copied Secret token" in line for line in told) and any("no more" in line for line in told)
        assert shows(str(bench.there.secrets)), "it was there to be told"
        assert not [line for line in told if shows(line)]


def shows(text: str) -> bool:
    return MARKER in text or ENCODED in text


def edited(name: str, *secrets: str) -> tuple[Raw, Raw]:
    """A worker of a template that was edited: its pod and its copy, which may start without these Secrets."""
    pod, remote = worker(name, optional=True)
    pod["spec"]["volumes"] = [{"name": one, "secret": {"secretName": one, "optional": True}} for one in secrets]
    return pod, remote


async def test_the_copied_objects_of_a_job_are_limited_in_number() -> None:
    """Pod by pod, each with others than the one before."""
    async with benched() as bench:
        pod, remote = edited("w0", *(f"a{n}" for n in range(31)))
        await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        asked = list(bench.here.asked)
        pod, remote = edited("w1", "one-more")
        with pytest.raises(SourceUnavailable, match="refer to 33 Secrets and ConfigMaps, and at most 32 are copied"):
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        assert bench.here.asked == asked, "nothing is read for it"


async def test_the_copied_objects_of_a_job_are_limited_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An elastic job runs for months, and each new pod may refer to Secrets of another name."""
    later = time.monotonic
    async with benched([named(secret(), f"s{number}") for number in range(90)]) as bench:
        for number in range(0, 90, 30):
            pod, remote = edited("w0", *(f"s{number + more}" for more in range(30)))
            bench.run()  # the worker before is gone
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
            bench.run((pod, remote))
            monkeypatch.setattr(time, "monotonic", lambda number=number: later() + 2 * PAUSE_SECONDS * (1 + number))
        assert len(bench.there.secrets) == 90
        pod, remote = edited("w1", *(f"t{number}" for number in range(3)))
        with pytest.raises(SourceUnavailable, match="refer to 34 Secrets and ConfigMaps, and at most 32 are copied"):
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        (copies,) = [copies for jobs in bench.copier._job_copies.values() for copies in jobs.values()]
        assert len(copies.counted) == 31, "those of the pod that runs, and the optional one that does not exist"


async def test_the_copied_objects_of_a_job_are_limited_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_objects, "MAX_BYTES", len(MARKER) + 2)
    sources = [named(secret(data={"k": text}), f"s{n}") for n, text in enumerate((ENCODED, "YQ==", ENCODED))]
    async with benched(sources) as bench:
        for name in ("s0", "s1"):
            pod, remote = edited("w0", name)
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        pod, remote = edited("w1", "s2")
        with pytest.raises(SourceUnavailable, match=r"hold .* MiB, and at most"):
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        assert len(bench.there.secrets) == 2


def single_worker_shares(count: int) -> list[Raw]:
    """The shares of an elastic job, each with its own anchor."""
    return [make_reservation(PLACE, round=number + 1) for number in range(count)]


def owners_of(copy: Raw) -> set[str]:
    return {owner["uid"] for owner in copy["metadata"]["ownerReferences"]}


def anchor_of(share: Raw) -> str:
    return str(share["metadata"]["ownerReferences"][0]["uid"])


async def test_all_shares_of_a_job_have_one_copied_object() -> None:
    """An elastic job has a share for each worker; each copy of its own would be up to 500 times the limit."""
    shares = single_worker_shares(40)
    async with benched([secret()]) as bench:
        fill(bench.member.workloads, *shares)
        for number, share in enumerate(shares):
            pod, remote = worker(f"w{number}", share=share)
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        assert list(bench.there.secrets) == [NAME]
        assert len(owners_of(bench.there.secrets[NAME])) == copied_objects.MAX_OWNERS
        assert len(bench.there.asked) <= copied_objects.MAX_OWNERS, "a new share is seldom a reason to write"


async def test_a_copied_object_outlives_the_shares_that_own_it() -> None:
    """Kubernetes deletes it with the last of its owners, so they are replaced while some of them exist."""
    shares = single_worker_shares(20)
    async with benched([secret()]) as bench:
        fill(bench.member.workloads, *shares)
        bench.run(*(worker(f"w{number}", share=share) for number, share in enumerate(shares)))
        await bench.copier.refresh_cluster(bench.member)
        first_owners = owners_of(bench.there.secrets[NAME])
        remaining = [share for share in shares if anchor_of(share) not in sorted(first_owners)[:10]]
        fill(bench.member.workloads, *remaining)
        bench.run(*(worker(f"w{number}", share=share) for number, share in enumerate(remaining)))
        await bench.copier.refresh_cluster(bench.member)
        assert owners_of(bench.there.secrets[NAME]) == set(map(anchor_of, remaining))
        assert bench.there.asked == ["POST secrets", "PUT secrets"]


async def test_a_worker_of_a_new_share_becomes_an_owner() -> None:
    """Its copied objects were made for an earlier share, which may be deleted at once."""
    first, second = single_worker_shares(2)
    async with benched([secret()]) as bench:
        for share in (first, second):
            fill(bench.member.workloads, share)
            pod, remote = worker(share=share)
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        assert owners_of(bench.there.secrets[NAME]) == {anchor_of(second)}


async def test_a_worker_waits_for_a_copied_object_that_went_with_its_owners() -> None:
    """Its source is gone, too, so it cannot be written again."""
    first, second = single_worker_shares(2)
    async with benched([secret()]) as bench:
        fill(bench.member.workloads, first)
        pod, remote = worker(share=first)
        await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        del bench.here.secrets["token"]
        await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)
        fill(bench.member.workloads, second)
        pod, remote = worker(share=second)
        with pytest.raises(SourceUnavailable):
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote)


def other_job(number: int) -> Raw:
    """The share of another job of the namespace."""
    return make_reservation(make_placement(make_workload(name=f"rayjob-{number}")))


async def test_the_copied_objects_of_a_namespace_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over its jobs, those that are written at the same time included."""
    monkeypatch.setattr(copied_objects, "MAX_NAMESPACE_OBJECTS", 3)
    async with benched([secret()]) as bench:
        shares = [other_job(number) for number in range(5)]
        fill(bench.member.workloads, *shares)
        pods = [worker(f"w{number}", share=share) for number, share in enumerate(shares)]
        ensured = (
            bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pod), remote) for pod, remote in pods
        )
        results = await asyncio.gather(*ensured, return_exceptions=True)
        assert len(bench.there.secrets) == 3
        assert {str(result) for result in results if result} == {
            "the jobs of namespace demo would have 4 copied Secrets and ConfigMaps there with 0.0 MiB, and at most 3 "
            "and 64.0 MiB are copied; wait until other jobs of the namespace end, or let the jobs refer to fewer and "
            "smaller objects"
        }
        fill(bench.member.workloads, *shares[1:])
        await bench.copier.refresh_cluster(bench.member)
        await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(pods[4][0]), pods[4][1])
        assert len(bench.there.secrets) == 4, "the first job has ended"


async def test_a_refused_write_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_objects, "MAX_NAMESPACE_OBJECTS", 1)
    async with benched([secret()]) as bench:
        shares = [other_job(number) for number in range(2)]
        fill(bench.member.workloads, *shares)
        bench.there.before = [refuses(403)]
        refused, accepted = (worker(share=share) for share in shares)
        with pytest.raises(ApiError):
            await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(refused[0]), refused[1])
        await bench.copier.ensure_copies(bench.member, rewriter.referenced_objects(accepted[0]), accepted[1])
        assert len(bench.there.secrets) == 1


async def test_a_source_is_read_once_for_many_jobs() -> None:
    async with benched([secret()]) as bench:
        shares = [other_job(number) for number in range(WRITES_PER_TURN)]
        fill(bench.member.workloads, *shares)
        bench.run(*(worker(f"w{number}", share=share) for number, share in enumerate(shares)))
        await bench.copier.refresh_cluster(bench.member)
        assert bench.here.asked == ["GET secrets"]
        assert len(bench.there.secrets) == len(shares)


def test_namespaces_take_turns_so_that_none_waits_for_one_that_has_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_objects, "MAX_NAMESPACE_OBJECTS", 2 * WRITES_PER_TURN + 1)
    pod: Raw = {}
    many = {Reference("Secret", f"a{n}"): [pod] * (WRITES_PER_TURN + 2) for n in range(3)}
    few = {Reference("Secret", "b"): [pod]}
    turns = [
        (namespace, reference.name, len(pods))
        for namespace, reference, pods in take_turns({"many": many, "none": {}, "few": few})
    ]
    assert turns == [
        ("many", "a0", WRITES_PER_TURN),
        ("few", "b", 1),
        ("many", "a0", 2),
        ("many", "a1", WRITES_PER_TURN - 1),
    ]


async def test_the_sources_read_for_a_job_are_limited_in_number() -> None:
    """Also after a restart, when earlier denials are not known."""
    async with benched() as bench:
        bench.run(*(edited(f"w{n}", *(f"a{n}-{m}" for m in range(20))) for n in range(3)))
        await bench.copier.refresh_cluster(bench.member)
        assert bench.here.asked == ["GET secrets"] * copied_objects.MAX_OBJECTS


def named(raw: Raw, name: str) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "name": name, "uid": name}}

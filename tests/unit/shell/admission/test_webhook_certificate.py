"""A webhook certificate that the API server's client accepts, made by openssl and kept while it is valid."""

import base64

import pytest

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.shell.admission import webhook_certificate
from adapter.shell.kube.client import ApiError
from tests.unit.apiserver import Server, connected, refuses, says, serving

MADE = webhook_certificate.new_certificate()


def test_a_new_certificate_is_valid_for_long() -> None:
    assert {*MADE} == {"ca.crt", "tls.crt", "tls.key"}
    assert webhook_certificate.is_still_valid(MADE)


OTHER = webhook_certificate.new_certificate()


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="no Secret data"),
        pytest.param({name: MADE[name] for name in ("tls.crt", "tls.key")}, id="no authority"),
        pytest.param({**MADE, "ca.crt": OTHER["ca.crt"]}, id="another authority"),
        pytest.param({**MADE, "tls.key": OTHER["tls.key"]}, id="another key"),
        pytest.param({**MADE, "tls.crt": b"odd"}, id="no certificate"),
        pytest.param(dict.fromkeys(MADE, b""), id="empty files"),
        pytest.param({**MADE, "tls.crt": MADE["ca.crt"]}, id="another host name"),
    ],
)
def test_an_invalid_certificate_is_replaced(files: dict[str, bytes]) -> None:
    assert not webhook_certificate.is_still_valid(files)


def configuration(*webhooks: Raw) -> Raw:
    return {"webhooks": list(webhooks)}


MINE: Raw = {"name": names.GATE_WEBHOOK, "clientConfig": {"service": {}}}
NEW_ONE, OLDER, OLDEST = (one["ca.crt"] for one in (MADE, OTHER, webhook_certificate.new_certificate()))


def trusting(*authorities: bytes) -> Raw:
    return {**MINE, "clientConfig": {"caBundle": base64.b64encode(b"".join(authorities)).decode()}}


@pytest.mark.parametrize(
    ("found", "want", "bundle"),
    [
        pytest.param({}, None, b"", id="no configuration"),
        pytest.param(configuration({"name": "other"}), None, b"", id="no webhook of ours"),
        pytest.param(configuration(MINE), 0, NEW_ONE, id="no authority"),
        pytest.param(configuration({"name": "other"}, MINE), 1, NEW_ONE, id="our webhook after another one"),
        pytest.param(configuration(trusting(OLDER)), 0, NEW_ONE + OLDER, id="an older authority"),
        pytest.param(configuration(trusting(OLDER, OLDEST)), 0, NEW_ONE + OLDER, id="two older authorities"),
        pytest.param(configuration({**MINE, "clientConfig": {"caBundle": "?"}}), 0, NEW_ONE, id="an invalid authority"),
    ],
)
def test_the_authority_is_added_to_a_webhook_configuration(found: Raw, want: int | None, bundle: bytes) -> None:
    """The older one stays trusted: the webhooks present it until their kubelets mount the new one."""
    patch = webhook_certificate.trust_patch(found, names.GATE_WEBHOOK, NEW_ONE, anew=True)
    if want is None:
        assert patch == []
        return
    value = base64.b64encode(bundle).decode()
    assert patch == [
        {"op": "test", "path": f"/webhooks/{want}/name", "value": names.GATE_WEBHOOK},
        {"op": "add", "path": f"/webhooks/{want}/clientConfig/caBundle", "value": value},
    ]


def test_an_older_authority_is_removed_at_the_next_start() -> None:
    """Its key may be why a new one was asked for."""
    both, one = configuration(trusting(NEW_ONE, OLDER)), configuration(trusting(NEW_ONE))
    (_, put) = webhook_certificate.trust_patch(both, names.GATE_WEBHOOK, NEW_ONE, anew=False)
    assert base64.b64decode(put["value"]) == NEW_ONE
    assert webhook_certificate.trust_patch(one, names.GATE_WEBHOOK, NEW_ONE, anew=False) == []


async def test_a_new_authority_is_trusted_beside_the_previous_one() -> None:
    done = says({"kind": "Secret"})
    broken = {**MADE, "tls.crt": b"odd"}
    answers = [says(secret(broken)), done, says(configuration(trusting(MADE["ca.crt"]))), done, says(NEW), done]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        await webhook_certificate.ensure_certificate(client)
    written = [asked.body for asked in server.asked if asked.method == "PATCH"]
    made = base64.b64decode(written[0]["data"]["ca.crt"])
    assert [base64.b64decode(body[1]["value"]) for body in written[1:]] == [made + MADE["ca.crt"], made]


def secret(files: dict[str, bytes]) -> Raw:
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {"metadata": {"resourceVersion": "5"}, "data": data}


NEW = configuration({"name": names.WARNINGS_WEBHOOK, "clientConfig": {"service": {}}})


async def test_an_empty_secret_is_filled_and_both_configurations_trust_it() -> None:
    """The write fails with a conflict if another replica filled it meanwhile."""
    gate = configuration(MINE)
    done = says({"kind": "Secret"})
    answers = [says(secret({})), done, says(gate), done, says(NEW), done]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        await webhook_certificate.ensure_certificate(client)
    written = [asked for asked in server.asked if asked.method == "PATCH"]
    assert [asked.path.rsplit("/", 1)[1] for asked in written] == [
        "rayspan-admission",
        "rayspan-gate",
        "rayspan-warnings",
    ]
    assert written[0].body["metadata"] == {"resourceVersion": "5"}
    files = {name: base64.b64decode(content) for name, content in written[0].body["data"].items()}
    assert webhook_certificate.is_still_valid(files)
    assert {asked.body[1]["value"] for asked in written[1:]} == {written[0].body["data"]["ca.crt"]}


async def test_a_valid_certificate_is_kept() -> None:
    trusting = {"caBundle": base64.b64encode(MADE["ca.crt"]).decode()}
    answers = [
        says(secret(MADE)),
        refuses(404, "NotFound"),  # there is no gate's
        says(configuration({"name": names.WARNINGS_WEBHOOK, "clientConfig": trusting})),
    ]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        await webhook_certificate.ensure_certificate(client)
    assert [asked.method for asked in server.asked] == ["GET", "GET", "GET"]


async def test_a_missing_webhook_configuration_is_waited_for() -> None:
    """By failing: the Job is tried again."""
    answers = [says(secret(MADE)), refuses(404, "NotFound"), refuses(404, "NotFound")]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        with pytest.raises(ApiError):
            await webhook_certificate.ensure_certificate(client)

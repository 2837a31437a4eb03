"""A certificate that the API server's client takes, made by the real openssl, and left alone while it is good."""

import pytest

from adapter import names
from adapter.objects.raw import Raw
from adapter.shell.admission import certificate

MADE = certificate.made()


def test_what_is_made_lasts() -> None:
    assert {*MADE} == {"ca.crt", "tls.crt", "tls.key"}
    assert certificate.lasts(MADE)


OTHER = certificate.made()


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="nothing is there"),
        pytest.param({name: MADE[name] for name in ("tls.crt", "tls.key")}, id="no authority"),
        pytest.param({**MADE, "ca.crt": OTHER["ca.crt"]}, id="another authority"),
        pytest.param({**MADE, "tls.key": OTHER["tls.key"]}, id="another key"),
        pytest.param({**MADE, "tls.crt": b"odd"}, id="no certificate"),
        pytest.param(dict.fromkeys(MADE, b""), id="empty files"),
        pytest.param({**MADE, "tls.crt": MADE["ca.crt"]}, id="not for our host"),
    ],
)
def test_what_is_not_good_is_made_anew(files: dict[str, bytes]) -> None:
    assert not certificate.lasts(files)


def configuration(*webhooks: Raw) -> Raw:
    return {"webhooks": list(webhooks)}


MINE: Raw = {"name": names.GATE_WEBHOOK, "clientConfig": {"service": {}}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param({}, None, id="there is no configuration"),
        pytest.param(configuration({"name": "other"}), None, id="nor a webhook of ours"),
        pytest.param(configuration(MINE), 0, id="without an authority"),
        pytest.param(configuration({"name": "other"}, MINE), 1, id="behind another one"),
        pytest.param(configuration({**MINE, "clientConfig": {"caBundle": "old"}}), 0, id="with an older one"),
        pytest.param(configuration({**MINE, "clientConfig": {"caBundle": "new"}}), None, id="it is there"),
    ],
)
def test_what_a_configuration_lacks_is_put_in(found: Raw, want: int | None) -> None:
    patch = certificate.trusted(found, names.GATE_WEBHOOK, "new")
    if want is None:
        assert patch == []
        return
    assert patch == [
        {"op": "test", "path": f"/webhooks/{want}/name", "value": names.GATE_WEBHOOK},
        {"op": "add", "path": f"/webhooks/{want}/clientConfig/caBundle", "value": "new"},
    ]

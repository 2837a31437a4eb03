"""A worker cluster's kubeconfig may not run anything here; an invalid one is a message, and no file stays."""

import asyncio
import base64
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import certifi
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube.client import Client
from adapter.shell.kube.credentials import BadLogin
from tests.unit.apiserver import TOKEN, kubeconfig

AUTHORITY = Path(certifi.where()).read_bytes()
SECRET = "hunter2"
PROGRAM = {"command": "/bin/sh", "args": ["-c", SECRET], "apiVersion": "client.authentication.k8s.io/v1"}
ACTING = {"exec": PROGRAM, "auth-provider": {"name": "oidc", "config": {"client-secret": SECRET}}}


@pytest.mark.parametrize(
    ("part", "field"),
    [
        *(("user", field) for field in ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key")),
        ("cluster", "certificate-authority"),
    ],
)
async def test_a_kubeconfig_that_would_use_this_process_is_rejected(part: str, field: str) -> None:
    """Another cluster's admin writes it; our process has files and a token that he has not."""
    odd: Raw = {field: ACTING.get(field, f"/etc/{SECRET}")}
    user, cluster = ({"token": SECRET, **odd}, {}) if part == "user" else ({"token": SECRET}, odd)
    with pytest.raises(BadLogin) as found:
        await Client.from_kubeconfig(yaml.safe_dump(kubeconfig("http://127.0.0.1:1", user=user, cluster=cluster)))
    assert str(found.value) == f"{part}s[].{part}.{field} is not allowed; put the data itself into the kubeconfig"


async def test_an_unused_forbidden_field_is_rejected() -> None:
    """A loader may read more than the current context."""
    content = kubeconfig("http://127.0.0.1:1")
    content["users"].append({"name": "other", "user": {"exec": PROGRAM}})
    with pytest.raises(BadLogin, match=r"users\[\]\.user\.exec"):
        await Client.from_kubeconfig(yaml.safe_dump(content))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="nothing"),
        pytest.param(SECRET, id="a word"),
        pytest.param(f"- {SECRET}", id="a list"),
        pytest.param(f"token: {{{SECRET}", id="no YAML"),
        pytest.param("token: !!python/name:os.system", id="a YAML tag that would run"),
        pytest.param(f"users: [{{name: us, user: {{token: {SECRET}}}}}]", id="no context"),
        pytest.param(yaml.safe_dump(kubeconfig("x") | {"contexts": None}), id="nulls"),
        pytest.param(yaml.safe_dump(kubeconfig("x") | {"clusters": [{"name": "there"}]}), id="no server"),
        pytest.param(yaml.safe_dump(kubeconfig("x", cluster={"server": 5})), id="a number"),
        pytest.param(
            yaml.safe_dump(
                kubeconfig("https://x", user={"client-certificate-data": SECRET, "client-key-data": SECRET})
            ),
            id="a certificate that is none",
        ),
        pytest.param(
            yaml.safe_dump(kubeconfig("https://x", cluster={"certificate-authority-data": SECRET})), id="an authority"
        ),
    ],
)
async def test_an_unusable_kubeconfig_is_a_message(content: str) -> None:
    with pytest.raises(BadLogin) as found:
        await Client.from_kubeconfig(content)
    assert str(found.value)
    assert SECRET not in str(found.value)
    assert TOKEN not in str(found.value)


ODD = (
    "users: 5",
    "users: [x]",
    "users: [null]",
    "users: {a: b}",
    "users: [{user: 5}]",
    "clusters: [{cluster: 5}]",
    "a: 2026-99-99",
    "a: " + "[" * 3000,
)


@pytest.mark.parametrize("content", ODD, ids=lambda content: content[:30])
async def test_an_invalid_kubeconfig_raises_only_bad_login(content: str) -> None:
    with pytest.raises(BadLogin):
        await Client.from_kubeconfig(content)


async def test_no_certificate_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a login that works, and of one that does not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for data, works in ((AUTHORITY, True), (b"no certificate", False)):
        encoded = base64.b64encode(data).decode()
        content = yaml.safe_dump(kubeconfig("https://x", cluster={"certificate-authority-data": encoded}))
        with nullcontext() if works else pytest.raises(BadLogin):
            await (await Client.from_kubeconfig(content)).close()
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        pytest.param(
            {"server": "https://[fd00::1:6443"}, "server is no URL of an API server", id="a bracket left open"
        ),
        pytest.param({"server": "https://east:99999"}, "server is no URL of an API server", id="no port"),
        pytest.param({"server": "https://east:0"}, "server is no URL of an API server", id="port 0"),
        pytest.param({"server": "east:6443"}, "server is no URL of an API server", id="no scheme"),
        pytest.param({"server": "https://"}, "server is no URL of an API server", id="no host"),
        pytest.param({"server": f"https://{'a' * 64}.example"}, "server is no URL of an API server", id="no DNS name"),
        pytest.param({"server": f"https://us:{SECRET}@east"}, "server is no URL of an API server", id="a password"),
        pytest.param({"server": "https://ea\nst"}, "server is no URL of an API server", id="a line break"),
        pytest.param({"server": ["https://east"]}, "server is no text", id="a list"),
        pytest.param({"proxy-url": "http://[::1"}, "proxy-url is no URL", id="a proxy's bracket"),
        pytest.param({"proxy-url": f"us:{SECRET}@proxy:3128"}, "proxy-url is no URL", id="a proxy without a scheme"),
        pytest.param({"proxy-url": "socks5://proxy:1080"}, "proxy-url is no URL", id="a proxy of another kind"),
        pytest.param({"tls-server-name": "a b"}, "tls-server-name is no host name", id="no name"),
        pytest.param({"insecure-skip-tls-verify": "false"}, "is neither true nor false", id="a word"),
        pytest.param({"certificate-authority-data": ""}, "certificate-authority-data is empty", id="no authority"),
    ],
)
async def test_invalid_connection_data_is_reported_before_a_connection(cluster: Raw, sentence: str) -> None:
    with pytest.raises(BadLogin, match=sentence) as found:
        await Client.from_kubeconfig(yaml.safe_dump(kubeconfig("https://east:6443", cluster=cluster)))
    assert SECRET not in str(found.value)


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": "https://[fd00::1]:6443"},
        {"server": "https://10.0.0.1"},
        {"server": "https://bücher.example:6443"},
        {"server": "https://east.example.com:6443/k8s/clusters/c-1/"},
        {"server": "http://my_host:80", "proxy-url": f"http://us:{SECRET}@proxy:3128"},
        {
            "tls-server-name": "kubernetes.default.svc.",
            "insecure-skip-tls-verify": True,
            "certificate-authority-data": "",
        },
    ],
    ids=str,
)
async def test_valid_connection_data_is_accepted(cluster: Raw) -> None:
    await (await Client.from_kubeconfig(yaml.safe_dump(kubeconfig("https://east:6443", cluster=cluster)))).close()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param("- a\n" * 100_000, "more than 2000 entries", id="huge"),
        pytest.param("a: &a [x]\nb: [*a, *a]", "uses YAML aliases", id="YAML aliases that expand without bound"),
        pytest.param("a: &a {x: 1}\nb: {<<: *a}", "uses YAML aliases", id="a merge"),
    ],
)
async def test_yaml_that_would_block_the_loop_is_not_parsed(content: str, sentence: str) -> None:
    with pytest.raises(BadLogin, match=sentence):
        await Client.from_kubeconfig(content)


_WORDS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates())
_VALUES = st.recursive(
    _WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
_URLS = st.one_of(
    st.text(max_size=30).map("https://".__add__),
    st.from_regex(r"https?://[\[\]a-z0-9.:@%-]{1,20}(:[0-9]{1,6})?(/[a-z?#]*)?", fullmatch=True),
)
_CLUSTERS = st.fixed_dictionaries(
    {"server": _URLS | _VALUES},
    optional={
        "certificate-authority-data": _VALUES,
        "tls-server-name": _VALUES,
        "proxy-url": _URLS | _VALUES,
        "insecure-skip-tls-verify": _VALUES,
    },
)
_USERS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("token", "username", "password", "client-certificate-data", "client-key-data"), _VALUES)
)
_KUBECONFIGS = st.builds(
    lambda user, cluster: yaml.dump(kubeconfig("x", user=user, cluster=cluster)), _USERS, _CLUSTERS
)


@given(
    st.one_of(_KUBECONFIGS, _VALUES.map(yaml.dump), st.text(), st.text("abc:{}[]&*!-<|>'\"#%@ \n\t\\,0", max_size=60))
)
def test_any_secret_is_a_login_or_a_message(content: str) -> None:
    asyncio.run(_tried(content))


async def _tried(content: str) -> None:
    try:
        client = await Client.from_kubeconfig(content)
    except BadLogin as error:
        assert str(error) and len(str(error)) < 400
    else:
        await client.close()

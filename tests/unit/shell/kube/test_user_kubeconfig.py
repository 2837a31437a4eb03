"""The user's kubeconfig is read like the official client reads it; anything unsupported is left to that client."""

import base64
import os
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube import kubeconfig as official
from adapter.shell.kube import user_kubeconfig
from adapter.shell.kube.credentials import BadLogin
from tests.unit.apiserver import TOKEN, kubeconfig

SERVER = "https://east.example.com:6443"
# One authority of many: a context that trusts what the machine trusts has more.
AUTHORITY = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
AUTHORITY = AUTHORITY[AUTHORITY.index("-----BEGIN") :]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("pair")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=us -keyout key -out certificate"
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
    return (folder / "certificate").read_text(), (folder / "key").read_text()


def written(folder: Path, content: object) -> str:
    file = folder / "config"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(file)


PLAIN = [
    pytest.param({}, None, id="a token"),
    pytest.param({"certificate-authority-data": encoded(AUTHORITY)}, {}, id="an authority and an empty user"),
    pytest.param({"certificate-authority": "ca.crt"}, None, id="an authority file beside the kubeconfig"),
    pytest.param({"insecure-skip-tls-verify": True}, None, id="insecure-skip-tls-verify"),
    pytest.param({"insecure-skip-tls-verify": False}, None, id="no insecure-skip-tls-verify"),
    pytest.param({"tls-server-name": "east", "proxy-url": "http://us:pw@proxy:3128"}, None, id="a proxy"),
    pytest.param({"extensions": [{"name": "minikube"}], "disable-compression": True}, None, id="extensions"),
    pytest.param({"server": "http://127.0.0.1:8080/"}, None, id="no TLS"),
]


@pytest.mark.parametrize(("cluster", "user"), PLAIN)
async def test_a_supported_kubeconfig_is_read_like_the_official_client(
    cluster: Raw, user: Raw | None, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text(AUTHORITY)
    file = written(tmp_path, kubeconfig(SERVER, cluster=cluster, user=user))
    found, theirs = user_kubeconfig.load_credentials(file, ""), await official.login_of_user(file, "there")
    await theirs.close()
    assert found and found.address == theirs.address
    assert {name.lower(): value for name, value in (await found.headers()).items()} == {
        name.lower(): value for name, value in (await theirs.headers()).items()
    }
    if found.address.server.startswith("https"):
        assert _trust(found.tls) == _trust(theirs.tls)


def _trust(tls: ssl.SSLContext) -> tuple[object, ...]:
    return tls.verify_mode, tls.check_hostname, tls.verify_flags, sorted(map(str, tls.get_ca_certs()))


@pytest.mark.parametrize("data", [True, False])
def test_a_client_certificate_is_used_and_leaves_no_file(
    data: bool, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    for name, text in zip(("a.crt", "a.key"), pair, strict=True):
        (tmp_path / name).write_text(text)
    certificate, key = map(encoded, pair) if data else ("a.crt", "a.key")
    end = "-data" if data else ""
    user = {f"client-certificate{end}": certificate, f"client-key{end}": key}
    shown: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def noted(tls: ssl.SSLContext, file: Path, *rest: Any) -> None:
        shown.append(file.read_text())
        load(tls, file, *rest)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noted)
    assert user_kubeconfig.load_credentials(written(tmp_path, kubeconfig(SERVER, user=user)), "")
    assert shown == [pair[0]] and os.listdir(aside) == []


OTHERS = [
    pytest.param(kubeconfig(SERVER, user={"exec": {"command": "aws"}}), id="an exec plugin"),
    pytest.param(kubeconfig(SERVER, user={"auth-provider": {"name": "oidc"}}), id="an auth provider"),
    pytest.param(kubeconfig(SERVER, user={"tokenFile": "token"}), id="a token file"),
    pytest.param(kubeconfig(SERVER, user={"username": "us", "password": "pw"}), id="a password"),
    pytest.param(kubeconfig(SERVER, user={"token": TOKEN, "as": "root"}), id="impersonation"),
    pytest.param(kubeconfig(SERVER, user={"token": 5}), id="a number"),
    pytest.param(kubeconfig(SERVER, user={"token": "a\nb"}), id="a line break"),
    pytest.param(kubeconfig(SERVER, user={"client-certificate-data": encoded("x")}), id="no key"),
    pytest.param(kubeconfig(SERVER, cluster={"certificate-authority-data": "%"}), id="no base64"),
    pytest.param(kubeconfig(SERVER, cluster={"certificate-authority-data": encoded("none")}), id="no certificate"),
    pytest.param(kubeconfig(SERVER, cluster={"certificate-authority-data": ""}), id="no authority"),
    pytest.param(kubeconfig(SERVER, cluster={"certificate-authority": "none.crt"}), id="no file"),
    pytest.param(kubeconfig(SERVER, cluster={"certificate-authority": "empty.crt"}), id="an empty file"),
    pytest.param(kubeconfig(SERVER, cluster={"insecure-skip-tls-verify": "false"}), id="a word"),
    pytest.param(kubeconfig("east:6443"), id="no URL"),
    pytest.param(kubeconfig(SERVER) | {"users": None}, id="no user entry"),
    pytest.param(kubeconfig(SERVER) | {"contexts": [{"name": "there", "context": {"cluster": "there"}}]}, id="no user"),
    pytest.param(kubeconfig(SERVER) | {"clusters": kubeconfig(SERVER)["clusters"] * 2}, id="two of one name"),
    pytest.param(kubeconfig(SERVER) | {"current-context": "elsewhere"}, id="no such context"),
    pytest.param(
        {key: value for key, value in kubeconfig(SERVER).items() if key != "current-context"}, id="no current context"
    ),
    pytest.param("a: [", id="no YAML"),
    pytest.param("- a", id="a list"),
    pytest.param("", id="nothing"),
]


@pytest.mark.parametrize("content", OTHERS)
def test_an_unsupported_kubeconfig_is_left_to_the_official_client(content: object, tmp_path: Path) -> None:
    (tmp_path / "empty.crt").touch()
    assert user_kubeconfig.load_credentials(written(tmp_path, content), "") is None


def test_no_password_is_requested_on_the_terminal(pair: tuple[str, str], tmp_path: Path) -> None:
    """As OpenSSL does for the password of a key."""
    key = subprocess.run(
        ["openssl", "ec", "-aes128", "-passout", "pass:word"], input=pair[1], capture_output=True, text=True, check=True
    ).stdout
    user = {"client-certificate-data": encoded(pair[0]), "client-key-data": encoded(key)}
    assert user_kubeconfig.load_credentials(written(tmp_path, kubeconfig(SERVER, user=user)), "") is None


def test_the_choice_of_file_and_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in kubectl: the option, then $KUBECONFIG, then the file at home; several files need the official client."""
    content = kubeconfig(SERVER)
    content["contexts"].append(
        {"name": "other", "context": {"cluster": "other", "user": "us", "namespace": "research"}}
    )
    content["clusters"].append({"name": "other", "cluster": {"server": "https://other"}})
    home = tmp_path / ".kube"
    home.mkdir()
    file = written(home, content)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert _server("", "") == SERVER and _server("", "other") == "https://other"
    assert (
        user_kubeconfig.default_namespace("", "other") == "research"
        and user_kubeconfig.default_namespace("", "") == "default"
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert _server("", "") is None and _server(file, "") == SERVER
    monkeypatch.setenv("KUBECONFIG", f"{file}{os.pathsep}{file}")
    assert _server("", "") is None


def _server(file: str, context: str) -> str | None:
    found = user_kubeconfig.load_credentials(file, context)
    return found.address.server if found else None


@pytest.mark.parametrize("content", ["a: [", "", "- a"])
def test_an_unknown_namespace_is_default(content: str, tmp_path: Path) -> None:
    """The next login with it reports the problem."""
    assert user_kubeconfig.default_namespace(written(tmp_path, content), "") == "default"


async def test_the_official_client_reports_the_problem(tmp_path: Path) -> None:
    with pytest.raises(BadLogin, match="there is no file"):
        await official.login_of_user(str(tmp_path / "none"), "")


@pytest.mark.parametrize("field", ["as", "as-groups", "as-uid", "as-user-extra"])
async def test_a_login_that_acts_as_another_user_is_refused(field: str, tmp_path: Path) -> None:
    """The official client would ignore the field, and act with all rights of the login."""
    file = written(tmp_path, kubeconfig(SERVER, user={"token": "t", field: "viewer"}))
    assert user_kubeconfig.load_credentials(file, "") is None
    with pytest.raises(BadLogin, match=rf"users\[\]\.user\.{field} of the kubeconfig is not supported"):
        await official.login_of_user(file, "")

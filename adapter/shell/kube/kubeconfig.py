"""Reads a kubeconfig, of another cluster's admin or the user's own, into credentials.

The official client reads the kubeconfig and makes the TLS context. BadLogin quotes nothing of the kubeconfig. No
request is sent.
"""

import asyncio
import ipaddress
import os
import re
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import client as kube
from kubernetes.aio import config as kube_config
from yarl import URL

from adapter.membership import ApiServerAddress
from adapter.objects.unstructured import truncate
from adapter.shell.kube.credentials import BadLogin, Credentials

KubeconfigContent = dict[str, Any]
# The most entries of a kubeconfig. YAML is read at 20 000 entries a second, whatever their length, and a Secret may
# hold a MiB of it. A kubeconfig of one cluster has about fifty entries.
MOST_ENTRIES = 2_000
_LONGEST_REASON = 300  # characters; the client's message may name a context of any length
# Fields that are forbidden in a foreign kubeconfig, because they would run a program here or read our files. MultiKueue
# forbids these fields as well (docs/upstream.md, "What MultiKueue refuses in a kubeconfig").
FORBIDDEN_USER = ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key")
FORBIDDEN_CLUSTER = ("certificate-authority",)
# Fields that must be texts: the official client would accept a number or a list as a token.
_TEXT_FIELDS = {
    "clusters": ("cluster", ("server", "certificate-authority-data", "tls-server-name", "proxy-url")),
    "users": ("user", ("token", "username", "password", "client-certificate-data", "client-key-data")),
}
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,254}}$){_LABEL}(\.{_LABEL})*\.?")


async def login_of_text(text: str) -> Credentials:
    """The login by a foreign kubeconfig; raises BadLogin."""
    try:
        content = await asyncio.to_thread(_parse_harmless, text)  # a long kubeconfig takes a second
        return await _load_without_files(content)
    except BadLogin:
        raise
    except kube_config.ConfigException as error:
        raise BadLogin(truncate(str(error), _LONGEST_REASON)) from None
    except Exception as error:  # the loader has many faults on odd input, and a bad Secret must not end a loop
        raise BadLogin(f"it cannot be loaded ({type(error).__name__})") from None


async def login_of_pod() -> Credentials:
    settings = kube.Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=settings)
    except kube_config.ConfigException:
        # The library itself reads $KUBECONFIG at its import, perhaps in another process.
        await kube_config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=settings)
    return credentials_of(kube.ApiClient(settings))


async def login_of_user(file: str, context: str) -> Credentials:
    """The login by the user's own kubeconfig: programs are run, and files are read. Raises BadLogin."""
    if file and not _any_exists(file):  # for a missing file, the library would report a missing key
        raise BadLogin(f"there is no file {file} to be its kubeconfig")
    settings = kube.Configuration()
    try:
        loader = await kube_config.load_kube_config(file or None, context or None, client_configuration=settings)
        _reject_impersonation(loader._user)
        return credentials_of(kube.ApiClient(settings))
    except BadLogin:
        raise
    except kube_config.ConfigException as error:
        raise BadLogin(str(error)) from None
    except Exception as error:  # the loader has many faults on odd input
        raise BadLogin(f"the kubeconfig cannot be loaded ({type(error).__name__})") from None


def _reject_impersonation(user: Any) -> None:
    """Raise BadLogin for a user that acts as another one: the official client would ignore that."""
    fields = ("as", "as-uid", "as-groups", "as-user-extra")
    if field := next((field for field in fields if user is not None and field in user), ""):
        raise BadLogin(f"users[].user.{field} of the kubeconfig is not supported; use a context without it")


def _any_exists(file: str) -> bool:
    return any(Path(name).expanduser().exists() for name in file.split(os.pathsep))


def credentials_of(api: kube.ApiClient) -> Credentials:
    """The official client's login; to be called at once, because the client's temporary files are deleted soon."""

    async def headers() -> dict[str, str]:
        login_headers: dict[str, str] = {}
        await api.update_params_for_auth(login_headers, [], ["BearerToken"], "", "GET", None)
        return login_headers

    settings = api.configuration
    file, name, proxy = settings.ssl_ca_cert, settings.tls_server_name, settings.proxy
    authority = Path(file).read_text() if file else ""
    address = ApiServerAddress(settings.host, authority, name or "", proxy or "", bool(settings.verify_ssl))
    return Credentials(address, api.rest_client.ssl_context, headers, api.close)


def context_namespace(file: str, context: str) -> str:
    try:
        contexts, active = kube_config.list_kube_config_contexts(file or None)
    except Exception:  # the login that follows reports the fault
        return ""
    chosen = next((entry for entry in contexts if entry.get("name") == context), {}) if context else active
    return str((chosen.get("context") or {}).get("namespace") or "")


async def _load_without_files(content: KubeconfigContent) -> Credentials:
    """The login, without the files of certificates and keys that the library would keep until the process ends."""
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config_from_dict(content, client_configuration=settings)
        return credentials_of(kube.ApiClient(settings))
    finally:  # nothing was awaited since the files were written, so no other login still needs files
        kube_config.kube_config._cleanup_temp_files()


class _AliasFreeLoader(yaml.SafeLoader):
    """Forbids aliases: with them, a short text unfolds to any length."""

    entry_count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise BadLogin("it uses YAML aliases; write out what they stand for")
        self.entry_count += 1
        if self.entry_count > MOST_ENTRIES:
            raise BadLogin(f"it has more than {MOST_ENTRIES} entries; remove what is not needed to reach one cluster")
        return super().compose_node(parent, index)


def _parse_harmless(text: str) -> KubeconfigContent:
    """Parse a foreign kubeconfig; BadLogin if it would run or read something here, or allows no connection."""
    try:
        content = yaml.load(text, Loader=_AliasFreeLoader)
    except yaml.YAMLError:
        raise BadLogin("it is not YAML") from None
    if not isinstance(content, dict):
        raise BadLogin("it is not a YAML mapping")
    for listed, part, forbidden in (("users", "user", FORBIDDEN_USER), ("clusters", "cluster", FORBIDDEN_CLUSTER)):
        for entry in _read_entries(content, listed, part):
            keys = [key for key in forbidden if key in entry]
            if keys:
                raise BadLogin(f"{listed}[].{part}.{keys[0]} is not allowed; put the data itself into the kubeconfig")
    for cluster in _read_entries(content, "clusters", "cluster"):
        _check_connectable(cluster)
    return content


def _read_entries(content: KubeconfigContent, listed: str, part: str) -> list[KubeconfigContent]:
    named_entries = content.get(listed) or []
    if not isinstance(named_entries, list) or not all(isinstance(entry, dict) for entry in named_entries):
        raise BadLogin(f"{listed} is no list of mappings")
    entries = [entry.get(part) or {} for entry in named_entries]
    if not all(isinstance(entry, dict) for entry in entries):
        raise BadLogin(f"{listed}[].{part} is no mapping")
    for entry in entries:
        non_text = next((key for key in _TEXT_FIELDS[listed][1] if not isinstance(entry.get(key) or "", str)), None)
        if non_text:
            raise BadLogin(f"{listed}[].{part}.{non_text} is no text; put it in quotes")
    return entries


def _check_connectable(cluster: KubeconfigContent) -> None:
    """Raise BadLogin for values that would fail only at the connection, some unexpectedly."""
    where = "clusters[].cluster"
    if not _is_url(cluster.get("server") or "", ("https", "http")):
        raise BadLogin(f"{where}.server is no URL of an API server; write https://HOST:PORT")
    if cluster.get("proxy-url") and not _is_url(cluster["proxy-url"], ("https", "http"), login=True):
        raise BadLogin(f"{where}.proxy-url is no URL; write http://HOST:PORT")
    if cluster.get("tls-server-name") and not _is_host(cluster["tls-server-name"]):
        raise BadLogin(f"{where}.tls-server-name is no host name")
    unverified = cluster.get("insecure-skip-tls-verify")
    if not isinstance(unverified or False, bool):  # the official client takes "false" for true
        raise BadLogin(f"{where}.insecure-skip-tls-verify is neither true nor false")
    if cluster.get("certificate-authority-data") == "" and not unverified:
        raise BadLogin(f"{where}.certificate-authority-data is empty; fill it, or leave it out for a public authority")


def _is_url(text: str, schemes: tuple[str, ...], *, login: bool = False) -> bool:
    """Whether a connection is possible; `login`: the URL may hold a user and a password."""
    try:
        url = URL(text)
        plain = url.user is None and url.password is None
        return (
            url.scheme in schemes
            and _is_host(url.raw_host or "")
            and bool(url.port)
            and (login or plain)
            and text.isprintable()
        )
    except ValueError:  # an open bracket, an invalid port
        return False


def _is_host(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return bool(_DNS_NAME.fullmatch(text))

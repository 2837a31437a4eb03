"""Reads a kubeconfig of another cluster's admin, or the user's own, into credentials.

The official client reads it and makes the TLS context. A kubeconfig that is forbidden or unreadable raises BadLogin,
which quotes nothing of it. No request is sent here.
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
# YAML's reading time depends on the number of entries, 20 000 a second, and little on the length of texts: a Secret
# holds a MiB. A kubeconfig of one cluster has about fifty entries.
MOST_ENTRIES = 2_000
_LONGEST_REASON = 300  # characters of the official client's message, which may name a context of any length
# A kubeconfig from another cluster must not run a program here or read a file of ours. MultiKueue forbids these fields
# as well (docs/upstream.md, "What MultiKueue refuses in a kubeconfig").
FORBIDDEN_USER = ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key")
FORBIDDEN_CLUSTER = ("certificate-authority",)
# The fields that are read must be texts; the official client would accept a number or a list as a token.
_TEXT_FIELDS = {
    "clusters": ("cluster", ("server", "certificate-authority-data", "tls-server-name", "proxy-url")),
    "users": ("user", ("token", "username", "password", "client-certificate-data", "client-key-data")),
}
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,254}}$){_LABEL}(\.{_LABEL})*\.?")


async def login_of_text(text: str) -> Credentials:
    """The login by the text of a kubeconfig from another cluster; raises BadLogin."""
    try:
        content = await asyncio.to_thread(_parse_harmless, text)  # in a thread: a long one takes a second
        return await _load_without_files(content)
    except BadLogin:
        raise
    except kube_config.ConfigException as error:
        raise BadLogin(truncate(str(error), _LONGEST_REASON)) from None
    except Exception as error:  # the loader has many faults on odd input, and a bad Secret must not end a loop
        raise BadLogin(f"it cannot be loaded ({type(error).__name__})") from None


async def login_of_pod() -> Credentials:
    """The login as the pod's service account, or by $KUBECONFIG outside a cluster."""
    settings = kube.Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=settings)
    except kube_config.ConfigException:
        # The library reads that variable at its import, which may have happened in another process.
        await kube_config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=settings)
    return credentials_of(kube.ApiClient(settings))


async def login_of_user(file: str, context: str) -> Credentials:
    """The login by a kubeconfig file and a context (empty: kubectl's own choice); raises BadLogin.

    The file is the user's own, so nothing is forbidden in it: programs are run, and files are read.
    """
    if file and not _any_exists(file):  # the library would report a missing key in it
        raise BadLogin(f"there is no file {file} to be its kubeconfig")
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config(file or None, context or None, client_configuration=settings)
        return credentials_of(kube.ApiClient(settings))
    except kube_config.ConfigException as error:
        raise BadLogin(str(error)) from None
    except Exception as error:  # the loader has many faults on odd input
        raise BadLogin(f"the kubeconfig cannot be loaded ({type(error).__name__})") from None


def _any_exists(file: str) -> bool:
    """Whether any of the files exists: the library takes several, as in $KUBECONFIG, and expands `~`."""
    return any(Path(name).expanduser().exists() for name in file.split(os.pathsep))


def credentials_of(api: kube.ApiClient) -> Credentials:
    """The login of the official client. Call it at once: the client's temporary files are deleted soon."""

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
    """The namespace of a context in the user's kubeconfig, empty when it names none."""
    try:
        contexts, active = kube_config.list_kube_config_contexts(file or None)
    except Exception:  # the login that follows reports the fault
        return ""
    chosen = next((entry for entry in contexts if entry.get("name") == context), {}) if context else active
    return str((chosen.get("context") or {}).get("namespace") or "")


async def _load_without_files(content: KubeconfigContent) -> Credentials:
    """The login by a kubeconfig, without temporary files that outlast the call.

    The library would keep files of all certificates and keys, with those of every renewal, until the process ends. Once
    the TLS context has them, they are not needed.
    """
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config_from_dict(content, client_configuration=settings)
        return credentials_of(kube.ApiClient(settings))
    finally:  # nothing is awaited between writing and reading the files, so no other login still needs its own
        kube_config.kube_config._cleanup_temp_files()


class _AliasFreeLoader(yaml.SafeLoader):
    """A loader that forbids aliases: a short text with aliases unfolds to any length."""

    entry_count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise BadLogin("it uses YAML aliases; write out what they stand for")
        self.entry_count += 1
        if self.entry_count > MOST_ENTRIES:
            raise BadLogin(
                f"it has more than {MOST_ENTRIES} entries; leave out what is not needed to reach one cluster"
            )
        return super().compose_node(parent, index)


def _parse_harmless(text: str) -> KubeconfigContent:
    """Parse a kubeconfig of another cluster's admin.

    Raises BadLogin for one that would run or read something in our process, or that allows no connection.
    """
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
    """The clusters or users of a kubeconfig; raises BadLogin where they are malformed."""
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
    """Raise BadLogin for values that would fail only at the connection, some of them with an unexpected exception."""
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
    """Whether a connection could be made to this URL; `login`: it may hold a user and a password."""
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

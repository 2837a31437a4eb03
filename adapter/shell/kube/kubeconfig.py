"""What may a kubeconfig ask of us, and who are we by it: one that comes from another cluster's admin, or the user's own?

The official client reads it and makes the TLS context. What is refused or cannot be read is a BadLogin, which quotes nothing of
it. Nothing is sent here.
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
# What YAML takes long to read is not text, of which a Secret holds a MiB, but what it is made of: 20 000 entries a second. A
# kubeconfig of one cluster has about fifty.
MOST_ENTRIES = 2_000
_LONGEST_REASON = 300  # characters of what the official client says, which may name a context of any length
# What a kubeconfig from elsewhere may not ask of us: to run a program or to read a file of ours. MultiKueue refuses the
# same (docs/upstream.md, "What MultiKueue refuses in a kubeconfig").
FORBIDDEN_USER = ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key")
FORBIDDEN_CLUSTER = ("certificate-authority",)
# What is read of one, each a text; the official client would take a number, or a list, for a token.
_TEXT_FIELDS = {
    "clusters": ("cluster", ("server", "certificate-authority-data", "tls-server-name", "proxy-url")),
    "users": ("user", ("token", "username", "password", "client-certificate-data", "client-key-data")),
}
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,254}}$){_LABEL}(\.{_LABEL})*\.?")


async def login_of_text(text: str) -> Credentials:
    """The login by the text of a kubeconfig from elsewhere; raises BadLogin."""
    try:
        content = await asyncio.to_thread(_parse_harmless, text)  # beside the loop: a long one takes a second
        return await _load_without_files(content)
    except BadLogin:
        raise
    except kube_config.ConfigException as error:
        raise BadLogin(truncate(str(error), _LONGEST_REASON)) from None
    except Exception as error:  # the loader's own slips on odd input are many: a bad Secret must not end a loop
        raise BadLogin(f"it cannot be loaded ({type(error).__name__})") from None


async def login_of_pod() -> Credentials:
    """The login as the pod's service account, or by $KUBECONFIG outside a cluster."""
    settings = kube.Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=settings)
    except kube_config.ConfigException:
        # The library asks for that variable when it is imported, which may be in another process.
        await kube_config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=settings)
    return credentials_of(kube.ApiClient(settings))


async def login_of_user(file: str, context: str) -> Credentials:
    """The login by a kubeconfig file and a context (empty: kubectl's own choice), whatever it says; raises BadLogin.

    It is the user's own file, so whatever it asks for is done: programs are run, files are read.
    """
    if file and not _any_exists(file):  # the library would miss a key in it
        raise BadLogin(f"there is no file {file} to be its kubeconfig")
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config(file or None, context or None, client_configuration=settings)
        return credentials_of(kube.ApiClient(settings))
    except kube_config.ConfigException as error:
        raise BadLogin(str(error)) from None
    except Exception as error:  # as above
        raise BadLogin(f"the kubeconfig cannot be loaded ({type(error).__name__})") from None


def _any_exists(file: str) -> bool:
    """Whether one of them does: the library takes several, as $KUBECONFIG names them, and knows one's home."""
    return any(Path(one).expanduser().exists() for one in file.split(os.pathsep))


def credentials_of(api: kube.ApiClient) -> Credentials:
    """The login of the official client; to be asked at once, for what the kubeconfig held as data is in files that go."""

    async def headers() -> dict[str, str]:
        found: dict[str, str] = {}
        await api.update_params_for_auth(found, [], ["BearerToken"], "", "GET", None)
        return found

    settings = api.configuration
    file, name, proxy = settings.ssl_ca_cert, settings.tls_server_name, settings.proxy
    authority = Path(file).read_text() if file else ""
    there = ApiServerAddress(settings.host, authority, name or "", proxy or "", bool(settings.verify_ssl))
    return Credentials(there, api.rest_client.ssl_context, headers, api.close)


def context_namespace(file: str, context: str) -> str:
    """The namespace of a context in the user's kubeconfig, empty when it names none."""
    try:
        contexts, active = kube_config.list_kube_config_contexts(file or None)
    except Exception:  # whoever logs in with it next says what is wrong
        return ""
    chosen = next((one for one in contexts if one.get("name") == context), {}) if context else active
    return str((chosen.get("context") or {}).get("namespace") or "")


async def _load_without_files(content: KubeconfigContent) -> Credentials:
    """The login by a kubeconfig. The library would keep files of its certificates and keys until the process ends,
    those of every renewal; once they are in the TLS context, nobody needs them.
    """
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config_from_dict(content, client_configuration=settings)
        return credentials_of(kube.ApiClient(settings))
    finally:  # nothing waits between writing and reading them, so none of another cluster's is missing yet
        kube_config.kube_config._cleanup_temp_files()


class _AliasFreeLoader(yaml.SafeLoader):
    """Without aliases: a short text of them unfolds to any length, in whoever looks at it whole."""

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
    """Read a kubeconfig, and refuse one that would act in our process, or has what no connection can be made by; it comes from
    another cluster's admin."""
    try:
        content = yaml.load(text, Loader=_AliasFreeLoader)
    except yaml.YAMLError:
        raise BadLogin("it is not YAML") from None
    if not isinstance(content, dict):
        raise BadLogin("it is not a YAML mapping")
    for listed, part, forbidden in (("users", "user", FORBIDDEN_USER), ("clusters", "cluster", FORBIDDEN_CLUSTER)):
        for entry in _read_entries(content, listed, part):
            found = [key for key in forbidden if key in entry]
            if found:
                raise BadLogin(f"{listed}[].{part}.{found[0]} is not allowed; put the data itself into the kubeconfig")
    for cluster in _read_entries(content, "clusters", "cluster"):
        _check_connectable(cluster)
    return content


def _read_entries(content: KubeconfigContent, listed: str, part: str) -> list[KubeconfigContent]:
    """The clusters or users of a kubeconfig; raises BadLogin where it has something else there."""
    found = content.get(listed) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadLogin(f"{listed} is no list of mappings")
    entries = [one.get(part) or {} for one in found]
    if not all(isinstance(one, dict) for one in entries):
        raise BadLogin(f"{listed}[].{part} is no mapping")
    for entry in entries:
        odd = next((key for key in _TEXT_FIELDS[listed][1] if not isinstance(entry.get(key) or "", str)), None)
        if odd:
            raise BadLogin(f"{listed}[].{part}.{odd} is no text; put it in quotes")
    return entries


def _check_connectable(cluster: KubeconfigContent) -> None:
    """Raise BadLogin for what would fail only when a connection is made by it, some of it by no exception of a connection."""
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
    """Whether a connection could be made to it; `login`: it may hold a user and a password."""
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
    except ValueError:  # brackets that are left open, a port that is none
        return False


def _is_host(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return bool(_DNS_NAME.fullmatch(text))

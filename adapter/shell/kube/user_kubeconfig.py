"""Reads a simple kubeconfig of the user: one file, with no program to run.

The official client takes longer to import than a subcommand takes for everything else. So it reads only kubeconfigs
with several files, a program or provider for a token, an unknown field or a fault, and reports faults.
"""

import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from adapter.membership import ApiServerAddress
from adapter.shell.kube.credentials import Credentials

_Content = dict[str, Any]
_AUTHORITY, _CERTIFICATE, _KEY = "certificate-authority", "client-certificate", "client-key"
_DATA: Final = "-data"
_UNVERIFIED: Final = "insecure-skip-tls-verify"
_CLUSTER_FIELDS: Final = {
    *("server", "tls-server-name", "proxy-url", _UNVERIFIED),
    *(_AUTHORITY, _AUTHORITY + _DATA),
}
_USER_FIELDS: Final = {"token", *(name + end for name in (_CERTIFICATE, _KEY) for end in ("", _DATA))}
_IGNORED: Final = {"extensions", "disable-compression"}  # notes of other programs; only kubectl uses the second
_DEFAULT_FILE: Final = "~/.kube/config"
# libyaml's loader where PyYAML has it: the one in pure Python takes a second for fifty contexts.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UnsupportedKubeconfig(Exception):
    """The official client must read this kubeconfig."""


# The errors that a malformed kubeconfig raises; OSError includes SSLError.
_FALLBACK_ERRORS: Final = (_UnsupportedKubeconfig, LookupError, TypeError, AttributeError, ValueError, OSError)


def load_credentials(file: str, context: str) -> Credentials | None:
    """The login of a context in a file: by default the current context, in $KUBECONFIG or `~/.kube/config`.

    None if the official client must read the file.
    """
    try:
        path, content = _read_file(file)
        chosen = _named_entry(content, "contexts", "context", context or content["current-context"])
        cluster = _named_entry(content, "clusters", "cluster", chosen["cluster"])
        user = _named_entry(content, "users", "user", chosen["user"])
        return _build_credentials(
            path.parent.absolute(), _check_fields(cluster, _CLUSTER_FIELDS), _check_fields(user, _USER_FIELDS)
        )
    except _FALLBACK_ERRORS:
        return None


def default_namespace(file: str, context: str) -> str:
    """A context's namespace in the user's kubeconfig, or `default`."""
    try:
        _, content = _read_file(file)
        chosen = _named_entry(content, "contexts", "context", context or content["current-context"])
        return str(chosen.get("namespace") or "default")
    except _FALLBACK_ERRORS:
        from adapter.shell.kube import kubeconfig

        return kubeconfig.context_namespace(file, context) or "default"


def context_names(file: str) -> list[str]:
    """The names of a kubeconfig's contexts; none if it cannot be read, or if $KUBECONFIG names several files."""
    try:
        _, content = _read_file(file)
        return [str(entry["name"]) for entry in content["contexts"]]
    except _FALLBACK_ERRORS:
        return []


def _read_file(file: str) -> tuple[Path, _Content]:
    name = file or os.environ.get("KUBECONFIG") or _DEFAULT_FILE
    if os.pathsep in name:
        raise _UnsupportedKubeconfig
    path = Path(name).expanduser()
    try:
        content = yaml.load(path.read_text(), Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        raise _UnsupportedKubeconfig from None
    if not isinstance(content, dict):
        raise _UnsupportedKubeconfig
    return path, content


def _named_entry(content: _Content, listed: str, part: str, name: object) -> _Content:
    (named,) = (entry[part] for entry in content[listed] if entry["name"] == name)
    if not isinstance(named, dict) or not isinstance(name, str):
        raise _UnsupportedKubeconfig
    return named


def _check_fields(entry: _Content, fields: set[str]) -> _Content:
    known = {field: value for field, value in entry.items() if field not in _IGNORED}
    for field, value in known.items():
        is_valid = isinstance(value, bool) if field == _UNVERIFIED else isinstance(value, str) and bool(value)
        if field not in fields or not is_valid:
            raise _UnsupportedKubeconfig
    return known


def _build_credentials(folder: Path, cluster: _Content, user: _Content) -> Credentials:
    server, token = cluster["server"].rstrip("/"), user.get("token", "")
    if not server.startswith(("https://", "http://")) or not token.isprintable():
        raise _UnsupportedKubeconfig
    authority = _field_text(folder, cluster, _AUTHORITY)
    verified = not cluster.get(_UNVERIFIED)
    tls = ssl.create_default_context(cadata=authority or None)
    if not verified:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    _load_certificate(tls, _field_text(folder, user, _CERTIFICATE), _field_text(folder, user, _KEY))
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def authorized() -> dict[str, str]:
        return dict(headers)

    address = ApiServerAddress(
        server, authority, cluster.get("tls-server-name", ""), cluster.get("proxy-url", ""), verified
    )
    return Credentials(address, tls, authorized)


def _field_text(folder: Path, entry: _Content, field: str) -> str:
    if field + _DATA in entry:
        return base64.b64decode(entry[field + _DATA], validate=True).decode("ascii")
    if field not in entry:
        return ""
    text = (folder / str(entry[field])).read_text("ascii")
    if not text:
        raise _UnsupportedKubeconfig
    return text


def _load_certificate(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load the user's certificate from private temporary files, deleted at once, because OpenSSL reads only files."""
    if not certificate and not key:
        return
    if not certificate or not key:
        raise _UnsupportedKubeconfig
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ((_CERTIFICATE, certificate), (_KEY, key)):
            (Path(folder) / name).write_text(text)
        tls.load_cert_chain(Path(folder) / _CERTIFICATE, Path(folder) / _KEY, _no_password)


def _no_password() -> str:
    raise _UnsupportedKubeconfig  # otherwise OpenSSL would ask for a password on the terminal

"""Credentials and address of one API server."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapter.membership import ApiServerAddress


class BadLogin(ValueError):
    """A kubeconfig cannot be used; the text says why and quotes nothing of it."""


async def close_nothing() -> None:
    """Close a login that opened nothing."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login, not yet tried."""

    address: ApiServerAddress
    tls: ssl.SSLContext = field(repr=False)
    # Called for each request: a token may have been renewed.
    headers: Callable[[], Awaitable[dict[str, str]]] = field(repr=False)
    close: Callable[[], Awaitable[None]] = field(default=close_nothing, repr=False)

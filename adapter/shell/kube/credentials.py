"""The credentials and the address of one API server, as the client needs them.

kubeconfig.py and user_kubeconfig.py read them.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapter.membership import ApiServerAddress


class BadLogin(ValueError):
    """A kubeconfig cannot be used; the text says why, and quotes nothing of it."""


async def close_nothing() -> None:
    """Close a login that opened nothing."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login that is complete, but not yet tried."""

    address: ApiServerAddress
    tls: ssl.SSLContext = field(repr=False)
    # Called for each request, because a token may have been renewed.
    headers: Callable[[], Awaitable[dict[str, str]]] = field(repr=False)
    close: Callable[[], Awaitable[None]] = field(default=close_nothing, repr=False)

"""Who are we to an API server, and how is it reached? Whoever read a kubeconfig says so, and the client asks for nothing else."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapter.membership import ApiServerAddress


class BadLogin(ValueError):
    """What was given as a kubeconfig cannot be used; the text says why, and quotes nothing of it."""


async def close_nothing() -> None:
    """Nothing is open that would have to be closed."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login that works as far as is known before anything is asked."""

    address: ApiServerAddress
    tls: ssl.SSLContext = field(repr=False)
    headers: Callable[[], Awaitable[dict[str, str]]] = field(
        repr=False
    )  # of each request: a token may be renewed meanwhile
    close: Callable[[], Awaitable[None]] = field(default=close_nothing, repr=False)

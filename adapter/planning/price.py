"""What do workers cost in an hour, in the currency in which a WorkerCluster names its prices? No decision asks this."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from adapter.objects.podrequests import CPU, Resources

_MILLI, _GIB = Decimal(1000), Decimal(2**30)
Prices = Mapping[str, Decimal]  # resource -> one core of cpu, one GiB of memory, one piece of anything else


def per_hour(prices: Prices, workers: Iterable[tuple[Resources, int]]) -> Decimal | None:
    """Add up what (requests of one worker, count) cost in an hour; None where no price is named.

    A resource without a price costs nothing: whoever names only the price of a GPU means that.
    """
    if not prices:
        return None
    return sum(
        (
            _units(name, amount) * prices[name] * count
            for one, count in workers
            for name, amount in one.items()
            if name in prices
        ),
        Decimal(0),
    )


def as_text(money: Decimal) -> str:
    """Two decimals, up to four where they say something: `1.20`, `0.0125`."""
    whole, _, cents = f"{money:.4f}".partition(".")
    return f"{whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def _units(resource: str, amount: int) -> Decimal:
    per_unit = {CPU: _MILLI, "memory": _GIB}.get(resource, Decimal(1))
    return Decimal(amount) / per_unit

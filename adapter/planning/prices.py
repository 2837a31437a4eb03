"""What workers cost in an hour, by the prices of their cluster."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from adapter.objects.pod_requests import CPU, Resources, is_counted_in_bytes

Prices = Mapping[str, Decimal]  # resource -> price of a core, a GiB of what is counted in bytes, or a piece
_MILLI, _GIB = Decimal(1000), Decimal(2**30)


def hourly_cost(prices: Prices, workers: Iterable[tuple[Resources, int]]) -> Decimal | None:
    """The hourly price of these workers (requests of one worker, count); None if there are no prices.

    A resource without a price is free: a user may only care about GPUs.
    """
    if not prices:
        return None
    return sum(
        (
            _priced_units(name, amount) * prices[name] * count
            for requests, count in workers
            for name, amount in requests.items()
            if name in prices
        ),
        Decimal(0),
    )


def format_money(money: Decimal) -> str:
    """The amount with two decimals, or up to four if they are not zero: `1.20`, `0.0125`."""
    whole, _, cents = f"{money:.4f}".partition(".")
    return f"{whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def _priced_units(resource: str, amount: int) -> Decimal:
    if resource == CPU:
        return Decimal(amount) / _MILLI
    return Decimal(amount) / (_GIB if is_counted_in_bytes(resource) else 1)

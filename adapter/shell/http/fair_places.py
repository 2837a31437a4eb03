"""Places that clients hold in equal parts: the client with most places gives one to a client with fewer.

A client is a peer's address, or any other key by which one sender is told from the next.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass


class NoPlace(Exception):
    """The client holds the largest part already, and needs all of it."""


@dataclass(eq=False, slots=True)
class Place:
    """`give_up` is called when another place takes this one's part.

    While `busy`, a place is not given up for its own client, and for others only if none is idle.
    """

    client: Hashable
    give_up: Callable[[], None]
    weight: int = 1
    busy: bool = False


class FairPlaces:
    """Places of a total weight of `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[Place, None] = {}  # oldest first
        self._weights: Counter[Hashable] = Counter()

    def take(self, client: Hashable, give_up: Callable[[], None], *, weight: int = 1, busy: bool = False) -> Place:
        """Take a place, if need be from a client with more; raises NoPlace."""
        while self._weights.total() + weight > self._most:
            replaced = self._replaced_place(client, weight)
            self.release(replaced)
            replaced.give_up()
        place = Place(client, give_up, weight, busy)
        self._places[place] = None
        self._weights[client] += weight
        return place

    def release(self, place: Place) -> None:
        """Give a place back; nothing happens if it is given up already."""
        if place not in self._places:
            return
        del self._places[place]
        self._weights[place.client] -= place.weight
        if not self._weights[place.client]:
            del self._weights[place.client]

    def _replaced_place(self, client: Hashable, weight: int) -> Place:
        """The oldest idle place of the client with most, else its oldest; of the client itself, only an idle place.

        A client without a place takes one in any case.
        """
        most, own = max(self._weights.values(), default=0), self._weights[client]
        is_own = own > 0 and most <= own + weight
        places = [
            place
            for place in self._places
            if (place.client == client if is_own else self._weights[place.client] == most)
        ]
        replaced = next((place for place in places if not place.busy), None)
        if replaced is None and (is_own or not places):
            raise NoPlace
        return replaced or places[0]

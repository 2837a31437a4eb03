"""Draws the submitted gangs from a seed, and computes the use of their best packing. Pure."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SHORTEST, _LONGEST = 20.0, 60.0  # seconds that a gang runs: long compared to the three seconds of a handover
_LARGEST = 0.4  # of all clusters together: with two clusters or more, some gangs fit into no single one
_LARGE_WORKERS = 0.25  # part of the gangs whose workers ask for two CPUs instead of one


@dataclass(frozen=True, slots=True)
class Gang:
    """A RayCluster that ends some seconds after its last worker was ready."""

    name: str
    workers: int
    cpu: int  # of each worker
    seconds: float

    @property
    def needs(self) -> int:
        """CPUs of all workers."""
        return self.workers * self.cpu


def gangs(count: int, seed: int, capacity: int, *, pace: float = 1.0) -> list[Gang]:
    """Draw gangs for clusters with so many CPUs of quota together; they run `pace` times as long as usual."""
    chance = random.Random(seed)
    return [_gang(number, chance, capacity, pace) for number in range(count)]


def _gang(number: int, chance: random.Random, capacity: int, pace: float) -> Gang:
    needs = chance.randint(1, max(1, int(capacity * _LARGEST)))
    cpu = 2 if needs > 1 and chance.random() < _LARGE_WORKERS else 1
    return Gang(f"gang-{number:02}", needs // cpu, cpu, chance.uniform(_SHORTEST, _LONGEST) * pace)


def best(needs: Iterable[int], capacity: int) -> int:
    """How much the best packing of whole gangs could use: the largest sum of some of `needs` that is within `capacity`.

    It is an upper bound for mixed shapes, because a worker is not divided over clusters; for workers of one CPU, and
    quotas of whole CPUs, it is the optimum, if all gangs could be moved at any time.
    """
    sums = 1  # bit n is set: some of the gangs need n together
    for need in needs:
        sums |= sums << need
    return (sums & ((1 << capacity + 1) - 1)).bit_length() - 1


def area(gangs: Sequence[Gang]) -> float:
    """CPU seconds that they run."""
    return sum(gang.needs * gang.seconds for gang in gangs)

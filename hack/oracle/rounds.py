"""Puts drawn trees to a real Kueue in rounds and collects where it disagrees.

All trees are asked in parallel, each one question at a time, so that no question sees the other's Workloads. First come
those that must not be admitted, which are then removed. Then come those that must, which stay as the load of the next
question. A disagreement is reported with YAML that reproduces it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client
from hack.lab.base.progress import step
from hack.oracle import ask, draw, judge, predict
from hack.oracle.draw import ROUNDS, Question, Tree
from hack.oracle.judge import Answer
from hack.oracle.predict import Counts, Forecast, Seen
from hack.testbed import bulk

# Trees in parallel: enough to share the seconds that Kueue takes to show its counts, and few enough that a list of all
# their Workloads is read in a fraction of a second.
BATCH: Final = 200
_REFUSAL: Final = 60.0  # seconds in which Kueue must reject hundreds of Workloads; a few are usual
_ADMISSION: Final = 40.0  # seconds for an admission; waited for in full only where Kueue disagrees
_COUNTING: Final = 30.0  # until it shows in status what it admitted; it writes a ClusterQueue's status once a second


@dataclass(frozen=True)
class Disagreement:
    """Kueue and we differ in one question about a tree; `about` is the sentence, `loads` what was admitted before."""

    tree: Tree
    question: Question
    about: str
    loads: tuple[Raw, ...]


@dataclass
class Outcome:
    """The tried questions and their results; `kinds` counts the questions by their special features."""

    trees: int = 0
    questions: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)


class Game:
    """Trees that exist in a cluster, and the questions about them."""

    def __init__(self, client: Client, trees: Sequence[Tree], outcome: Outcome) -> None:
        self._client, self._outcome = client, outcome
        self._left = list(trees)  # a tree that disagreed once is not asked again: its load is not what we believe
        self._loads: dict[str, list[Raw]] = {tree.name: [] for tree in trees}

    async def round(self, number: int) -> None:
        """Change what is to be changed before the question of that number, and ask every tree that question."""
        await self._change(number)
        seen = await ask.see(self._client)
        asked, expected = self._forecast(seen, number)
        if number == 0:
            self._judge(number, {tree.name: judge.lasting(ours) for tree, ours in asked})
        more = [(tree, ours, ours.more) for tree, ours in asked if ours.more]
        await self._wave(f"{number}-more", number, more, _REFUSAL)
        fits = [(tree, ours, ours.fits) for tree, ours in asked if ours.fits and tree in self._left]
        await self._wave(f"{number}-fits", number, fits, _ADMISSION)
        await self._compare(expected, number)

    async def _change(self, number: int) -> None:
        changes = [tree.questions[number].change for tree in self._left]
        self._left = [draw.changed(tree, change) for tree, change in zip(self._left, changes, strict=True)]
        if queues := [change for change in changes if change]:
            await ask.change(self._client, self._left, queues)

    def _forecast(self, seen: Seen, number: int) -> tuple[list[tuple[Tree, Forecast]], Seen]:
        asked = []
        for tree in self._left:
            ours, seen = predict.forecast(seen, tree.questions[number])
            asked.append((tree, ours))
            self._outcome.questions += 1
            self._outcome.kinds.update(kinds(ours))
        return asked, seen

    async def _wave(
        self, wave: str, number: int, asked: Iterable[tuple[Tree, Forecast, Counts]], patience: float
    ) -> None:
        """Ask for Workloads of so many pods in all trees at once, and compare Kueue's answers with ours."""
        refusing = wave.endswith("more")
        named = {f"{tree.name}-{wave}": (tree, ours, counts) for tree, ours, counts in asked}
        made = {name: ask.workload(name, tree.questions[number], counts) for name, (tree, _, counts) in named.items()}

        def last(answer: Answer) -> bool:
            return refusing or answer.reserved  # a queue that is full for a moment rejects before it admits

        answers = await ask.answers(self._client, wave, made.values(), patience, last)
        self._judge(
            number,
            {
                tree.name: judge.disagreement(ours, asked=counts, answer=answers[name])
                for name, (tree, ours, counts) in named.items()
            },
        )
        if refusing:
            await ask.forget(self._client, wave)
            return
        for name, (tree, _, _) in named.items():
            self._loads[tree.name].append(made[name])

    async def _compare(self, expected: Seen, number: int) -> None:
        """Wait until Kueue shows what it admitted, and see whether we charged the same."""

        def wrong(seen: Seen) -> dict[str, str]:
            return {tree.name: judge.uncounted(expected.quota_tree, seen.quota_tree, tree.name) for tree in self._left}

        seen = await ask.settled(self._client, lambda seen: not any(wrong(seen).values()), _COUNTING)
        self._judge(number, wrong(seen))

    def _judge(self, number: int, found: dict[str, str]) -> None:
        for tree in [tree for tree in self._left if found.get(tree.name)]:
            self._left.remove(tree)
            loads = tuple(self._loads[tree.name])
            self._outcome.disagreements.append(Disagreement(tree, tree.questions[number], found[tree.name], loads))


def run(kubeconfig: Path, seed: int, numbers: Iterable[int], rounds: int = ROUNDS) -> Outcome:
    """Try the trees of these numbers on a cluster with Kueue, each with so many of its questions.

    Raises LabError where Kueue does not do what is waited for.
    """
    return asyncio.run(_run(kubeconfig, seed, list(numbers), rounds))


async def play(client: Client, trees: Sequence[Tree], outcome: Outcome, rounds: int = ROUNDS) -> None:
    """Make the trees, ask so many questions of each, and always remove them."""
    await ask.clear(client)
    try:
        await ask.build(client, trees)
        game = Game(client, trees, outcome)
        for number in range(rounds):
            await game.round(number)
        outcome.trees += len(trees)
    finally:
        await ask.clear(client)


def kinds(ours: Forecast) -> Iterable[str]:
    """The special features of a question, for the sum at the end, which shows that some were hard."""
    if ours.fits is None:
        return ["no room"]
    special = {
        "room": True,
        "borrowing": ours.borrows,
        "nothing to refuse": ours.more is None,
        "two podsets": len(ours.fits) > 1,
        "two flavors": len({flavor for one in ours.flavors for flavor in one.values()}) > 1,
    }
    return [kind for kind, yes in special.items() if yes]


async def _run(kubeconfig: Path, seed: int, numbers: Sequence[int], rounds: int) -> Outcome:
    outcome = Outcome()
    async with bulk.connected(kubeconfig) as client:
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            with step(f"trees {batch[0]} to {batch[-1]} of seed {seed}"):
                await play(client, [draw.tree(seed, number) for number in batch], outcome, rounds)
    return outcome


def report(found: Disagreement) -> str:
    """All about one disagreement: the sentence, and YAML that can be applied."""
    flavors = [one for one in draw.flavors() if one["metadata"]["name"] in str(found.tree.cluster_queues)]
    spaces = [ask.namespace(name, labels) for name, labels in draw.NAMESPACES.items()]
    objects: list[Any] = [*spaces, *flavors, *found.tree.cohorts, *found.tree.cluster_queues]
    objects += [*found.tree.local_queues, *found.loads]
    asked = ask.workload(f"{found.tree.name}-asked", found.question, (1,) * len(found.question.specs))
    _, seed, number = found.tree.name.split("-")
    again = f"python -m hack.oracle --seed {seed} --first {number} --n 1"
    text = yaml.safe_dump_all([*objects, asked], sort_keys=False)
    return (
        f"{found.tree.name}: {found.about}\n# again: {again}\n"
        f"# the tree, its load, and the pods that were asked for:\n{text}"
    )


def line(outcome: Outcome, seed: int, seconds: float) -> str:
    """The last line."""
    told = (f"{outcome.trees} trees", f"{outcome.questions} questions", f"{len(outcome.disagreements)} disagreements")
    return f"oracle: {', '.join(told)}, seed {seed}, {seconds:.0f} s"

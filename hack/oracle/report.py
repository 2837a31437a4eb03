"""How is it told what the oracle found? A line for programs, and YAML with which a person sees a disagreement again. Pure."""

from typing import Any

import yaml

from hack.oracle import ask, draw
from hack.oracle.play import Disagreement, Outcome


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
    return f"{found.tree.name}: {found.about}\n# again: {again}\n# the tree, its load, and the pods that were asked for:\n{text}"


def line(outcome: Outcome, seed: int, seconds: float) -> str:
    """The last line."""
    told = (f"{outcome.trees} trees", f"{outcome.questions} questions", f"{len(outcome.disagreements)} disagreements")
    return f"oracle: {', '.join(told)}, seed {seed}, {seconds:.0f} s"

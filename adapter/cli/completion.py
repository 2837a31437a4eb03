"""Shell completion, in the protocol of kubectl's own: one line per word, then a directive for file names.

It completes verbs, options, option values, and names. `completed_names.py` reads the names.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final, Literal, NamedTuple

from adapter.cli.commands.options import FILE

CompletedKind = Literal["contexts", "namespaces", "jobs", "pods", "queues", "workerclusters"]


class Scope(NamedTuple):
    """The options of a command line that say where names are read; empty where they are not given."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


ReadNames = Callable[[CompletedKind, Scope], Iterable[str]]
# By the argument's dest. Jobs are named `kind/NAME`.
_NAMED_KINDS: Final[Mapping[str, CompletedKind]] = {
    "context": "contexts",
    "worker_context": "contexts",
    "namespace": "namespaces",
    "job": "jobs",
    "what": "jobs",
    "pod": "pods",
    "queue": "queues",
    "cluster": "workerclusters",
    "clusters": "workerclusters",
    "worker_cluster": "workerclusters",
    "name": "workerclusters",
}

COMPLETE_VERB: Final = "__complete"  # the verb that a shell calls
# The directives have cobra's numbers, by which kubectl reads its plugins' completions.
_DIRECTIVE_DEFAULT, _DIRECTIVE_NO_FILES = ":0", ":4"

_BASH_SCRIPT = """\
_rayspan() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :0) compopt -o default 2>/dev/null ;;
      :*) ;;
      *) COMPREPLY+=("$line") ;;
    esac
  done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _rayspan rayspan
"""
_ZSH_SCRIPT = """\
_rayspan() {
  local line
  local -a found
  for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :0) _files ;;
      :*) ;;
      *) found+=("$line") ;;
    esac
  done
  compadd -a found
}
compdef _rayspan rayspan
"""
_FISH_SCRIPT = """\
function __rayspan
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        switch $line
            case ':0'
                __fish_complete_path (commandline -ct)
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c rayspan -f -a '(__rayspan)'
"""
SCRIPTS: Final = {"bash": _BASH_SCRIPT, "zsh": _ZSH_SCRIPT, "fish": _FISH_SCRIPT}


def render_completions(parser: argparse.ArgumentParser, words: Sequence[str], read_names: ReadNames) -> str:
    """The completions of the words after the program's name, as lines; the last word is incomplete, or empty."""
    *complete_words, prefix = words or [""]
    candidates, takes_file = _find_candidates(parser, complete_words, prefix, read_names)
    lines = [
        *sorted(word for word in candidates if word.startswith(prefix)),
        _DIRECTIVE_DEFAULT if takes_file else _DIRECTIVE_NO_FILES,
    ]
    return "".join(f"{line}\n" for line in lines)


def _find_candidates(
    parser: argparse.ArgumentParser, complete_words: Sequence[str], prefix: str, read_names: ReadNames
) -> tuple[Iterable[str], bool]:
    """The words that fit, and whether a path fits."""
    verbs = _verb_parsers(parser)
    if not complete_words:
        return _option_strings(parser) if prefix.startswith("-") else verbs, False
    if complete_words[0] not in verbs:
        return (), False
    verb = verbs[complete_words[0]]
    option = _pending_option(verb, complete_words[-1])
    if not option and prefix.startswith("-"):
        return _option_strings(verb), False
    action = option or _pending_argument(verb, complete_words[1:])
    if action is None:
        return (), False
    kind = None if action.metavar == FILE else _NAMED_KINDS.get(action.dest)
    names = _matching_form(read_names(kind, _read_scope(complete_words)), kind, prefix) if kind else ()
    return [*_choice_words(action), *names], action.metavar == FILE


def _matching_form(names: Iterable[str], kind: CompletedKind, prefix: str) -> Iterable[str]:
    """Jobs as `kind/NAME` if the prefix has a slash, else by their names alone."""
    return names if kind != "jobs" or "/" in prefix else {name.rpartition("/")[2] for name in names}


def _read_scope(words: Sequence[str]) -> Scope:
    return Scope(
        _option_value(words, "--kubeconfig"),
        _option_value(words, "--context"),
        _option_value(words, "--namespace", "-n"),
    )


def _option_value(words: Sequence[str], *options: str) -> str:
    """The last value that an option is given, as `--option VALUE` or `--option=VALUE`; empty without one."""
    split = chain.from_iterable(word.split("=", 1) if word.startswith("-") else [word] for word in words)
    values = [value for option, value in pairwise(split) if option in options]
    return values[-1] if values else ""


def _verb_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb. argparse has no public access to them, nor to the options of a parser."""
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)


def _option_strings(parser: argparse.ArgumentParser) -> list[str]:
    return [text for action in parser._actions for text in action.option_strings if text.startswith("--")]


def _pending_option(verb: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The option that `word` names, if it takes a value."""
    return next((action for action in verb._actions if word in action.option_strings and action.nargs != 0), None)


def _pending_argument(verb: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Action | None:
    """The positional argument after these words of the verb; None if there is none left."""
    arguments = [action for action in verb._actions if not action.option_strings]
    given = [
        word
        for before, word in pairwise(["", *words])
        if not word.startswith("-") and not _pending_option(verb, before)
    ]
    return arguments[len(given)] if len(given) < len(arguments) else None


def _choice_words(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]

"""What may come next on a command line, and how does a shell ask? The program itself answers, so the answer is never of another version.

Verbs, options and the words that an option takes are known; names in a cluster are not looked up. It speaks as kubectl's own
completion does: a line for each word, then one that says whether the shell may offer files.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from adapter.cli.commands.options import FILE

ASK: Final = "__complete"  # the word after the program's name by which a shell asks
_FILES, _NO_FILES = ":0", ":4"  # as cobra numbers them, by which kubectl reads what its plugins answer

_BASH = """\
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
_ZSH = """\
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
_FISH = """\
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
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def answer(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What a shell is told, as lines, of the words after the program's name; the last one is begun, or empty."""
    *before, begun = words or [""]
    found, files = _next(parser, before, begun)
    lines = [*sorted(word for word in found if word.startswith(begun)), _FILES if files else _NO_FILES]
    return "".join(f"{line}\n" for line in lines)


def _next(parser: argparse.ArgumentParser, before: Sequence[str], begun: str) -> tuple[Iterable[str], bool]:
    """What fits there, and whether a path does."""
    verbs = _verbs(parser)
    if not before:
        return _options(parser) if begun.startswith("-") else verbs, False
    if before[0] not in verbs:
        return (), False
    verb = verbs[before[0]]
    asks = _option(verb, before[-1])
    if asks:
        return _choices(asks), asks.metavar == FILE
    if begun.startswith("-"):
        return _options(verb), False
    return [word for action in verb._actions if not action.option_strings for word in _choices(action)], False


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Each verb with its own command line. argparse has no public way to ask for it, nor for the options of one."""
    (found,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [text for action in parser._actions for text in action.option_strings if text.startswith("--")]


def _option(verb: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The option that a word is and that waits for its value, if it is one."""
    return next((one for one in verb._actions if word in one.option_strings and one.nargs != 0), None)


def _choices(action: argparse.Action) -> list[str]:
    return [str(one) for one in action.choices or ()]

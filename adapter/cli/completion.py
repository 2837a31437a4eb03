"""What may come next on a command line, and how does a shell ask? The program itself answers, so the answer is never of another version.

Verbs, options and the words that an option takes are known; names in a cluster are not looked up. It speaks as kubectl's own
completion does: a line for each word, then one that says whether the shell may offer files.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from adapter.cli.commands.options import FILE

COMPLETE_VERB: Final = "__complete"  # the word after the program's name by which a shell asks
_DIRECTIVE_DEFAULT, _DIRECTIVE_NO_FILES = (
    ":0",
    ":4",
)  # as cobra numbers them, by which kubectl reads what its plugins answer

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


def render_completions(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What a shell is told, as lines, of the words after the program's name; the last one is begun, or empty."""
    *before, begun = words or [""]
    found, files = _find_candidates(parser, before, begun)
    lines = [
        *sorted(word for word in found if word.startswith(begun)),
        _DIRECTIVE_DEFAULT if files else _DIRECTIVE_NO_FILES,
    ]
    return "".join(f"{line}\n" for line in lines)


def _find_candidates(
    parser: argparse.ArgumentParser, complete_words: Sequence[str], prefix: str
) -> tuple[Iterable[str], bool]:
    """What fits there, and whether a path does."""
    verbs = _verb_parsers(parser)
    if not complete_words:
        return _option_strings(parser) if prefix.startswith("-") else verbs, False
    if complete_words[0] not in verbs:
        return (), False
    verb = verbs[complete_words[0]]
    asks = _pending_option(verb, complete_words[-1])
    if asks:
        return _choice_words(asks), asks.metavar == FILE
    if prefix.startswith("-"):
        return _option_strings(verb), False
    return [word for action in verb._actions if not action.option_strings for word in _choice_words(action)], False


def _verb_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Each verb with its own command line. argparse has no public way to ask for it, nor for the options of one."""
    (found,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found)


def _option_strings(parser: argparse.ArgumentParser) -> list[str]:
    return [text for action in parser._actions for text in action.option_strings if text.startswith("--")]


def _pending_option(verb: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The option that a word is and that waits for its value, if it is one."""
    return next((one for one in verb._actions if word in one.option_strings and one.nargs != 0), None)


def _choice_words(action: argparse.Action) -> list[str]:
    return [str(one) for one in action.choices or ()]

"""Scripts that complete the command line in bash, zsh and fish, made from the parser itself."""

from __future__ import annotations

import argparse
import re

__all__ = ["script"]

_FILES = re.compile(r"FILE|DIR|MODEL|NAME:VALUE")


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Text to source; files are offered where an option takes one, models elsewhere."""
    actions = [a for a in parser._actions if a.option_strings]
    if shell == "fish":
        return _fish(actions)
    return _bash(actions) if shell == "bash" else _zsh(actions)


def _names(actions: list[argparse.Action]) -> list[str]:
    return [name for action in actions for name in action.option_strings]


def _values(actions: list[argparse.Action]) -> dict[str, list[str]]:
    """Values to offer after an option; an empty list: files."""
    found: dict[str, list[str]] = {}
    for action in actions:
        choices = [str(c) for c in action.choices or () if c]
        takes_file = _FILES.search(str(action.metavar or "")) is not None
        if action.nargs != 0 and (choices or takes_file):
            for name in action.option_strings:
                found[name] = choices
    return found


def _bash(actions: list[argparse.Action]) -> str:
    cases = "\n".join(
        f'    {name}) COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$word")); return ;;'
        if values
        else f'    {name}) COMPREPLY=($(compgen -f -- "$word")); return ;;'
        for name, values in _values(actions).items()
    )
    return f"""# loadrun: completion for bash; add to ~/.bashrc: eval "$(loadrun --completion bash)"
_loadrun() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  case "$before" in
{cases}
  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "{" ".join(_names(actions))}" -- "$word"))
  else
    COMPREPLY=($(compgen -f -X '!*.mge' -- "$word") $(compgen -d -- "$word"))
  fi
}}
complete -o filenames -F _loadrun loadrun
"""


def _zsh(actions: list[argparse.Action]) -> str:
    values = _values(actions)
    specs = []
    for action in actions:
        text = re.sub(r"[\[\]':\\]", " ", action.help or "")
        text = "" if action.help == argparse.SUPPRESS else text
        for name in action.option_strings:
            spec = f"{name}[{text}]"
            if action.nargs != 0:
                offered = values.get(name)
                if offered:
                    spec += f":value:({' '.join(offered)})"
                else:
                    spec += ":file:_files" if offered is not None else ":value: "
            specs.append(f"  '{spec}' \\")
    body = "\n".join(specs)
    return f"""#compdef loadrun
# loadrun: completion for zsh; save as _loadrun in a folder of $fpath
_arguments \\
{body}
  '*:model:_files -g "*.mge"'
"""


def _fish(actions: list[argparse.Action]) -> str:
    values = _values(actions)
    lines = ["# loadrun: completion for fish; save as ~/.config/fish/completions/loadrun.fish"]
    for action in actions:
        text = "" if action.help == argparse.SUPPRESS else (action.help or "").replace("'", " ")
        for name in action.option_strings:
            short = not name.startswith("--")
            line = f"complete -c loadrun {'-s' if short else '-l'} {name.lstrip('-')}"
            if action.nargs != 0:
                offered = values.get(name)
                line += f" -x -a '{' '.join(offered)}'" if offered else " -r"
            lines.append(f"{line} -d '{text}'" if text else line)
    return "\n".join(lines) + "\n"

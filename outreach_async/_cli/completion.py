"""The scripts of shell completion. Those of click insert a value as it is, so that a name could run a command."""

from __future__ import annotations

from typing import Final

from click.shell_completion import BashComplete, FishComplete, add_completion_class, shell_complete

from outreach_async._cli.interface.root import PROGRAM, VARIABLE, outreach

# A value is quoted as the word is that has been typed so far: by a double quote, a single one, or none.
_BASH: Final = r"""%(complete_func)s() {
    local IFS=$'\n'
    local response completion type value word="${COMP_WORDS[COMP_CWORD]}"

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1")

    while IFS= read -r completion; do
        type=${completion%%%%,*}
        value=${completion#*,}
        if [[ $type == dir ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == file ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == plain ]]; then
            if [[ $word == \"* ]]; then
                value=${value//\\/\\\\}
                value=${value//\"/\\\"}
                value=${value//\$/\\\$}
                value=${value//\`/\\\`}
            elif [[ $word == \'* ]]; then
                value=${value//\'/\'\\\'\'}
            else
                printf -v value %%q "$value"
            fi
            COMPREPLY+=("$value")
        fi
    done <<< "$response"

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


@add_completion_class
class QuotingBash(BashComplete):
    """The completion of bash, whose values are quoted."""

    source_template = _BASH


@add_completion_class
class WholeFish(FishComplete):
    """The completion of fish, whose values may contain commas. fish quotes what it inserts."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def print_script(shell: str) -> int:
    return shell_complete(outreach, {}, PROGRAM, VARIABLE, f"{shell}_source")

"""Completion by the shell: the command that prints a shell's script, and the answers that the script asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem, shell_complete

PROGRAM: Final = "outreach-async"
VARIABLE: Final = "_OUTREACH_ASYNC_COMPLETE"
"""What a script sets when it asks, as click names it after the program."""

SHELLS: Final = ("bash", "zsh", "fish")

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print what makes a shell complete this command.

    bash, in ~/.bashrc: eval "$(outreach-async completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(outreach-async completion zsh)"

    fish: outreach-async completion fish > ~/.config/fish/completions/outreach-async.fish
    """
    return answer(context.find_root().command, f"{shell}_source")


def answer(command: click.Command, instruction: str) -> int:
    """Do what a script asks for, such as `bash_complete`, and return the exit code."""
    return shell_complete(command, {}, PROGRAM, VARIABLE, instruction)


def of_words(words: Callable[[], Iterable[str] | Mapping[str, str]], *, or_file: bool = False) -> Completer:
    """Complete a value from words, which may come with a line of help each.

    Args:
        words: Returns them.
        or_file: Whether the name of a file does as well.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del context, parameter
        known = words()
        texts = known if isinstance(known, Mapping) else dict.fromkeys(known)
        found = [CompletionItem(word, help=text) for word, text in texts.items() if word.lower().startswith(incomplete.lower())]
        return found or ([CompletionItem(incomplete, type="file")] if or_file else [])

    return complete

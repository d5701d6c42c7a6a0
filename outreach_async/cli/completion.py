"""Shell completion: the command that prints the script, and the completions that the script requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem, shell_complete

PROGRAM: Final = "outreach-async"
VARIABLE: Final = "_OUTREACH_ASYNC_COMPLETE"
"""Environment variable that a completion script sets; click derives its name from the program's."""

SHELLS: Final = ("bash", "zsh", "fish")

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script for a shell.

    bash: add to ~/.bashrc: eval "$(outreach-async completion bash)"

    zsh: add to ~/.zshrc, after compinit: eval "$(outreach-async completion zsh)"

    fish: run: outreach-async completion fish > ~/.config/fish/completions/outreach-async.fish
    """
    return answer(context.find_root().command, f"{shell}_source")


def answer(command: click.Command, instruction: str) -> int:
    """Carry out a request of a completion script, such as `bash_complete`, and return the exit code."""
    return shell_complete(command, {}, PROGRAM, VARIABLE, instruction)


def of_words(words: Callable[[], Iterable[str] | Mapping[str, str]], *, or_file: bool = False) -> Completer:
    """Return a completer that offers words.

    Args:
        words: Returns the words, or a mapping of each word to a line of help.
        or_file: Whether to complete file names if no word matches.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del context, parameter
        known = words()
        texts = known if isinstance(known, Mapping) else dict.fromkeys(known)
        found = [CompletionItem(word, help=text) for word, text in texts.items() if word.lower().startswith(incomplete.lower())]
        return found or ([CompletionItem(incomplete, type="file")] if or_file else [])

    return complete

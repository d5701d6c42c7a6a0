"""The scripts of shell completion. Those of click insert a value as it is, so that a name could run a command."""

from __future__ import annotations

from importlib.resources import files

from click.shell_completion import BashComplete, FishComplete, add_completion_class, shell_complete

from outreach_async._cli.root import PROGRAM, VARIABLE, outreach


@add_completion_class
class QuotingBash(BashComplete):
    """The completion of bash, whose values are quoted as the word is that has been typed so far."""

    source_template = (files("outreach_async._cli") / "data" / "completion.bash").read_text(encoding="utf-8")


@add_completion_class
class WholeFish(FishComplete):
    """The completion of fish, whose values may contain commas. fish quotes what it inserts."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def print_script(shell: str) -> int:
    return shell_complete(outreach, {}, PROGRAM, VARIABLE, f"{shell}_source")

"""The scripts of shell completion. Those of click insert a value as it is, so that a name could run a command."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import cast

from click.shell_completion import BashComplete, FishComplete, ShellComplete, add_completion_class, get_completion_class

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
    # click writes bytes, past the stream that keeps its error.
    kind = cast("type[ShellComplete]", get_completion_class(shell))
    sys.stdout.reconfigure(newline="\n")  # type: ignore[union-attr]
    sys.stdout.write(kind(outreach, {}, PROGRAM, VARIABLE).source())
    return 0

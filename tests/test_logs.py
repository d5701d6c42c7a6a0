"""Logging: off unless the environment asks for it, and then to stderr."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from outreach_async.logs import LOGGER

CLIENT = """
import logging
from outreach_async import OutreachClient
{before}
for _ in range(2):
    OutreachClient("https://api.example", owner_key="key_secret")
logger = logging.getLogger("outreach_async")
logger.debug("a debug line")
logger.warning("a warning")
print(logger.level, len(logger.handlers))
"""


def logged(level: str | None, before: str = "") -> tuple[str, list[str]]:
    """Return what a program with clients prints, and the lines it logs."""
    environment = {name: value for name, value in os.environ.items() if name != "OUTREACH_LOG"}
    environment |= {} if level is None else {"OUTREACH_LOG": level}
    code = CLIENT.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "key_secret" not in done.stdout + done.stderr
    return done.stdout.strip(), done.stderr.splitlines()


def test_there_is_one_logger_and_it_bears_the_librarys_name() -> None:
    assert LOGGER.name == "outreach_async"


def test_the_environment_switches_logging_on_once_for_all_clients() -> None:
    printed, lines = logged("debug")
    assert printed == "10 1"
    assert [line.partition(" outreach_async: ")[2] for line in lines] == ["a debug line", "a warning"]
    assert " DEBUG outreach_async: " in lines[0]


@pytest.mark.parametrize("level", ["info", "INFO"])
def test_the_level_is_the_one_asked_for(level: str) -> None:
    printed, lines = logged(level)
    assert printed == "20 1"
    assert len(lines) == 1
    assert lines[0].endswith(" WARNING outreach_async: a warning")


@pytest.mark.parametrize("level", [None, "", "chatty", "10"])
def test_without_a_level_that_exists_nothing_is_switched_on(level: str | None) -> None:
    assert logged(level)[0] == "0 0"


def test_a_program_that_set_the_logger_up_keeps_its_own_ways() -> None:
    before = "logging.getLogger('outreach_async').addHandler(logging.NullHandler())"
    assert logged("debug", before) == ("0 1", [])

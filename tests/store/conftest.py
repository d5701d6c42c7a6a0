"""Fixtures of the tests of journals and ledgers: those of bulk runs."""

from bulk.conftest import folder, journal, path

__all__ = ["folder", "journal", "path"]

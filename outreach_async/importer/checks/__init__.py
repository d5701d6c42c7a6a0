"""Check the values of a file before the service sees them: row by row, or the whole file at once.

The service has the last word, so checks only warn by default. E-mail addresses and phone numbers are checked by specialised
libraries (the extra `validate`), after a fast path accepts the plain ones.
"""

from outreach_async.importer.checks.checker import Checks, Finding
from outreach_async.importer.checks.policy import CHECKS, LINTS, Level, Policy
from outreach_async.importer.checks.survey import FEW, Kind, Survey, survey

__all__ = ["CHECKS", "FEW", "LINTS", "Checks", "Finding", "Kind", "Level", "Policy", "Survey", "survey"]

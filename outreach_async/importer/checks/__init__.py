"""What is wrong with the values of a file, before the service says so: checks of rows, and a look at the whole file.

The service has the last word, so all of this warns unless asked to do more. E-mail addresses and phone numbers are for the
libraries that know them best (the extra `validate`), behind a fast path for those that are plain.
"""

from outreach_async.importer.checks.checker import Checks, Finding
from outreach_async.importer.checks.policy import CHECKS, LINTS, Level, Policy
from outreach_async.importer.checks.survey import FEW, Kind, Survey, survey

__all__ = ["CHECKS", "FEW", "LINTS", "Checks", "Finding", "Kind", "Level", "Policy", "Survey", "survey"]

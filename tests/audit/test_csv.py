"""Findings as CSV."""

from __future__ import annotations

import csv
import io

import attrs
import pytest
from hypothesis import given, settings
from support.audit_reports import HOSTILE_REPORTS, finding, fleet, make_report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async._plumbing import unescape_formula
from outreach_async.audit import Finding, Report
from outreach_async.audit.reports import write

FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def rows(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(write(report, "csv"), newline="")))


def test_there_is_one_line_per_finding_in_report_order() -> None:
    report = fleet(200)
    assert [(row["rule"], row["email"]) for row in rows(report)] == [(each.rule, each.email or "") for each in report.findings]


def test_the_columns_are_the_fields_of_a_finding_its_title_and_the_name() -> None:
    fields = [field.name for field in attrs.fields(Finding)]
    assert write(make_report(), "csv") == ",".join([*fields, "title", "workspace_name", "action"]) + "\r\n"
    found = make_report(
        [finding("OA110"), finding("OA170", mailbox=None, email=None), finding("OA901", mailbox=None, email=None)]
    )
    shown = [("On blacklists", "fix"), ("Too many mailboxes on a domain", "watch"), ("Workspace not read", "")]
    assert [(row["title"], row["action"]) for row in rows(found)] == shown


@pytest.mark.thorough
@given(HOSTILE_REPORTS)
@settings(max_examples=scaled(25), phases=WITHOUT_SHRINKING)
def test_no_cell_is_a_formula(report: Report) -> None:
    for row in csv.reader(io.StringIO(write(report, "csv"), newline="")):
        assert not [cell for cell in row if cell.startswith(FORMULAS)]


@pytest.mark.thorough
@given(HOSTILE_REPORTS)
@settings(max_examples=scaled(25), phases=WITHOUT_SHRINKING)
def test_unescaping_a_cell_restores_the_string_of_the_service(report: Report) -> None:
    for row, each in zip(rows(report), report.findings, strict=True):
        for name in ("workspace", "mailbox", "email", "domain", "message"):
            text = getattr(each, name) or ""
            assert unescape_formula(row[name]) == text


def test_numbers_are_not_formulas_for_readers_with_another_delimiter() -> None:
    (row,) = rows(make_report([finding(figures={"b;=1+1": 3})]))
    assert row["figures"] == '{"b;\'=1+1": 3}'


def test_numbers_are_written_as_numbers() -> None:
    (row,) = rows(make_report([finding(sent_30days=12.5, figures={"blacklists": 3})]))
    assert (row["sent_30days"], row["figures"]) == ("12.5", '{"blacklists": 3}')
    (row,) = rows(make_report([finding(sent_30days=None)]))
    assert (row["sent_30days"], row["figures"], row["state"]) == ("", "", "")

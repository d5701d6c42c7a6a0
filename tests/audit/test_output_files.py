"""All output formats share one interface."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from unicodedata import category

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import REPORTS
from support.audit_reports import HOSTILE_REPORTS, fleet, make_report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async._plumbing import atomic_write
from outreach_async.audit import Report
from outreach_async.audit.reports import REPORT_FORMATS, format_of, write
from outreach_async.errors import InvalidRequest


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.txt", "terminal"),
        ("a.json", "json"),
        ("a.csv", "csv"),
        ("a.md", "markdown"),
        ("a.markdown", "markdown"),
        ("a.html", "html"),
        ("a.htm", "html"),
        ("a.prom", "prometheus"),
        ("A.HTML", "html"),
        ("audit.2026-03-02.json", "json"),
        ("/somewhere/else.d/a.csv", "csv"),
    ],
)
def test_the_suffix_of_a_file_selects_its_format(name: str, form: str) -> None:
    assert format_of(name) == form


@pytest.mark.parametrize("name", ["", "audit", "audit.pdf", ".json", "json"])
def test_a_name_without_a_known_suffix_is_refused_and_suffixes_are_listed(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"\.txt, \.json, \.csv, \.md, \.markdown, \.html, \.htm, \.prom"):
        format_of(name)


def test_an_unknown_format_is_refused_and_formats_are_listed() -> None:
    with pytest.raises(InvalidRequest, match="expected one of terminal, json, csv, markdown, html, prometheus, got 'pdf'"):
        write(fleet(10), "pdf")


@pytest.mark.thorough
@given(REPORTS)
@settings(max_examples=scaled(15), phases=WITHOUT_SHRINKING)
def test_every_writer_is_deterministic_and_ends_with_a_newline(found: Report) -> None:
    for form in REPORT_FORMATS:
        text = write(found, form)
        assert text == write(found, form)
        assert text.endswith("\n")


def test_a_report_with_half_of_a_character_is_refused() -> None:
    values = {**make_report(at=0.0).to_dict(), "mailboxes": "\ud800"}
    with pytest.raises(InvalidRequest, match=r"^report: not the JSON of an audit "):
        Report.from_dict(values)


def test_a_report_without_a_time_is_of_an_unknown_one() -> None:
    assert "Audited an unknown time." in write(make_report(at=0.0), "terminal")


@pytest.mark.parametrize("at", [-1.0, 1e12, math.inf, math.nan])
def test_a_report_of_an_impossible_time_is_refused(at: float) -> None:
    with pytest.raises(InvalidRequest, match="at: expected a time in Unix seconds, before the year 10000, got"):
        make_report(at=at)
    with pytest.raises(InvalidRequest, match=r"report: not the JSON of an audit .at: expected a time"):
        Report.from_dict({**make_report().to_dict(), "at": at})


@pytest.mark.parametrize("form", sorted({*REPORT_FORMATS} - {"prometheus"}))  # contains only counts
def test_every_format_names_the_problem_and_the_place(form: str) -> None:
    report = fleet(300, sick=1.0)
    text = write(report, form)
    assert "OA110" in text
    assert str(report.findings[0].domain) in text


@pytest.mark.thorough
@given(HOSTILE_REPORTS, st.sampled_from(list(REPORT_FORMATS)))
def test_no_file_contains_control_characters_but_newlines_and_tabs(found: Report, form: str) -> None:
    with TemporaryDirectory() as folder:
        atomic_write(Path(folder) / "report", write(found, form))
        text = (Path(folder) / "report").read_bytes().decode()
    assert {character for character in text.replace("\r\n", "\n") if category(character) == "Cc"} <= {"\n", "\t"}

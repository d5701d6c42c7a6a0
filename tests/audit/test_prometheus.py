"""The figures of an audit for Prometheus, parsed by Prometheus' own client."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.audit_reports import AT, HOSTILE, HOSTILE_REPORTS, TEXTS, fleet, group, make_report
from support.cli import KEY, Shell

from outreach_async.audit import Report, Scores, Severity
from outreach_async.audit.reports import write

FAKE = ("--base-url", "fake:")
WITHOUT_EXTRA = "import sys; sys.modules['prometheus_client'] = None\n"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Series:
    """Return each time series with its value; check that no series occurs twice."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    series = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(series) == len(samples)
    return series


def figure(series: Series, name: str, **labels: str) -> float:
    return series[f"outreach_audit_{name}", frozenset(labels.items())]


def test_the_audit_as_a_whole_has_its_time_score_and_counts() -> None:
    report = fleet(300, sick=0.5)
    series = parse(write(report, "prometheus"))

    assert figure(series, "timestamp_seconds") == AT
    assert (figure(series, "score"), figure(series, "mailboxes")) == (report.scores.overall, 300)
    assert (figure(series, "workspaces"), figure(series, "domains")) == (2, 60)
    counts = Counter(each.severity for each in report.findings)
    assert [figure(series, "findings", severity=severity) for severity in Severity] == [counts[severity] for severity in Severity]


def test_every_workspace_and_domain_has_its_figures() -> None:
    report = fleet(300, sick=0.5)
    series = parse(write(report, "prometheus"))

    for each in [each for each in report.groups if each.kind in {"workspace", "domain"}]:
        label = {each.kind: each.key}
        assert figure(series, f"{each.kind}_score", **label) == each.score
        assert figure(series, f"{each.kind}_mailboxes", **label) == each.mailboxes
        assert figure(series, f"{each.kind}_sent_30days_emails", **label) == each.sent_30days
        assert figure(series, f"{each.kind}_daily_limit_emails", **label) == each.daily_limit
        for severity in Severity:
            assert figure(series, f"{each.kind}_findings", severity=severity, **label) == each.counts.get(severity, 0)


def test_a_workspace_that_could_not_be_read_is_told_apart() -> None:
    series = parse(write(make_report(workspaces=["space_1", "space_2"], unreadable=["space_2"]), "prometheus"))
    assert figure(series, "unreadable_workspaces") == 1
    assert [figure(series, "workspace_unreadable", workspace=f"space_{number}") for number in (1, 2)] == [0, 1]


def test_the_score_of_an_audit_without_mailboxes_is_nan() -> None:
    report = make_report(mailboxes=0, scores=Scores(overall=None, workspaces={}, domains={}))
    assert math.isnan(figure(parse(write(report, "prometheus")), "score"))


@pytest.mark.thorough
def test_more_mailboxes_add_no_time_series() -> None:
    small, large = (fleet(boxes, per_domain=boxes // 10, sick=1.0) for boxes in (100, 2000))
    names = [{name for name, _ in parse(write(report, "prometheus"))} for report in (small, large)]
    assert names[0] == names[1]
    assert "@" not in write(large, "prometheus")
    assert len(parse(write(large, "prometheus"))) < 150


def test_names_have_the_prefix_and_no_suffix_of_another_type() -> None:
    families = list(text_string_to_metric_families(write(fleet(20), "prometheus")))
    assert {family.type for family in families} == {"gauge"}
    assert all(re.fullmatch("outreach_audit_[a-z0-9_]+", family.name) for family in families)
    assert not [family.name for family in families if re.search("_(total|sum|count|bucket|info|created)$", family.name)]
    assert all(family.documentation.endswith(".") for family in families)


@pytest.mark.parametrize("kind", ["workspace", "domain"])
def test_hostile_names_stay_one_label_of_one_line(kind: str) -> None:
    groups = [group(kind, name, score=float(at)) for at, name in enumerate(HOSTILE)]
    text = write(make_report(groups=groups), "prometheus")
    series = parse(text)

    assert [value for (name, _), value in series.items() if name == f"outreach_audit_{kind}_score"] == [*range(len(HOSTILE))]
    assert all(re.match(r"# (HELP|TYPE) outreach_audit_|outreach_audit_", line) for line in text.splitlines())


@pytest.mark.thorough
@given(HOSTILE_REPORTS)
def test_any_report_is_a_file_without_repeated_series(found: Report) -> None:
    parse(write(attrs.evolve(found, workspaces=[*found.workspaces, *found.workspaces]), "prometheus"))


@given(st.lists(TEXTS, unique=True))
def test_different_names_stay_different(names: list[str]) -> None:
    series = parse(write(make_report(groups=[group("domain", name) for name in names]), "prometheus"))
    assert sum(name == "outreach_audit_domain_score" for name, _ in series) == len(names)


def test_an_output_file_is_replaced_and_the_verdict_is_still_printed(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path, reader = tmp_path / "outreach.prom", tmp_path / "reader"  # as another program that has opened the file
    path.write_text(old := "# HELP outreach_audit_timestamp_seconds old\n", encoding="utf-8")
    reader.hardlink_to(path)
    ended = shell("audit", *server_options, "--workspace", "space_none", "--output", str(path))
    series = parse(path.read_text(encoding="utf-8"))

    assert ended.code == 3
    assert "Not everything could be read." in ended.out
    assert figure(series, "workspace_unreadable", workspace="space_none") == 1
    assert KEY not in path.read_text(encoding="utf-8")
    assert reader.read_text(encoding="utf-8") == old


@pytest.mark.thorough
@pytest.mark.covers
@pytest.mark.parametrize("arguments", [["--output", "a.prom"], ["--format", "prometheus"]])
def test_without_the_extra_the_command_says_so_before_anything_is_read(arguments: list[str], tmp_path: Path) -> None:
    command = ["audit", "--base-url", "http://127.0.0.1:1", "--workspace", "space_1", *arguments]
    code = f"{WITHOUT_EXTRA}from outreach_async._cli.app import run; sys.exit(run({command}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "pip install 'outreach_async[prometheus]'" in done.stderr
    assert list(tmp_path.iterdir()) == []

"""The `audit` command: its arguments, output, files and exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.cli import KEY, Shell

from outreach_async.audit import CATALOGUE
from outreach_async.audit.reports import schema
from outreach_async.fake import FakeService

FAKE = ("--base-url", "fake:")


BEGINNINGS = {
    "audit.html": "<!doctype html>",
    "audit.md": "# Mailbox audit",
    "audit.json": "{",
    "audit.csv": "rule,severity,",
    "audit.txt": "Mailbox audit: ",
}


def test_one_audit_writes_a_file_in_the_format_of_each_suffix(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in BEGINNINGS]
    ended = shell("audit", *server_options, *(option for path in paths for option in ("--output", str(path))))

    assert (ended.code, ended.err) == (0, "")
    assert all(f"Written: {path}" in ended.out for path in paths)
    assert {path.name for path in tmp_path.iterdir()} == set(BEGINNINGS)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(BEGINNINGS[path.name])
        assert KEY not in text


def test_without_a_file_the_format_applies_to_stdout(shell: Shell) -> None:
    ended = shell("audit", *FAKE, "--format", "csv")
    assert ended.code == 1
    assert "OA110" in {row["rule"] for row in csv.DictReader(ended.out.splitlines())}
    assert json.loads(shell("audit", *FAKE, "--format", "json").out.splitlines()[-1])["mailboxes"] == 340


@pytest.mark.covers
@pytest.mark.thorough
def test_printed_json_conforms_to_the_schema(shell: Shell) -> None:
    described = json.loads(shell("audit", "--schema").out)
    _, value = shell.json("audit", *FAKE)
    assert described == schema() == shell.json("audit", "--schema")[1]
    Draft202012Validator(described).validate(value)


def test_an_audit_can_be_compared_with_the_file_it_replaces(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = str(tmp_path / "audit.json")
    assert shell("audit", *server_options, "--output", path).code == 0
    service.add_mailbox("space_1", email="a@new.example", spf=False)
    _, value = shell.json("audit", *server_options, "--compare", path, "--output", path)

    assert json.loads(Path(path).read_bytes()) == value
    assert [(each["rule"], each["state"]) for each in value["findings"] if each["domain"] == "new.example"] == [("OA101", "new")]
    assert "OA101" in [each["rule"] for each in value["diff"]["new"]]
    assert " 0 new, 0 resolved, " in " ".join(shell("audit", *server_options, "--compare", path).out.split())


@pytest.mark.covers
@pytest.mark.thorough
def test_an_earlier_audit_that_does_not_exist_yet_is_one_line(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    first = shell("audit", *FAKE, "--compare", str(path), "--output", str(path))
    second = shell("audit", *FAKE, "--compare", str(path), "--output", str(path))

    line = f"outreach-async: --compare: {path} does not exist; skipping it (expected on the first run of a daily audit)\n"
    assert (first.code, first.err) == (1, line)
    assert (second.code, second.err) == (1, "")
    assert json.loads(path.read_bytes())["diff"]["new"] == []


@pytest.mark.thorough
def test_all_earlier_audits_are_in_the_history(shell: Shell, tmp_path: Path) -> None:
    shell("audit", *FAKE, "--output", str(tmp_path / "now.json"))
    values = json.loads((tmp_path / "now.json").read_bytes())
    for day in (1, 2):
        values |= {"at": values["at"] - 86_400}
        (tmp_path / f"{day}.json").write_text(json.dumps(values), encoding="utf-8")
    paths = [option for day in (2, 1) for option in ("--compare", str(tmp_path / f"{day}.json"))]

    _, value = shell.json("audit", *FAKE, *paths)

    assert [point["at"] for point in value["history"]] == [values["at"], values["at"] + 86_400]
    assert value["diff"]["at"] == values["at"] + 86_400
    assert "3 audits since 2026-02-28 09:00 UTC." in shell("audit", *FAKE, *paths).out


@pytest.mark.thorough
def test_a_policy_disables_rules_and_is_named_in_the_report(shell: Shell, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('name = "ours"\noff = ["OA110"]\n', encoding="utf-8")
    _, value = shell.json("audit", *FAKE, "--policy", str(policy))
    assert "OA110" not in {each["rule"] for each in value["findings"]}
    assert (value["policy"]["name"], value["policy"]["off"]) == ("ours", ["OA110"])


def test_explain_describes_a_rule_without_reading_mailboxes(shell: Shell) -> None:
    ended = shell("audit", "--explain", "OA120")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("OA120  High bounce rate\n")
    assert "Amazon SES" in ended.out
    code, value = shell.json("audit", "--explain", "oa120")
    assert (code, value["rule"]) == (0, "OA120")
    assert value["explanation"] == ended.out.rstrip("\n")


def test_explain_without_a_rule_lists_all_rules(shell: Shell, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('off = ["OA160"]\n', encoding="utf-8")
    lines = shell("audit", "--explain").out.splitlines()
    value = shell.json("audit", "--policy", str(policy), "--explain")[1]

    assert len(lines) == 1 + len(CATALOGUE)
    assert "OA110\terror to critical\tOn blacklists" in lines
    assert {"rule": "OA110", "severities": ["error", "critical"], "title": "On blacklists", "off": False} in value["rules"]
    assert [each["rule"] for each in value["rules"] if each["off"]] == ["OA160"]
    assert "OA160\toff\t" in shell("audit", "--explain", "--policy", str(policy)).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--explain", "OA12"), "--explain: expected the id of a rule, such as OA120, got 'OA12'; did you mean 'OA120'?"),
        (
            ("--explain", "spf"),
            "--explain: expected the id of a rule, such as OA120, got 'spf'; 'audit --explain' lists all rules",
        ),
        (("--output", "a.html", "--format", "terminal"), "--output a.html and --format terminal name different formats; omit"),
        (("--policy", "no-such-file.toml"), "no-such-file.toml"),
        (("--compare", __file__), f"--compare {__file__}: "),
        (("--output", "audit.pdf"), "--output audit.pdf: expected a name ending in one of .txt, .json"),
        (("--output", "no-such-folder/audit.html"), "the folder 'no-such-folder' does not exist"),
        (("--output", "/"), "--output /: expected a file, got a folder"),
        (("--format", "pdf"), "Invalid value for '--format'"),
        (("--output", "a.html", "--output", "b.csv", "--format", "csv"), "--format: expected one --output, got several"),
        (("--json", "--format", "html"), "--format html: conflicts with --json"),
        (("--fail-on", "doom"), "Invalid value for '--fail-on'"),
    ],
)
def test_wrong_usage_is_one_line_before_anything_is_read(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    err = shell.refused("audit", "--base-url", "http://127.0.0.1:1", "--workspace", "space_1", *arguments)
    assert message in err
    assert len(err.splitlines()) == 1


def test_an_incomplete_audit_is_still_written_and_exits_3(shell: Shell, server_options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    ended = shell("audit", *server_options, "--workspace", "space_none", "--output", str(path))
    assert ended.code == 3
    assert "Not everything could be read." in ended.out
    assert "space_none" in path.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_embedded_service_is_audited_at_its_own_time(shell: Shell) -> None:
    assert shell.json("audit", *FAKE)[1]["at"] == 1_772_442_000


@pytest.mark.thorough
def test_campaigns_are_checked_only_if_asked_for(shell: Shell) -> None:
    _, without = shell.json("audit", *FAKE)
    code, value = shell.json("audit", *FAKE, "--campaigns")

    assert (code, without["campaigns"]) == (1, None)
    assert value["campaigns"]["checked"] == 7
    assert "OA203" in {finding["rule"] for finding in value["findings"]}
    Draft202012Validator(schema()).validate(value)

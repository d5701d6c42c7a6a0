"""The commands `audit` and `brief`: their arguments, output, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.cli import KEY, Shell

from outreach_async.audit import CATALOGUE, Report
from outreach_async.audit.reports import schema
from outreach_async.audit.reports.brief import Brief
from outreach_async.fake import FakeService

FAKE = ("--base-url", "fake:")


BEGINNINGS = {
    "audit": {
        "a.html": "<!doctype html>",
        "a.md": "# Mailbox audit",
        "a.json": "{",
        "a.csv": "rule,severity,",
        "a.txt": "Mailbox audit: ",
    },
    "brief": {
        "b.txt": "Outreach brief: ",
        "b.md": "# Outreach brief",
        "b.html": "<!doctype html>",
        "b.json": '{\n "version": 1,',
    },
}
"""How a file of each format begins, by command."""


@pytest.mark.parametrize("command", ["audit", pytest.param("brief", marks=pytest.mark.thorough)])
def test_one_command_writes_a_file_in_the_format_of_each_suffix(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path, command: str
) -> None:
    paths = [tmp_path / name for name in BEGINNINGS[command]]
    outputs = [option for path in paths for option in ("--output", str(path))]
    for _ in range(2):  # later files may replace them
        ended = shell(command, *server_options, *outputs)
        assert (ended.code, ended.err) == (0, "")

    assert ended.out.splitlines()[-len(paths) :] == [f"Written: {path}" for path in paths]
    assert {path.name for path in tmp_path.iterdir()} == set(BEGINNINGS[command])
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(BEGINNINGS[command][path.name])
        assert KEY not in text


@pytest.mark.parametrize("command", ["audit", pytest.param("brief", marks=pytest.mark.thorough)])
def test_without_a_file_the_format_applies_to_stdout(shell: Shell, command: str) -> None:
    assert shell(command, *FAKE, "--format", "markdown").out.startswith(BEGINNINGS[command][f"{command[0]}.md"])
    assert json.loads(shell(command, *FAKE, "--format", "json").out.splitlines()[-1])["mailboxes"] == 340


@pytest.mark.covers
@pytest.mark.parametrize(("command", "model"), [pytest.param("audit", Report, marks=pytest.mark.thorough), ("brief", Brief)])
def test_printed_json_conforms_to_the_schema(shell: Shell, command: str, model: type[Report | Brief]) -> None:
    described = json.loads(shell(command, "--schema").out)
    code, value = shell.json(command, *FAKE)
    assert described == schema(model) == shell.json(command, "--schema")[1]
    assert (code, value["version"]) == (1, 1)
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


def test_a_policy_disables_rules_and_is_named_in_the_report(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('name = "ours"\noff = ["OA160", "OA202"]\n', encoding="utf-8")
    _, value = shell.json("audit", *server_options, "--policy", str(policy))
    assert "OA160" not in {each["rule"] for each in value["findings"]}
    assert (value["policy"]["name"], value["policy"]["off"]) == ("ours", ["OA160", "OA202"])
    assert shell("brief", *server_options, "--fail-on", "info").code == 1
    assert shell("brief", *server_options, "--fail-on", "info", "--policy", str(policy)).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("audit --explain OA12", "--explain: expected the id of a rule, such as OA120, got 'OA12'; did you mean 'OA120'?"),
        ("audit --explain spf", "expected the id of a rule, such as OA120, got 'spf'; 'audit --explain' lists all rules"),
        ("audit --output a.html --format terminal", "--output a.html and --format terminal name different formats; omit"),
        ("audit --policy no-such-file.toml", "no-such-file.toml"),
        (f"audit --compare {__file__}", f"--compare {__file__}: "),
        ("audit --output audit.pdf", "--output audit.pdf: expected a name ending in one of .txt, .json"),
        ("audit --output no-such-folder/audit.html", "the folder 'no-such-folder' does not exist"),
        (
            "audit --output-folder no-such-folder/b",
            "--output-folder no-such-folder/b: the folder 'no-such-folder' does",
        ),
        ("audit --output /", "--output /: expected a file, got a folder"),
        ("audit --format pdf", "Invalid value for '--format'"),
        ("audit --output a.html --output b.csv --format csv", "--format: expected one --output, got several"),
        ("audit --json --format html", "--format html: conflicts with --json"),
        ("audit --fail-on doom", "Invalid value for '--fail-on'"),
        (f"brief --history {__file__}", f"--history: {__file__} is not a history; pass the path of a history, or of a file"),
        (f"brief --history {__file__} --no-append", f"--history: {__file__} is not a history"),
        ("brief --history no-such-folder/history.db", "--history no-such-folder/history.db: the folder "),
        ("brief --output b.csv", "expected a name ending in one of .txt, .json, .md, .markdown, .html, .htm; rename"),
        ("brief --format csv", "Invalid value for '--format'"),
    ],
)
def test_wrong_usage_is_one_line_before_anything_is_read(shell: Shell, arguments: str, message: str) -> None:
    command, *others = arguments.split()
    err = shell.refused(command, "--base-url", "http://127.0.0.1:1", "--workspace", "space_1", *others)
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

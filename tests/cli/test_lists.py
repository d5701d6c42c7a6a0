"""The columns of lists: by default, chosen, hidden, and in units for people."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from support.cli import Ended, Served, Shell, on_terminal

FAKE = ("--base-url", "fake:")


def table(text: str) -> list[dict[str, str]]:
    header, *rows = (line.split("\t") for line in text.splitlines())
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["campaigns", "mailboxes"])
def test_a_pipe_gets_every_value_that_the_service_sent(shell: Shell, command: str) -> None:
    _, value = shell.json(command, *FAKE)
    rows = table(shell(command, *FAKE).out)
    assert len(rows) == value["count"] == value["total_found"]
    assert (value["repeats"], value["missing"], value["undecodable"]) == (0, 0, 0)
    assert all(set(item) <= set(row) for item, row in zip(value["data"], rows, strict=True))


@pytest.mark.thorough
def test_dates_and_durations_stand_beside_the_raw_values(shell: Shell) -> None:
    campaign = table(shell("campaigns", *FAKE).out)[1]
    assert (campaign["created"], campaign["created_utc"]) == ("1768208400", "2026-01-12 09:00:00Z")
    assert (campaign["days_left_date"], campaign["days_left_date_utc"]) == ("1773046800", "2026-03-09 09:00:00Z")
    mailbox = table(shell("mailboxes", *FAKE, "--columns", "created_at,created_at_utc").out)[0]
    at = datetime.fromtimestamp(int(mailbox["created_at"]), UTC)
    assert mailbox["created_at_utc"] == f"{at:%Y-%m-%d %H:%M:%SZ}"
    step = table(shell("steps", "camp_spring", *FAKE).out)[-1]
    assert (step["wait_time"], step["wait"]) == ("259200000", "3 days")


@pytest.mark.parametrize(
    ("command", "columns", "header"),
    [
        ("campaigns", "name,created_utc", "name\tcreated_utc"),
        ("campaigns", " Name , id,name", "name\tid"),
        (
            "campaigns",
            "all",
            "id\tstatus\tname\tsteps\tcontacts\topens\treplies\tbounces\tdays_left_display",
        ),
        ("fields", "searchable,code", "searchable\tcode"),
    ],
)
def test_columns_are_printed_as_chosen(shell: Shell, command: str, columns: str, header: str) -> None:
    ended = shell(command, *FAKE, "--columns", columns)
    assert ended.code == 0
    assert f"{ended.out.splitlines()[0]}\t".startswith(f"{header}\t")


@pytest.mark.thorough
def test_a_terminal_names_the_columns_that_it_hides(shell: Shell) -> None:
    shown = " ".join(on_terminal("campaigns", *FAKE).err.replace("\x1b[0m", "").replace("\x1b[2m", "").split())
    brief = {"id", "status", "name", "contacts", "opens", "replies", "days_left_display"}
    hidden = [name for name in shell("campaigns", *FAKE).out.splitlines()[0].split("\t") if name not in brief]
    assert f"{len(hidden)} more columns: {', '.join(hidden)}; --columns steps,bounces or --columns all shows them" in shown


STEPS = ("steps", "camp_spring")


@pytest.mark.parametrize(
    ("command", "form"),
    [(("campaigns",), "csv"), (("mailboxes",), "jsonl"), (("fields",), "txt"), (STEPS, "json"), (STEPS, "csv")],
)
def test_a_file_has_what_stdout_would_have(shell: Shell, tmp_path: Path, command: tuple[str, ...], form: str) -> None:
    path = tmp_path / f"list.{form.upper()}"
    whole = (*command, *FAKE, "--output", str(path))
    printed = shell(*command, *FAKE, "--format", "table" if form == "txt" else form).out
    assert shell(*whole).out.endswith(f" written to {path}\n")
    assert path.read_text(encoding="utf-8") == printed
    assert shell(*whole, "--quiet") == Ended(0, "", "")  # it replaces its own output
    path.write_text("notes\n", encoding="utf-8")
    assert "does not look like an output of this option" in shell.refused(*whole)
    assert shell(*whole, "--force").code == 0
    assert path.read_text(encoding="utf-8") == printed


@pytest.mark.parametrize("other", ['{"email": "a@b.example", "note": ""}\n', "[1]\n", "\n"])
def test_a_file_of_other_json_lines_is_not_replaced(shell: Shell, tmp_path: Path, other: str) -> None:
    path = tmp_path / "contacts.jsonl"
    path.write_text(other, encoding="utf-8")
    assert shell("mailboxes", *FAKE, "--output", str(path)).code == 2
    assert path.read_text(encoding="utf-8") == other


def test_json_lines_have_the_items_of_the_service_or_the_chosen_columns(shell: Shell) -> None:
    _, value = shell.json("steps", "camp_spring", *FAKE)
    lines = shell("steps", "camp_spring", *FAKE, "--format", "jsonl").out.splitlines()
    assert list(map(json.loads, lines)) == value["data"]
    lines = shell("mailboxes", *FAKE, "--format", "jsonl", "--columns", "email,spf").out.splitlines()
    assert {tuple(json.loads(line)) for line in lines} == {("email", "spf")}


def test_a_csv_list_keeps_line_breaks_and_starts_no_formula(served: Served) -> None:
    served.service.add_campaign("space_1", id="camp_odd", name="=1+1", steps=["Hello\nAnn"])
    out = served("campaigns", *served.options, "--format", "csv").out
    assert "'=1+1" in [row["name"] for row in csv.DictReader(StringIO(out))]


def test_a_file_and_a_json_result_can_be_had_at_once(shell: Shell, tmp_path: Path) -> None:
    code, value = shell.json("mailboxes", *FAKE, "--output", str(tmp_path / "boxes.csv"), "--columns", "email")
    lines = (tmp_path / "boxes.csv").read_text(encoding="utf-8").splitlines()
    assert (code, lines) == (0, ["email", *(item["email"] for item in value["data"])])


@pytest.mark.parametrize("several", ["space_1,space_2", " space_1 \n space_2\n", "space_1, space_2"])
def test_a_variable_with_several_workspaces_is_split_and_named(
    served: Served, monkeypatch: pytest.MonkeyPatch, several: str
) -> None:
    monkeypatch.setenv("OUTREACH_WORKSPACE", several)
    base_url = served.options[:2]
    for options in base_url, (*base_url, "--workspace", several):
        err = served.refused("contacts", "create", "--email", "ann@a.example", *options)
        assert "got 2 (space_1, space_2) from --workspace or OUTREACH_WORKSPACE; pass --workspace once" in err
        _, report = served.json("audit", *options)
        assert report["workspaces"] == ["space_1", "space_2"]

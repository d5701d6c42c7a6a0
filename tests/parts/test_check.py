"""The check of a plan: it finds in several files and parts what the check of one file with the same rows finds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.parts import KEY, SPACE, PlainService, served

from outreach_async import Outcome
from outreach_async.bulk import Repeats
from outreach_async.errors import InvalidRequest
from outreach_async.importer import CheckPolicy, ImportJob, Preflight, open_file
from outreach_async.parts import check, import_part, merge_reports, plan

HEADER = "E-mail,City,Work phone,Unsubscribed"
EMAILS = st.sampled_from(["", "ann@x.example", "ANN@x.example", "bo@x.example", "cy@x.example", "info@x.example", "no address"])
ROWS = st.lists(
    st.builds(
        "{},{},{},{}".format,
        EMAILS,
        st.sampled_from(["", "Lyon", "#REF!", "NULL"]),
        st.sampled_from(["", "4.4E+11", "+33 1 23 45 67 89"]),
        st.sampled_from(["", "", "", "yes", "no"]),
    )
    | EMAILS.map("{},misfit".format),
    max_size=12,
)
CHECKS = st.lists(
    st.sampled_from(["phone=error", "cells=error", "cells=off", "consent=warn", "consent=off", "repeat=off", "role=error"]),
    max_size=2,
)


def said(found: Preflight) -> tuple[Any, ...]:
    findings = Counter[tuple[str, ...]]()
    for group in found.findings:
        findings[group.key.check, group.key.level, group.key.field] += group.count
    return found.rows, found.refused, found.excluded, found.superseded, found.sent, findings


@given(st.lists(ROWS, min_size=1, max_size=3), CHECKS, st.sampled_from(["serial", "error", "first", "last"]))
def test_files_in_parts_are_checked_as_one_file_with_their_rows(
    tables: list[list[str]], checks: list[str], repeats: Repeats
) -> None:
    with TemporaryDirectory() as name:
        paths = [Path(name, f"{at}.csv") for at in range(len(tables))]
        for path, rows in zip(paths, tables, strict=True):
            path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
        whole = Path(name, "whole.csv")
        whole.write_text("\n".join([HEADER, *(row for rows in tables for row in rows)]) + "\n", encoding="utf-8")

        async def find() -> tuple[Preflight, Preflight]:
            mapped = await ImportJob(file=open_file(whole), checks=CheckPolicy.of(checks)).map()
            return await mapped.check(Preflight(repeats=repeats)), await check(plan(paths, checks=checks, repeats=repeats))

        one, parts = anyio.run(find)
        assert said(parts) == said(one)


@pytest.mark.parametrize("checks", [[], ["phone=error"], ["consent=off"]])
def test_parts_send_what_the_check_has_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    (tmp_path / "a.csv").write_text(f"{HEADER}\nann@x.example,,4.4E+11,\nbo@x.example,misfit\n,,,\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text(f"{HEADER}\nBO@x.example,Rome,,\ncy@x.example,,,yes\n", encoding="utf-8")
    (tmp_path / "c.csv").write_text(f"{HEADER}\ncy@x.example,,,\nbo@x.example,Rome,,yes\n", encoding="utf-8")
    made, unsent = plan([tmp_path / f"{name}.csv" for name in "abc"], checks=checks), list[tuple[str, str, str]]()

    async def announce() -> Preflight:
        return await check(made, on_unsent=lambda _, found: unsent.append((str(found.file), found.place, found.outcome.status)))

    found = anyio.run(announce)
    with served(PlainService()) as connection:
        report = merge_reports([import_part(part, tmp_path / "journals", connection) for part in made.parts])
    assert (report.outcomes[Outcome.REJECTED], report.outcomes[Outcome.EXCLUDED]) == (found.refused, found.excluded)
    rejected = [(row.file, f"line {row.line}", "rejected") for row in report.failures]
    assert sorted(rejected) == sorted(each for each in unsent if each[2] == "rejected")
    assert {row.workspace for row in report.failures} == {SPACE}


def test_a_saved_mapping_keeps_the_order_of_preference_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Home,Work\nann@x.example,\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("City,Work\nLyon,bo@x.example\n", encoding="utf-8")
    made = plan([tmp_path / "a.csv", tmp_path / "b.csv"], overrides={"Work": "email", "Home": "email"})
    made.save_mapping(tmp_path / "mapping.toml")
    lines = (tmp_path / "mapping.toml").read_text(encoding="utf-8").splitlines()
    assert [line.partition(" #")[0] for line in lines if " = " in line] == [
        '"Work" = "email"',
        '"Home" = "email"',
        '"City" = "city"',
    ]


def test_a_column_with_two_meanings_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("E-mail,Name,Vorname\nann@x.example,Lee,Ann\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("E-mail,Name,Nachname\nbo@x.example,Bo,Ray\n", encoding="utf-8")
    made = plan([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(
        InvalidRequest, match=r"^save_mapping: expected one field for column 'Name', got last_name and first_name"
    ):
        made.save_mapping(tmp_path / "mapping.toml")


def test_a_mapping_without_a_column_of_consent_is_refused_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("E-mail\nann@x.example\n", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"a.csv: mapping: the file has no column 'Gone', nor another one that says who"):
        plan([tmp_path / "a.csv"], mapping={"Gone": "opt_out"})
    assert plan([tmp_path / "a.csv"], mapping={"Gone": "opt_out"}, checks=["consent=off"]).rows == 1

"""Failed rows are written to a file with the reasons, which can be imported again."""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import csv_text

from outreach_async import Outcome, Store
from outreach_async._plumbing import unsent_outcome
from outreach_async.bulk import ContactOutcome
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, OutreachError, StatusError, TransportError
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import (
    File,
    RejectsFile,
    Row,
    RowOutcome,
    is_reject,
    map_columns,
    open_file,
    results_of,
    spooled_rejects,
)

KEY = "key_1"


def rejected(error: OutreachError, index: int = 0) -> ContactOutcome:
    return unsent_outcome(index, None, Outcome.REJECTED, error)


def reject(number: int, cells: Sequence[str], error: OutreachError, text: str = "") -> RowOutcome:
    return RowOutcome(rejected(error), number, str(error), cells, text=text)


def write(path: Path, *rejects: RowOutcome) -> Path:
    """Write a rejects file of a table with one column."""
    with RejectsFile(path, ["email"]) as file:
        for each in rejects:
            file.add(each)
    return path


def written(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def answered(words: str, body: bytes = b"") -> StatusError:
    return StatusError(
        f"create_contact: the service answered 422: {words}", operation="create_contact", status_code=422, body=body
    )


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (InvalidRequest("email: 'x': no address to write to"), "email"),
        (InvalidRequest("custom_1: 'Ã©' is probably 'é'"), "custom_1"),
        (InvalidRequest("the row has 3 cells"), ""),
        (answered("email must be an e-mail address"), "email"),
        (answered("email must be an e-mail address; zip must be short; email is odd"), "email, zip"),
        (answered("'country' is not known"), "country"),
        (answered("the workspace has no custom_9; its custom fields: custom_1"), "custom_9"),
        (answered("title and state are fine, but no"), "title"),
        (answered("not today"), ""),
        (answered("invalid value", b'{"error":{"message":"invalid value","field": "zip"}}'), "zip"),
        (TransportError("create_contact: no answer"), ""),
    ],
)
def test_the_field_is_the_one_named_by_the_check_or_the_service(tmp_path: Path, error: OutreachError, field: str) -> None:
    assert [row["_field"] for row in written(write(tmp_path / "rejects.csv", reject(2, [""], error)))] == [field]


def test_a_duplicate_row_names_the_line_of_the_first() -> None:
    file = open_file(io.BytesIO(b"email\na@a.example\n"), format="csv")
    (row,) = file.rows(map_columns(file.headers))
    outcome = unsent_outcome(7, row, Outcome.REJECTED, InvalidRequest("email: same address as row 3; leave one out"), 3)
    found = RowOutcome.of(file, outcome, lambda index: f"line {index + 2}")
    assert (found.message.partition(";")[0], found.text) == ("email: same address as line 5", "a@a.example")
    assert RowOutcome.of(file, outcome).message.startswith("email: same address as row 3; ")
    assert not is_reject(unsent_outcome(1, None, Outcome.NOT_APPLIED, None, 0))


def test_rejects_are_found_by_index_and_duplicates_by_line(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('email,city\na@a.example,"x\ny"\nbad,z\na@a.example,w\n', encoding="utf-8")
    outcomes = [
        attrs.evolve(rejected(InvalidRequest("email: bad"), 1)),
        unsent_outcome(2, None, Outcome.REJECTED, InvalidRequest("email: same address as row 0"), 0),
    ]
    found = list(results_of(open_file(path), outcomes))
    assert [(each.number, list(each.cells)) for each in found] == [(4, ["bad", "z"]), (5, ["a@a.example", "w"])]
    assert found[1].message.startswith("email: same address as line 2; ")


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=2, max_size=2), max_size=5))
def test_a_rejects_file_is_read_back_as_the_input(rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rejects.csv"
        with RejectsFile(path, ["email", "Odd"]) as file:
            for at, row in enumerate(rows):
                file.add(reject(at, row, InvalidRequest("email: x")))
        reopened = open_file(path)
        assert (reopened.headers, reopened.rejects) == (("email", "Odd"), True)
        assert [list(cells) for _, cells, _ in reopened.records()] == rows


def import_faults(file: File, folder: Path) -> tuple[list[Row], list[Row]]:
    """Return the rows of a file that cannot be sent, and the rows of their rejects."""
    columns, path = map_columns(file.headers, ignore_unknown=True), folder / "rejects.csv"
    refused = [(row, InvalidRequest(row.fault)) for row in file.rows(columns) if row.fault]
    by_line = {row.line: rejected(refusal, at) for at, (row, refusal) in enumerate(refused)}
    with RejectsFile(path, file.headers) as rejects:
        for row, refusal in refused:
            rejects.add(reject(row.line, row.cells, refusal, row.text))
    lines = [line for line, _, _ in file.records()]
    outcomes = (attrs.evolve(by_line[line], index=at) for at, line in enumerate(lines) if line in by_line)
    before = path.read_bytes()
    mapping = {header: code for header, code, _ in columns.decisions()}
    with RejectsFile(path, file.headers) as rejects:
        rejects.replace(results_of(file, outcomes, mapping))
    assert path.read_bytes() == before  # a journal has the outcomes alone, and the file is read again
    return [row for row, _ in refused], list(open_file(path).rows(columns))


PIECES = ['"', ",", ";", "\\", "\n", "\r\n", "\0", " ", "a@a.example", "Ann", "=1", "'", '""', "\t", "é", "4.1E+11", "NULL"]
JSON_PIECES = ['{"email": "a@a.example"', ', "city": ', '{"x": 1}', "[1]", '"Lyon"', "}", "\n", '"', "1" * 20, "null", " ", "\\"]


@given(content=st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_the_rejects_of_any_csv_file_are_rejected_again(content: str) -> None:
    check_rejected_again(f"email,first_name,city\n{content}", "csv")


@given(content=st.lists(st.sampled_from(JSON_PIECES), max_size=16).map("".join))
def test_the_rejects_of_any_json_lines_are_rejected_again(content: str) -> None:
    check_rejected_again(f'{{"email": "", "first_name": "", "city": ""}}\n{content}', "jsonl")


def check_rejected_again(content: str, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            failed, again = import_faults(open_file(io.BytesIO(content.encode()), format=kind), Path(folder))
        except InvalidRequest:  # a file that cannot be read has no rejects
            return
    assert [row.text for row in again] == [row.text for row in failed]
    assert all(row.fault for row in again)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("email,city\na@a.example,Acme, Inc.\n", ["a@a.example,Acme, Inc."]),
        ("email;city\na@a.example;x;Lyon, 2\n", ['a@a.example,x,"Lyon, 2"']),
        ("email,city\na@a.example\n", ["a@a.example"]),
        ('email,city\n"a"@a.example,x\r\nb@a.example,"y\nz"!\n', ['"a"@a.example,x', 'b@a.example,"y\nz"!']),
        ('{"email": "a@a.example"}\n{"email": "b@a.example"', ['{"email": "b@a.example"']),
        ('{"email": "a@a.example", "city": 1}\n{"email": {"is": "b@a.example"}}\n', ['{"email": {"is": "b@a.example"}}']),
        ('{"email": "", "city": ["Lyon"], "notes": []}\n', ['{"email": "", "city": ["Lyon"], "notes": []}']),
        (
            '{"email": "a@a.example"}\n[1]\n' + '"' + "x" * 40_000,
            ["[1]", f'"{"x" * 29_999}... (the first 30,000 of 40,001 characters)'],
        ),
    ],
)
def test_a_row_that_its_cells_do_not_show_has_its_text_in_the_rejects(tmp_path: Path, content: str, texts: list[str]) -> None:
    failed, again = import_faults(open_file(io.BytesIO(content.encode())), tmp_path)
    assert [row.text for row in failed] == texts
    assert {row.fault for row in again} == {
        "_text: expected a blank cell, got the text of a rejected row; correct the other cells, and clear _text"
    }
    import_faults(open_file(path := tmp_path / "rejects.csv"), tmp_path)
    assert path.read_text(encoding="utf-8").count("clear _text") == len(texts)


def test_a_damaged_value_in_a_column_that_is_ignored_needs_no_correction(tmp_path: Path) -> None:
    failed, again = import_faults(open_file(io.BytesIO(b'{"email": "", "odd": ["x"]}')), tmp_path)
    assert ([row.text for row in failed], [row.text for row in again]) == ([""], [""])
    assert "email: expected an address" in str(again[0].fault)


@pytest.mark.parametrize("edit", ["clear", "delete"])
def test_a_corrected_row_is_read_when_its_text_is_cleared_or_deleted(tmp_path: Path, edit: str) -> None:
    columns = map_columns(["email", "city", "zip"])
    import_faults(open_file(io.BytesIO(b"email,city,zip\na@a.example,Acme, Inc.,1\nb@a.example\n")), tmp_path)
    with (tmp_path / "rejects.csv").open(encoding="utf-8", newline="") as file:
        header, first, second = csv.reader(file)
    assert all(row[-2].endswith("; when the cells are right, clear _text") for row in (first, second))
    assert (header[-1], first[:3], second[:3]) == ("_text", ["a@a.example", "Acme", " Inc."], ["b@a.example", "", ""])
    first[1:3] = ["Acme, Inc.", "1"]
    table = [row[:-1] + [""] * (edit == "clear") for row in (["", *header[1:]], first, second)]
    table[0][0] = "email"
    if edit == "clear":
        table[0][-1] = "_text"
    rows = list(open_file(io.BytesIO(csv_text(table).encode())).rows(columns))
    assert [row.cells for row in rows] == [("a@a.example", "Acme, Inc.", "1"), ("b@a.example", "", "")]
    assert not any(row.fault for row in rows)


def test_a_comma_without_quotes_in_a_rejects_file_rejects_its_row() -> None:
    content = "email,city,_row,_code,_field,_message,_text\na@a.example,Acme, Inc.,2,rejected,city,bad,x\n"
    (row,) = open_file(io.BytesIO(content.encode())).rows(map_columns(["email", "city"]))
    assert str(row.fault).startswith("expected 7 cells, as in the header, got 8; ")
    assert row.text == "a@a.example,Acme, Inc.,2,rejected,city,bad,x"


def test_a_rejects_file_has_no_control_characters_and_no_hidden_formula(tmp_path: Path) -> None:
    path, cells = tmp_path / "rejects.csv", ["b;=1+1", "\x1b[2J\r\x85\x00\n"]
    with RejectsFile(path, ["email", "a|@b"]) as file:
        file.add(reject(2, cells, InvalidRequest("email: \x7f")))
    text = path.read_bytes().decode()
    assert "b;'=1+1" in text
    surrogate = write(tmp_path / "surrogate.csv", reject(2, ["a@a.example"], answered("no \ud800")))
    assert rb"no \ud800" in surrogate.read_bytes()
    assert "a|'@b" in text
    assert not [character for character in text.replace("\r\n", "\n") if not character.isprintable() and character != "\n"]
    assert [list(cells) for _, cells, _ in open_file(path).records()] == [cells]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX's")
def test_only_the_owner_can_read_a_new_rejects_file(tmp_path: Path) -> None:
    for path, mode in (tmp_path / "new.csv", 0o600), (tmp_path / "shared.csv", 0o644):
        if mode != 0o600:
            path.touch()
            path.chmod(mode)
        assert write(path).stat().st_mode & 0o777 == mode


def test_the_rows_of_a_rejects_file_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rejects.csv"
    with RejectsFile(path, ["email"]) as file:
        file.add(reject(2, ["bad" * 9], InvalidRequest("email: bad")))
        file.replace([reject(3, ["no"], InvalidRequest("email: no"))])
        assert file.rows == 1
    assert [list(cells) for _, cells, _ in open_file(path).records()] == [["no"]]
    with RejectsFile(path, ["email"]) as file:
        file.add(reject(2, ["bad"], InvalidRequest("email: bad")))
        file.replace(())
    assert path.read_bytes() == b"email,_row,_code,_field,_message,_text\r\n"


def test_a_rejects_file_gets_its_name_even_if_the_import_fails(tmp_path: Path) -> None:
    path = tmp_path / "rejects.csv"

    def interrupted() -> None:
        with RejectsFile(path, ["email"]) as file:
            file.add(reject(2, ["bad"], InvalidRequest("email: bad")))
            assert not path.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [list(cells) for _, cells, _ in open_file(path).records()] == [["bad"]]
    assert list(tmp_path.iterdir()) == [path]


async def test_the_rejects_of_a_lost_input_are_restored_from_the_journal(tmp_path: Path) -> None:
    service = FakeService()
    service.add_workspace("space_1", custom_fields=["Plan"])
    service.add_owner_key("space_1", key=KEY)
    client = OutreachClient(transport=FakeTransport(service), owner_key=KEY, workspace="space_1")
    rows = [{"email": "bad", "custom_1": "Gold"}, {"email": "a@a.example"}, {"email": ""}, {"email": "worse", "city": "x"}]
    journal = Store(tmp_path / "run.db", inline=True)
    await client.contacts.create_many(rows, journal=journal, spool=True)
    headers, found = spooled_rejects(journal)
    assert headers == ("email", "custom_1", "city")
    assert [(each.number, list(each.cells)) for each in found] == [
        (1, ["bad", "Gold", ""]),
        (3, ["", "", ""]),
        (4, ["worse", "", "x"]),
    ]

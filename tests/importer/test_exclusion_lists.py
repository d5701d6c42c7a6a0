"""Lists of people who must not be written to: what is read of files, and the marks that keep no address."""

from __future__ import annotations

import gzip
import json
import os
import stat
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import error, sheet_of, text, workbook

from outreach_async import Excluded, InvalidRequest
from outreach_async.bulk import Exclusions, Repeats
from outreach_async.importer import ImportJob, Preflight, add_exclusions, open_file, read_exclusions, read_people

ROWS = ["ann@x.example", "bo@acme.example", "o'neil@x.example", "zo@y.example", "cy@x.example"]
FOUND = [0, 1, 2, 3]
REPEATS = get_args(Repeats)


def save_workbook(path: Path) -> None:
    rows = [["Client", "E-Mail", "Domain"], ["A", " Ann <ANN@x.example>", ""], ["B", "", "acme.example"]]
    rows.append(["C", "o'neil@x.example; zo@y.example", "x.example"])
    path.write_bytes(workbook({"List": sheet_of([[*map(text, row)] for row in rows])}))


def parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pyarrow.table({"email": [ROWS[0], None, ROWS[2], ROWS[3]], "domain": [None, "acme.example", "x.example", None]}), path
    )


LISTS = {
    "list.csv": (
        b'E-mail,Domain\nANN@x.example,x.example\n,@acme.example.\n# note\n\n"o\'neil@x.example, zo@y.example",\nNULL,-\n'
    ),
    "noted.csv": (
        b"# exported today\n\nFirma;Adresse e-mail;Adresse e-mail\n"
        b"A;ann@x.example;zo@y.example\n#;;\nB;bo@acme.example;o'neil@x.example"
    ),
    "headerless.csv": b"ann@x.example,Ann\nbo@acme.example,Bo\nzo@y.example,\no'neil@x.example,\n",
    "other.csv": (
        b"E-mail,Secondary Email,Email Status,Domain\nann@x.example,ZO@y.example,valid,\n,o'neil@x.example,,www.acme.example\n"
    ),
    "stars.txt": b"*@acme.example\nann@x.example\no'neil@x.example\nzo@y.example\n",
    "list.txt": (
        b"\xef\xbb\xbf# blocked\r\n\r\n Ann <ann@x.example> # left\r\n@ACME.example\r\n"
        b'"o\'neil@x.example"\r\nmailto:zo@y.example.\r\n'
    ),
    "wide.txt": "ann@x.example\nacme.example\no'neil@x.example\nzo@y.example".encode("utf-16"),
    "list.txt.gz": gzip.compress("acme.example\nann@x.example\u200b\no'neil@x.example\nzo@y.example".encode()),
    "list.jsonl": b"".join(
        json.dumps({"email": each} if "acme" not in each else {"domain": "acme.example"}).encode() + b"\n" for each in ROWS[:4]
    ),
}


@pytest.mark.parametrize("name", [*LISTS, "list.xlsx", "list.parquet"])
def test_a_list_of_any_kind_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    {".xlsx": save_workbook, ".parquet": parquet}.get(path.suffix, lambda path: path.write_bytes(LISTS[name]))(path)
    found = read_exclusions(str(path)).find(ROWS)
    assert [*found] == FOUND
    assert str(found[1]).startswith(f"the list {name} has the ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ann@x.example\nbob\n", "line 2: expected an e-mail or a domain, got 'bob'; correct or remove it"),
        (
            "ann@x.example\nann@x@y.example\n",
            "line 2: expected an e-mail or a domain, got 'ann@x@y.example'; correct or remove it",
        ),
        (
            "Email\nann@ bo@x.example\n",
            "line 2: expected an e-mail or a domain, got 'ann@ bo@x.example'; correct or remove it",
        ),
        ("Email\n\nann(at)x.example\n", "line 3: expected an e-mail or a domain, got 'ann(at)x.example'; correct or remove it"),
        ("Email\n#N/A\n", "line 2: expected an e-mail or a domain, got '#N/A'; correct or remove it"),
        ('{"email": "ann@x.example"}\n{"email": \n', "line 2: "),
        (
            '{"email": "ann@x.example"}\n{"emails": ["bo@x.example"]}\n',
            "line 2: expected a single value for the key 'emails', got an array; use a separate key per value",
        ),
        ("a" * 64, "line 1: expected an e-mail or a domain, got a mark; restore its key {path}.key"),
        (
            "ann(at)x.example\nbo@x.example\n",
            "expected an e-mail or a domain, or a column named E-mail or Domain, got 'ann(at)x.example'; correct it",
        ),
        ("# nobody\n\n", "expected e-mails and domains, got none; add them, or do not pass the list"),
        ("Email\n-\n", "expected e-mails and domains, got none; add them, or do not pass the list"),
    ],
)
def test_a_list_that_cannot_be_read_completely_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (path := tmp_path / "list").write_text(content, encoding="utf-8")
    with pytest.raises(InvalidRequest) as caught:
        read_exclusions(path)
    assert str(caught.value).replace(f"{path}: ", "").replace(f"{path}, ", "").startswith(message.format(path=path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.csv", "E-mail;Name\nann@x.example;Müller\n".encode("cp1252")),
        ("list.txt", "ann@x.example\n".encode("utf-16-le")),
        ("list.txt", "ann@x.example # möchte nicht\n".encode("cp1252")),
        ("list.csv", b"Our customers\nE-mail,Name,City\nann@x.example,Ann,Rome\nbo@x.example,Bo,Bern\n"),
        ("list.xlsx", b"E-mail\nann@x.example\n"),
    ],
)
def test_the_remedy_of_a_list_in_another_form_is_to_save_it_in_a_known_one(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InvalidRequest, match=r"; save the list in UTF-8, as CSV with the column names in the first line$"
    ) as caught:
        read_exclusions(tmp_path / name)
    assert "--" not in str(caught.value)


def test_a_workbook_with_a_sheet_that_would_not_be_read_is_refused(tmp_path: Path) -> None:
    sheet = sheet_of([[text("E-mail")], [text("ann@x.example")]])
    (path := tmp_path / "list.xlsx").write_bytes(workbook({"A": sheet, "B": sheet}))
    with pytest.raises(
        InvalidRequest, match=r"list\.xlsx: expected one sheet, got others: 'B'; save each sheet as a list of its own"
    ):
        read_exclusions(path)


def test_a_column_of_several_addresses_a_row_is_refused_in_a_parquet_file(tmp_path: Path) -> None:
    table = pytest.importorskip("pyarrow").table({"email": ["ann@x.example"], "other e-mails": [["bo@x.example"]]})
    pytest.importorskip("pyarrow.parquet").write_table(table, path := tmp_path / "list.parquet")
    with pytest.raises(InvalidRequest, match=r"column 'other e-mails', got list<element: string>; export it as text$"):
        read_exclusions(path)


def test_an_error_in_a_workbook_is_refused_unless_an_address_is_beside_it(tmp_path: Path) -> None:
    header, path = [*map(text, ("E-mail", "Domain"))], tmp_path / "list.xlsx"
    path.write_bytes(workbook({"A": sheet_of([header, [text("ann@x.example"), error()]])}))
    assert [*read_exclusions(path).find(ROWS)] == [0]
    for row in [error(), text("")], [text(""), error()]:
        path.write_bytes(workbook({"A": sheet_of([header, [text("ann@x.example"), text("")], row])}))
        with pytest.raises(InvalidRequest, match=r"list\.xlsx, line 3: the cell's value is an error such as #N/A; fix the"):
            read_exclusions(path)


def test_a_key_of_another_list_is_refused_because_it_would_exclude_nobody(tmp_path: Path) -> None:
    for name in "one", "two":
        add_exclusions(tmp_path / name, ["ann@x.example"])
    (tmp_path / "one.key").write_bytes((tmp_path / "two.key").read_bytes())
    for act in (lambda: read_exclusions(tmp_path / "one"), lambda: add_exclusions(tmp_path / "one", ["bo@x.example"])):
        with pytest.raises(InvalidRequest, match=r"one: expected the key .*, got another one in .*one\.key; restore it$"):
            act()


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="a shell has no process substitution here")
@pytest.mark.parametrize("content", [b"E-mail,Domain\nann@x.example,\n", b"ann@x.example\n"])
def test_a_list_may_be_what_another_program_writes(content: bytes) -> None:
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    assert {*read_exclusions(f"/dev/fd/{reader}").find(ROWS)} == {0}
    os.close(reader)


def test_a_list_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"gone\.csv: No such file or directory; pass a readable file"):
        read_exclusions(tmp_path / "gone.csv")


@given(st.lists(st.sampled_from(ROWS).map(str.upper), min_size=1), st.lists(st.sampled_from(ROWS)))
def test_added_people_are_excluded_and_their_addresses_are_in_no_file(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], later: list[str]
) -> None:
    path = tmp_path_factory.mktemp("lists") / "forgotten.txt"
    people = {email.lower() for email in first}
    assert add_exclusions(path, first) == len(people)
    assert add_exclusions(str(path), iter(later)) == len({*later} - people)
    people |= {*later}
    listed = read_exclusions(path)
    assert ({*listed.find(ROWS)}, len(listed)) == ({at for at, email in enumerate(ROWS) if email in people}, len(people))
    content = path.read_text(encoding="ascii")
    assert all(len(line) == 64 for line in content.splitlines()[1:])
    assert stat.S_IMODE(Path(f"{path}.key").stat().st_mode) == 0o600


def test_marks_are_added_below_plain_entries_and_an_incomplete_line(tmp_path: Path) -> None:
    path, other = tmp_path / "list.txt", tmp_path / "other.txt"
    add_exclusions(path, ROWS[:1])
    path.write_text(f"{path.read_text(encoding='ascii')}acme.example", encoding="ascii")
    add_exclusions(path, ROWS[2:3])
    assert [*read_exclusions(path).find(ROWS)] == [0, 1, 2]
    add_exclusions(other, ROWS[:1])
    assert path.read_bytes().splitlines()[1] != other.read_bytes().splitlines()[1]  # each list has a key of its own


def test_an_added_address_is_found_in_all_spellings_of_its_domain(tmp_path: Path) -> None:
    spellings = ["ann@xn--bcher-kva.example", "ann@b\u00fccher.example", "ANN@B\u00dcCHER.example."]
    for at, added in enumerate(spellings):
        assert add_exclusions(tmp_path / str(at), [added, *spellings]) == 1
        assert [*read_exclusions(tmp_path / str(at)).find(spellings)] == [0, 1, 2]


def test_a_list_with_a_blank_or_no_key_gets_no_marks(tmp_path: Path) -> None:
    (path := tmp_path / "list.txt").write_text("ann@x.example\n", encoding="ascii")
    with pytest.raises(
        InvalidRequest, match=r"expected a list of marks, whose key is in .*list\.txt\.key, got none; pass another"
    ):
        add_exclusions(path, ROWS)
    Path(f"{path}.key").write_text("\n", encoding="ascii")
    for act in (lambda: read_exclusions(path), lambda: add_exclusions(path, ROWS)):
        with pytest.raises(InvalidRequest, match=r"list\.txt\.key: expected the key of the list, got a blank file; restore it"):
            act()


def test_a_blank_key_without_marks_may_be_deleted(tmp_path: Path) -> None:
    path, key = tmp_path / "list.txt", tmp_path / "list.txt.key"
    key.touch()  # as a process leaves it that is killed before it has written the key
    with pytest.raises(InvalidRequest, match="got a blank file; delete it, because the list has no marks yet"):
        add_exclusions(path, ROWS[:1])
    key.unlink()
    assert add_exclusions(path, ROWS[:1]) == 1


def test_only_emails_are_added(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="expected e-mails, got a text that is none; correct it"):
        add_exclusions(tmp_path / "list.txt", ["ann@x.example", "acme.example"])
    assert not [*tmp_path.iterdir()]


CHECKED = st.lists(st.tuples(st.sampled_from([*ROWS, "", "no@@address", "di@z.example"]), st.sampled_from(["", "camp_1"])))


@given(CHECKED, st.sampled_from(REPEATS))
async def test_a_check_counts_and_tells_the_listed_rows_as_excluded(rows: list[tuple[str, str]], repeats: Any) -> None:
    listed, told, noted = Exclusions(["x.example", "zo@y.example", "acme.example"]), dict[int, str](), list[int]()
    content = "".join(f"{email},{campaign}\n" for email, campaign in rows)
    file = open_file(BytesIO(f"E-mail,Campaign\n{content}".encode()), format="csv")
    mapped = await ImportJob(file=file, overrides={"Campaign": "campaign"}).map()
    found = await mapped.check(
        Preflight(
            repeats=repeats,
            exclude=[Exclusions(["acme.example"], name="other"), listed],
            on_unsent=lambda row, error: told.update({row.line: str(error)} if isinstance(error, Excluded) else {}),
            on_finding=lambda _, line, finding, __: noted.append(line) if finding.check == "exclude" else None,
        )
    )
    expected = {line: email for line, (email, _) in enumerate(rows, 2) if email in ROWS}
    assert ({*told}, found.excluded, sorted(noted)) == ({*expected}, len(expected), sorted(expected))
    assert {told[line] for line, email in expected.items() if "acme" in email} <= {"the list other has the domain acme.example"}
    assert found.rows == found.sent + found.excluded + found.refused + found.superseded


def test_people_to_erase_are_only_those_of_the_columns_of_emails(tmp_path: Path) -> None:
    (path := tmp_path / "asked.csv").write_bytes(b"E-mail,Owner Email\nann@x.example,me@agency.example\n")
    assert read_people(path) == ["ann@x.example"]
    assert {*read_exclusions(path).find(["me@agency.example", "ann@x.example"])} == {0, 1}

"""Plans of imports in parts: every row is in one part, and rows of one e-mail are in one part, in order."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support.examples import scaled

from outreach_async._plumbing import order_key
from outreach_async.errors import InvalidRequest
from outreach_async.importer import open_file
from outreach_async.models import WorkspaceField
from outreach_async.parts import ImportPlan, Part, plan
from outreach_async.parts._planning import open_temporary_file

HEADERS = ["E-mail", "City", "Last Name"]
EMAILS = st.sampled_from(
    ["", " ", "a@x.example", "A@X.example", "a+tag@x.example", "b@x.example", "c.d@gmail.com", "cd@googlemail.com", "é@x.example"]
) | st.integers(0, 40).map("u{}@x.example".format)


@attrs.frozen
class Table:
    """A file to write."""

    kind: str
    emails: Sequence[str]
    group: int
    broken: frozenset[int]

    def write(self, path: Path) -> None:
        rows = [(email, "Lyon", f"row {at}") for at, email in enumerate(self.emails)]
        if self.kind == "csv":
            lines = [",".join(row[:2] if at in self.broken else row) for at, row in enumerate(rows)]
            path.write_text("\n".join([",".join(HEADERS), *lines]) + "\n", encoding="utf-8")
        elif self.kind == "jsonl":
            lines = [json.dumps(dict(zip(HEADERS, row, strict=True))) for row in [("", "", "first"), *rows]]
            path.write_text("\n".join(lines), encoding="utf-8")
        else:
            columns: Any = zip(*rows, strict=True) if rows else ([], [], [])
            names = ["City", "Last Name", "E-mail"] if self.group % 2 else HEADERS
            table = pa.table({name: pa.array(column, pa.string()) for name, column in zip(HEADERS, columns, strict=True)})
            parquet.write_table(table.select(names), path, row_group_size=self.group)


tables = st.builds(
    Table,
    st.sampled_from(["csv", "jsonl", "parquet"]),
    st.lists(EMAILS, max_size=30),
    st.integers(1, 12),
    st.frozensets(st.integers(0, 29), max_size=2),
)


def rows_of(part: Part) -> list[tuple[str, int, str]]:
    """Return location, line and last name of each row."""
    return [(location, row.line, row.cells[-1]) for location, row in part.read()]


def planned(folder: Path, written: Sequence[Table]) -> tuple[list[Path], ImportPlan]:
    paths = [folder / f"{at}.{table.kind}" for at, table in enumerate(written)]
    for path, table in zip(paths, written, strict=True):
        table.write(path)
    return paths, plan(paths)


def all_rows(paths: Sequence[Path]) -> Iterator[tuple[str, int, str, str]]:
    """Yield location, line, last name and e-mail of every row of the files."""
    for path in paths:
        file = open_file(path)
        email = [header.strip() for header in file.headers].index("E-mail")
        for line, cells, _ in file.records():
            yield str(path), line, cells[-1], cells[email]


@pytest.mark.covers
@pytest.mark.thorough
@settings(max_examples=scaled(90))
@given(st.lists(tables, min_size=1, max_size=4))
def test_each_row_is_in_one_part_and_rows_of_one_email_are_in_order(written: list[Table]) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths, made = planned(Path(name), written)
        everything = list(all_rows(paths))
        found = {part.id: rows_of(part) for part in made.parts}
        assert sorted(row for rows in found.values() for row in rows) == sorted(row[:3] for row in everything)
        assert [(part.id, part.rows) for part in made.parts] == [(id_, len(rows)) for id_, rows in found.items()]
        assert (made.rows, len(made.parts)) == (len(everything), len({part.id for part in made.parts}))
        by_key = defaultdict(list)
        for *row, email in everything:
            if email.strip():
                by_key[order_key(email)].append(tuple(row))
        for rows in by_key.values():
            (home,) = [part for part in found.values() if set(rows) & set(part)]
            assert [row for row in home if row in rows] == rows
        assert made.repeated == sum(len(rows) for rows in by_key.values() if len(rows) > 1)


@settings(max_examples=scaled(40))
@given(st.lists(tables, min_size=1, max_size=3))
def test_a_plan_survives_json_and_pickle_and_is_made_alike_again(written: list[Table]) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths, made = planned(Path(name), written)
        assert plan(paths) == made
        assert ImportPlan.from_json(made.to_json()) == pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes
        assert [part.fingerprint() for part in pickle.loads(pickle.dumps(made.parts))] == [  # noqa: S301 - our own bytes
            part.fingerprint() for part in ImportPlan.from_json(made.to_json()).parts
        ]


def test_planning_without_a_temporary_folder_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"^files: cannot store the keys .*: No such file or directory; set TMPDIR to"):
        open_temporary_file(tmp_path / "missing")


def test_row_groups_of_parquet_are_parts_with_lines_of_the_file(tmp_path: Path) -> None:
    Table("parquet", [f"u{at}@x.example" for at in range(10)], 4, frozenset()).write(tmp_path / "p.parquet")
    made = plan([tmp_path / "p.parquet"])
    assert [(part.id, [line for _, line, _ in rows_of(part)]) for part in made.parts] == [
        ("00000", [2, 3, 4, 5]),
        ("00001", [6, 7, 8, 9]),
        ("00002", [10, 11]),
    ]


def test_files_are_read_with_the_options_and_notes_are_no_part_of_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("E-mail;City;Note\nann@x.example;Lyon\n", encoding="utf-8")
    made = plan([path], delimiter="semicolon", short_rows="pad", overrides={"Note": "ignore"})
    assert [dict(row) for part in made.parts for _, row in part.read()] == [{"email": "ann@x.example", "city": "Lyon"}]
    (part,) = plan([path], short_rows="pad", overrides={"Note": "ignore"}).parts
    made = plan([path], short_rows="pad", overrides={"Note": "ignore"})
    assert made.notes == (f"{path}: columns are separated by semicolons",)
    assert attrs.evolve(made, notes=()).parts == (part,)
    path.write_text("Contacts of May\nE-mail,City\nann@x.example,Lyon\n", encoding="utf-8")
    made = plan([path], header_row=2)
    assert [(file.headers, part.rows) for part in made.parts for file in part.files] == [(("E-mail", "City"), 1)]


def test_columns_are_mapped_for_each_file(tmp_path: Path) -> None:
    one, other = tmp_path / "a.csv", tmp_path / "b.csv"
    one.write_text("E-mail,Firm,Plan,Shoes\na@x.example,Acme,gold,x\n", encoding="utf-8")
    other.write_text("Address\nb@x.example\n", encoding="utf-8")
    fields = [WorkspaceField(code="custom_1", label="Plan", searchable=[])]
    made = plan([one, other], overrides={" Firm": "company_name", "Address": "email"}, fields=fields, ignore_unknown=True)
    assert [file.codes for file in made.files] == [("email", "company_name", "custom_1", None), ("email",)]
    assert [dict(row) for part in made.parts for _, row in part.read()] == [
        {"email": "a@x.example", "company_name": "Acme", "custom_1": "gold"},
        {"email": "b@x.example"},
    ]


def test_the_first_of_several_columns_that_has_an_email_decides_the_part(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("Home,Work\nann@x.example,\nbo@x.example, ann@x.example\ncy@x.example,di@x.example\n", encoding="utf-8")
    made = plan([path], overrides={"Work": "email", "Home": "email"})
    assert ImportPlan.from_json(made.to_json()) == made
    assert made.files[0].columns.sources == {"email": (1, 0)}
    assert [[row.line for _, row in part.read()] for part in made.parts] == [[4], [2, 3]]


def test_a_row_of_any_file_excludes_its_person_in_all_files(tmp_path: Path) -> None:
    rows = [("a", "bo@x.example,no\nann@x.example,\ncy@x.example,x"), ("b", "ANN@x.example,yes\nann@x.example,1")]
    for name, text in rows:
        (tmp_path / f"{name}.csv").write_text(f"E-mail,Unsubscribed\n{text}\n", encoding="utf-8")
    first, last = tmp_path / "a.csv", tmp_path / "b.csv"
    others, repeats = plan([first, last]).parts
    assert [row.excluded for _, row in others.read()] == [None, "column 'Unsubscribed' says 'x'"]
    assert [(row.line, row.excluded) for _, row in repeats.read()] == [
        (3, f"same address as {last}: line 2, whose person must not be written to"),
        (2, "column 'Unsubscribed' says 'yes'"),
        (3, "column 'Unsubscribed' says '1'"),
    ]


def test_blank_cells_of_a_part_clear_their_fields_if_the_plan_says_so(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("E-mail,City,ZIP\nann@x.example,,#REF!\n", encoding="utf-8")
    kept, cleared = (plan([path], blank=blank, duplicates="overwrite").parts[0] for blank in ("keep", "clear"))
    ((_, row),) = ImportPlan.from_json(attrs.evolve(plan([path]), options=cleared.options).to_json()).parts[0].read()
    assert dict(row) == {"email": "ann@x.example", "city": None}
    assert kept.fingerprint() != cleared.fingerprint()
    path.write_text("E-mail,City\nann@x.example,Lyon\n", encoding="utf-8")
    ((_, row),) = plan([path]).parts[0].read()
    assert row.plain == (("city", "email"), ("Lyon", "ann@x.example"))  # several times as fast as `members`


REFUSED: Sequence[tuple[Sequence[Any] | str, dict[str, Any], str]] = (
    ([], {}, "files: expected at least one file, got none"),
    ("a.csv", {}, "files: expected Iterable.*, got one string; pass a list"),
    (["a.csv", Path("a.csv")], {}, "files: expected each file once, got .*a.csv twice"),
    (["none.csv"], {}, "none.csv: No such file or directory"),
    (["."], {}, "expected a regular file, got a folder, pipe or device"),
    (["b.csv"], {}, "b.csv: unknown column 'Firm'"),
    (
        ["b.csv"],
        {"overrides": {"Firm": "email"}},
        "b.csv: columns 'E-mail' .* and 'Firm' .* both map to 'email'; pass --map E-mail=email",
    ),
    (["a.csv"], {"overrides": {"Firm": "company_name"}}, "map: no file has the column 'Firm'"),
    (["a.csv"], {"duplicates": "replace"}, "duplicates: expected one of"),
    (["a.csv"], {"campaign": "spring"}, "campaign: "),
    (["a.csv"], {"repeats": "never"}, "repeats: expected one of"),
    (["a.csv"], {"blank": "drop"}, "blank: expected one of"),
    (["a.csv"], {"blank": "clear"}, 'blank: expected duplicates="overwrite" with "clear", got \'skip\''),
    (["a.csv"], {"sheet": "People"}, "sheet: expected xlsx"),
)


@pytest.mark.parametrize(("files", "options", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_plan_that_cannot_be_made_is_refused(files: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with chdir(tmp_path):
        Path("a.csv").write_text("E-mail\nann@x.example\n", encoding="utf-8")
        Path("b.csv").write_text("E-mail,Firm\nann@x.example,Acme\n", encoding="utf-8")
        with pytest.raises(InvalidRequest, match=message):
            plan(files, **options)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"version": 2, "plan": {}}', b'{"version": 1, "plan": {"files": []}}'])
def test_other_data_is_not_a_plan(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="plan: expected a stored plan, got other data"):
        ImportPlan.from_json(data)


CHANGES: dict[str, tuple[str, bool]] = {
    "another size": ("E-mail\nann@x.ex\nbo@x.ex\ncy@x.ex\n", True),
    "another time": ("E-mail\nbob@x.ex\nb@x.ex\n", True),
    "another header": ("E-mail,City\na@x.ex,L\n", False),
    "fewer rows": ("E-mail\na@x.ex\n", False),
    "more rows": ("E-mail\na@x\nb@x\nc@x\n", False),
}
"""The new content of a file, and whether its time changes, too. Otherwise only its rows show the change."""


@pytest.mark.parametrize(("content", "is_noticed"), CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_refused(content: str, is_noticed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("E-mail\nann@x.ex\nbo@x.ex\n", encoding="utf-8")
    (part,) = plan([path]).parts
    version = part.files[0].version
    path.write_text(content.ljust(version.size, "\n"), encoding="utf-8")
    os.utime(path, ns=(0, 0 if is_noticed else int(version.tag)))
    with pytest.raises(InvalidRequest, match=r'a.csv: the file has changed .*; restore the file, or .* with earlier="unknown"'):
        list(part.read())


def test_a_parquet_file_that_lost_row_groups_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    Table("parquet", ["a@x.ex", "b@x.ex"], 1, frozenset()).write(path)
    part = plan([path]).parts[1]
    (piece,) = part.pieces
    with pytest.raises(InvalidRequest, match=r"p.parquet: the file has changed"):
        list(attrs.evolve(part, pieces=(attrs.evolve(piece, number=2),)).read())

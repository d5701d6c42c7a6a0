"""JSON Lines files as programs write them."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import pack, read, refused

from outreach_async.importer import Row, map_columns, open_file

KEYS = ("email", "first_name", "city")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


def rows_of(*lines: str) -> list[Row]:
    return read("\n".join(lines).encode(), format="jsonl")[1]


@given(
    table=st.lists(st.dictionaries(st.sampled_from(KEYS), texts | st.none(), min_size=1), min_size=1, max_size=8),
    ascii_only=st.booleans(),
    ending=st.sampled_from(["\n", "\r\n", "\n\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    gzipped=st.booleans(),
)
def test_every_object_becomes_a_row_and_the_header_has_all_keys(
    table: list[dict[str, str | None]], ascii_only: bool, ending: str, encoding: str, gzipped: bool
) -> None:
    table = [{"email": "a@b.example"}, *table]
    content = "".join(json.dumps(members, ensure_ascii=ascii_only) + ending for members in table)
    file, rows = read(pack(content.encode(encoding), gzipped=gzipped), format="jsonl")
    assert file.headers == tuple(dict.fromkeys(key for members in table for key in members))
    assert [row.cells for row in rows] == [tuple(members.get(key) or "" for key in file.headers) for members in table]
    assert [row.line for row in rows] == [1 + at * len(ending.replace("\r", "")) for at in range(len(table))]


@pytest.mark.parametrize("number", ["41791234567", "1.0", "0.10", "4.10E+3", "-0", "123456789012345678901234567890"])
def test_a_number_keeps_its_spelling_and_a_boolean_becomes_a_word(number: str) -> None:
    assert rows_of(f'{{"email": "a@b.example", "custom_1": {number}}}')[0].cells == ("a@b.example", number)
    assert rows_of('{"email": true, "city": null, "state": false}')[0].cells == ("TRUE", "", "FALSE")
    # As a phone or a postal code, a number has the warning of workbooks.
    for code, value, kinds in ("zip", "1234", ["number"]), ("zip", '"1234"', []), ("custom_1", "7", []):
        (row,) = rows_of(f'{{"email": "a@b.example", "{code}": {value}}}')
        assert ([found.kind for found in row.warnings], row[code]) == (kinds, value.strip('"'))


@pytest.mark.parametrize(("value", "what"), [('{"a": 1}', "an object"), ('["a"]', "an array")])
def test_a_nested_value_is_not_sent_and_causes_a_warning_unless_ignored(value: str, what: str) -> None:
    lines = ('{"email": "a@b.example", "City": "x"}', f'{{"email": "b@b.example", "City": {value}}}')
    plain, nested = rows_of(*lines)
    (remark,) = nested.warnings
    expected = f"expected a single value for the key 'City', got {what}, so it is not sent; use a separate key per value"
    assert (plain.warnings, remark.message, dict(nested)) == ((), f"city: {expected}", {"email": "b@b.example"})
    file = open_file(io.BytesIO("\n".join((lines[0].replace('"x"', "7"), lines[1])).encode()), format="jsonl")
    number, as_it_is = file.rows(map_columns(file.headers), checks=["cells=off"])
    assert (number["city"], number.warnings) == ("7", ())
    assert (as_it_is.fault or "").startswith("city: expected a single value for the key 'City'")
    _, rows = read("\n".join(lines).encode(), {"City": "ignore"})
    assert not any(row.warnings for row in rows)


def test_a_key_that_an_object_does_not_have_and_a_lost_value_clear_no_field() -> None:
    blank = [f'{{"email": "a@a.example", "City": {value}}}' for value in ("null", "{}", "[]", '""', '" "')]
    *cleared, absent, nested = rows_of(*blank, '{"email": "b@b.example"}', '{"email": "c@c.example", "City": [1]}')
    assert [dict(row.clear_blanks()) for row in cleared] == [{"email": "a@a.example", "city": None}] * 5
    assert (dict(absent.clear_blanks()), dict(nested.clear_blanks())) == ({"email": "b@b.example"}, {"email": "c@c.example"})
    assert [row.warnings for row in (*cleared, absent)] == [()] * 6


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[1]", "the line is not a JSON object"),
        ('"email"', "the line is not a JSON object"),
        ('{"email": "x"', "the line is not JSON: "),
        ('{"email": Infinity}', "the line is not JSON: Infinity is not a JSON number"),
        ('{"email": "x", "city": "y", "email": "z"}', "the key 'email' occurs more than once; keep only one"),
        ('{"email": ' + "[" * 100_000, "the line is nested too deeply"),
    ],
)
def test_an_unreadable_line_is_a_row_with_an_error(line: str, fault: str) -> None:
    rows = rows_of('{"email": "a@b.example"}', line, '{"email": "b@b.example"}')
    assert [(row.line, row.cells) for row in rows] == [(1, ("a@b.example",)), (2, ()), (3, ("b@b.example",))]
    assert str(rows[1].fault).startswith(fault)


def test_a_value_or_a_line_that_is_too_long_rejects_its_row() -> None:
    lines = [
        f'{{"email": "{at}", "City": "{"x" * length}"}}' for at, length in (("a@a.example", 131_072), ("b@b.example", 131_073))
    ]
    first, second = read("\n".join(lines).encode(), format="jsonl")[1]
    assert (first.fault, second.fault) == (None, "the value of 'City' is longer than 131,072 characters; shorten it")
    members = {"email": "a@a.example"} | {f"custom_{at}": "x" * 131_072 for at in range(8)}
    first, second = read(f'{{"email": "b@b.example"}}\n{json.dumps(members)}'.encode(), format="jsonl")[1]
    assert (first.fault, second.fault) == (None, "the line is longer than 1,048,576 characters; shorten its values")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"email": "x"}]', "expected an object per line, got a JSON array"),
        ('{"1": {"email": "a@a.example"}, "2": {"email": ""}}', "an object for each key; convert it with: jq -c '.[]'"),
        ("\n", "no header"),
        ("{}\n{}\n", "no header"),
        ('{\n  "email": "a@a.example"\n}\n', "got JSON over several lines, or no JSON; convert it with: jq -c ."),
        ('[\n  {\n    "email": "a@a.example"\n  }\n]\n', "or no JSON; convert it with: jq -c '.[]'"),
        (
            '{"page": 1, "my people": [{"email": "a@a.example"}]}',
            "list of objects, 'my people'; convert it with: jq -c '.\"my people\"[]'",
        ),
        ("\n".join(f'{{"{at}": 1}}' for at in range(1002)), "expected at most 1,000 keys, got more in the first 1001 lines"),
        ('{"email": "x"}\n{"email": "\xf6"}'.encode("latin-1"), "line 2 is not UTF-8 text"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(content: str | bytes, message: str) -> None:
    assert message in refused(read, content if isinstance(content, bytes) else content.encode(), format="jsonl")


@pytest.mark.parametrize(
    ("name", "content", "program"),
    [
        ("people.json", b'[{"email": "a@a.example"}]', "jq -c '.[]' {path} > {folder}/people.lines.jsonl"),
        ("my people.jsonl", b'{\n"email": ""\n}', "jq -c . '{path}' > '{folder}/my people.lines.jsonl'"),
        ("p.jsonl.gz", gzip.compress(b"[1]", mtime=0), "gzip -dc {path} | jq -c '.[]' > {folder}/p.lines.jsonl"),
    ],
)
def test_the_error_has_the_command_that_converts_other_json(tmp_path: Path, name: str, content: bytes, program: str) -> None:
    (path := tmp_path / name).write_bytes(content)
    assert refused(open_file, path).endswith(f"; convert it with: {program.format(path=path, folder=tmp_path)}")


@pytest.mark.parametrize("form", ["[\n{},\n{}\n]\n", "{},\n{},\n", "\n[\n  {}\n ,\n  {}\n]"])
def test_the_objects_of_an_array_with_a_line_for_each_are_read(form: str) -> None:
    people = [f'{{"email": "{name}@a.example"}}' for name in "ab"]
    rows = read(form.replace("{}", "%s").replace("\n ,", ",").__mod__(tuple(people)).encode(), format="jsonl")[1]
    assert [row.email for row in rows] == ["a@a.example", "b@a.example"]


def test_keys_that_differ_only_in_spaces_are_numbered() -> None:
    file, rows = read(b'{"email": "a@b.example", " city": "x", "city": "y", "": ""}', {"city": "ignore", "city (2)": "city"})
    assert file.headers == ("email", " city", "city (2)")
    assert dict(rows[0]) == {"email": "a@b.example", "city": "y"}


def test_the_encoding_can_be_given(tmp_path: Path) -> None:
    (path := tmp_path / "people.jsonl").write_bytes('{"email": "a@b.example", "city": "Köln"}'.encode("cp1252"))
    file = open_file(path, encoding="cp1252")
    assert file.notes == ("encoding cp1252, as specified",)
    assert next(file.rows(map_columns(file.headers)))["city"] == "Köln"


def test_consent_that_cannot_be_read_excludes_its_row_an_empty_array_does_not(tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl"
    values = ['{"reason": "hard"}', "[]", "true", "false", "null"]
    path.write_text("\n".join(f'{{"email": "a{at}@a.example", "bounced": {value}}}' for at, value in enumerate(values)))
    file = open_file(path)
    excluded = [row.excluded for row in file.rows(map_columns(file.headers))]
    assert excluded[0] is not None
    assert excluded[0].startswith("column 'bounced': expected a single value for the key 'bounced', got an object")
    assert excluded[1:] == [None, "column 'bounced' says 'TRUE'", None, None]

"""Text files that are divided: the parts have the rows of the whole file, and each is read without the others."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.importer import open_file

BREAKS = st.sampled_from(["\n", "\r\n", "\r"])
CELLS = st.text(st.sampled_from('aé"\n\r, \ufeff'), max_size=6)
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=12)


def quote(cells: Sequence[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    lines = [quote(("E-mail", "City"))] + [
        draw(st.sampled_from(["", " ", "a", "a,b,c", quote(row)])) for row in [("row", "fits"), *draw(ROWS)]
    ]
    return draw(st.sampled_from(["", "sep=,\r\n", "\ufeff"])) + "".join(line + draw(BREAKS) for line in lines)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    lines = [json.dumps({"E-mail": first, "City": second}, ensure_ascii=False) for first, second in [("row", ""), *draw(ROWS)]]
    lines[1:] = [draw(st.sampled_from(["", "[1]", "no json", line])) for line in lines[1:]]
    return draw(st.sampled_from(["", "\ufeff", "[\n"])) + "".join(line + draw(BREAKS) for line in lines)


@given(
    kind_and_text=st.one_of(st.tuples(st.just("csv"), csv_texts()), st.tuples(st.just("jsonl"), json_texts())),
    parts=st.integers(1, 8),
)
def test_the_parts_of_a_text_have_its_rows_in_order(kind_and_text: tuple[str, str], parts: int) -> None:
    kind, text = kind_and_text
    with TemporaryDirectory() as folder:
        _check_parts(Path(folder, f"people.{kind}"), text, parts)


def _check_parts(path: Path, text: str, parts: int) -> None:
    path.write_bytes(text.encode() + b"\0" * (parts % 2))
    options: Any = {"delimiter": ","} if path.suffix == ".csv" and not text.startswith("sep") else {}
    whole = open_file(path, **options)
    divided = whole.split(parts)
    assert len(divided) <= parts
    assert [row for part in divided for row in part.records()] == [*whole.records()]
    for part in divided if len(divided) > 1 else ():
        assert part.span is not None
        again = attrs.evolve(open_file(path, keys=whole.keys, **options), span=part.span)
        assert [*again.records()] == [*part.records()]
        assert again.count() == part.span.rows


@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_a_byte_order_mark_within_a_text_belongs_to_its_row(tmp_path: Path, begin: str) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(f"{begin}E-mail\nann@x.example\n\ufeffbo@x.example\n".encode())
    first, second = open_file(path).split(2)
    assert [*first.column(0), *second.column(0)] == ["ann@x.example", "\ufeffbo@x.example"]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "koi8-r", "utf-16", "utf-32", "utf-7", "cp932", "gb18030"])
def test_a_text_is_divided_if_its_characters_are_independent_bytes(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("E-mail\na@x.example\nb@x.example\n".encode(encoding))
    divided = open_file(path, encoding=encoding).split(2)
    assert len(divided) == (2 if encoding in {"cp1252", "utf-8", "koi8-r"} else 1)


def test_a_compressed_file_is_not_divided(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(b"E-mail\na@x.example\nb@x.example\n"))
    assert open_file(path).split(2)[0].span is None


def test_known_keys_of_json_lines_are_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl"
    path.write_text('{"email": "a@x.example"}\n')
    assert open_file(path, keys=("email", "city")).headers == ("email", "city")

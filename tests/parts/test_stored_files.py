"""Files by location: paths and URLs, objects read over a real socket, and versions."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from support.files import opendocument
from support.s3 import BUCKET, SECRET, Proxy, environment, serve_s3

from outreach_async._plumbing import open_store
from outreach_async.errors import InvalidRequest
from outreach_async.parts import find_files, plan
from outreach_async.parts._stored_files import StoredObject, read_version

CSV = b"E-mail,City\nann@x.example,Lyon\nbo@x.example,Rome\n"


def put(url: str, data: bytes) -> str:
    store, key = open_store(url, "files")
    obstore.put(store, key, data)
    return url


def parquet_bytes() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"E-mail": [f"u{at}@x.example" for at in range(6)]}), file, row_group_size=4)
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "location"),
    [
        ("/data/a.csv", "/data/a.csv"),
        (Path("/data/a b.csv"), "/data/a b.csv"),
        ("file:///data/a%20b.csv", "/data/a b.csv"),
        ("file://localhost/data/a.csv", "/data/a.csv"),
        ("S3://Bucket/a/b%20c.csv", "s3://Bucket/a/b%20c.csv"),
        ("gs://bucket/a.csv", "gs://bucket/a.csv"),
        ("az://container//a.csv", "az://container/a.csv"),
    ],
)
def test_a_location_is_an_absolute_path_or_a_url(file: str, location: str) -> None:
    assert find_files(str(file)) == [location] == find_files(location)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("-", "got '-' .standard input."),
        ("s3://user:hidden@bucket/a.csv", "without user, query or fragment"),
        ("s3://bucket/a.csv?signature=hidden", "without user, query or fragment"),
        ("file://host/a.csv", "without a host"),
        ("https://host/a.csv", "expected a path or a URL with file://, s3://"),
        ("s3://bucket", "with a bucket and a key"),
        ("s3:///a.csv", "with a bucket and a key"),
    ],
)
def test_other_locations_are_refused_without_their_secrets(file: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^files: .*{message}") as caught:
        find_files(file)
    assert "hidden" not in str(caught.value)


@given(st.binary(max_size=200_000), st.lists(st.tuples(st.integers(0, 210_000), st.integers(0, 150_000)), max_size=6))
def test_an_object_reads_like_a_file(data: bytes, reads: list[tuple[int, int]]) -> None:
    url = put("memory://reads/a.bin", data)
    with StoredObject(url, read_version(url)).open() as reader:
        for at, size in reads:
            assert reader.seek(at) == at
            assert reader.read(size) == data[at : at + size]
            assert reader.read(10) == data[at : at + size + 10][min(size, len(data[at:])) :]
        assert reader.seek(0, io.SEEK_END) == len(data)
        reader.seek(0)
        assert reader.read() == data


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [
        ("a.csv", CSV, [2]),
        ("a.csv.gz", gzip.compress(CSV, mtime=0), [2]),
        ("a.jsonl", b'{"email": "ann@x.example"}\n', [1]),
        ("a.parquet", parquet_bytes(), [4, 2]),
        ("a.ods", opendocument([["E-mail"], ["ann@x.example"]]), [1]),
    ],
)
def test_every_format_is_read_from_an_object_store(name: str, data: bytes, rows: list[int]) -> None:
    made = plan([put(f"memory://formats/{name}", data)])
    assert [len(list(part.read())) for part in made.parts] == rows
    assert made.files[0].location == f"memory://formats/{name}"


@pytest.mark.covers
@pytest.mark.thorough
def test_an_object_that_is_replaced_while_it_is_read_is_refused() -> None:
    url = put("memory://changes/a.csv", b"E-mail\n" + b"".join(b"u%d@x.example\n" % at for at in range(30_000)))
    (part,) = plan([url]).parts
    rows = part.read()
    next(rows)
    put(url, CSV)
    with pytest.raises(InvalidRequest, match=r"memory://changes/a.csv: the file has changed since the import was planned"):
        list(rows)
    with pytest.raises(InvalidRequest, match="the file has changed"):
        next(part.read())


def test_a_missing_object_is_an_error_with_its_url() -> None:
    with pytest.raises(InvalidRequest, match=r"^memory://none/a.csv: no such object; pass the URL"):
        plan(["memory://none/a.csv"])


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with serve_s3() as port, Proxy(port).running() as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        yield proxy


def test_an_object_on_s3_is_read_with_hidden_credentials_of_the_environment(proxy: Proxy) -> None:
    made = plan([put(url := f"s3://{BUCKET}/a.csv", CSV)])
    assert [row["email"] for part in made.parts for _, row in part.read()] == ["ann@x.example", "bo@x.example"]
    assert SECRET not in made.to_json().decode()
    proxy.forbids_reads = True
    with pytest.raises(InvalidRequest, match=rf"^{url}: .*403.*; check the URL, and the credentials") as caught:
        plan([url])
    assert SECRET not in str(caught.value)


@pytest.mark.thorough
def test_without_the_extra_the_error_names_it() -> None:
    code = """
import sys
sys.modules["obstore"] = None
from outreach_async.parts import find_files, plan
plan(["s3://bucket/a.csv"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("files: s3:// needs the extra 'lake'; run pip install 'outreach_async[lake]'")

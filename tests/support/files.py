"""Create and read files for tests of the importer."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal
from xml.sax.saxutils import escape, quoteattr

import pytest

from outreach_async.errors import InvalidRequest
from outreach_async.importer import Columns, File, Row, map_columns, open_file
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._rows import Block, ReadBlock, RowReader
from outreach_async.importer._source import ByteSource, StreamCopy
from outreach_async.importer._workbook import ReaderResult, WorkbookFile
from outreach_async.importer._workbook_reader import SheetOptions, read_workbook, run_reporting_errors

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"

GENERAL, ZIP, DATE, MOMENT, DURATION, PERCENT = range(6)
"""Indexes of the cell styles in `STYLES`."""

STYLES = f"""<styleSheet xmlns="{MAIN}">
<numFmts count="1"><numFmt numFmtId="164" formatCode="00000"/></numFmts>
<cellStyleXfs count="1"><xf numFmtId="164"/></cellStyleXfs>
<cellXfs count="6"><xf numFmtId="0"/>
<xf numFmtId="164"/><xf numFmtId="14"/><xf numFmtId="22"/><xf numFmtId="46"/><xf numFmtId="9"/></cellXfs>
<dxfs count="1"><dxf><numFmt numFmtId="164" formatCode="000"/></dxf></dxfs></styleSheet>"""


_XLS: Final = (
    "c-rk)O=uHA6#izDG(R-yrlvwGlu$9&S_JXZOS`eCJz1(A6cKc5_Yj(HLr~COY^^y8f+xjGp%*VzFaDs1_97mHiXH?(Nc7;rlc3N;o9&yoyOL@T"
    "4YZ}oe9L_E_RX7_m-%^{nRkoH^30RA3jRPJ0;oDsG}Pz>rKta+gUTI8ihdrU<S6`8h(>548$x&)e;bx_DCfHZ4UdBh#K0Fy7f`_9xNW7k5&i6g"
    "DWng*!~zdUlRztb)y#aEc^C5|wtU5$WzB8oUa~EV^H?+nyL!A;d`|1&vIJzi&$!Mf)*MC)-pEya<Bo7`LpWN@nfaYr&>n2WENI>aEZZuY`7%;8"
    "fwTDKq=BFQPMuFH{r2hwNWZjJA6`d)R|^7@a4zuzFHvxP9dIZ3%rY{NvP>bs8Z&cwk|%P7IAGd#);wfgGsg;fD<-2d?_zz;E{^l+ZX_N-6U#|n"
    "<2uFZ<%d7spBx@CF0y8lBexsh_eq!FU`p1Y$_XyfesdS|LFSv>>K>Ncm{a5{<(Z)tPdG8nHn+GmL;W0Kd@%Oc$ekpYzMp#DUixYrAbD<}GLf45"
    "Xw0C4hGc~5%V!$hqFda*C-K7YbK%8;&&;iV#f6Bbd%io~N301eh_RStcHiXa2+v-uV=vfVwiuu>5o}Kp<k+{Xd;9yeW<2E~%GP`>V^B~~P*6}%"
    "P*70VX%OE3dU?(Wx@QeOJ%qh`ofS$|bxrc$;xxwTxk3li<FF|&;(A@{XE#E^Z%b^jj(=Y$ah7^7Vid#d$7tQ_mrj48_V;YKqP}@ssNVjo_4v8P"
    "{jUN_<HNT"
)


def old_workbook() -> bytes:
    """Return an XLS file with the headers email and zip, and one row: ann@a.example and the number 41791234567."""
    return zlib.decompress(base64.b85decode(_XLS))


def read_cells(columns: Columns, *cells: Sequence[str], checks: Iterable[str] = ()) -> ReadBlock:
    """Read rows of these cells, the first of which is in line 2, with every finding."""
    block = Block([*range(2, len(cells) + 2)], [*map(tuple, cells)], {})
    return RowReader(columns, CheckPolicy.of(checks), finds_all=True).read(block)


def read_row(columns: Columns, *cells: str, checks: Iterable[str] = ()) -> Row:
    return read_cells(columns, cells, checks=checks).row(0)


def read(file_source: str | bytes, overrides: Mapping[str, str] | None = None, **options: Any) -> tuple[File, list[Row]]:
    """Open a path, or bytes as a stream, and return the file and all of its rows. The row count of the file is checked."""
    return _all_of(open_file(io.BytesIO(file_source) if isinstance(file_source, bytes) else file_source, **options), overrides)


def _all_of(file: File, overrides: Mapping[str, str] | None) -> tuple[File, list[Row]]:
    rows = list(file.rows(map_columns(file.headers, overrides)))
    assert file.count() == len(rows)
    assert [(row.line, row.cells) for row in rows] == [(line, cells) for line, cells, _ in file.records()]
    return file, rows


def read_here(source: ByteSource, options: SheetOptions) -> tuple[ReaderResult, StreamCopy]:
    """Read a workbook in this process instead of a child process, so that coverage is measured."""
    rows = io.BytesIO()
    with source.open_raw() as file:
        found = run_reporting_errors(lambda: read_workbook(file, options, rows.write, lambda: None))
    if "refused" in found:
        raise InvalidRequest(f"{source.name}: {found['refused']}")
    return ReaderResult(**found), StreamCopy(io.BytesIO(rows.getvalue()))


def read_sheet(
    content: bytes, overrides: Mapping[str, str] | None = None, sheet: str | None = None, **options: Any
) -> tuple[File, list[Row]]:
    """Read a workbook in this process, and return the file and all of its rows."""
    source = ByteSource.of(io.BytesIO(content))
    return _all_of(WorkbookFile.of(source, SheetOptions(sheet, **options), read=read_here), overrides)


def csv_text(
    table: Iterable[Sequence[str]], *, delimiter: str = ",", ending: str = "\n", quoting: Literal[0, 1, 2] = csv.QUOTE_MINIMAL
) -> str:
    """Return rows as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=ending, quoting=quoting).writerows(table)
    return text.getvalue()


def pack(content: bytes, *, gzipped: bool) -> bytes:
    """Return the content, compressed with gzip if `gzipped`."""
    return gzip.compress(content, mtime=0) if gzipped else content


def text(value: str) -> str:
    """Return the XML of a cell with a string; an empty cell if the string is empty."""
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>' if value else "<c/>"


def number(value: float | str, style: int = GENERAL) -> str:
    """Return the XML of a cell with a number."""
    return f'<c s="{style}"><v>{value}</v></c>'


def boolean(value: int) -> str:
    """Return the XML of a cell with a boolean."""
    return f'<c t="b"><v>{value}</v></c>'


def formula(shown: str) -> str:
    """Return the XML of a cell with a formula whose value is a string."""
    return f'<c t="str"><f>A1</f><v>{escape(shown)}</v></c>'


def error(shown: str = "#N/A") -> str:
    """Return the XML of a cell with a formula whose value is an error."""
    return f'<c t="e"><f>NA()</f><v>{shown}</v></c>'


def at(place: str, cell: str) -> str:
    """Add a reference such as `A1` to the XML of a cell. A cell without a reference follows the previous cell."""
    return cell.replace("<c", f'<c r="{place}"', 1)


def sheet_of(rows: Iterable[Sequence[str]]) -> str:
    """Return the XML of the rows of a sheet."""
    return "".join(f"<row>{''.join(row)}</row>" for row in rows)


def workbook(
    sheets: Mapping[str, str],
    *,
    hidden: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    root: str = "",
    styles: str = STYLES,
    before: str = "",
    after: str = "",
) -> bytes:
    """Return an XLSX file. `before` and `after` is XML of each sheet around its rows."""
    listed = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{at}" r:id="r{at}"{" state=" + quoteattr("hidden") if name in hidden else ""}/>'
        for at, name in enumerate(sheets, 1)
    )
    related = "".join(
        f'<Relationship Id="r{at}" Type="{RELATIONS}/worksheet" Target="{root}worksheets/sheet{at}.xml"/>'
        for at in range(1, len(sheets) + 1)
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="{RELATIONS}/officeDocument"'
        ' Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{related}</Relationships>',
        "xl/styles.xml": styles,
        **{
            f"xl/worksheets/sheet{at}.xml": f'<worksheet xmlns="{MAIN}">{before}<sheetData>{rows}</sheetData>{after}</worksheet>'
            for at, rows in enumerate(sheets.values(), 1)
        },
    }
    return _zipped({path: content for path, content in parts.items() if path not in leave_out})


def opendocument(rows: Iterable[Sequence[str]]) -> bytes:
    """Return an ODS file whose cells are strings."""
    return opendocument_of("".join(f"<table:table-row>{''.join(map(_office_text, row))}</table:table-row>" for row in rows))


def opendocument_of(table: str) -> bytes:
    """Return an ODS file; `table` is the XML of its rows."""
    spaces = " ".join(f'xmlns:{name}="{OFFICE}:{name}:1.0"' for name in ("office", "table", "text"))
    content = (
        f'<office:document-content {spaces} office:version="1.2"><office:body><office:spreadsheet>'
        f'<table:table table:name="People">{table}</table:table></office:spreadsheet></office:body></office:document-content>'
    )
    manifest = f'<manifest:manifest xmlns:manifest="{OFFICE}:manifest:1.0"/>'
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    return _zipped({"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content})


def _office_text(cell: str) -> str:
    return f'<table:table-cell office:value-type="string"><text:p>{escape(cell)}</text:p></table:table-cell>'


def _zipped(parts: Mapping[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in parts.items():
            archive.writestr(path, content)
    return file.getvalue()


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the error of a call that must raise `InvalidRequest`."""
    with pytest.raises(InvalidRequest) as caught:
        call(*arguments, **options)
    return str(caught.value)

"""Printed remedies, pasted into a shell: nothing of the file is lost or mangled, and the next run does what the text says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import pytest
from support.cli import COMMANDS, Served
from support.files import sheet_of, text, workbook

from outreach_async.fake import FakeService, faults

ANN: Final = "ann@x.example"
ODD_NAMES: Final = (
    "a=b",
    "It's",
    'say "hi"',
    "two\nlines",
    "--nothing",
    "-x",
    "$HOME `id` $(id)",
    "x;y & z | w > v",
    "# number",
    "back\\slash",
    "50 % *",
    "Größe",
    "!history",
    "~tilde {a,b}",
    "=sum",
    "tab\there",
    "a=",
    "no\u00a0break",
    "\u200bzero width\u200b",
    "x" * 300,
    "CODE",
    "\nlast line",
    "\U0001f600",
    "e\u0301 in two characters",
)
"""Names that a shell, or the parser of options, may read in another way."""


FLAGS: Final = {flag for command in COMMANDS.values() for parameter in command.params for flag in parameter.opts}


def paste(line: str) -> list[str]:
    """Return the arguments that a command receives if a line is pasted behind it."""
    done = subprocess.run(["/bin/sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


def pasted_options(output: str) -> list[str]:
    """Return the arguments of all lines that consist of options, each as it would be pasted."""
    lines = output.replace("\\\n", " ").splitlines()
    return [argument for line in lines if re.match(r"  --[a-z]", line) for argument in paste(line.strip())]


def stored(service: FakeService) -> dict[str, dict[str, Any]]:
    return {contact["email"]: dict(contact["fields"]) for contact in service.contacts("space_1")}


def quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def odd_file(name: str) -> str:
    return f"email,{quote(name)},Town\n{ANN},Großartig,Lyon\n"


@pytest.mark.parametrize("name", [*ODD_NAMES[:4], *(pytest.param(name, marks=pytest.mark.thorough) for name in ODD_NAMES[4:])])
def test_the_option_for_an_unknown_column_maps_it_whatever_its_name(name: str, served: Served) -> None:
    people = served.save(odd_file(name))
    error = served.refused("import", people, *served.options)
    options = [
        option.removesuffix("=CODE") + "=custom_1" if option.endswith("=CODE") else option for option in pasted_options(error)
    ]
    assert options[::2] == ["--map"] * (len(options) // 2)
    done = served("import", people, *served.options, *options)
    assert done.code == 0, done
    assert "Großartig" in stored(served.service)[ANN].values()
    assert "Lyon" in stored(served.service)[ANN].values()


@pytest.mark.parametrize("at", [0, *(pytest.param(at, marks=pytest.mark.thorough) for at in range(1, len(ODD_NAMES)))])
def test_the_options_for_many_columns_come_from_one_file(at: int, served: Served) -> None:
    names = sorted(ODD_NAMES, key=lambda name: name != ODD_NAMES[at])
    people = served.save(f"email,{','.join(map(quote, names))}\n{ANN},{','.join(map(str, range(len(names))))}\n")
    error = served.refused("import", people, *served.options)
    (flag, _) = paste(re.findall(r"--save-mapping mapping\.toml", error)[0])
    saved = served.folder / "my mapping's $file.toml"
    error = served.refused("import", people, *served.options, flag, str(saved))
    (remedy,) = re.findall(r"pass (--mapping .*) instead", error)
    draft = saved.read_text(encoding="utf-8")
    saved.write_text(draft.replace('= "CODE"', '= "custom_1"', 1).replace('= "CODE"', '= "ignore"'), encoding="utf-8")
    done = served("import", people, *served.options, *paste(remedy))
    assert done.code == 0, done
    assert stored(served.service) == {ANN: {"custom_1": "0"}}


@attrs.frozen
class Case:
    """A file, and the remedy to paste: the part of the output that the pattern finds, with what a user types for placeholders."""

    name: str
    content: bytes
    pattern: str
    expected: Mapping[str, Mapping[str, str]]
    options: Sequence[str] = ()
    typed: Mapping[str, str] = attrs.field(factory=dict)
    is_refused: bool = True


def sheets_of(sheets: Mapping[str, Sequence[Sequence[str]]]) -> bytes:
    return workbook({name: sheet_of([[*map(text, row)] for row in rows]) for name, rows in sheets.items()})


PEOPLE: Final = [["email", "first_name"], [ANN, "Ann"]]
ANN_ONLY: Final = {ANN: {"first_name": "Ann"}}
OTHER: Final = [["email", "first_name"], ["bo@x.example", "Bo"]]
HIDDEN_ROWS: Final = sheet_of([[*map(text, row)] for row in PEOPLE]) + (
    sheet_of([[*map(text, OTHER[1])]]).replace("<row", '<row hidden="1"')
)
CASES: Final = (
    Case(
        "an unusual delimiter",
        f"email:first_name\n{ANN}:Ann\n".encode(),
        r"(--delimiter \S+)",
        ANN_ONLY,
    ),
    Case(
        "short rows",
        f"email,first_name,city\n{ANN},Ann\nbo@x.example,Bo,Bern\n".encode(),
        r"(--short-rows pad)",
        {ANN: {"first_name": "Ann"}, "bo@x.example": {"first_name": "Bo", "city": "Bern"}},
        is_refused=False,
    ),
    Case("an encoding without its mark", f"email,first_name\n{ANN},Ann\n".encode("utf-16-le"), r"(--encoding \S+)", ANN_ONLY),
    Case(
        "a title before the header",
        f"My people\n\nemail,first_name\n{ANN},Ann\n".encode(),
        r"(--header-row N)|(--header-row \d+) if that line",
        ANN_ONLY,
        typed={"N": "3"},
    ),
    Case(
        "a column of campaigns with an unknown name",
        f"email,first_name,Campaign\n{ANN},Ann,Spring\nbo@x.example,Bo,Sprnig\n".encode(),
        r"(--map Campaign=campaign) ",
        ANN_ONLY,
    ),
    Case(
        "unknown columns that nobody needs",
        f"email,first_name,Shoe size\n{ANN},Ann,41\n".encode(),
        r"or (--ignore-unknown)",
        ANN_ONLY,
    ),
    Case(
        "repeated addresses and a ledger",
        f"email,first_name\n{ANN},Anna\n{ANN},Ann\n".encode(),
        r"to send only the last one: (--repeats last)",
        ANN_ONLY,
        options=("--ledger", "my ledger's file", "--duplicates", "overwrite"),
        is_refused=False,
    ),
    Case(
        "a workbook whose second sheet is meant",
        sheets_of({"$(id) `id`": OTHER, 'Ann\'s "first" $HOME': PEOPLE}),
        r"as (--sheet): (.*)",
        {**ANN_ONLY, "bo@x.example": {"first_name": "Bo"}},
        is_refused=False,
    ),
    Case("a workbook whose first sheet is empty", sheets_of({" a": [], "-b c": PEOPLE}), r"as (--sheet): (.*)", ANN_ONLY),
    Case(
        "hidden rows",
        workbook({"S": HIDDEN_ROWS}),
        r"pass (--hidden skip)",
        ANN_ONLY,
        options=("--dry-run",),
        is_refused=False,
    ),
    Case(
        "a file whose suffix is wrong",
        b'{"email": "ann@x.example", "first_name": "Ann"}\n',
        r"pass (--format \S+)",
        ANN_ONLY,
    ),
    Case(
        "a row that a check rejects",
        f"email,first_name,work_phone\n{ANN},Ann,+33 1 70 18 99 00\nbo@x.example,Bo,12\n".encode(),
        r"1 row: (--check \S+) ",
        {ANN: {"first_name": "Ann", "work_phone": "+33 1 70 18 99 00"}, "bo@x.example": {"first_name": "Bo"}},
        options=("--check", "phone=error"),
        is_refused=False,
    ),
    Case(
        "an address twice",
        f"email,first_name\n{ANN},Anna\n{ANN},Ann\n".encode(),
        r"1 row: (--repeats serial) sends",
        ANN_ONLY,
        options=("--repeats", "error", "--duplicates", "overwrite"),
        is_refused=False,
    ),
    Case(
        "an address twice, with a journal",
        f"email,first_name\n{ANN},Anna\n{ANN},Ann\n".encode(),
        r"1 row: (--repeats serial --journal .*) sends",
        ANN_ONLY,
        options=("--repeats", "error", "--duplicates", "overwrite", "--journal", "my journal's file.db"),
        is_refused=False,
    ),
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.thorough] if at > 1 else []) for at, case in enumerate(CASES)],
    ids=lambda case: case.name,
)
def test_a_printed_remedy_works_when_it_is_pasted(case: Case, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.folder)
    people = served.folder / ("people's list.xlsx" if case.content[:2] == b"PK" else "my people's list.csv")
    people.write_bytes(case.content)
    first = served("import", str(people), *served.options, *case.options)
    assert (first.code == 2) == case.is_refused, first
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", first.out + first.err)) <= FLAGS
    found = re.search(case.pattern, first.out + first.err)
    assert found, first
    remedy = " ".join(filter(None, found.groups()))
    for placeholder, value in case.typed.items():
        remedy = re.sub(rf"\b{placeholder}\b", value, remedy)
    options = [option for option in case.options if option != "--dry-run"]
    done = served("import", str(people), *served.options, *options, *paste(remedy))
    assert not re.search(case.pattern, done.out + done.err), done
    assert stored(served.service) == case.expected


@pytest.mark.thorough
def test_commands_about_a_journal_work_whatever_the_names_of_its_files(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.folder)
    people, journal = served.folder / "people's list $1.csv", "the journal's `file`"
    people.write_text(f"email,first_name\n{ANN},Ann\nbo@x.example,Bo\n")
    served.service.faults.script("create_contact", faults.commit_then(faults.reset()))
    done = served("import", people.name, *served.options, "--journal", journal, "--concurrency", "1")
    (command,) = re.findall(r"list these rows with: outreach-async (.*)", done.out)
    listed = served(*paste(command))
    assert (listed.code, ANN in listed.out) == (0, True), listed
    report = served("report", journal, "--input", people.name)
    assert report.code == 2
    text = served("report", journal).out
    (options,) = re.findall(r"list these rows with (--uncertain.*)", text)
    assert served("report", journal, *paste(options)).code == 0


@pytest.mark.thorough
def test_a_run_that_stopped_is_continued_by_the_same_command(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.folder)
    people = served.save("email\n" + "".join(f"user{number}@x.example\n" for number in range(30)))
    wrong = ("--base-url", served.options[1], "--workspace", "space_1", "--owner-key", "key_wrong")
    options = ("--journal", "a journal's file", "--concurrency", "1")
    stopped = served("import", people, *wrong, *options)
    assert "run the same command again: it continues the run in " in stopped.out
    done = served("import", people, *served.options, *options)
    assert done.code == 0, done
    assert len(stored(served.service)) == 30


@pytest.mark.thorough
def test_rejects_are_written_to_a_file_that_is_imported_once_it_is_corrected(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(served.folder)
    people = served.save(f"email,first_name\n{ANN},Ann,extra\nbo.example,Bo\n")
    for more, pattern in (
        ((), r"rows?: (--rejects \S+) writes"),
        (("--journal", "a b's.db"), r"outreach-async (report .*) writes"),
    ):
        done = served("import", people, *served.options, *more)
        remedy = re.findall(pattern, done.out)[0]
        again = served("import", people, *served.options, *paste(remedy)) if not more else served(*paste(remedy))
        assert again.code in {0, 3}, again
        rejects = served.folder / "rejects.csv"
        assert "Ann" in rejects.read_text()
        assert served("import", str(rejects), *served.options).code == 3
        assert stored(served.service) == {}
        rejects.unlink()

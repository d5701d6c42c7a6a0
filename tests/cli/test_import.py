"""The import command: columns, checks and what it prints before it starts; other files test the outcomes of rows."""

from __future__ import annotations

import csv
import shlex
import tomllib
from pathlib import Path

import pytest
from support.cli import Served, Shell, save_contacts
from support.exports import EXPORTS, write_export
from support.files import sheet_of, text, workbook

from outreach_async.fake import FakeService
from outreach_async.fake.faults import ok, status
from outreach_async.importer import map_columns

PEOPLE = """E-mail,Country,Work Phone,Plan
ann@a.example,US,+1 206 555 0100,Gold
bo@@gamil.com,Germny,12,
info@c.example,DE,,
ann@a.example,US,,Silver
"""


def posts(service: FakeService) -> int:
    return sum(request.operation == "create_contact" for request in service.requests)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_column_mapping_is_shown_before_the_first_row_is_sent(served: Served) -> None:
    out = served("import", served.save(PEOPLE), *served.options).out
    assert out.splitlines()[:5] == [
        "column\tcode\twhy",
        "E-mail\temail\tby name",
        "Country\tcountry\tby name",
        "Work Phone\twork_phone\tby name",
        "Plan\tcustom_1\tworkspace field",
    ]


def test_a_known_export_is_imported_without_a_mapping(served: Served) -> None:
    name, header = EXPORTS["hubspot"]
    done = served("import", served.save(write_export(header, map_columns(header.split(",")).codes)), *served.options)
    assert (done.code, f"recognised as an export from {name}\n" in done.out) == (0, True)
    (contact,) = served.service.contacts("space_1")
    assert (contact["email"], contact["fields"]["last_name"]) == ("ada.example@works.example", "Example")
    assert all(f"\n{column}\t" in done.out for column in header.split(","))


def test_a_mapping_is_saved_and_read_back(served: Served) -> None:
    path, mapping = served.save("Mail,Town,Rest\nann@a.example,Rome,x\n"), served.folder / "map.toml"
    mapping_options = ("--map", "Mail=email", "--map", "Town=city", "--ignore-unknown", "--save-mapping", str(mapping))
    assert served("import", path, "--dry-run", *mapping_options, *served.options).code == 0
    assert tomllib.loads(mapping.read_text())["columns"] == {"Mail": "email", "Town": "city", "Rest": "ignore"}
    assert served("import", path, "--mapping", str(mapping), *served.options).code == 0
    assert served.service.contacts("space_1")[0]["fields"] == {"city": "Rome"}
    _, value = served.json("import", path, "--mapping", str(mapping), "--map", "Town=region", "--dry-run", *served.options)
    assert value["columns"] == {"Mail": "email", "Town": "region", "Rest": "ignore"}
    output = served("import", served.save("Mail\nann@a.example\n"), "--mapping", str(mapping), "--dry-run").out
    assert "note: --mapping: the input file has no column 'Town'\n" in output


def test_a_file_that_lost_the_column_of_consent_of_its_mapping_is_refused(served: Served) -> None:
    mapping = served.folder / "map.toml"
    mapping.write_text('[columns]\nOut = "opt_out"\n')
    options = ("--mapping", str(mapping), *served.options)
    refused = served("import", served.save("email\nann@a.example\n"), *options)
    assert refused.code == 2
    assert "--mapping: the file has no column 'Out', nor another one that says who must not be written to; export" in refused.err
    assert served.service.contacts("space_1") == []
    for header, more in ("email,Unsubscribed", ()), ("email,City", ("--check", "consent=off")):
        assert served("import", served.save(f"{header}\nann@a.example,\n"), *options, *more, "--dry-run").code == 0


def test_an_ambiguous_column_is_refused_even_if_unknown_columns_may_be_skipped(served: Served) -> None:
    path = served.save("email,Titel,Shoe Size\na@a.example,CEO,42\n")
    refused = served("import", path, "--ignore-unknown", *served.options)
    assert (refused.code, posts(served.service)) == (2, 0)
    assert refused.err.splitlines() == [
        "outreach-async: 1 ambiguous column; pass these options:",
        "  --map Titel=title  # ambiguous; such as 'CEO'; or ignore",
        "To list the fields of the workspace: outreach-async fields",
    ]
    assert served("import", path, "--ignore-unknown", "--map", "Titel=title", *served.options).code == 0
    assert served.service.contacts("space_1")[0]["fields"] == {"title": "CEO"}


def test_the_options_of_an_error_can_be_pasted(served: Served) -> None:
    path = served.save("email,Titel,Compny's Name,,Tail\na@a.example,CEO,Acme,,\n")
    lines = served("import", path, *served.options).err.splitlines()
    assert lines == [
        "outreach-async: 3 unknown and 1 ambiguous columns; pass these options:",
        "  --map Titel=title  # ambiguous; such as 'CEO'; or ignore",
        """  --map 'Compny'"'"'s Name=company_name'  # such as 'Acme'""",
        "  --map =CODE  # column 4 has no name; or ignore",
        "  --map Tail=CODE  # or ignore",
        "To skip the unknown columns, but not the ambiguous ones: --ignore-unknown",
        "Replace CODE with the code of a field, as listed by: outreach-async fields",
    ]
    options = shlex.split(" ".join(lines[1:-2]).replace("=CODE", "=ignore"), comments=False)
    assert served("import", path, *(word for word in options if word == "--map" or "=" in word), *served.options).code == 0
    assert served.service.contacts("space_1")[0]["fields"] == {"title": "CEO", "company_name": "Acme"}


@pytest.mark.parametrize(("count", "more"), [(299, "292 more columns"), (8, "1 more column")])
def test_hundreds_of_unknown_columns_print_ten_lines(shell: Shell, tmp_path: Path, count: int, more: str) -> None:
    path = save_contacts(tmp_path, ",".join(["email", *(f"Odd {number}" for number in range(count))]) + "\n")
    lines = shell("import", path, "--dry-run").err.splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (10, True)
    assert lines[8] == f"  ... and {more}; --save-mapping mapping.toml writes all to a file"


def test_a_mapping_is_saved_for_the_user_to_complete_if_columns_are_unknown(served: Served) -> None:
    odd = [f"Odd {number}" for number in range(20)]
    path = served.save(",".join(["Home", "Work", "Titel", *odd]) + "\nh@a.example,w@a.example,CEO" + ",x" * 20 + "\n")
    mapping = served.folder / "the map.toml"
    options = ("--map", "Work=email", "--map", "Home=email", "--save-mapping", str(mapping), *served.options)
    for _ in range(2):
        refused = served("import", path, *options)
        assert (refused.code, "  ... and 14 more columns\n" in refused.err, posts(served.service)) == (2, True, 0)
        draft = mapping.read_text()
        assert '"Titel" = "title" # check this line: ambiguous; such as \'CEO\'; or ignore\n' in draft
        assert draft.count(" = \"CODE\" # check this line: such as 'x'; or ignore") == 20
        given = f"pass --mapping '{mapping}' instead" in refused.err
        assert given != (f"'{mapping}' exists and is left as it was" in refused.err)
    again = ("import", path, "--mapping", str(mapping), *served.options)
    assert "got the placeholder CODE for 20 columns, such as 'Odd 0'" in served(*again).err
    mapping.write_text(draft.replace('"CODE"', '"nickname"', 1).replace('"CODE"', '"ignore"'))
    assert served(*again).code == 0
    (contact,) = served.service.contacts("space_1")
    assert (contact["email"], contact["fields"]) == ("w@a.example", {"title": "CEO", "nickname": "x"})


def test_a_column_that_may_say_who_opted_out_is_not_ignored_unless_told_so(served: Served) -> None:
    path = served.save("email,Unsub flag,Shoe Size\na@a.example,,42\n")
    refused = served("import", path, "--ignore-unknown", *served.options)
    assert (refused.code, posts(served.service)) == (2, 0)
    remark = "looks like a column that says who must not be written to"
    assert f"\n  --map 'Unsub flag=opt_out'  # {remark}; or opt_in, email_status, ignore\n" in refused.err
    assert served("import", path, "--ignore-unknown", "--map", "Unsub flag=opt_out", *served.options).code == 0


@pytest.mark.parametrize("journal", [False, True], ids=["", "journal"])
def test_results_have_the_address_that_was_sent_of_several_columns(served: Served, journal: bool) -> None:
    rows = "h@a.example,w@a.example\ni@a.example,\nj@a.example,#REF!\nk@a.example,N/A\n"
    path, results = served.save(f"Home,Work\n{rows}"), served.folder / "results.csv"
    options = ("--map", "Work=email", "--map", "Home=email", "--results", str(results), *served.options)
    options += ("--journal", str(served.folder / "run.db")) if journal else ()
    assert served("import", path, *options).code == 0
    addresses = ["w@a.example", "i@a.example", "j@a.example", "k@a.example"]
    assert [row["email"] for row in table(results)] == addresses
    assert sorted(contact["email"] for contact in served.service.contacts("space_1")) == sorted(addresses)


def test_a_file_without_a_known_column_is_told_about_its_header(shell: Shell, tmp_path: Path) -> None:
    err = shell("import", save_contacts(tmp_path, "shape\nround\n"), "--dry-run").err
    assert err.startswith("outreach-async: 1 unknown column; ")
    assert err.endswith(
        "No column is recognised. If a title precedes the header, pass --header-row N.\n"
        "If another character separates the columns, pass --delimiter CHAR.\n"
    )


def test_the_other_sheets_are_named_before_the_error_about_a_cover(shell: Shell, tmp_path: Path) -> None:
    cover, people = sheet_of([[text("Report")]]), sheet_of([[text("E-mail")], [text("ann@a.example")]])
    path = tmp_path / "people.xlsx"
    path.write_bytes(workbook({"Cover": cover, "People": people}))
    done = shell("import", str(path), "--dry-run")
    assert done.out == "note: sheet 'Cover' was read; to read another, pass one of these as --sheet: 'People'\n"
    assert "--map Report=CODE" in done.err
    assert shell("import", str(path), "--sheet", "People", "--dry-run").code == 0


def test_a_dry_run_sends_nothing_and_reports_its_findings(served: Served) -> None:
    done = served("import", served.save(PEOPLE), "--dry-run", *served.options)
    assert (done.code, posts(served.service)) == (0, 0)
    for line in (
        "warning: email: line 3: email: 'bo@@gamil.com': ",
        "warning: country: line 3: country: 'Germny': expected a country's two-letter code or name; did you mean 'DE'?\n",
        "warning: role: line 4: ",
        "warning: typo: line 3: ",
        "left out: phone: line 3: work_phone: ",
        "warning: repeat: line 5: email: same address as line 2\n",
        "4 of 4 rows can be sent; nothing was created\n",
    ):
        assert f"\n{line}" in done.out
    _, value = served.json("import", served.save(PEOPLE), "--dry-run", *served.options)
    assert 0 <= value["seconds"] < 60
    assert {group["check"]: group["count"] for group in value["findings"]} == dict.fromkeys(
        ("email", "role", "typo", "phone", "country", "repeat"), 1
    )
    (country,) = (group for group in value["findings"] if group["check"] == "country")
    assert (country["level"], country["field"], country["reason"]) == (
        "warn",
        "country",
        "expected a country's two-letter code or name",
    )
    assert [example["line"] for example in country["examples"]] == [3]
    assert value["columns"]["Plan"] == "custom_1"


@pytest.mark.thorough
def test_a_row_with_an_error_is_written_to_the_rejects_and_never_sent(served: Served) -> None:
    path, rejects = served.save(PEOPLE), served.folder / "rejects.csv"
    dry = served.json("import", path, "--dry-run", "--check", "error", "--rejects", str(rejects), *served.options)
    before = table(rejects)
    code, value = served.json("import", path, "--check", "error", "--rejects", str(rejects), *served.options)
    assert (dry[0], code, dry[1]["outcomes"]["rejected"], value["outcomes"]["rejected"]) == (3, 3, 1, 1)
    assert posts(served.service) == 3
    assert table(rejects) == before
    (row,) = before
    assert (row["E-mail"], row["_row"], row["_code"], row["_field"]) == ("bo@@gamil.com", "3", "rejected", "email")
    text = rejects.read_text(encoding="utf-8").replace("bo@@gamil.com,Germny,12", "bo@gmail.com,DE,+49 30 123456")
    rejects.write_text(text, encoding="utf-8")
    assert served("import", str(rejects), "--check", "error", *served.options).code == 0
    assert len(served.service.contacts("space_1")) == 3


@pytest.mark.parametrize("journal", [True, False])
def test_a_duplicate_row_is_refused_with_the_line_of_the_first(served: Served, journal: bool) -> None:
    path, rejects = served.save('email,city\na@a.example,"x\ny"\nb@b.example,\na@a.example,z\n'), served.folder / "rejects.csv"
    journal_options = ("--journal", str(served.folder / "run.db")) if journal else ()
    done = served(
        "import", path, "--repeats", "error", "--no-strict", "--rejects", str(rejects), *journal_options, *served.options
    )
    assert done.code == 3
    message = "email: same address as line 2; remove one of the rows, or choose another policy for repeats"
    assert f"line 5: a@a.example: rejected: {message}\n" in done.out
    (row,) = table(rejects)
    assert (row["_row"], row["_field"]) == ("5", "email")
    assert row["_message"] == f"{message}; when the cells are right, clear _text"  # alone in a file, it would be sent
    dry = served("import", path, "--repeats", "error", "--dry-run", *served.options)
    assert (dry.code, f"line 5: a@a.example: rejected: {message}\n" in dry.out) == (3, True)


@pytest.mark.parametrize("repeats", ["serial", "error", "first", "last", "coalesce"])
@pytest.mark.parametrize("check", ["warn", "error"])
def test_a_dry_run_and_an_import_agree_on_every_row_of_the_file(served: Served, repeats: str, check: str) -> None:
    path = served.save(PEOPLE + "ann@a.example,US,,\n,US,,\nx,y\nbo@@gamil.com,,,\nANN@a.example,,,\n")
    options = ("--repeats", repeats, "--check", check, "--no-strict", *served.options)
    _, dry = served.json("import", path, "--dry-run", *options)
    _, run = served.json("import", path, "--journal", str(served.folder / "run.db"), *options)
    assert dry["rows"] == run["rows"] == sum(dry["outcomes"].values()) == sum(run["outcomes"].values()) == 9
    assert dry["outcomes"]["rejected"] == run["outcomes"]["rejected"]
    assert dry["repeats"] == run["repeats"]


def test_a_file_is_read_as_the_options_say_and_notes_are_printed(served: Served) -> None:
    path, journal = served.folder / "people.txt", str(served.folder / "run.db")
    path.write_bytes("email;First Name\na@a.example;Jörg\nbad;Zoë\n".encode("cp1252"))
    assert "--encoding" in served.refused("import", str(path), *served.options)
    done = served("import", str(path), "--encoding", "cp1252", "--format", "csv", "--journal", journal, *served.options)
    assert (done.code, "note: " in done.out) == (3, True)
    assert served.service.contacts("space_1")[0]["fields"]["first_name"] == "Jörg"
    rejects = served.folder / "rejects.csv"
    assert served("report", journal, "--rejects", str(rejects), "--encoding", "cp1252").code == 3
    assert table(rejects)[0]["First Name"] == "Zoë"


@pytest.mark.thorough
def test_an_import_of_stdin_with_a_journal_resumes_without_stdin(served: Served) -> None:
    journal, rejects, again = (served.folder / name for name in ("run.db", "rejects.csv", "again.csv"))
    options = ("--journal", str(journal), "--concurrency", "1", *served.options)
    served.service.faults.script("create_contact", ok, ok, status(429, retry_after=7200))
    people = "email\n" + "".join(f"p{at}@a.example\n" for at in range(9)) + "bad\n"
    suspended = served.piped(people, "import", "-", *options)
    assert (suspended.code, "2 of 10 rows" in suspended.out) == (75, True)
    done = served.piped("", "import", "-", *options, "--resume", "--rejects", str(rejects))
    assert (done.code, "10 rows in" in done.out, len(served.service.contacts("space_1"))) == (3, True, 9)
    (row,) = table(rejects)
    assert (row["email"], row["_row"], row["_field"]) == ("bad", "10", "email")
    assert served("report", str(journal), "--rejects", str(again)).code == 3
    assert again.read_bytes() == rejects.read_bytes()


def test_a_changed_mapping_is_refused_on_resume(served: Served) -> None:
    path = served.save("email,Town\n" + "".join(f"p{at}@a.example,x\n" for at in range(5)))
    journal = str(served.folder / "run.db")
    served.service.faults.script("create_contact", ok, ok, status(429, retry_after=7200))
    options = ("--journal", journal, *served.options, "--concurrency", "1")
    assert served("import", path, "--map", "Town=city", *options).code == 75
    before = posts(served.service)
    changed = served("import", path, "--map", "Town=region", "--journal", journal, "--resume", *served.options)
    assert (changed.code, "the input changed" in changed.err) == (2, True)
    assert posts(served.service) == before
    assert served("import", path, "--map", "Town=city", "--journal", journal, "--resume", *served.options).code == 0
    assert {contact["fields"]["city"] for contact in served.service.contacts("space_1")} == {"x"}
    assert "'Town' was 'city' and is now 'region'" in served.refused(
        "import", path, "--map", "Town=region", "--journal", journal, "--resume", *served.options
    )


def test_another_order_of_the_columns_of_a_field_is_refused_on_resume(served: Served) -> None:
    path, journal = served.save("Home,Work\nh@a.example,w@a.example\n"), str(served.folder / "run.db")
    served.service.faults.script("create_contact", status(429, retry_after=7200))
    first, second = ("--map", "Work=email"), ("--map", "Home=email")
    assert served("import", path, *first, *second, "--journal", journal, *served.options).code == 75
    changed = served("import", path, *second, *first, "--journal", journal, "--resume", *served.options)
    assert (changed.code, "'Home' was 'email (2)' and is now 'email'" in changed.err) == (2, True), changed.err
    assert served("import", path, *first, *second, "--journal", journal, "--resume", *served.options).code == 0
    assert [contact["email"] for contact in served.service.contacts("space_1")] == ["w@a.example"]


# Rejects that are imported again, and options that decide which rows a file has.

SHEET = [[text("email"), text("City")], [text("a@a.example"), text("Rome")], [text("b@a.example"), text("Lyon")]]


def stored(served: Served) -> list[str]:
    return sorted(str(contact["email"]) for contact in served.service.contacts("space_1"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("surplus.csv", "email,City,Zip\na@a.example,Acme, Inc.,Lyon\nb@a.example,Bonn,1\n"),
        ("short.csv", "email,City,Zip\na@a.example,Lyon\nb@a.example,Bonn,1\n"),
        ("quotes.csv", 'email,City,Zip\na@a.example,"Acme" Inc,1\nb@a.example,Bonn,1\n'),
        ("people.jsonl", '{"email": "b@a.example", "city": "Bonn"}\n{"email": "a@a.example", "city": "Lyon"\n'),
        ("people.jsonl", '{"email": "b@a.example"}\n{"email": "a@a.example", "email": "c@a.example"}\n'),
    ],
)
@pytest.mark.parametrize("journal", [True, False])
def test_rejects_imported_unchanged_store_nothing_and_keep_their_text(
    served: Served, name: str, content: str, *, journal: bool
) -> None:
    path, rejects, again = served.folder / name, served.folder / "rejects.csv", served.folder / "again.csv"
    path.write_text(content, encoding="utf-8")
    record = ("--journal", str(served.folder / "run.db")) if journal else ()
    assert served("import", str(path), *served.options, *record, "--rejects", str(rejects)).code == 3
    assert stored(served) == ["b@a.example"]
    assert served("import", str(rejects), *served.options, "--rejects", str(again)).code == 3
    assert stored(served) == ["b@a.example"]
    (first,), (second,) = (list(csv.DictReader(file.read_text(encoding="utf-8").splitlines())) for file in (rejects, again))
    (line,) = (line for line in content.splitlines() if "a@a.example" in line and "b@a.example" not in line)
    assert (first["_text"], second["_text"]) == (line, line)
    assert second["_message"].startswith("_text: expected a blank cell, got the text of a rejected row")


@pytest.mark.parametrize("journal", [True, False])
def test_a_rejected_repeat_replaces_no_values_until_its_text_is_cleared(served: Served, *, journal: bool) -> None:
    path, rejects = served.save("email,City\nb@a.example,Bonn\nB@a.example,Lyon\n"), served.folder / "rejects.csv"
    options = (*served.options, "--duplicates", "overwrite")
    record = ("--journal", str(served.folder / "run.db")) if journal else ()
    cities = []
    assert served("import", path, *options, "--repeats", "error", "--rejects", str(rejects), *record).code == 3
    for told in ("", '"B@a.example,Lyon"'):
        rejects.write_text(rejects.read_text(encoding="utf-8").replace(told, ""), encoding="utf-8")
        served("import", str(rejects), *options)
        (contact,) = served.service.contacts("space_1")
        cities.append(contact["fields"]["city"])
    assert cities == ["Bonn", "Lyon"]


@pytest.mark.thorough
@pytest.mark.parametrize("options", [["--hidden", "skip"], ["--sheet", "Old"]], ids=" ".join)
def test_a_run_is_not_resumed_or_reported_with_other_rows_of_its_file(served: Served, options: list[str]) -> None:
    rows = sheet_of(SHEET)
    (path := served.folder / "people.xlsx").write_bytes(workbook({"A": rows, "Old": rows}))
    journal, rejects = str(served.folder / "run.db"), str(served.folder / "rejects.csv")
    again = ("import", str(path), *served.options, "--journal", journal)
    assert served(*again).code == 0
    assert "the input has changed since the run began" in served.refused(*again, "--resume", *options)
    assert served("report", journal, "--rejects", rejects).code == 0
    error = served.refused("report", journal, "--rejects", rejects, *options)
    assert "or is read with other options" in error
    assert "pass the original file, and --sheet, --header-row and --hidden of the run" in error

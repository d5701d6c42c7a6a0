"""What the command refuses: one line that names the option and the remedy, exit code 2, and nothing sent, printed or written."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import pytest
from support.cli import KEY, Served, save_contacts

LONG: Final = "x" * 260
"""A file name too long for the temporary file next to it."""
WORDS: Final = {
    "fake": "--base-url fake:",
    "gone": "--base-url http://127.0.0.1:1",
    "new": "contacts create --email ann@a.example",
    "key": KEY,
    "long": LONG,
    "ledger": "--ledger l --duplicates overwrite",
    "dask": "--dask tcp://x:1 --base-url https://api.example --workspace space_1 --journal file:///data/journals",
}
FILES: Final = {
    "notes.txt": "notes\n",
    "knob.toml": "nope = 1\n",
    "nan.json": '{"mailboxes": NaN}',
    "long.json": f'{{"mailboxes": {"1" * 5000}}}',
    "other.json": '{"rows": 1}',
    "run.db": "SQLite format 3\0",
}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        # Usage of every command.
        ("frobnicate", "unknown command 'frobnicate'; the commands are audit, brief, campaigns, "),
        ("mailbox", "unknown command 'mailbox'; did you mean 'mailboxes'? Try 'outreach-async --help'."),
        ("contacts creat", "unknown command 'creat'; did you mean 'create'? Try 'outreach-async contacts --help'."),
        ("contacts", "Missing command. Try 'outreach-async contacts --help'."),
        ("campaigns --colums all", "--columns"),
        ("campaigns --workspace space_1", "--base-url: missing; pass --base-url URL"),
        ("campaigns --workspace space_1 --base-url nonsense", "--base-url: expected a URL"),
        ("campaigns --base-url http://a.example", "--workspace: missing; pass --workspace ID"),
        ("campaigns {fake} --timeout 0", "--timeout: expected more than 0 seconds, got 0; pass"),
        ("campaigns {fake} --header X", "--header: expected 'Name: value'"),
        ("campaigns {fake} --header ': X'", "--header: expected 'Name: value'"),
        ("campaigns {fake} --backend urllib", "Invalid value for '--backend'"),
        ("campaigns {fake} {key}", "Got unexpected extra argument (key_***)"),
        ("steps {fake}", "Missing argument 'CAMPAIGN'"),
        ("audit --base-url http://a.example", "--workspace: missing; pass --workspace ID"),
        ("audit {fake} --fail-on doom", "Invalid value for '--fail-on'"),
        ("import none.csv {fake}", "none.csv: No such file"),
        ("import x.csv {fake} --campaign space_1", "--campaign: expected"),
        ("import x.csv {fake} --duplicates merge", "Invalid value for '--duplicates'"),
        (
            "import x.csv {fake} --repeats first",
            "--repeats: 'first' needs a journal, to store the whole input before the first row is sent; pass --journal run.db",
        ),
        ("import x.csv {fake} --dry-run --results a", "--results: with --dry-run, the only results are those of a"),
        ("import x.csv {fake} --resume", "--resume: needs a journal, got nothing; pass --journal run.db"),
        ("import x.csv {fake} --earlier unknown", "--earlier: needs a journal, got nothing; pass --journal run.db"),
        ("serve --port 70000", "Invalid value for '--port'"),
        ("serve --world no-such-file.json", "--world no-such-file.json: No such file"),
        ("serve --world notes.txt", "--world "),
        ("serve --behaviour lax", "--behaviour: expected a file or one of documented, strict, lenient, got lax;"),
        ("serve --behaviour notes.txt", "not TOML"),
        ("serve --seed x", "Invalid value for '--seed'"),
        ("serve --host 192.0.2.1", "--host 192.0.2.1 --port 0: "),
        # Ids of another kind.
        ("mailboxes --workspace mailbox_3 {gone}", "what looks like a mailbox id (mailbox_...); pass the id of a workspace"),
        ("contacts create --email a@b.example --campaign space_1 {gone}", "(space_...); pass the id of a campaign, as"),
        ("contacts create --email a@b.example --owner-key space_1 {gone}", "(space_...); pass the API key of the user"),
        ("import x.csv --workspace {key} {gone}", "what looks like an owner_key (key_***); pass the id of a workspace"),
        ("steps space_1 {gone}", "CAMPAIGN: expected a string starting with 'camp_', got what looks like a workspace id"),
        ("audit --workspace space_1 --workspace mailbox_1 {gone}", "--workspace: expected a string starting with 'space_'"),
        # Columns and formats of lists.
        ("campaigns {at} --columns opns", "--columns: unknown column 'opns'; did you mean 'opens'? Try"),
        ("campaigns {at} --columns nope", "--columns: unknown column 'nope'; the columns are id, status, "),
        ("campaigns {at} --columns ''", "--columns: unknown column ''; the columns are id, "),
        ("campaigns {at} --columns id --json", "--columns: conflicts with --json, which prints every value; remove one"),
        ("campaigns {at} --columns id --format json", "--columns: conflicts with the format json, which prints every value;"),
        ("campaigns {at} --format csv --json", "--format csv: conflicts with --json; remove one of them, or add --output FILE."),
        (
            "campaigns {at} --output list.xlsx",
            "--output list.xlsx: expected a name ending in one of .csv, .jsonl, .ndjson, .json, .tsv, ",
        ),
        # Contacts.
        ("{new} --set first_name {at}", "--set: expected FIELD=VALUE, got 'first_name'; pass, for example, --set"),
        ("{new} --set =Ann {at}", "--set: expected FIELD=VALUE, got '=Ann'"),
        ("{new} --set email=a@b.example {at}", "--set: cannot set the e-mail address; pass it with --email."),
        ("{new} --set title=a --set title=b {at}", "--set: the field 'title' is set twice"),
        ("{new} --set custom_1=a --set PLAN=b {at}", "--set: the field 'custom_1' is set twice, once as 'PLAN'"),
        ("{new} --set first_nam=a {at}", "--set: the workspace has no field 'first_nam'; did you mean 'first_name'? Try"),
        ("{new} --set plam=a {at}", "--set: the workspace has no field 'plam'; did you mean 'Plan'? Try"),
        ("{new} --set zzzzzz=a {at}", "--set: the workspace has no field 'zzzzzz'; the command 'fields' lists the codes and"),
        ("{new} --email '' {at}", "email: expected an address, got a blank string"),
        ("{new} --duplicates merge {at}", "'--duplicates'"),
        # What an import lacks, before its file is read.
        ("import none.csv", "--base-url: missing; pass --base-url URL"),
        (
            "import none.csv --base-url http://a.example --owner-key {key}",
            "--workspace: expected a string starting with 'space_', ",
        ),
        ("import none.csv {fake} --rejects {long}.csv", "--rejects {long}.csv: File name too long; "),
        ("import none.csv {fake} --rejects link.csv", "--rejects link.csv: No such file or directory; "),
        ("import none.csv {fake} --save-mapping link.csv", "--save-mapping link.csv: No such file or directory; "),
        ("import none.csv {fake} --journal link.csv", "--journal link.csv: No such file or directory; "),
        ("import none.csv {fake} --journal run.db", "/run.db is not a journal; pass the path of a journal"),
        # Values that are no number, and numbers out of range.
        ("campaigns {fake} --rate x", "--rate': 'x' is not a number."),
        ("serve --port x", "--port': 'x' is not a whole number"),
        *(
            (
                f"import people.csv {{fake}} --stop-after-rejects {value!r}",
                f"Invalid value for '--stop-after-rejects': expected a whole number from 1, or never, got {value!r}.",
            )
            for value in ("0", "-1", "x", "1.5", "", "None")
        ),
        # Campaigns and profiles by name.
        (
            "import people.csv --campaign Autumn --dry-run",
            "--campaign: expected an id, because no service is given, got 'Autumn'; also pass",
        ),
        ("fields --profile staging", "--profile: expected a configuration file with profiles, found none; pass --config FILE."),
        (
            "import people.csv {at} --blank clear",
            "got 'skip', with which the service clears nothing; pass --duplicates overwrite, or omit it",
        ),
        # A ledger.
        (
            "import people.csv {at} --ledger l",
            '--duplicates: with a ledger and "skip", the service would ignore each changed row; pass --duplicates overwrite',
        ),
        ("import people.csv {at} {ledger} --journal j", "--journal: conflicts with a ledger, which has a journal of its own"),
        ("import people.csv {at} {ledger} --resume", "--resume: conflicts with a ledger"),
        (
            "import people.csv {at} {ledger} --earlier unknown",
            "--earlier: conflicts with a ledger; to send every row again, pass --max-age 0",
        ),
        (
            "import people.csv {at} {ledger} --repeats coalesce",
            '--repeats: "coalesce" conflicts with a ledger; pass --repeats serial, or "last"',
        ),
        ("import people.csv {at} {ledger} --max-age old", "Invalid value for '--max-age': expected a number and a unit"),
        (
            "import people.csv {at} {ledger} --hold 90",
            "Invalid value for '--hold': expected a number and a unit, got '90'; for days, pass 90d, and for seconds, 90s",
        ),
        (
            f"import people.csv {{at}} {{ledger}} --max-age {'9' * 400}",
            "Invalid value for '--max-age': expected an age that fits a float",
        ),
        (
            "import people.csv {at} --ledger notes.txt --duplicates overwrite --check off",
            "--ledger: notes.txt is not a ledger",
        ),
        ("import people.csv {at} --max-age 30d", "--max-age: needs a ledger, got nothing; pass --ledger contacts.ledger"),
        ("import people.csv {at} --changed ignore", "--changed: needs a ledger, got nothing; pass --ledger contacts.ledger"),
        # Imports in parts.
        ("import a.csv {dask} --journal run.db", "--journal: with --dask, expected a URL that all workers can reach"),
        ("import a.csv {dask} --ledger l.db", "--ledger: conflicts with --dask; one process compares millions of rows"),
        ("import a.csv {dask} --max-age 3d", "--max-age: conflicts with --dask"),
        ("import a.csv {dask} --changed ignore", "--changed: conflicts with --dask"),
        ("import a.csv {dask} --dry-run --results r.csv", "--results: with --dry-run, the only results are those of a ledger"),
        ("import a.csv --dask local --dry-run --campaign May", "--campaign: expected an id, because no service is given"),
        ("import a.csv {dask} --keep all", "--keep: copies columns into a results file; pass --results FILE, too"),
        ("import a.csv {dask} --check none=error", "check: unknown check in 'none=error'"),
        ("import a.csv {dask} --header 'X: y'", "--header: conflicts with --dask"),
        ("import a.csv {dask} --base-url fake:", "--base-url: with --dask, expected a URL that all workers can reach"),
        ("import a.csv --dask tcp://x:1 --base-url https://api.example --journal file:///data/journals", "--workspace: missing"),
        ("import '*.parquet' {dask}", "expected a pattern that matches a file"),
        ("import s3://bucket/a.csv", "FILE: a URL requires --dask"),
        # A history.
        ("history show none.db", "none.db"),
        ("history show notes.txt", "is not a history; pass the path of a history"),
        ("history shows x.db", "did you mean 'show'?"),
        ("history prune notes.txt", "expected either --keep AGE or --after DATE"),
        ("history prune notes.txt --keep 9d --after 2026-03-31", "expected either --keep AGE or --after DATE"),
        ("history prune notes.txt --keep 9d --dry-run", "expected --after DATE with --dry-run"),
        ("history prune notes.txt --after soon", "--after': expected a day or a time in UTC, such as 2026-03-31"),
        # A server for assistants.
        ("mcp {gone}", "--workspace: missing"),
        ("mcp --workspace space_1", "--base-url: missing"),
        ("mcp {fake} --allow-writes camp_1", "--allow-writes: expected a string starting with 'space_'"),
        ("mcp {fake} --deadline 0", "--deadline: expected more than 0 seconds"),
        ("mcp {fake} --json", "No such option"),
        ("mcp {fake} --timeout 0", "--timeout: expected more than 0 seconds"),
        ("mcp {fake} --rate 0", "--rate: expected a finite number"),
        ("mcp {fake} --header x", "--header: expected 'Name: value'"),
        ("mcp {fake} --owner-key space_1", "--owner-key: expected a string starting with 'key_'"),
        # Files.
        ("audit {fake} --output {long}.json", ".json: File name too long; "),
        ("import people.csv {fake} --rejects {long}.json", ".json: File name too long; "),
        ("import people.csv {fake} --save-mapping {long}.toml", ".toml: File name too long; "),
        ("audit {fake} --policy /no/p.toml", "--policy /no/p.toml: No such file or directory; "),
        ("audit {fake} --compare people.csv", "people.csv: not a JSON report; pass one "),
        ("audit {fake} --compare nan.json", "nan.json: not a JSON report; pass one written by 'audit --json'."),
        ("audit {fake} --compare other.json", "--compare other.json: report: expected audit JSON of version 1"),
        ("audit {fake} --compare long.json", "long.json: not a JSON report; pass one written by 'audit --json'."),
        ("audit {fake} --output a.pdf", "--output a.pdf: expected a name ending in one of .txt, .json, "),
        ("audit --explain OA999", "--explain: expected the id of a rule, such as OA120, got 'OA999'; did you mean '"),
        ("serve --behaviour /", "--behaviour /: Is a directory; "),
        ("serve --behaviour knob.toml", "knob.toml: a behaviour has no field 'nope'"),
        ("report /no/run.db", "JOURNAL: "),
        ("import people.csv {fake} --delimiter ::", "--delimiter: expected one character"),
        ("import people.csv {fake} --header-row 3 --format jsonl", "--header-row: expected csv or xlsx"),
        ("import people.csv {fake} --rejects .", "--rejects .: expected a file, got a folder"),
        ("import people.csv {fake} --rejects no/r.csv", "the folder 'no' does not exist; create it first"),
    ],
)
def test_a_line_is_refused_with_one_that_says_why(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    save_contacts(tmp_path, "email\na@a.example\nbad\n")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "link.csv").symlink_to("no-such-folder/new.csv")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    err = served.refused(*shlex.split(line.format(at=shlex.join(served.options), **WORDS)))
    assert err.splitlines()[-1].startswith("outreach-async: ")
    assert message.format(long=LONG) in err.splitlines()[-1]
    assert not any(each in err for each in (KEY, ".tmp", "[Errno"))
    assert {request.operation for request in served.service.requests} <= {"list_fields"}
    assert sorted(tmp_path.iterdir()) == before

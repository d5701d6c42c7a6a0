"""Mapping columns to fields."""

from __future__ import annotations

import pickle
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import read_row, refused

from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, StatusError
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import Columns, UnmappedColumns, columns_for, map_columns, parse_overrides
from outreach_async.models import STANDARD_FIELDS, WorkspaceField

CODES = ("email", *STANDARD_FIELDS)
PLAN = WorkspaceField(label="Plan", code="custom_1", searchable=["tier"])
LINKEDIN = WorkspaceField(label="LinkedIn", code="linkedin", searchable=["linkedin"])
FIELDS = (PLAN, LINKEDIN)


def respellings_of(code: str) -> st.SearchStrategy[str]:
    """Draw spellings of a code that people use in headers."""
    words = code.split("_")
    joins = st.sampled_from([" ", "-", "_", "", ". "])
    cases = st.sampled_from([str.upper, str.title, str.lower, str.capitalize])
    return st.builds(lambda join, case, pad: pad + case(join.join(words)) + pad, joins, cases, st.sampled_from(["", " "]))


@given(st.sampled_from(STANDARD_FIELDS).flatmap(lambda code: st.tuples(st.just(code), respellings_of(code))))
def test_a_header_that_equals_a_code_but_for_case_and_punctuation_is_mapped(drawn: tuple[str, str]) -> None:
    code, header = drawn
    assert map_columns(["E-mail", header]).codes == ("email", code)


@given(st.permutations(CODES))
def test_every_code_maps_to_itself_in_any_order(headers: list[str]) -> None:
    assert map_columns(headers).codes == tuple(headers)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        *(("custom_7", "custom_7"), ("Custom 7", "custom_7"), ("plan", "custom_1"), ("Tier", "custom_1")),
        *(("linked-in", "linkedin"), ("linkedin", "linkedin")),
        ("\uff26\uff29\uff32\uff33\uff34 \uff2e\uff41\uff4d\uff45", "first_name"),  # letters of full width
        ("\u2131irst_\u2115ame", "first_name"),
    ],
)
def test_a_field_is_found_by_code_label_and_searchable_name(header: str, code: str) -> None:
    assert map_columns(["email", header], fields=FIELDS).codes == ("email", code)


def test_an_override_takes_precedence_over_the_name_of_the_column() -> None:
    overrides = {"title": "nickname", "Nickname": "ignore", "Notes": "", "": "ignore"}
    columns = map_columns(["email", "title", "Nickname", "Notes", ""], overrides)
    assert columns.codes == ("email", "nickname", None, None, None)


@pytest.mark.parametrize(
    ("headers", "overrides", "message"),
    [
        (["email", "Compny Name"], {}, "unknown column 'Compny Name': --map 'Compny Name=company_name'"),
        (["email", "Compny's"], {}, """unknown column "Compny's": --map 'Compny'"'"'s=company_name'"""),
        (
            ["email", "Company", "Compny Name"],
            {},
            "unknown column 'Compny Name': --map 'Compny Name=CODE' (or ignore); replace CODE with the code of a field; or",
        ),
        (
            ["email", "Compny Name", "Company Nam"],
            {},
            "--map 'Compny Name=company_name'; unknown column 'Company Nam': --map 'Company Nam=CODE",
        ),
        (["email", "Adress"], {}, "--map Adress=address_1 (or address_2"),
        (["email", "Plan"], {}, "--map Plan=CODE (or ignore)"),
        (["email", "qqqq"], {}, "replace CODE with the code of a field; or ignore all of them with --ignore-unknown"),
        (["Odd"], {}, "unknown column 'Odd' (such as 'ann@a.example'): --map Odd=email"),
        (["email", " "], {}, "column 2 has no name: --map =CODE (or ignore)"),
        (["email", "custom_x"], {}, "unknown column 'custom_x'"),
        (["email", "Custom 01"], {}, "unknown column 'Custom 01'"),
        (["email", "owner_key"], {}, "unknown column 'owner_key'"),
        (["first_name"], {}, "no column maps to 'email'"),
        (
            ["email", "E-Mail"],
            {},
            "columns 'email' and 'E-Mail' both map to 'email'; pass --map email=email --map E-Mail=email to use the first",
        ),
        (["email", "a"], {"a": "email"}, "columns 'email' and 'a' both map to 'email'; pass --map email=email to use the first"),
        (["email", "Company"], {"Compny": "title"}, "the file has no column 'Compny' (similar: 'Company')"),
        (["email", "Company"], {"Company": "company"}, "the unknown code 'company' (similar: 'company_name'"),
        (["email", "Key"], {"Key": "owner_key"}, "the unknown code 'owner_key'"),
    ],
)
def test_an_unmappable_column_is_refused_with_a_remedy(headers: list[str], overrides: dict[str, str], message: str) -> None:
    samples = ["ann@a.example" if headers == ["Odd"] else "" for _ in headers]
    assert message in refused(map_columns, headers, overrides, samples=samples)


@pytest.mark.parametrize(("count", "more"), [(53, "46 more columns"), (8, "1 more column")])
def test_the_error_names_the_first_seven_unknown_columns(count: int, more: str) -> None:
    with pytest.raises(UnmappedColumns) as caught:
        map_columns(["email", *(f"Odd {at}" for at in range(count))])
    assert str(caught.value).count("unknown column") == 7
    assert f"; {more}; replace CODE" in str(caught.value)
    assert [column.header for column in caught.value.columns] == [f"Odd {at}" for at in range(count)]
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - the test's own data
    assert (str(copy), copy.columns, [*copy.lines()]) == (str(caught.value), caught.value.columns, [*caught.value.lines()])


def test_an_error_shows_a_sample_cell_of_each_column() -> None:
    headers, samples = ["email", "Titel", "Imię klienta", "Odd", "Odder"], ["a@b.example", "CEO", "Łukasz", "", "x" * 40]
    with pytest.raises(UnmappedColumns) as caught:
        map_columns(headers, samples=samples)
    assert str(caught.value).startswith(
        "ambiguous column 'Titel' (such as 'CEO'): --map Titel=title (or ignore); "
        "unknown column 'Imię klienta' (such as 'Łukasz'): --map 'Imię klienta=CODE' (or ignore); "
        "unknown column 'Odd': --map Odd=CODE (or ignore); "
        f"unknown column 'Odder' (such as '{'x' * 30}...'): "
    )
    with pytest.raises(InvalidRequest, match=r"columns 'Firma' \(such as 'Acme'\) and 'Spółka' \(such as 'Acme SA'\) both map"):
        map_columns(["email", "Firma", "Spółka"], {"Spółka": "company_name"}, samples=["", "Acme", "Acme SA"])
    with pytest.raises(UnmappedColumns, match=r"Linkdin=linkedin.*; unknown column 'Odd' \(such as 'key_\.\.\.'\)"):
        map_columns(["email", "Linkdin", "Odd"], fields=FIELDS, samples=["", "", "key_secret"])
    with pytest.raises(InvalidRequest, match="got the placeholder CODE for 2 columns, such as 'Odd'; replace it"):
        map_columns(["email", "Odd", "Odder"], {"Odd": "CODE", "Odder": "CODE"})


def test_a_name_shared_by_two_fields_is_refused_instead_of_guessed() -> None:
    twin = WorkspaceField(label="plan", code="custom_2", searchable=[])
    with pytest.raises(InvalidRequest, match=r"column 'PLAN' \(such as 'Gold'\) matches 'custom_1' and 'custom_2'"):
        map_columns(["email", "PLAN"], fields=[PLAN, twin], samples=["", "Gold"])
    assert map_columns(["email", "plan"], fields=[PLAN, twin]).codes == ("email", "custom_2")


@pytest.mark.parametrize(
    ("field", "header"),
    [(("Workspace", "workspace", "space"), "Space"), (("---", "custom_3", "--"), "##")],
    ids=["reserved", "blank"],
)
def test_a_reserved_code_and_a_name_without_letters_match_no_column(field: tuple[str, str, str], header: str) -> None:
    label, code, searchable = field
    with pytest.raises(InvalidRequest, match="unknown column"):
        map_columns(["email", header], fields=[WorkspaceField(label=label, code=code, searchable=[searchable])])


def test_empty_cells_are_not_set_and_unknown_codes_go_to_extra() -> None:
    columns = map_columns(["email", "title", "plan", "linkedin", "x"], {"x": "ignore"}, FIELDS)
    assert columns.members(["a@b.example", " ", "Gold", "ann", "z"]) == {
        "email": "a@b.example",
        "custom_1": "Gold",
        "extra": {"linkedin": "ann"},
    }
    assert columns.members(["", "Founder", "", "", ""]) == {"email": "", "title": "Founder"}


def test_columns_of_one_field_count_in_the_order_of_their_options() -> None:
    overrides = parse_overrides(["Home=email", "Spare=custom_1", "Work=email"])
    columns = map_columns(["Work", "Home", "City", "Spare"], overrides)
    assert (columns.codes, columns.sources["email"]) == (("email", "email", "city", "custom_1"), (1, 0))
    assert read_row(columns, "w@a.example", "h@a.example", "", "").email == "h@a.example"
    assert read_row(columns, "w@a.example", " ", "", "").email == "w@a.example"
    assert columns.decisions()[0] == ("Work", "email", "override; if 'Home' is blank")
    assert columns.plain is not None
    assert columns.plain[1](["w@a.example", "h@a.example", "Lyon", "x"]) == ("Lyon", "h@a.example", "x")


def test_columns_that_are_built_anew_from_their_parts_are_the_same() -> None:
    columns = map_columns(["a", "b", "Unsubscribed"], {"b": "email", "a": "email"})
    again = Columns(columns.headers, columns.codes, fallbacks=columns.fallbacks)
    assert (again, again.sources, again.consent) == (columns, {"email": (1, 0)}, ((2, "opt_out"),))
    assert Columns(columns.headers, columns.codes) != columns  # as in the file


@pytest.mark.parametrize("code", ["opt_out", "opt_in", "email_status"])
def test_a_column_that_says_who_must_not_be_written_to_is_never_sent(code: str) -> None:
    columns = map_columns(["email", "A", "B"], {"A": code, "B": code}, [WorkspaceField(label="A", code=code, searchable=["B"])])
    assert (columns.consent, columns.sources) == (((1, code), (2, code)), {"email": (0,)})
    assert columns.members(["a@b.example", "yes", "no"]) == {"email": "a@b.example"}


def test_overrides_are_split_at_their_last_equals_sign() -> None:
    assert parse_overrides(["Company = company_name", "a=b=title", "=ignore", "Notes="]) == {
        "Company": "company_name",
        "a=b": "title",
        "": "ignore",
        "Notes": "",
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [(["Company"], "expected Column=code, got 'Company'"), (["A=title", " A=email"], "expected each column once, got 'A' twice")],
)
def test_empty_or_contradictory_overrides_are_refused(texts: list[str], message: str) -> None:
    assert message in refused(parse_overrides, texts)


# Fields of the workspace are requested only if a file needs them.


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.add_workspace("space_1", custom_fields=["Plan"], extra_fields={"linkedin": "LinkedIn"})
    return service


@pytest.fixture
def client(service: FakeService) -> OutreachClient:
    return OutreachClient(transport=FakeTransport(service), workspace="space_1")


async def test_a_file_of_known_columns_needs_no_lookup(service: FakeService, client: OutreachClient) -> None:
    columns = await columns_for(client, ["E-mail", "custom_4", "Rest"], {"Rest": "ignore"})
    assert columns.codes == ("email", "custom_4", None)
    assert len(service.requests) == 0


@pytest.mark.parametrize(
    ("headers", "overrides"), [(["email", "plan", "LinkedIn"], {}), (["email", "Plan", "x"], {"x": "linkedin"})]
)
async def test_workspace_fields_are_looked_up_once(
    service: FakeService, client: OutreachClient, headers: list[str], overrides: dict[str, str]
) -> None:
    columns = await columns_for(client, headers, overrides)
    assert columns.codes == ("email", "custom_1", "linkedin")
    assert len(service.requests) == 1


async def test_a_refused_lookup_raises_the_error_of_the_service(client: OutreachClient) -> None:
    with pytest.raises(StatusError):
        await columns_for(client.with_options(workspace="space_none"), ["email", "plan"])


ODD_HEADERS = [
    "Unsub\nflag",
    "It's",
    'The "best"',
    " two  blanks ",
    "a=b",
    "\u200ehidden",
    "nb\u00a0sp",
    "-dash",
    "$HOME `x`",
    "ü\r\nzz",
]


def test_each_option_of_an_error_names_its_column_also_with_odd_characters() -> None:
    with pytest.raises(UnmappedColumns) as caught:
        map_columns(["email", *ODD_HEADERS])
    options = [shlex.split(column.option()) for column in caught.value.columns]
    assert all(text.isprintable() for _, text in options)
    overrides = parse_overrides(text.replace("=CODE", "=ignore") for _, text in options)
    columns = map_columns(["email", *ODD_HEADERS], overrides)
    assert columns.codes == ("email", "opt_out", *[None] * (len(ODD_HEADERS) - 1))
    assert columns.headers == ("email", *ODD_HEADERS)

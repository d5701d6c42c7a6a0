"""The tables of column names: of consent, of the exports of other tools, and of common names."""

from __future__ import annotations

import shlex
from io import BytesIO
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exports import EXPORTS, write_export
from support.files import read_row
from support.tables import check_rows

from outreach_async import Target
from outreach_async.errors import InvalidRequest
from outreach_async.importer import UnmappedColumns, map_columns, open_file, parse_overrides
from outreach_async.importer._consent import CONSENT_CODES, find_exclusion, guess_kinds, is_about_telephones, load_consent_headers
from outreach_async.importer._known_exports import (
    ExportFormat,
    detect_export,
    find_ambiguous,
    fold_name,
    load_ambiguous_headers,
    load_common_fields,
    load_exports,
    read_common_headers,
)
from outreach_async.models import STANDARD_FIELDS, WorkspaceField

APOLLO, HUBSPOT, MAILCHIMP, OUTLOOK, SALESFORCE_REPORT, ZOOMINFO = (
    EXPORTS[key][1] for key in ("apollo", "hubspot", "mailchimp", "outlook", "salesforce-report", "zoominfo")
)

# Columns that say who must not be written to, and what their cells say.

CELLS = {
    ("opt_out", True): """
        true, TRUE, 1, yes, Yes, y, x, X, ✓, ☑, checked, unsubscribed, Oui, ja, sí, tak, ano, 2024-05-01, 2024-05-01 10:00:00,
        -1, 1.0, UNKNOWN_USER, 550, hard bounce, mailbox full, Global unsubscribe, opted out, 'true, ?!x, Do Not Allow,
        not subscribed, 2 bounces, soft bounce, niet akkoord, confirmed 2024-05-01""",
    ("opt_out", False): """
        false, FALSE, 0, 0.0, ="0", no, No, N, -, --, —, none, never, 'false, ☐, ✗, ❌, unchecked, subscribed, Active, nein,
        Non, não, geen, , \xa0, n/a, N/A, NULL, not bounced, 0000-00-00 00:00:00, opted in, fałsz, Abonnée, Allow,
        not spam, 0 bounces, no bounces, nicht abgemeldet, double opt-in, subscribed (2024-01-02), Einwilligung erteilt, n.v.t.,
        keine Angabe""",
    ("opt_in", True): """
        false, FALSE, 0, 0.0, no, N, nein, Não, nie, none, ☐, ✗, unsubscribed, NEVER_SUBSCRIBED, Unchecked, not subscribed,
        opted out, Do Not Allow, not opted in, No opt-in, denied, Declined, didn't opt in, No (by phone), keine Einwilligung,
        Einwilligung nicht erteilt, abgelehnt, refusé, n'accepte pas, sans accord, no acepta, rechazado, recusado,
        geen toestemming, geweigerd, rifiutato, senza consenso,
        brak zgody, odmowa, nie zapisany, bez souhlasu, nesouhlasí, STOP, unmarketable""",
    ("opt_in", False): """
        true, 1, yes, x, ✓, subscribed, 2024-05-01, -, n/a, , double opt-in, unknown, Allow, not spam, never bounced,
        not applicable, Mai 2024, zgoda, souhlasí, n.v.t., T, brak danych""",
    ("email_status", True): """
        bounced, Bounced, hard_bounce, HardBounce, invalid, unsubscribed, opted-out, complained, spam, blocked, deleted,
        suppressed, cleaned, Undeliverable, spamtrap, do_not_mail, DoNotContact, Non-Subscribed, désinscrit, abgemeldet,
        do not contact, Bounced: mailbox full, Unsubscribed (by an admin), dado de baja, Ungültig, não inscrito, not valid,
        not deliverable, no permission, unsub, Don't contact, mailbox_not_found, not marketable, blocklist, deceased""",
    ("email_status", False): """
        valid, Verified, ok, catch-all, accept_all, unknown, risky, disposable, subscribed, active, pending, guessed, new, , -,
        soft bounced, not bounced, 0, false, no, ✗, unblocked, Catch-all (not spam), nie wysłano, 0 bounces,
        not verified, unconfirmed, not applicable""",
}
"""Texts by the kind of their column, and whether they forbid to write."""


def test_a_cell_forbids_to_write_if_it_says_so_in_a_usual_form() -> None:
    def check(kind: str, text: str, forbids: bool) -> None:
        assert (find_exclusion(kind, "Status", text) is not None) == forbids

    check_rows(((kind, text, forbids) for (kind, forbids), texts in CELLS.items() for text in texts.split(",")), check)


@pytest.mark.parametrize(
    ("header", "text", "reason"),
    [
        (" Unsubscribed ", " true ", "column 'Unsubscribed' says 'true'"),
        ("Bounce", "x" * 50, f"column 'Bounce' says '{'x' * 40}...'"),
        ("Bounce", "key_secret", "column 'Bounce' says 'key_...'"),
    ],
)
def test_the_reason_names_the_column_and_what_it_says(header: str, text: str, reason: str) -> None:
    assert find_exclusion("opt_out", header, text) == reason


def test_each_common_name_is_recognised_without_the_fields_of_a_workspace() -> None:
    def check(header: str, code: str) -> None:
        assert map_columns(["email", header]).codes == ("email", code)

    check_rows([*load_consent_headers().items()], check)


LIKE_OPT_OUT = """
    Unsub flag, Do Not Post, donotpost, Stop, Removed from list, Excluded, Not interested, Blockiert, Robinsonliste, Nicht
    mehr anrufen und mailen, Ne souhaite pas, Refus, No recibir correos, Cancelado, Não quer receber, Geweigerd, Rifiutato,
    Not subscribed, Nicht abonniert, Ohne Einwilligung, Sin consentimiento, Non iscritto alla newsletter, Bez souhlasu,
    Opt-out status, Disallow email, Unsubscribed status 2, Anulowano subskrypcję, Nie chce, Sprzeciw, Odmítl, Nesouhlas,
    Bounce Count, dnc_status, blocked_at, Suppression list, Newsletter abgemeldet 2, Désinscrit de la liste, Fecha baja,
    Uitgeschreven 2, Disiscritto il, Wypisany z listy, Odhlášen z odběru, Lista negra 2"""
LIKE_OPT_OUT += """, Rückläufer, Bitte löschen, Werbeverbot, Kein Werbemail, Pas d'email, Motif de rebond, Sin correo, No mandar,
    Quitar de la lista, Remover da lista, Verwijderen, Da rimuovere, Do usunięcia, Nedoručeno, hs_email_bad_address"""
LIKE_OPT_IN = """
    Newsletter, GDPR, Permission to contact, Email opt-in 2, Email and SMS consent,
    Consents, Consent status 2, Stav odberu 2, Einwilligung Werbung, Toestemming nieuwsbrief, Zgody,
    Receives e-mails, May be contacted, Marketing allowed, Darf kontaktiert werden, Werbung erlaubt, May we email you?,
    Acepta publicidad, Aceita receber, Accetta offerte, Autorisation, Mag gemaild worden, Marketing emails,
    Data processing consent"""
LIKE_STATUS = """
    Verified, Status (2), ZeroBounce Sub Status, Marketing status 2, E-mail check 2, Estado de la suscripcion 2,
    Email not checked, Bouncer result 2"""
UNLIKE = """
    Email, Mailing State, Mail State, Subscription Plan, Abonnement, Dirección de trabajo, Odběratel, Lead Status, Deal Status,
    OPTIN_TIME, OPTIN_IP, Opt-in Date, CONFIRM_TIME, Consent Date, Consent source, Unsubscribe Link, Unsubscribe URL,
    Verified on, Do Not Call, SMS Opt In, Nicht anrufen, Bounce rate, Data consenso"""
LOOKS = [(LIKE_OPT_OUT, "opt_out"), (LIKE_OPT_IN, "opt_in"), (LIKE_STATUS, "email_status"), (UNLIKE, None)]


def test_an_unknown_column_that_looks_like_one_is_never_only_ignored() -> None:
    known = ["Unsubscribed", "Consent", "Email Status"]

    def check(header: str, kind: str | None) -> None:
        kinds = guess_kinds(header.strip())
        assert (kinds[0] if kinds else None) == kind
        if kind is None:
            return
        with pytest.raises(UnmappedColumns) as caught:
            map_columns(["email", header, "Also unsub", *known], ignore_unknown=True)
        (column, other) = caught.value.columns
        assert (column.proposals, column.ambiguous) == ((*kinds, "ignore"), True)
        assert {*kinds} == {"opt_out", "opt_in", "email_status"} == {*other.proposals} - {"ignore"}
        assert f"column {header!r} looks like a column that says who must not be written to: --map" in str(caught.value)

    check_rows(((header, kind) for headers, kind in LOOKS for header in headers.split(",")), check)


def test_a_column_of_a_tool_that_looks_like_one_is_not_ignored_by_a_pattern() -> None:
    headers = ["Email", "Accepts Email Marketing", "Total Spent", "Size (customer.metafields.custom.size)"]
    assert map_columns(headers).codes == ("email", "opt_in", None, None)
    with pytest.raises(UnmappedColumns):
        map_columns([*headers, "Unsubscribed (customer.metafields.custom.out)"], ignore_unknown=True)


SAME = "same address as line {}, whose person must not be written to"
EXCLUDED_ROWS = [
    # A deleted record excludes no other record of its person.
    (
        "email,IsDeleted,Unsubscribed\na@a.example,true,\na@a.example,false,\nb@b.example,true,yes\nb@b.example,false,",
        ["column 'IsDeleted' says 'true'", None, "column 'IsDeleted' says 'true'", SAME.format(4)],
    ),
    # A row that does not fit the header excludes its person, if its cells say so.
    (
        "email,Unsubscribed,city\na@a.example,yes\na@a.example,,Lyon\nb@b.example,yes,Lyon,Fr\nb@b.example,,\nc@c.example\nc@c.example,,",
        ["misfit", SAME.format(2), "misfit", SAME.format(4), "misfit", None],
    ),
    # Each of several columns with one name counts.
    ("email,Deleted,Deleted\na@a.example,no,yes\nb@b.example,no,no\n", ["column 'Deleted (2)' says 'yes'", None]),
]


@pytest.mark.parametrize(("content", "expected"), EXCLUDED_ROWS, ids=["deleted", "misfits", "two columns"])
def test_a_row_excludes_its_person_if_a_column_says_so(content: str, expected: list[str | None]) -> None:
    file = open_file(BytesIO(content.encode()), format="csv")
    rows = [*file.rows(map_columns(file.headers))]
    assert [(row.fault and "misfit") or row.excluded for row in rows] == expected


@pytest.mark.parametrize("header", ["Do Not Call", "DoNotCall", "Accepts SMS Marketing", "Nicht anrufen", "Phone Verified"])
def test_a_column_about_telephones_is_ignored_with_that_reason(header: str) -> None:
    assert map_columns(["email", header]).decisions()[1] == (header, "ignore", "about telephones, not e-mail")


def test_consent_counts_before_a_field_of_the_workspace_and_a_likeness_after_it() -> None:
    fields = [
        WorkspaceField(label=name, code=f"custom_{at}", searchable=[]) for at, name in enumerate(["Unsubscribed", "Bounce rate"])
    ]
    assert map_columns(["email", "Unsubscribed", "Bounce rate"], fields=fields).codes == ("email", "opt_out", "custom_1")
    for code in "custom_0", "ignore":
        columns = map_columns(["email", "Unsubscribed"], {"Unsubscribed": code}, fields)
        assert (columns.consent, columns.reasons[1]) == ((), "override, so it excludes nobody")


def test_no_known_name_of_a_field_looks_like_consent() -> None:
    names = [name for export in load_exports() for columns in export.fields.values() for name in columns]
    assert [name for name in (*names, *load_common_fields()) if guess_kinds(name) or is_about_telephones(name)] == []


FORBIDDEN_ROWS = [
    ("hubspot", "Unsubscribed from all email", "true", "false"),
    ("salesforce-api", "EmailBouncedReason", "550 mailbox unavailable", ""),
    ("salesforce-api", "IsDeleted", "1", "0"),
    ("apollo", "Stage", "Do Not Contact", "Cold"),
    ("suitecrm", "Email Opt Out", "1", "0"),
    ("shopify", "Accepts Email Marketing", "no", "yes"),
    ("mailchimp", "UNSUB_TIME", "2024-01-01 10:00:00", ""),
    ("klaviyo", "Email Marketing Consent", "NEVER_SUBSCRIBED", "SUBSCRIBED"),
    ("klaviyo", "Email Suppressions", "[{reason: HARD_BOUNCE}]", "[]"),
    ("pipedrive", "Person - Marketing status", "unsubscribed", "subscribed"),
    ("evaboot", "Email Status", "invalid", "safe"),
]


@pytest.mark.parametrize(("key", "column", "forbids", "permits"), FORBIDDEN_ROWS)
def test_a_row_of_an_export_is_excluded_if_its_person_declined(key: str, column: str, forbids: str, permits: str) -> None:
    header = EXPORTS[key][1]
    columns = map_columns(header.split(","))
    _, line = write_export(header, columns.codes).splitlines()
    at = columns.headers.index(column)
    lines = [",".join([*(cells := line.split(","))[:at], text, *cells[at + 1 :]]) for text in (forbids, permits)]
    lines[1] = lines[1].replace("@", "2@")  # another person
    rows = list(open_file(BytesIO("\n".join([header, *lines]).encode()), format="csv").rows(columns))
    assert [row.excluded for row in rows] == [f"column '{column}' says '{forbids}'", None]
    assert column not in {columns.headers[places[0]] for places in columns.sources.values()}


# Exports of other tools: they are mapped without options, and no column is left out silently.

LINKEDIN = WorkspaceField(label="LinkedIn", code="linkedin", searchable=["linkedin"])


@pytest.mark.parametrize("key", EXPORTS)
def test_an_export_is_recognised_and_its_rows_become_the_right_people(key: str) -> None:
    name, header = EXPORTS[key]
    columns = map_columns(header.split(","))
    assert columns.export == name
    assert {"email", "first_name", "last_name"} <= set(columns.codes)
    assert ("title" in columns.codes) == (key not in {"shopify", "mailchimp"})
    assert ("company_name" in columns.codes) == (key not in {"salesforce-api", "mailchimp"})  # the one has only the company's id
    for column, code, reason in columns.decisions():
        assert reason.startswith(f"{name}: ") if code == "ignore" else reason, column
    _, line = write_export(header, columns.codes).splitlines()
    members = columns.members(line.split(","))
    assert (members["email"], members["first_name"]) == ("ada.example@works.example", "Ada")
    assert members.get("title", "Head of Looms") == "Head of Looms"
    assert not any(value.startswith("of ") for value in members.values())


@pytest.mark.parametrize("export", load_exports(), ids=lambda export: export.name)
def test_the_table_of_a_tool_maps_to_existing_fields_and_names_its_source(export: ExportFormat) -> None:
    assert {*export.fields, *export.instead} <= {"email", *STANDARD_FIELDS}
    assert {*export.forbids, *export.forbids_like.values()} <= {*CONSENT_CODES}
    assert export.known_from
    assert len(export.marks) > export.least


@pytest.mark.parametrize(
    ("key", "consent"),
    [
        ("hubspot", {"Unsubscribed from all email": "opt_out"}),
        ("salesforce-api", {"IsDeleted": "opt_out", "EmailBouncedReason": "opt_out", "EmailBouncedDate": "opt_out"}),
        ("apollo", {"Email Status": "email_status", "Stage": "email_status", "Email Bounced": "opt_out"}),
        ("suitecrm", {"Email Opt Out": "opt_out", "Invalid Email": "opt_out", "Deleted": "opt_out"}),
        ("shopify", {"Accepts Email Marketing": "opt_in"}),
        ("mailchimp", dict.fromkeys((name for name in MAILCHIMP.split(",") if name.startswith("UNSUB_")), "opt_out")),
        ("klaviyo", {"Email Marketing Consent": "opt_in", "Email Suppressions": "opt_out"}),
        ("pipedrive", {"Person - Marketing status": "email_status"}),
        ("evaboot", {"Email Status": "email_status"}),
    ],
)
def test_an_export_says_in_these_columns_who_must_not_be_written_to(key: str, consent: dict[str, str]) -> None:
    columns = map_columns(EXPORTS[key][1].split(","))
    assert {columns.headers[at]: code for at, code in columns.consent} == consent
    reasons = {reason for _, code, reason in columns.decisions() if code in CONSENT_CODES}
    assert reasons == {f"{EXPORTS[key][0]} column; says who must not be written to"}


NO_CITY = ",".join(column for column in ZOOMINFO.split(",") if column != "Person City")
STATUS = WorkspaceField(label="Lead status", code="custom_1", searchable=[])
PREFERRED: list[tuple[str, dict[str, str], dict[str, str]]] = [
    (ZOOMINFO, {}, {"city": "Person City"}),
    (NO_CITY, {}, {"city": "Company City"}),  # that of a company counts only without that of the person
    (APOLLO, {}, {"company_name": "Company Name for Emails", "company_formal_name": "Company"}),
    (APOLLO, {}, {"city": "City", "address_1": "Company Address", "linkedin": "Person Linkedin Url"}),
    (OUTLOOK, {}, {"title": "Job Title"}),  # its title is a form of address
    (OUTLOOK, {"Title": "nickname", "Nickname": "ignore"}, {"nickname": "Title"}),
    (HUBSPOT, {}, {"company_name": "Company Name", "custom_1": "Lead Status"}),
    (HUBSPOT, {"Associated Company": "company_name"}, {"company_name": "Associated Company"}),
    (HUBSPOT, {"Company Name": "ignore"}, {"company_name": "Associated Company"}),
]
"""Headers, overrides, and the preferred column of fields, in a workspace with fields for LinkedIn and a status."""


def test_a_field_of_an_export_has_the_best_of_its_columns() -> None:
    def check(header: str, overrides: dict[str, str], expected: dict[str, str]) -> None:
        columns = map_columns(header.split(","), overrides, [LINKEDIN, STATUS])
        found = {code: columns.headers[places[0]] for code, places in columns.sources.items()}
        assert found.items() >= expected.items()

    check_rows(PREFERRED, check)


DECISIONS: list[tuple[str, dict[str, str], tuple[str, str, str]]] = [
    (HUBSPOT, {"Company Name": "company_name"}, ("Associated Company", "ignore", "HubSpot: duplicates the company's name")),
    (HUBSPOT, {}, ("Associated Company", "company_name", "HubSpot column; if 'Company Name' is blank")),
    (
        f"{SALESFORCE_REPORT},Company",
        {"Account Name": "company_name"},
        ("Company", "ignore", "Salesforce: another column is used instead"),
    ),
    (APOLLO, {}, ("Person Linkedin Url", "ignore", "Apollo: the workspace has no field for this column")),
    (
        f"{HUBSPOT},Opted out of email: One to One",
        {},
        ("Opted out of email: One to One", "opt_out", "HubSpot column; says who must not be written to"),
    ),
    (f"{HUBSPOT},Marketing emails bounced", {}, ("Marketing emails bounced", "ignore", "HubSpot: history in HubSpot")),
]


def test_a_column_of_an_export_has_a_reason() -> None:
    def check(header: str, overrides: dict[str, str], expected: tuple[str, str, str]) -> None:
        assert expected in map_columns(header.split(","), overrides).decisions()

    check_rows(DECISIONS, check)


def test_the_tool_with_most_names_in_the_header_wrote_it() -> None:
    header = "Email,Account Name,Lead Source,Office Phone,Primary Address Street,Invalid Email"
    assert map_columns(header.split(",")).export == "SuiteCRM"  # and two names of Salesforce
    several = ["email", "Connected On", "URL", "Account Name", "Lead Source"]
    assert map_columns(several, {"Connected On": "", "URL": ""}).export == "Salesforce"


def test_a_column_of_two_fields_is_sent_in_its_own_and_helps_the_other() -> None:
    columns = map_columns(["First Name", "Company Name for Emails", "Company Name", "Email", "Apollo Contact Id"])
    assert columns.codes[:3] == ("first_name", "company_name", "company_formal_name")
    assert columns.sources["company_name"] == (1, 2)
    assert read_row(columns, "Ann", " ", "Acme Ltd", "ann@company.example", "1")["company_name"] == "Acme Ltd"
    assert columns.decisions()[2][2] == "Apollo column; also company_name if 'Company Name for Emails' is blank"


def test_an_additional_column_in_an_export_is_still_unknown() -> None:
    with pytest.raises(InvalidRequest, match="unknown column 'Shoe Size'"):
        map_columns([*HUBSPOT.split(","), "Shoe Size"])


@pytest.mark.parametrize("header", ["email,first_name", "E-mail,First Name,Last Name,Phone", "Email,Email Status", ""])
def test_an_ordinary_header_is_not_an_export(header: str) -> None:
    assert detect_export(header.split(",")) is None


# Common column names: the table is complete, sourced and without contradictions; every name maps, or is reported.

CODES = {"email", *STANDARD_FIELDS}
LANGUAGES = read_common_headers()["languages"]
NAMED = [(name, code) for language in LANGUAGES.values() for code, names in language["fields"].items() for name in names]
MEANINGS = {id(header): header for header in load_ambiguous_headers().values()}.values()
AMBIGUOUS = [name for header in MEANINGS for name in header.names]
EVERY_NAME = [*(name for name, _ in NAMED), *AMBIGUOUS]


def map_header(*names: str) -> tuple[str | None, ...]:
    """Return the codes of columns. Add a column for the e-mail if there is none."""
    if any(load_common_fields().get(fold_name(name)) == "email" for name in names):
        return map_columns(names).codes
    return map_columns(["email", *names]).codes[1:]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_a_source_for_fifteen_names_and_says_which_have_none(language: str) -> None:
    table = LANGUAGES[language]
    names = {name for group in table["fields"].values() for name in group}
    assert table["source"]
    assert set(table["unsourced"]) <= names
    assert len({fold_name(name) for name in names - set(table["unsourced"])}) >= 15


@pytest.mark.thorough
def test_no_two_rows_of_the_table_contradict_each_other() -> None:
    for (one, code), (other, other_code) in combinations(NAMED, 2):
        assert fold_name(one) != fold_name(other) or code == other_code, (one, other)
    assert not {fold_name(name) for name, _ in NAMED} & {fold_name(name) for name in AMBIGUOUS}
    for one_header, other_header in combinations(MEANINGS, 2):
        assert not set(map(fold_name, one_header.names)) & set(map(fold_name, other_header.names))


def test_no_name_of_the_table_hides_a_field_of_that_name() -> None:
    by_code = {fold_name(code): code for code in CODES}
    for name, code in NAMED:
        assert by_code.get(fold_name(name), code) == code
    assert not by_code.keys() & {fold_name(name) for name in AMBIGUOUS}


def test_the_table_maps_to_existing_fields() -> None:
    assert {code for _, code in NAMED} <= CODES
    for header in MEANINGS:
        assert set(header.may_be) <= {*CODES, *Target._fields, *CONSENT_CODES, "ignore"}
        assert len(set(header.may_be)) == len(header.may_be) >= 2
        for rule in header.rules:
            assert rule["field"] in header.may_be
            assert rule["reason"]
            assert {*rule.get("present", ()), *rule["absent"]} <= CODES
            assert rule.keys() <= {"field", "reason", "beside", "present", "absent"}
            assert rule["field"] in rule["absent"]  # otherwise two columns would map to one field


def test_a_name_with_one_meaning_maps_alone() -> None:
    def check(name: str, code: str) -> None:
        assert map_header(name) == (code,)

    check_rows(sorted(set(NAMED)), check)


def test_an_ambiguous_name_alone_is_decided_by_a_rule_or_reported() -> None:
    def check(name: str) -> None:
        header = find_ambiguous(name)
        assert header is not None
        decided = header.decide({fold_name(name), "email"}, {"email"})
        if decided is not None:
            assert map_header(name) == (decided[0],)
            return
        with pytest.raises(UnmappedColumns) as caught:
            map_header(name)
        (column,) = caught.value.columns
        assert (column.ambiguous, column.proposals) == (True, header.may_be)

    check_rows(((name,) for name in AMBIGUOUS), check)


@given(st.sampled_from(NAMED), st.sampled_from([str.upper, str.lower, str.title]), st.sampled_from(["", " ", "-", "."]))
def test_case_and_punctuation_make_no_difference(named: tuple[str, str], respell: type[str], end: str) -> None:
    name, code = named
    assert map_header(respell(name) + end) == (code,)


@given(st.lists(st.sampled_from(EVERY_NAME), min_size=1, max_size=6, unique_by=fold_name))
def test_every_option_of_an_error_can_be_pasted_and_settles_its_column(names: list[str]) -> None:
    headers = ["email", *(name for name in names if load_common_fields().get(fold_name(name)) != "email")]
    error = find_error(headers, {})
    if isinstance(error, UnmappedColumns):
        options = [shlex.split(column.option()) for column in error.columns]
        assert options == [["--map", f"{column.header}={column.proposals[0]}"] for column in error.columns]
        error = find_error(headers, parse_overrides([text.replace("=CODE", "=ignore") for _, text in options]))
    assert error is None or "both map to" in str(error)


def find_error(headers: list[str], overrides: dict[str, str]) -> Exception | None:
    try:
        map_columns(headers, overrides)
    except InvalidRequest as error:
        return error
    return None


@given(st.permutations(["Name", "Vorname", "Titel", "Position", "Telefon", "Ort", "Estado", "Nombre"]))
def test_the_order_of_the_columns_makes_no_difference(headers: list[str]) -> None:
    codes = map_columns(["email", *headers], {"Titel": "ignore", "Nombre": "ignore"}).codes
    assert dict(zip(headers, codes[1:], strict=True)) == {
        "Name": "last_name",
        "Vorname": "first_name",
        "Titel": None,
        "Position": "title",
        "Telefon": "work_phone",
        "Ort": "city",
        "Estado": "state",
        "Nombre": None,
    }


@pytest.mark.parametrize(
    ("headers", "codes"),
    [
        (("Vorname", "Name"), ("first_name", "last_name")),
        (("Naam", "Voornaam"), ("last_name", "first_name")),
        (("Name",), ("full_name",)),
        (("Name", "Last Name"), ("first_name", "last_name")),
        (("Surname", "NAME"), ("last_name", "first_name")),
        (("Jméno", "Příjmení"), ("first_name", "last_name")),
        (("Imię", "Nazwisko", "Nazwa"), ("first_name", "last_name", "company_name")),
        (("Imie", "Plec", "Kraj"), ("first_name", "gender", "country")),
        (("Příjmení", "Kraj", "Stát"), ("last_name", "region", "country")),
        (("First Name", "Name", "Last Name"), ("first_name", "full_name", "last_name")),
        (("Nom", "Prénom"), ("last_name", "first_name")),
        (("Nombre", "Apellidos"), ("first_name", "last_name")),
        (("Nome", "Cognome"), ("first_name", "last_name")),
        (("Nome", "Sobrenome"), ("first_name", "last_name")),
        (("Sobrenome", "Apelido"), ("last_name", "nickname")),
        (("Nome próprio", "Apelido"), ("first_name", "last_name")),
        (("Phone",), ("work_phone",)),
        (("Cidade", "Estado"), ("city", "state")),
        (("Staat", "Land"), ("state", "country")),
        (("Profession", "Job Title"), ("occupation", "title")),
    ],
)
def test_the_neighbours_decide_a_name_with_several_meanings(headers: tuple[str, ...], codes: tuple[str, ...]) -> None:
    assert map_header(*headers) == codes


@pytest.mark.parametrize(
    ("headers", "option"),
    [
        (("First Name", "Name"), "--map Name=last_name"),  # "Name" may be the full name
        (("Nom",), "--map Nom=last_name"),
        (("Titel",), "--map Titel=title"),
        (("Titel", "Position"), "--map Titel=CODE"),  # another column already has the job title
        (("Phone", "Business Phone"), "--map Phone=other_phone"),
        (("Estado",), "--map Estado=state"),
    ],
)
def test_a_name_that_the_neighbours_do_not_decide_is_reported(headers: tuple[str, ...], option: str) -> None:
    with pytest.raises(UnmappedColumns) as caught:
        map_header(*headers)
    assert [column.option() for column in caught.value.columns] == [option]
    assert f"ambiguous column {caught.value.columns[0].header!r}: {option}" in str(caught.value)


def test_ignoring_unknown_columns_does_not_ignore_ambiguous_ones() -> None:
    with pytest.raises(UnmappedColumns) as caught:
        map_columns(["email", "qqqq", "Titel"], ignore_unknown=True)
    assert str(caught.value) == "ambiguous column 'Titel': --map Titel=title (or ignore)"
    with pytest.raises(UnmappedColumns, match=r"; or ignore the unknown ones with --ignore-unknown$"):
        map_columns(["email", "qqqq", "Titel"])
    assert map_columns(["email", "qqqq", "Titel"], {"Titel": "ignore"}, ignore_unknown=True).codes == ("email", None, None)


def test_a_workspace_field_of_the_same_name_takes_precedence() -> None:
    notes = WorkspaceField(label="Notes", code="custom_4", searchable=[])
    name = WorkspaceField(label="Name", code="custom_5", searchable=[])
    assert map_columns(["email", "Notes", "Name"], fields=[notes, name]).codes == ("email", "custom_4", "custom_5")
    assert map_columns(["email", "Notes", "Name"]).codes == ("email", "personal_note", "full_name")
    # An overridden neighbour counts as what it is sent as.
    assert map_columns(["email", "Nom", "Usage"], {"Usage": "first_name"}).codes == ("email", "last_name", "first_name")

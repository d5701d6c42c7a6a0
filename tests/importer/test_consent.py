"""Columns that say who must not be written to, and what their cells say."""

from __future__ import annotations

from io import BytesIO

import pytest
from support.exports import EXPORTS, write_export
from support.tables import check_rows

from outreach_async.importer import UnmappedColumns, map_columns, open_file
from outreach_async.importer._consent import find_exclusion, guess_kinds, is_about_telephones, load_consent_headers
from outreach_async.importer._known_exports import load_common_fields, load_exports
from outreach_async.models import WorkspaceField

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


def test_a_deleted_record_excludes_no_other_record_of_its_person() -> None:
    lines = ["a@a.example,true,", "a@a.example,false,", "b@b.example,true,yes", "b@b.example,false,"]
    file = open_file(BytesIO("\n".join(["email,IsDeleted,Unsubscribed", *lines]).encode()), format="csv")
    rows = [*file.rows(map_columns(file.headers))]
    assert [row.excluded is not None for row in rows] == [True, False, True, True]


def test_a_row_that_does_not_fit_the_header_excludes_its_person() -> None:
    lines = ["a@a.example,yes", "a@a.example,,Lyon", "b@b.example,yes,Lyon,Fr", "b@b.example,,", "c@c.example", "c@c.example,,"]
    file = open_file(BytesIO("\n".join(["email,Unsubscribed,city", *lines]).encode()), format="csv")
    rows = [*file.rows(map_columns(file.headers))]
    assert [row.fault is not None for row in rows] == [True, False] * 3
    reasons = [f"same address as line {line}, whose person must not be written to" for line in (2, 4)]
    assert [row.excluded for row in rows[1::2]] == [*reasons, None]


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


def test_each_of_several_columns_with_one_name_counts() -> None:
    file = open_file(BytesIO(b"email,Deleted,Deleted\na@a.example,no,yes\nb@b.example,no,no\n"), format="csv")
    columns = map_columns(file.headers)
    assert columns.codes == ("email", "opt_out", "opt_out")
    assert [row.excluded for row in file.rows(columns)] == ["column 'Deleted (2)' says 'yes'", None]


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

"""Exports of other tools are mapped without options, and no column is left out silently."""

from __future__ import annotations

import pytest
from support.exports import APOLLO, EXPORTS, HUBSPOT, MAILCHIMP, OUTLOOK, SALESFORCE_REPORT, ZOOMINFO, write_export
from support.files import read_row

from outreach_async.errors import InvalidRequest
from outreach_async.importer import map_columns
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._known_exports import ExportFormat, detect_export, load_exports
from outreach_async.models import STANDARD_FIELDS, WorkspaceField

LINKEDIN = WorkspaceField(label="LinkedIn", code="linkedin", searchable=["linkedin"])


def map_header(header: str, overrides: dict[str, str] | None = None, fields: tuple[WorkspaceField, ...] = ()) -> dict[str, str]:
    """Return the preferred column of each field."""
    columns = map_columns(header.split(","), overrides, fields)
    return {code: columns.headers[places[0]] for code, places in columns.sources.items()}


@pytest.mark.parametrize("key", EXPORTS)
def test_an_export_is_recognised_and_each_column_has_a_field_or_a_reason(key: str) -> None:
    name, header = EXPORTS[key]
    columns = map_columns(header.split(","))
    assert columns.export == name
    assert {"email", "first_name", "last_name"} <= set(columns.codes)
    assert ("title" in columns.codes) == (key not in {"shopify", "mailchimp"})
    assert ("company_name" in columns.codes) == (key not in {"salesforce-api", "mailchimp"})  # the one has only the company's id
    for column, code, reason in columns.decisions():
        assert reason.startswith(f"{name}: ") if code == "ignore" else reason, column


@pytest.mark.parametrize("key", EXPORTS)
def test_a_row_of_an_export_becomes_the_right_person(key: str) -> None:
    columns = map_columns(EXPORTS[key][1].split(","))
    _, line = write_export(EXPORTS[key][1], columns.codes).splitlines()
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


def test_an_opt_out_of_any_kind_of_email_counts_in_hubspot() -> None:
    columns = map_columns([*HUBSPOT.split(","), "Opted out of email: One to One", "Marketing emails bounced"])
    assert columns.codes[-2:] == ("opt_out", None)


def test_the_city_of_a_company_counts_only_without_a_city_of_the_person() -> None:
    columns = ZOOMINFO.split(",")
    assert map_columns(columns).sources["city"] == (columns.index("Person City"),)
    columns = [column for column in columns if column != "Person City"]
    assert map_columns(columns).sources["city"] == (columns.index("Company City"),)


def test_the_tool_with_most_names_in_the_header_wrote_it() -> None:
    header = "Email,Account Name,Lead Source,Office Phone,Primary Address Street,Invalid Email"
    assert map_columns(header.split(",")).export == "SuiteCRM"  # and two names of Salesforce
    assert (
        map_columns(["email", "Connected On", "URL", "Account Name", "Lead Source"], {"Connected On": "", "URL": ""}).export
        == "Salesforce"
    )


def test_company_name_of_apollo_is_the_informal_name() -> None:
    found = map_header(APOLLO)
    assert (found["company_name"], found["company_formal_name"]) == ("Company Name for Emails", "Company")
    assert (found["city"], found["address_1"]) == ("City", "Company Address")


def test_title_of_outlook_is_a_form_of_address_and_not_a_job() -> None:
    found = map_header(OUTLOOK)
    assert found["title"] == "Job Title"
    assert "Title" not in found.values()


def test_a_column_left_out_for_a_better_one_says_so() -> None:
    columns = map_columns(HUBSPOT.split(","), {"Company Name": "company_name"})
    assert ("Associated Company", "ignore", "HubSpot: duplicates the company's name") in columns.decisions()
    second_column = map_columns([*SALESFORCE_REPORT.split(","), "Company"], {"Account Name": "company_name"}).decisions()[-1]
    assert second_column == ("Company", "ignore", "Salesforce: another column is used instead")


def test_a_second_column_of_a_field_counts_where_the_first_is_blank() -> None:
    columns = map_columns(HUBSPOT.split(","))
    company, associated = (columns.headers.index(name) for name in ("Company Name", "Associated Company"))
    assert columns.sources["company_name"] == (company, associated)
    assert columns.decisions()[associated] == ("Associated Company", "company_name", "HubSpot column; if 'Company Name' is blank")


def test_a_column_of_two_fields_is_sent_in_its_own_and_helps_the_other() -> None:
    columns = map_columns(["First Name", "Company Name for Emails", "Company Name", "Email", "Apollo Contact Id"])
    assert columns.codes[:3] == ("first_name", "company_name", "company_formal_name")
    assert columns.sources["company_name"] == (1, 2)
    assert read_row(columns, "Ann", " ", "Acme Ltd", "ann@company.example", "1")["company_name"] == "Acme Ltd"
    assert columns.decisions()[2][2] == "Apollo column; also company_name if 'Company Name for Emails' is blank"


def test_an_override_frees_the_column_that_was_chosen() -> None:
    found = map_header(HUBSPOT, {"Associated Company": "company_name"})
    assert found["company_name"] == "Associated Company"
    assert map_header(HUBSPOT, {"Company Name": "ignore"})["company_name"] == "Associated Company"
    assert map_header(OUTLOOK, {"Title": "nickname", "Nickname": "ignore"})["nickname"] == "Title"


def test_a_workspace_field_takes_a_column_that_would_be_left_out() -> None:
    status = WorkspaceField(label="Lead status", code="custom_1", searchable=[])
    assert map_header(HUBSPOT, fields=(status,))["custom_1"] == "Lead Status"
    assert map_header(APOLLO, fields=(LINKEDIN,))["linkedin"] == "Person Linkedin Url"
    reasons = {column: reason for column, _, reason in map_columns(APOLLO.split(",")).decisions()}
    assert reasons["Person Linkedin Url"] == "Apollo: the workspace has no field for this column"


def test_an_additional_column_in_an_export_is_still_unknown() -> None:
    with pytest.raises(InvalidRequest, match="unknown column 'Shoe Size'"):
        map_columns([*HUBSPOT.split(","), "Shoe Size"])


@pytest.mark.parametrize("header", ["email,first_name", "E-mail,First Name,Last Name,Phone", "Email,Email Status", ""])
def test_an_ordinary_header_is_not_an_export(header: str) -> None:
    assert detect_export(header.split(",")) is None

"""Responses that are not a success: their messages and their Retry-After."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzz import OPERATIONS, client_of
from support.tables import check_rows_async
from support.transport import Script

from outreach_async import ContactRejected, OutreachError, RateLimited, Response, StatusError, UnexpectedResponse

NOW = "Sun, 06 Nov 1994 08:49:37 GMT"


async def error_of(
    status: int, body: bytes = b"", headers: dict[str, str] | None = None, operation: str = "list_fields", word: str = "token"
) -> OutreachError:
    """Return the error of a call that the service answers with this response."""
    async with client_of(Script(Response(status, headers or {}, body)), headers={"x-token": f"{word}_1"}) as client:
        with pytest.raises(OutreachError) as caught:
            await OPERATIONS[operation](client)
    return caught.value


async def created(body: bytes) -> OutreachError:
    return await error_of(200, body, operation="create_contact")


async def reason_of(body: bytes) -> str:
    return str(await error_of(400, body)).removeprefix("list_fields: the service answered 400: ")


INVISIBLE = "\x00\x1b\x7f\x9b\u061c\u200b\u202e\u2066\ufeff\U000e0041"


async def test_no_text_of_an_error_has_invisible_characters() -> None:
    hidden = INVISIBLE.join(["", "slow\ndown", ""])
    error = await error_of(
        400, json.dumps({"error": hidden}).encode(), {"x-request-id": hidden, f"x-{INVISIBLE}other": "visible"}
    )
    assert str(error) == "list_fields: the service answered 400: slow down"
    assert (error.request_id, error.headers) == ("slow down", {"x-request-id": "slow down", "x-other": "visible"})
    assert str(await created(json.dumps({"status": "added", "id": 1, "details": None, hidden: 1}).encode())).isprintable()
    unknown = json.dumps({"status": f"a{hidden}", "id": "b", "details": None}).encode()
    assert str(await created(unknown)).isprintable()


async def test_a_secret_split_by_invisible_characters_is_masked() -> None:
    echo = INVISIBLE.join("token_secret_1")
    error = await error_of(400, json.dumps({"error": echo}).encode(), {"x-request-id": echo}, word="token_secret")
    assert (str(error), error.request_id) == ("list_fields: the service answered 400: ***", "***")


REASONS = [
    (b"", "no body"),
    (b" \r\n", "no body"),
    (b"upstream  timed\r\nout", "upstream timed out"),
    (b"<html><body>502 Bad Gateway</body></html>", "a page of HTML or XML"),
    (b"\n <?xml?>", "a page of HTML or XML"),
    (b"\xff\xfe", "\ufffd\ufffd"),
    (b'"no such workspace"', "no such workspace"),
    (b'{"error": "no such workspace"}', "no such workspace"),
    (b'{"status": "error", "error": {"code": "x", "message": "no such workspace", "field": null}}', "no such workspace"),
    (b'{"message": "slow down"}', "slow down"),
    (b'{"detail": "slow down"}', "slow down"),
    (b'{"details": {"message": "slow\\ndown"}}', "slow down"),
    (b'{"error": "no campaign Sale \\ud83d"}', "no campaign Sale \ufffd"),
    (b'{"errors": [{"field": "zip"}]}', '[{"field": "zip"}]'),
    (b'{"error": "", "message": null, "detail": "slow down"}', "slow down"),
    (b'{"error": {}, "other": 1}', '{"error": {}, "other": 1}'),
    (b"[1, 2]", "[1, 2]"),
    (b"null", "null"),
    (b"17", "17"),
    (b'""', "no message"),
    (b'{"error": " \\n"}', "no message"),
    (b"\x1c", "no message"),
    (b"x" * 200, "x" * 200),
    (b"x" * 201, "x" * 200 + "..."),
]


async def test_the_reason_is_extracted_from_a_body() -> None:
    async def check(body: bytes, message: str) -> None:
        assert await reason_of(body) == message

    await check_rows_async(REASONS, check)


@pytest.mark.parametrize(
    ("base_url", "location", "shown", "remedy"),
    [
        ("http://api.example", "https://api.example{target}", "https://api.example{path}", "pass base_url='https://api.example'"),
        ("http://a.example", "http://a.example/v2{target}", "http://a.example/v2{path}", "pass base_url='http://a.example/v2'"),
        ("http://a.example/v1", "/v2{target}", "http://a.example/v2{path}", "pass base_url='http://a.example/v2'"),
        ("http://a.example", "//b.example:81{target}", "http://b.example:81{path}", "pass base_url='http://b.example:81'"),
        (None, "https://a.example{target}", "https://a.example{path}", "pass base_url='https://a.example'"),
        (None, "{target}", "{path}", "check base_url"),
        ("http://a.example", "{path}/", "http://a.example{path}/", "check base_url"),
        ("http://a.example", "https://a.example/login?token=hunter2", "https://a.example/login", "check base_url"),
        (
            "http://a.example",
            "https://u:hunter2@b.example{path}#hunter2",
            "https://b.example{path}",
            "pass base_url='https://b.example'",
        ),
        ("http://a.example", "https://token_1.example{path}", "https://***.example{path}", "check base_url"),
        ("http://a.example", "ftp://a.example{path}", "ftp://a.example{path}", "check base_url"),
        ("http://a.example", "http://[", "an invalid address", "check base_url"),
    ],
)
async def test_a_redirect_names_its_address_and_the_base_url_that_leads_there(
    base_url: str | None, location: str, shown: str, remedy: str
) -> None:
    path = "/workspaces/space_1/all-fields"
    answer = Response(308, {"location": location.format(target=path, path=path)}, b"<html>Moved</html>")
    transport: Any = Script(answer)
    transport.base_url = base_url
    async with client_of(transport, headers={"x-token": "token_1"}) as client:
        with pytest.raises(StatusError) as caught:
            await client.workspaces.fields()
    text = f"a redirect to {shown.format(path=path)}, which is not followed; {remedy}"
    assert str(caught.value) == f"list_fields: the service answered 308, {text}"


async def test_a_redirect_without_location_is_described_by_its_body() -> None:
    assert str(await error_of(304)) == "list_fields: the service answered 304: no body; check base_url"


DEPTHS = [*range(900, 1000, 9), 100_000]  # around the recursion limit of JSON parsers, and far beyond


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"error":', b"}"), (b'{"x":', b"}")])
async def test_the_reason_of_a_deeply_nested_body_is_bounded(opening: bytes, closing: bytes) -> None:
    for depth in DEPTHS:
        assert len(await reason_of(opening * depth + b"1" + closing * depth)) <= 203


@given(st.binary())
async def test_the_reason_of_any_bytes_is_at_most_one_line(body: bytes) -> None:
    reason = await reason_of(body)
    assert 0 < len(reason) <= 203
    assert "\n" not in reason


@pytest.mark.parametrize("status", [400, 422])
async def test_data_that_the_service_refuses_has_a_class_of_its_own_for_contacts_only(status: int) -> None:
    body = b'{"message": "zip: too long"}'
    assert type(await error_of(status, body, operation="create_contact")) is ContactRejected
    assert type(await error_of(status, body, operation="list_campaigns")) is StatusError


@pytest.mark.parametrize(
    ("body", "states_error", "message"),
    [
        (b'{"status": "error", "error": {"message": "gone"}}', True, "status 'error': gone"),
        (b'{"status": "", "message": "hm"}', True, "status '': hm"),
        (b'{"message": "gone"}', True, "an error: gone"),
        (b'{"status": "error", "data": []}', False, 'status \'error\': {"status": "error", "data": []}'),
        (b'{"status": "ok", "message": "gone", "id": null}', False, "$.details: missing key 'details'"),
        (b'{"status": "added"}', False, "$.id: missing key 'id'; $.details: missing key 'details'"),
        (b'{"status": "overwriten", "id": 1, "details": null}', False, "$.id: expected str, got int"),
        (b'{"status": null, "id": null, "details": null}', False, "$.status: expected str, got None"),
        (b'{"status": {"x": 1}, "id": null, "details": null}', False, "$.status: expected str, got dict"),
        (b"[]", False, "$: expected object, got list"),
        (b"null", False, "$: expected object, got None"),
        (b"<html>", False, "$: expected JSON, got a page of HTML or XML"),
        (b"", False, "$: expected JSON, got an empty body"),
        (b'{"status": "ad', False, "$: expected JSON: Input data was truncated"),
    ],
)
async def test_an_unexpected_response_is_described_by_its_status_or_its_faults(
    body: bytes, states_error: bool, message: str
) -> None:
    error = await created(body)
    assert isinstance(error, UnexpectedResponse)
    assert str(error) == f"create_contact: the service answered 200 with {message}"
    assert (error.status_code, error.body, error.maybe_sent, error.states_error) == (200, body, True, states_error)
    assert error.well_formed is body.endswith(b"}")


@pytest.mark.parametrize("name", [b"status", b"error"])
async def test_the_description_of_a_deeply_nested_response_is_bounded(name: bytes) -> None:
    for depth in DEPTHS:
        error = await created(b'{"status": "error", "%b": %b}' % (name, b"[" * depth + b"]" * depth))
        assert len(str(error)) < 1100


async def test_the_description_of_many_faults_is_shortened() -> None:
    page = {"status": "ok", "headers": [], "data": [{}] * 500, "total_found": 500, "current_page": 1, "total_pages": 1}
    error = await error_of(200, json.dumps(page).encode(), operation="list_mailboxes")
    assert len(str(error)) < 1100
    assert "$.data[0].id: missing key 'id'; $.data[0].status" in str(error)
    assert str(error).endswith("...")


async def wait_of(retry_after: str | None, date: str = NOW) -> float | None:
    fields = {} if retry_after is None else {"retry-after": retry_after}
    error = await error_of(429, b"slow down", {**fields, "date": date})
    assert isinstance(error, RateLimited)
    return error.retry_after


async def test_retry_after_is_parsed_in_all_its_forms() -> None:
    async def check(value: str | None, seconds: float | None) -> None:
        assert await wait_of(value) == seconds

    await check_rows_async(
        [
            *[("0", 0.0), ("3", 3.0), (" 120 ", 120.0), ("1.5", 1.5), ("007", 7.0), (None, None)],
            *((no_number, None) for no_number in ["", "soon", "-1", "+1", "1e3", "0x10", "1_000", "1,5", "1 2"]),
            *((no_number, None) for no_number in ["٣", "²", ".", "inf", "nan", "9" * 400]),
            ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),  # the three forms of RFC 9110, section 5.6.7
            ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
            ("Sun Nov  6 08:49:47 1994", 10.0),
            ("Sun, 06 Nov 1994 09:49:47 +0100", 10.0),
            ("Sun, 06 Nov 1994 08:49:47 -0000", 10.0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
            ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
            ("Sun, 06 Nov 1894 08:49:37 GMT", 0.0),
            *((f"Sun, {date} 08:49:37 GMT", None) for date in ["66 Nov 1994", "06 Foo 1994", f"06 Nov {'9' * 20}"]),
            ("Sun, 06 Nov 1994 08:49:37 +999999999999", None),
        ],
        check,
    )


@given(st.integers(0, 2**32), st.integers(0, 10**6))
async def test_a_date_counts_from_the_date_of_the_response_whatever_our_clock_says(sent: int, ahead: int) -> None:
    until, date = formatdate(sent + ahead, usegmt=True), formatdate(sent, usegmt=True)
    assert await wait_of(until, date) == ahead
    assert await wait_of(str(ahead), date) == ahead
    assert (await wait_of("Sun, 06 Nov 1994 08:49:37 GMT", "nonsense")) == 0


@given(st.text() | st.text("0123456789 ,:+-.GMTSunovJa"), st.text())
async def test_any_string_asks_for_a_finite_wait_or_none(value: str, date: str) -> None:
    seconds = await wait_of(value, date)
    assert seconds is None or 0 <= seconds < 10**18


@pytest.mark.covers
@pytest.mark.thorough
def test_a_date_without_a_zone_is_gmt_wherever_the_program_runs() -> None:
    code = (
        "import anyio, sys; sys.path.insert(0, '.')\n"
        "from client.test_responses import wait_of\n"
        "print(anyio.run(wait_of, 'Sun Nov  6 08:49:47 1994'))"
    )
    env = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}  # noqa: PTH120 - a folder as a string
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10.0"


WITHOUT_DESCRIPTORS = """
import anyio, errno, sys
from outreach_async import OutreachClient, OutreachError
from outreach_async._cli.messages import to_printable
from outreach_async.bulk._contact_keys import order_key
from support.fuzz import OPERATIONS, client_of
from support.transport import Script
from outreach_async import Response

class NoDescriptor:
    def find_spec(self, name, path=None, target=None):
        raise OSError(errno.EMFILE, name)

async def main():
    dated = Response(401, {"retry-after": "Sun Nov  6 08:49:47 1994"}, b"no token_1")
    for response in (dated, Response(200, {}, b'{"status": "added", "id": 1}')):
        client = client_of(Script(response), headers={"x-token": "token_1"})
        await anyio.lowlevel.checkpoint()
        sys.meta_path.insert(0, NoDescriptor())
        try:
            await OPERATIONS["create_contact"](client)
        except OutreachError as error:
            print(error)
        del sys.meta_path[0]

anyio.run(main)
sys.meta_path.insert(0, NoDescriptor())
print(to_printable("a\\x1b"), order_key("a@xn--mnchen-3ya.example"))
"""


@pytest.mark.thorough
@pytest.mark.covers
def test_no_error_needs_a_module_that_cannot_be_imported_without_descriptors() -> None:
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}  # noqa: PTH120 - a folder as a string
    done = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "create_contact: the service answered 401: no ***",
        "create_contact: the service answered 200 with $.id: expected str, got int; $.details: missing key 'details'",
        "a\\x1b a@munchen.example",
    ]

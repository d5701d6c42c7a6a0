"""What a transport makes of its arguments, of URLs and proxies, and of a request, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outreach_async import AiohttpTransport, HttpxTransport, Progress, Request, Response, SocketTransport
from outreach_async._plumbing import parse_base_url
from outreach_async.errors import InvalidRequest
from outreach_async.transport._backends import require_library
from outreach_async.transport._sending import describe_cause, mark_handed_over, mark_unsent, merge_headers
from outreach_async.transport._urls import (
    choose_environment_proxy,
    choose_proxy,
    header_secrets,
    is_loopback,
    require_positive,
    url_secrets,
)

# Base URLs and proxies: validated before connecting, selected as httpx selects them, shown without credentials.


NOWHERE = "http://service.example"
PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "api.example",
            "api.example:8080",
            "//api.example",
            "ftp://api.example",
            "https://",
            "https:///path",
            "https://[::1",
        ),
        *("https://user:secret@", "https://api.example:port", "https://api.example:0", "https://api.example:65536"),
        *("https://api .example", "https://api.example\r\nx: y", "https://api.example\\evil.example", "https://api.example/é"),
        *("https://user:secret@api.example?x=1", "https://api.example/v1?", "https://api.example/#part", "https://api.example#"),
        *("https://api.example/a/../b", 'https://api.example/"quoted"'),
    ],
)
def test_an_impossible_url_is_refused_by_name_and_never_shown(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: ") as caught:
        parse_base_url(text)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["proxy.example:3128", "ftp://proxy.example", "http://", "http://user:secret@:3128"])
def test_an_impossible_proxy_is_refused_by_name_and_never_shown(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^proxy: expected .* http, https") as caught:
        choose_proxy(parse_base_url("http://api.example"), text, ("http", "https"), trust_env=False)
    assert "secret" not in str(caught.value)


NO_PROXY = st.one_of(
    st.sampled_from(
        [
            *("", "*", "example", ".example", "api.example", ".api.example", "API.example", "api.example:8080", "pi.example"),
            *("localhost", "127.0.0.1", "127.0.0.1:8080", "::1", "http://api.example", "https://api.example", "all://127.0.0.1"),
            "other.example",
        ]
    ),
    st.text("aple.xm:180", max_size=6).filter(lambda text: ":" not in text),
)
URLS = [
    *("http://api.example", "https://api.example", "http://api.example:8080", "https://www.api.example"),
    *("http://localhost:8080", "http://127.0.0.1:8080", "https://[::1]"),
]


@given(
    url=st.sampled_from(URLS),
    no=st.lists(NO_PROXY, max_size=3),
    proxies=st.fixed_dictionaries(
        {}, optional={"http": st.just(PROXY), "https": st.just("proxy.example:1"), "all": st.just("http://all:1")}
    ),
)
@example(url="http://api.example", no=["*"], proxies={"http": PROXY})
@example(url="http://www.api.example", no=["api.example"], proxies={"http": PROXY})
@example(url="http://www.api.example", no=["http://api.example"], proxies={"http": PROXY})
@example(url="http://www.api.example", no=["http://API.example"], proxies={"http": PROXY})
@example(url="http://www.api.example", no=["http://*.api.example"], proxies={"http": PROXY})
@example(url="http://www.api.example", no=["http://*.API.example"], proxies={"http": PROXY})
@example(url="http://api.example", no=["http://API.example"], proxies={"http": PROXY})
@example(url="http://myapi.example", no=["api.example"], proxies={"http": PROXY})
def test_the_environment_selects_the_same_proxy_as_for_httpx_except_on_loopback(
    url: str, no: list[str], proxies: dict[str, str]
) -> None:
    base = parse_base_url(url)
    found = choose_environment_proxy(base, {**proxies, "no": ", ".join(no)})
    assert found == (None if is_loopback(base.host) else by_httpx(url, {**proxies, "no": ", ".join(no)}))


def by_httpx(url: str, proxies: dict[str, str]) -> str | None:
    """Return the proxy that httpx selects from the same environment variables."""
    names = {"http": "http_proxy", "https": "https_proxy", "all": "all_proxy", "no": "no_proxy"}
    with pytest.MonkeyPatch.context() as patch:
        for scheme, name in names.items():
            patch.delenv(name.upper(), raising=False)
            patch.setenv(name, proxies.get(scheme, ""))
        client = httpx.AsyncClient(verify=False)  # noqa: S501 - it is never used
    transport: Any = client._transport_for_url(httpx.URL(url))
    pool = transport._pool
    return None if not hasattr(pool, "_proxy_url") else bytes(pool._proxy_url).decode().rstrip("/")


@pytest.mark.parametrize(
    ("host", "covered"),
    [("10.1.2.3", True), ("11.1.2.3", False), ("api.example", False), ("[fd00::1]", True), ("[fe80::1]", False)],
)
def test_a_network_in_no_proxy_covers_its_addresses(host: str, covered: bool) -> None:
    base = parse_base_url(f"http://{host}")
    found = choose_environment_proxy(base, {"http": PROXY, "no": "10.0.0.0/8,fd00::/8,10.0.0.0/99,[fd00::1]:80"})
    assert found == (None if covered else PROXY)


def test_a_proxy_passed_by_the_user_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://environment:1")
    base = parse_base_url("http://api.example")
    assert choose_proxy(base, PROXY, ("http",), trust_env=True) == PROXY
    assert choose_proxy(base, None, ("http",), trust_env=True) == "http://environment:1"
    assert choose_proxy(base, None, ("http",), trust_env=False) is None


# Versions of the HTTP libraries.


@pytest.mark.parametrize(
    ("supported", "version", "make"),
    [
        ("httpx>=0.28,<1", "1.0.dev6", lambda: HttpxTransport(NOWHERE)),
        ("httpx>=0.28,<1", "0.27.2", lambda: HttpxTransport(httpx.AsyncClient(base_url=NOWHERE))),
        ("httpx2>=2.16,<3", "2.9", lambda: HttpxTransport(NOWHERE, family="httpx2")),
        ("aiohttp>=3.13.4,<4", "4.0.0a1", lambda: AiohttpTransport(NOWHERE)),
        ("h11>=0.16,<1", "0.15.9", lambda: SocketTransport(NOWHERE)),
    ],
)
def test_an_unsupported_version_is_named_when_the_transport_is_made(
    supported: str, version: str, make: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = supported.partition(">")[0]
    folder = tmp_path / f"{name}-{version}.dist-info"  # the library seems to be installed in this version
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidRequest) as caught:
        make()
    assert str(caught.value) == f"{name}: expected a version in {supported}, got {version}; run: pip install '{supported}'"


def test_a_library_without_a_known_version_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h11.py").touch()
    with monkeypatch.context() as patch:
        patch.setattr("sys.path", [str(tmp_path)])
        require_library("sockets")


def test_short_secrets_are_not_masked_and_a_user_without_password_is_a_key() -> None:
    assert url_secrets("https://a:b@api.example") == ("YTpi",)
    assert url_secrets("https://key_1@api.example") == ("key_1", "a2V5XzE6")
    assert url_secrets(None) == url_secrets("https://api.example") == ()
    assert header_secrets({"cookie": "sid=1", "proxy-authorization": "abc"}) == ("sid=1",)


# What a transport may report about a request, and its headers.


POST = Request("POST", "/contacts", {"Content-Type": "application/json"}, b"{}")


@pytest.mark.parametrize(
    ("request_", "proof", "sent"),
    [
        pytest.param(POST, True, False, id="a body that tells"),
        pytest.param(POST, False, None, id="a body that a foreign transport may ignore"),
        pytest.param(Request("GET", "/campaigns"), True, None, id="no body"),
        pytest.param(Request("POST", "/" + "a" * 9000, {}, b"{}"), True, None, id="a long target"),
        pytest.param(Request("POST", "/", {"x": "a" * 9000}, b"{}"), True, None, id="a long header field"),
    ],
)
def test_only_a_body_behind_a_short_head_proves_that_nothing_was_sent(request_: Request, proof: bool, sent: bool | None) -> None:
    progress = Progress()
    mark_unsent(progress)
    assert progress.sent is False
    mark_handed_over(progress, request_, proof=proof)
    assert progress.sent is sent


def test_what_was_sent_once_stays_sent() -> None:
    progress = Progress()
    progress.sent = True
    mark_unsent(progress)
    mark_handed_over(progress, POST, proof=True)
    assert progress.sent is True


def test_headers_are_joined_under_lower_case_names_and_a_requests_own_win() -> None:
    assert merge_headers(POST, {"host": "api.example", "content-type": "text/plain"}) == {
        "host": "api.example",
        "content-type": "application/json",
        "accept-encoding": "gzip, deflate",
        "content-length": "2",
    }


@pytest.mark.parametrize(("method", "length"), [("POST", "0"), ("PUT", "0"), ("PATCH", "0"), ("GET", None), ("DELETE", None)])
def test_an_empty_body_has_a_length_where_one_is_expected(method: str, length: str | None) -> None:
    assert merge_headers(Request(method, "/"), {}).get("content-length") == length


@pytest.mark.parametrize("value", ["secret\r\nx: y", "secret\n", "sécret", " secret", "secret ", "sec\x00ret", "sec\x7fret"])
def test_an_ambiguous_header_is_refused_by_name_and_never_shown(value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^headers\['x-key'\]: ") as caught:
        merge_headers(Request("GET", "/", {"x-key": value}), {})
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "EXPECT"])
def test_a_request_may_not_set_the_headers_that_frame_its_body(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"headers: got {name.lower()}, .*; remove these headers"):
        merge_headers(Request("POST", "/", {name: "1"}, b"{}"), {})


def test_the_error_of_a_library_becomes_one_short_line() -> None:
    assert describe_cause(OSError("two\n  lines")) == "OSError: two lines"
    assert describe_cause(RuntimeError()) == "RuntimeError"
    assert len(describe_cause(ValueError("x" * 10_000))) < 250
    silent = RuntimeError()
    silent.__context__ = KeyError()
    silent.__context__.__cause__ = OSError("the reason")
    assert describe_cause(silent) == "RuntimeError: the reason"


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "4", None])
def test_a_count_is_a_positive_integer(value: object) -> None:
    assert require_positive("max_in_flight", 1) == 1
    with pytest.raises(InvalidRequest, match=r"^max_in_flight: expected a whole number of 1 or more"):
        require_positive("max_in_flight", value)


def test_the_repr_of_a_request_or_response_shows_no_header_values_or_bodies() -> None:
    assert repr(Request("POST", "/contacts", {"authorization": "secret"}, b"secret")) == "<Request POST /contacts (6 bytes)>"
    assert repr(Response(200, {"set-cookie": "secret"}, b"secret")) == "<Response 200 (6 bytes)>"

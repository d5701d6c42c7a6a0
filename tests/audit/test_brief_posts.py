"""A brief as a message for Slack, posted to a receiver on a real socket."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from hypothesis import given, settings
from support.audit_reports import AT, BRIEFS, HOSTILE, finding, fleet, make_report
from support.campaigns import DAY
from support.certificates import certificates
from support.cli import COMMAND, Shell, environment, serve_in_thread, small_service
from support.examples import WITHOUT_SHRINKING, scaled
from support.listener import Listener, refused_port, serve

from outreach_async import InvalidRequest
from outreach_async._cli.demo_data import WORKSPACES, create_demo_world
from outreach_async._cli.posting import PostError, find_proxy, parse_webhook, post
from outreach_async._plumbing import Secret
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import Brief, CampaignBrief, build_brief
from outreach_async.fake import faults
from outreach_async.guides import command_line

FAKE = ("brief", "--base-url", "fake:")
PATH = "/services/T0/B0/s3cr3tpath"
SYSTEMD = shutil.which("systemd-analyze") or ""


def message(brief: Brief) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(write(brief, "slack"))
    return made


def texts(brief: Brief) -> list[str]:
    return [block["text"]["text"] for block in message(brief)["blocks"]]


@given(BRIEFS)
@settings(max_examples=scaled(15), phases=WITHOUT_SHRINKING)
def test_every_message_is_within_the_limits_of_slack(brief: Brief) -> None:
    made = message(brief)

    assert set(made) == {"text", "blocks"}
    assert 1 <= len(made["blocks"]) <= 50
    assert made["blocks"][0]["type"] == "header"
    assert 1 <= len(made["blocks"][0]["text"]["text"]) <= 150
    assert all(1 <= len(block["text"]["text"]) <= 3000 for block in made["blocks"][1:])
    assert all(block["type"] == "section" and block["text"]["verbatim"] for block in made["blocks"][1:])


def test_a_message_links_to_the_whole_report_and_to_nothing_else(shell: Shell) -> None:
    brief = build_brief(fleet(3, sick=1.0))
    made = json.loads(write(brief, "slack", link="https://reports.example/?a=1&b=2"))
    assert made["blocks"][1]["text"]["text"].endswith("\n<https://reports.example/?a=1&amp;b=2|Open the whole report>")
    for link in ("javascript:alert(1)", "https://a.example/x y", "https://a.example/|x", "https://a.example/<!channel>", ""):
        with pytest.raises(InvalidRequest, match="link: expected an http or https URL without blanks"):
            write(brief, "slack", link=link)
        assert "--link: expected an http or https URL" in shell.refused(*FAKE, "--format", "slack", "--link", link)
    assert "--link: only the message of Slack has it; pass --post" in shell.refused(*FAKE, "--link", "https://a.example")


def test_too_many_blocks_end_in_a_note() -> None:
    long = "&" * 250  # each becomes &amp;
    groups = [(f"{long[:-1]}{at}", 2) for at in range(9)]
    brief = build_brief(fleet(300, sick=0.5))
    task = attrs.evolve(
        brief.tasks[0], remedy=f"{long}`" * 9, title=long, findings=18, new=9, workspaces=groups, new_workspaces=groups
    )
    about: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(CampaignBrief)) | {"name": long, "status": "live"}
    campaigns = [CampaignBrief(**about | {"id": str(at), "workspace": f"{long}{at}"}) for at in range(10)]
    known: dict[str, Any] = {
        "tasks": [task] * 20,
        "resolved": [task] * 9,
        "actions": {**brief.actions, "stop": {"space_1": [long] * 400}},
        "dropped": [long] * 5,
        "campaigns": campaigns,
    }
    blocks = message(attrs.evolve(brief, **known))["blocks"]

    assert len(blocks) == 50
    assert all(len(block["text"]["text"]) <= 3000 for block in blocks)
    assert blocks[-1]["text"]["text"] == "The message is too long; the other formats of the brief are complete."


def test_no_name_becomes_a_mention_a_link_or_a_mark() -> None:
    attacks = [*HOSTILE, "<!channel>", "<@U123>", "<https://evil.example|click>", "`*_~"]
    found = [finding("OA104", email=text, mailbox=text, domain=text, message=text) for text in attacks]
    shown = "\n".join(texts(build_brief(make_report(found))))

    assert not re.search("<[!@#h]", shown)
    assert "&lt;!channel&gt;" in shown
    assert "`'*_~`" in shown


def test_the_message_names_what_to_stop_the_tasks_and_the_changes() -> None:
    found = [finding("OA104", email=f"m{at}@one.example", mailbox=f"m{at}") for at in range(40)]
    head, *rest = texts(build_brief(make_report(found), make_report([finding("OA102")], at=AT - 86_400)))
    shown = "\n".join(rest)

    assert head == "Outreach brief: Stop sending from 40 mailboxes on 1 domain until the problem is fixed."
    assert "*Stop now: 40 mailboxes*\n• `m0@one.example`, `m1@one.example`, " in shown
    assert all(f"`m{at}@one.example`" in shown for at in range(40))
    named = "\n".join(texts(build_brief(make_report(found[:1], names={"space_1": "Acme"}))))
    assert "*Stop now: 1 mailbox*\n• *Acme*: `m0@one.example`" in named
    assert ":red_circle: *No sender authentication*: 40 mailboxes on `one.example` (*new*)" in shown
    assert "*Resolved*\n:large_orange_circle: *No DKIM*" in shown


def response(status: str, body: str = "ok", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", body]).encode()


def test_the_brief_arrives_as_json_and_is_printed(shell: Shell) -> None:
    with Listener(serve(response("200 OK"))) as receiver:
        done = shell(*FAKE, "--post", receiver.url + PATH)

    (request,) = receiver.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(f"POST {PATH} HTTP/1.1\r\n".encode())
    assert b"content-type: application/json" in head.lower()
    assert json.loads(body)["text"].startswith("Outreach brief: Stop sending from ")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("Outreach brief: ")
    assert done.out.endswith("Posted.\n")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (response("404 Not Found", "no_service"), "the receiver answered 404 (no_service); check the URL of the webhook"),
        (response("403 Forbidden", f"no access to {PATH}"), "the receiver answered 403; check the URL of the webhook"),
        (response("302 Found", "", f"location: https://x.example{PATH}"), "answered 302; use the URL to which it redirects"),
        (
            response("502 Bad Gateway"),
            "the receiver answered 502 (ok); this is its failure, not one of the URL; look whether the brief",
        ),
        (b"nonsense\r\n\r\n", "no response (RemoteProtocolError); look whether the brief has arrived"),
    ],
)
def test_a_brief_that_is_refused_is_complete_and_shown_again(shell: Shell, tmp_path: Path, answer: bytes, text: str) -> None:
    history, output = tmp_path / "history.db", tmp_path / "brief.md"
    with Listener(serve(answer)) as receiver:
        done = shell(*FAKE, "--history", str(history), "--output", str(output), "--post", receiver.url + PATH)

    assert done.code == 69
    assert f"--post: the brief was not delivered: {text}" in done.err.replace("the receiver answered 302", "answered 302")
    assert "run the command again" in done.err
    assert output.read_text().startswith("# Outreach brief")
    assert not history.exists()
    assert len(receiver.requests) == 1
    assert "s3cr3t" not in done.out + done.err


@pytest.mark.anyio
async def test_a_busy_receiver_is_asked_again() -> None:
    with Listener(serve(response("429 Too Many Requests")), serve(response("503 Busy")), serve(response("200 OK"))) as receiver:
        await post(Secret(receiver.url + PATH), "{}", (0, 0, 0))
    assert len(receiver.requests) == 3

    with Listener(serve(response("429 Too Many Requests", "rate_limited"))) as receiver:
        with pytest.raises(PostError, match=r"^the receiver answered 429 \(rate_limited\)$"):
            await post(Secret(receiver.url + PATH), "{}", (0, 0))
        assert len(receiver.requests) == 2


@pytest.mark.anyio
async def test_a_receiver_that_does_not_listen_is_named_without_its_url() -> None:
    with pytest.raises(PostError, match=r"^no connection \(ConnectError\); check the network and the URL$") as failed:
        await post(Secret(f"http://127.0.0.1:{refused_port()}{PATH}"), "{}", (0, 0))
    assert failed.value.__context__ is None or failed.value.__suppress_context__


@pytest.mark.anyio
async def test_a_proxy_that_refuses_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    forbids = asks.replace(b"407 Proxy Authentication Required", b"403 Forbidden")
    remedy = "check this proxy, or name the host in NO_PROXY to use none"
    with Listener(serve(asks)) as asking, Listener(serve(forbids)) as forbidding:
        for port, told in (
            (refused_port(), f"(ConnectError); {remedy}"),
            (forbidding.port, f"(ProxyError); {remedy}"),
            (asking.port, "(it answered 407); check the user and password of the proxy"),
        ):
            monkeypatch.setenv("https_proxy", f"http://user:secret@localhost:{port}")
            with pytest.raises(PostError) as failed:
                await post(Secret(f"https://hooks.example{PATH}"), "{}", (0, 0))
            assert str(failed.value) == f"no connection through the proxy http://localhost:{port} {told}"
        assert [len(proxy.peers) for proxy in (forbidding, asking)] == [2, 1]


@pytest.mark.anyio
async def test_a_certificate_that_is_not_trusted_is_named_with_its_remedy() -> None:
    with Listener(serve(), tls=certificates().server) as receiver:
        with pytest.raises(PostError) as failed:
            await post(Secret(f"https://localhost:{receiver.port}{PATH}"), "{}", (0, 60))
        remedy = "to trust its issuer, set SSL_CERT_FILE to a file with the certificate of the issuer"
        assert str(failed.value) == f"no connection (the certificate is not trusted); {remedy}"


@pytest.mark.anyio
async def test_no_log_record_contains_the_url(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Listener(serve(response("200 OK"))) as receiver:
        await post(Secret(receiver.url + PATH), "{}")
    assert "s3cr3t" not in "".join(record.getMessage() + repr(record.args) for record in caplog.records)


@pytest.mark.parametrize(
    "value",
    [
        "http://hooks.example/s3cr3t",
        "ftp://x/s3cr3t",
        "s3cr3t",
        "https:///s3cr3t",
        "https://u:s3cr3t@x.example/",
        "https://hooks.example:s3cr3t/",
        "",
    ],
)
def test_an_unfit_url_is_refused_without_being_shown(shell: Shell, value: str) -> None:
    done = shell(*FAKE, "--post", value)
    assert done.code == 2
    assert "--post: expected an https URL" in done.err
    assert "s3cr3t" not in done.out + done.err


def test_the_url_may_be_in_an_environment_variable() -> None:
    url = parse_webhook("env:HOOK", {"HOOK": " https://hooks.example/s3cr3t\n"})

    assert url.reveal() == "https://hooks.example/s3cr3t"
    assert "s3cr3t" not in f"{url!r}{url}"
    with pytest.raises(click.UsageError, match="this variable is not set") as refused:
        parse_webhook("env:NONE", {})
    assert "NONE" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "proxies", "proxy"),
    [
        ("https://hooks.example/x", {"https": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ("https://hooks.example/x", {"http": "http://proxy.example:3128"}, None),
        ("http://localhost:80/x", {"http": "http://proxy.example:3128"}, None),
    ],
)
def test_a_proxy_of_the_environment_is_used_but_not_on_loopback(url: str, proxies: dict[str, str], proxy: str | None) -> None:
    assert find_proxy(Secret(url), proxies) == proxy


@pytest.mark.thorough
def test_the_message_can_be_written_to_a_file(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "brief.json"
    first = shell(*FAKE, "--format", "slack", "--output", str(path))
    again = shell(*FAKE, "--format", "slack", "--output", str(path))

    assert (first.code, again.code) == (1, 1)
    assert json.loads(path.read_bytes()).keys() == {"text", "blocks"}
    assert json.loads(shell(*FAKE, "--format", "slack").out) == json.loads(path.read_bytes())


def recipe(start: str) -> str:
    """Return the line of the guide that starts so, without this start."""
    lines = [line.strip() for line in (command_line.__doc__ or "").splitlines()]
    return next(line.removeprefix(start).strip() for line in lines if line.startswith(start))


@pytest.mark.thorough
@pytest.mark.parametrize(("start", "export"), [("30 7 * * 1-5", "export "), ("ExecStart=", "")])
def test_the_recipes_of_the_guide_post_a_brief_every_morning(tmp_path: Path, start: str, export: str) -> None:
    line = (
        recipe(start).replace("/opt/outreach/bin/outreach-async", shlex.join(COMMAND)).replace("/var/lib/outreach", str(tmp_path))
    )
    with Listener(serve(response("200 OK"))) as receiver:
        settings = {"WEBHOOK_URL": receiver.url + PATH, "OUTREACH_BASE_URL": "fake:"}
        (tmp_path / "outreach.env").write_text("".join(f"{export}{name}={value}\n" for name, value in settings.items()))
        known = environment() | {"HOME": str(tmp_path)} | ({} if export else settings)
        done = [subprocess.run(["/bin/sh", "-c", line], env=known, capture_output=True, text=True, check=False) for _ in range(2)]

    assert [(each.returncode, each.stderr) for each in done] == [(1, ""), (1, "")]
    assert (tmp_path / "history.db").exists()
    assert len(receiver.requests) == 2
    assert "There is no earlier brief" in receiver.requests[0].decode()
    assert " 0 new, 0 resolved" in receiver.requests[1].decode()


def test_a_history_without_so_early_an_audit_is_named(shell: Shell, tmp_path: Path) -> None:
    with serve_in_thread(small_service()) as url:
        options = ("--base-url", url, "--workspace", "space_1", "--history", str(tmp_path / "history.db"))
        codes = [shell("brief", *options).code]
        done = shell("brief", *options, "--since", "7d", "--format", "markdown")
    assert codes == [done.code]
    assert "--since: " in done.err
    assert "history.db has no audit of these workspaces up to " in done.err
    assert "There is no earlier brief to compare with." in done.out


@pytest.mark.thorough
@pytest.mark.parametrize("start", ["30 7 * * 1-5", "ExecStart="], ids=["cron", "systemd"])
def test_four_weeks_of_the_recipes_compare_days_and_weeks(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    fake = create_demo_world()
    fake.advance(days=(3 - int(fake.now // DAY)) % 7 + 1)  # to a Monday
    daily, weekly = (
        shlex.split(re.sub("~|/var/lib/outreach", str(tmp_path), recipe(each).partition("outreach-async ")[2]))
        for each in (start, "0 8 * * 1 ")
    )
    monkeypatch.setenv("OUTREACH_WORKSPACE", WORKSPACES[0])
    codes: list[int] = []
    with Listener(*[serve(response("200 OK"))] * 24) as receiver, serve_in_thread(fake) as url:
        monkeypatch.setenv("WEBHOOK_URL", receiver.url + PATH)
        monkeypatch.setenv("OUTREACH_BASE_URL", url)
        for day in range(28):
            if day == 14:  # the service is down on the third Monday, and back before the brief of the week
                fake.faults.add(faults.status(503))
                codes.append(shell(*daily, "--deadline", "0.01").code)
                fake.faults.clear()
            elif day % 7 < 5:
                codes.append(shell(*daily).code)
            if day % 7 == 0:
                codes.append(shell(*weekly).code)
            fake.advance(days=1)
    posted = [request.partition(b"\r\n\r\n")[2].decode() for request in receiver.requests]
    compared = [re.findall(r"Since [^(]*\(([^)]*)\)", text) or ["none"] for text in posted]

    week = [["7 days"], *[["24 hours"]] * 4]
    assert codes == [1] * 12 + [3] + [1] * 11
    assert "Not everything could be read" in posted[12]
    assert (
        [each for at, each in enumerate(compared) if at != 12]
        == [
            *(["none"], ["none"], *week[1:]),
            *(["3 days"], *week),
            *(["7 days"], ["4 days"], *week[2:]),  # the week is compared with the second Monday, and Tuesday with Friday
            *(["3 days"], ["10 days"], *week[1:]),  # the third Monday has no reading of its own
        ]
    )


@pytest.mark.thorough
@pytest.mark.skipif(not SYSTEMD, reason="needs systemd")
def test_the_units_of_the_guide_are_valid(tmp_path: Path) -> None:
    lines = (command_line.__doc__ or "").partition("    # outreach-brief.service\n")[2].splitlines()
    guide = "\n".join(line.strip() for line in takewhile(lambda line: not line or line.startswith("    "), lines))
    service, _, timer = guide.partition("# outreach-brief.timer")
    (tmp_path / "outreach-brief.service").write_text(service.replace("/opt/outreach/bin/outreach-async", "/bin/true"))
    (tmp_path / "outreach-brief.timer").write_text(timer)
    units = [str(tmp_path / f"outreach-brief.{kind}") for kind in ("service", "timer")]
    done = subprocess.run([SYSTEMD, "verify", *units], capture_output=True, text=True, check=False)

    assert "[Service]" in service
    assert "[Timer]" in timer
    assert (done.returncode, done.stderr) == (0, "")

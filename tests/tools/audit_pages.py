"""Check the HTML pages of audits and briefs in Chromium: on a phone and a desktop, in light and dark mode, and in print.

The pages are also operated by keyboard, and read without JavaScript.

Run: python -m tools.audit_pages [--keep FOLDER] [PAGE ...]

Prints one line per page. Exits with 1 if a page violates an accessibility rule of axe-core, such as its contrast, requests a URL,
overflows its width, crops a cell or a card, also in print, runs the name of a mailbox as a script, logs an error, or loads
slowly. `--keep` keeps the pages and their screenshots.

Requires Debian's chromium and chromium-driver (`apt-get install chromium chromium-driver`), npm, which downloads axe-core, and
selenium (`pip install selenium`).
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from support.audit import mailbox, mailboxes, reading, report
from support.audit_reports import AT, HOSTILE, finding, fleet, group, make_report, row
from support.campaigns import DAY
from support.campaigns import row as campaign_row
from support.histories import START, DrawnWorld, Sent, pass_day

from outreach_async._cli.demo_data import OWNER_KEY, WORKSPACES, create_demo_world
from outreach_async.audit import CampaignResults, Report, audit
from outreach_async.audit.campaigns import add_up
from outreach_async.audit.history import DayFigures, History
from outreach_async.audit.plan import CampaignPlan, WorkspacePlan
from outreach_async.audit.reports import render_clients, write
from outreach_async.audit.reports.brief import build_brief
from outreach_async.client import OutreachClient
from outreach_async.fake import FakeTransport

MISSING: Final = "A browser and a package are required: apt-get install chromium chromium-driver npm; pip install selenium"
AXE: Final = "axe-core@4.14.1"
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTHS: Final = {"phone": 390, "desktop": 1280}
SCHEMES: Final = ("light", "dark")
PAPERS: Final = {"A4": (8.27, 11.69), "Letter": (8.5, 11)}
"""Sizes of paper, in inches."""
PAPER: Final = 718
"""Width of a printed page within its margins, in CSS pixels."""
MOST_SHEETS: Final = 4
"""Maximum number of printed pages, for 340 mailboxes in 60 workspaces and for every other page."""
MOST_OF_CLIENT: Final = 2
"""Maximum number of printed pages of a client."""
SOON: Final = 3.0
"""Maximum seconds until the largest page is loaded and its script has run, on a slow machine."""

VIOLATIONS: Final = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  (result) => done(result.violations.map((each) =>
    `${each.id} (${each.impact}, ${each.nodes.length} times): ${each.help}; first: ${each.nodes[0].html.slice(0, 120)}`)),
  (error) => done([`axe-core failed: ${error}`]));
"""
"""Returns the violations that axe-core finds with all its rules, including best practices."""

ALLOWED: Final = ("file:", "data:", "chrome:", "devtools:", "about:")

CROPPED: Final = """
const crops = (node) => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline";
const shown = (node) => `${node.tagName} ${node.className}: ${node.textContent.trim().slice(0, 40)}`;
const blank = [...document.querySelectorAll("td[data-label]")]
  .filter((cell) => cell.checkVisibility() && !cell.textContent.trim())
  .filter((cell) => getComputedStyle(cell, "::before").content !== "none");
return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() && !node.closest("thead, .skip, svg"))
  .filter(crops).map((node) => `cropped: ${shown(node)}`)
  .concat(blank.map((cell) => `a label without a number: ${cell.dataset.label}`)).slice(0, 5);
"""
"""Returns the elements that are wider than their place, and the labels of a phone that have no figure."""

LISTED: Final = """
const names = [...document.querySelectorAll(".names li")];
const hidden = names.filter((node) => !node.checkVisibility()).length;
const scrolled = [...document.querySelectorAll(".names")].filter((list) => list.scrollHeight > list.clientHeight + 1).length;
return hidden || scrolled ? [`${hidden} of ${names.length} names to stop or fix are hidden, and ${scrolled} lists are cut`] : [];
"""
"""Returns whether paper lacks a mailbox to stop or to fix."""

WIDE: Final = """
const room = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")].filter((node) => !node.closest(".table, .skip") || innerWidth < 500)
  .filter((node) => node.checkVisibility() && !node.closest("thead, .skip") && node.getBoundingClientRect().right > room + 1)
  .concat([...document.querySelectorAll(".table")].filter((card) => card.scrollWidth > card.clientWidth + 1))
  .slice(0, 5).map((node) => `${node.tagName} ${node.className.baseVal ?? node.className}: ${node.textContent.slice(0, 40)}`);
"""


@attrs.frozen
class Browser:
    """A Chromium that is controlled by its driver."""

    driver: Any

    def open(self, path: Path) -> float:
        """Open a page, and return the seconds until its script has run."""
        began = time.perf_counter()
        self.driver.get(path.as_uri())
        return time.perf_counter() - began

    def resize(self, width: int) -> None:
        about = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", about)

    def prefer(self, scheme: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})

    def scripts(self, *, run: bool) -> None:
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not run})

    def ask(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def photograph(self, path: Path, most: int = 9000) -> None:
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most), "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))

    def asked_for(self) -> list[str]:
        """Return the URLs that pages requested although they must not."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = (event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent")
        return [url for url in urls if not url.startswith(ALLOWED)]

    def complaints(self) -> list[str]:
        """Return the messages of the console: errors, and requests that the content security policy blocked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browsing() -> Iterator[Browser]:
    try:
        from selenium import webdriver
    except ImportError:
        raise SystemExit(MISSING) from None
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        raise SystemExit(MISSING)
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            chromium.set_script_timeout(120)  # axe-core is slow on the largest page
            yield Browser(chromium)
        finally:
            chromium.quit()


async def world() -> Report:
    """Audit the demo world and a workspace that does not exist, so that one workspace is unreadable."""
    async with OutreachClient(
        transport=FakeTransport(create_demo_world()), owner_key=OWNER_KEY, workspace=WORKSPACES[0]
    ) as client:
        return await audit(client, [*WORKSPACES, "space_none"], campaigns=True)


def hostile() -> Report:
    """Return a report in which every name is an injection attempt."""
    found = [
        finding("OA110", email=text, mailbox=f"mailbox_{at}", domain=text, workspace=text, message=text)
        for at, text in enumerate(HOSTILE)
    ]
    rows = [row(id=f"mailbox_{at}", email=text, workspace=text, type=text) for at, text in enumerate(HOSTILE)]
    report = make_report(found, rows=rows, groups=[group(key=text) for text in HOSTILE], mailboxes=len(rows))
    campaigns = [campaign_row(name=text, status=text, workspace=text) for text in HOSTILE]
    return attrs.evolve(report, campaigns=CampaignResults(checked=len(rows), totals={}, rows=campaigns))


def agency(clients: int = 60) -> Report:
    """Return the report of workspaces with names, 340 mailboxes in 60 of them, compared with the day before."""
    names = {f"space_{at:02}": f"client-{at}" for at in range(clients)}
    unsigned = {"dkim": False, "spf": False, "dmarc": False}
    troubles = ({"blacklists": 3}, {"spf": False}, unsigned, {"bounced_30days": 90}, {"sent_today": 60})

    def on(day: int) -> Report:
        shown = []
        for at, workspace in enumerate(names):
            trouble = troubles[at // 3 % 5] if (at + day) % 3 == 0 else {}
            boxes = mailboxes(5 + (at < 40), domain=f"{names[workspace]}.example", **trouble)
            if at % 4 == 0:  # several clients share a server, on which one mailbox is blacklisted
                shared = {"type": "SMTP & IMAP", "server_ip": "192.0.2.9", "blacklists": int(at == 8), "sent_30days": 1234}
                boxes[0] = mailbox(id=boxes[0].id, email=boxes[0].email, **shared)
            shown.append(reading(boxes, workspace=workspace))
        rows = [
            campaign_row(id=f"camp_{at}", name=f"Spring {at}", workspace=f"space_{at % clients:02}") for at in range(3 * clients)
        ]
        totals = {workspace: add_up([row for row in rows if row.workspace == workspace]) for workspace in names}
        campaigns = CampaignResults(checked=len(rows), totals=totals, rows=rows)
        return attrs.evolve(report(*shown), campaigns=campaigns, names=names, at=AT + 86_400 * day)

    return on(1).since(on(0))


def agency_days(clients: int = 60) -> list[DayFigures]:
    """Return the figures of 30 days of the workspaces and campaigns of `agency`, with a gap and an estimate."""
    chance = random.Random(1)  # noqa: S311 - a sample, not a secret
    subjects = [(f"space_{at % clients:02}", f"camp_{at}") for at in range(3 * clients)] + [
        (f"space_{at:02}", f"space_{at:02}") for at in range(clients)
    ]
    return [
        DayFigures(
            date=str(date(2026, 3, 2) - timedelta(days=back)), workspace=workspace, id=id_, name="", spread_over=1 + (back == 5),
            sent=chance.randint(50, 90), replied=chance.randint(0, 5), interested=chance.randint(0, 2),
            bounced=chance.randint(0, 3),
        )
        for workspace, id_ in subjects
        for back in range(30)
        if back != 9
    ]  # fmt: skip


REPORTS: Final[dict[str, Callable[[], Report]]] = {
    "world": lambda: anyio.run(world),
    "fleet": lambda: fleet(2000, compared=True),
    "healthy": lambda: fleet(40, sick=0),
    "refused": lambda: make_report(mailboxes=0, unreadable=["space_1"], denied=True),
    "hostile": hostile,
}


LOGO: Final = b"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><script>document.title = "x"</script></svg>"""


def client_page(campaigns: int, texts: Sequence[str] = ("Müller GmbH", "Spring launch"), *, days: int = 62) -> str:
    """Return the page of a client on the second of two periods of `days`, with a gap and an estimate."""
    chance, world = random.Random(1), DrawnWorld(["space_1"])  # noqa: S311 - a sample, not a secret
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "history.db")
        for at in range(campaigns):
            world.campaigns[f"camp_{at}"] = Sent("space_1", START - DAY, name=f"{texts[at % len(texts)]} {at}")
        for day in range(2 * days):
            pass_day(world, chance)
            if day not in {days + 3, days + 12} and (day == 0 or day > days - 3):
                found, readings = world.read(START + day * DAY, ["space_1"] if day == days + 9 else [])
                history.append(attrs.evolve(found, names={"space_1": texts[0]}), readings)
        first = date(2026, 3, 2) + timedelta(days)
        about: dict[str, Any] = {"title": texts[-1], "note": "\n".join([*texts, "word " * 150]), "logo": LOGO}
        (page,) = render_clients(history, first=first, last=first + timedelta(days - 1), **about).values()
        return page


def audit_page(make: Callable[[], Report]) -> str:
    return write(make(), "html")


def brief_page(make: Callable[[], Report]) -> str:
    return write(build_brief(make()), "html")


def brief_of_the_next_day() -> str:
    """Return the page of a brief with an earlier one and plans: the world a day later, when campaigns have sent more e-mails."""
    report = anyio.run(world)
    assert report.campaigns is not None
    rows = [attrs.evolve(row, sent=(row.sent or 0) + 40, replies_num=(row.replies_num or 0) + 3) for row in report.campaigns.rows]
    later = attrs.evolve(report, at=report.at + 86_400, campaigns=attrs.evolve(report.campaigns, rows=rows))
    ends = {"first": "2026-03-02", "last": "2026-03-09", "limit": "daily limits and waits"}
    planned = [
        CampaignPlan(id=row.id, name=row.name, **(ends if at else {"reason": row.name * 9})) for at, row in enumerate(rows)
    ]
    figures: dict[str, Any] = {
        "capacity": 900,
        "unused": (0, 450),
        "held": 7,
        "decided": 8,
        "assumptions": "Ends are ranges. " * 9,
    }
    return write(
        build_brief(later, report, [WorkspacePlan(workspace="space_1", at=later.at, campaigns=planned, **figures)]), "html"
    )


PAGES: Final[dict[str, Callable[[], str]]] = {
    **{name: partial(audit_page, make) for name, make in REPORTS.items()},
    **{f"brief-{name}": partial(brief_page, make) for name, make in REPORTS.items()},
    "brief-next-day": brief_of_the_next_day,
    **{
        f"agency-{clients}": partial(lambda clients: write(agency(clients), "html", days=agency_days(clients)), clients)
        for clients in (1, 8, 20, 60)
    },
    **{
        f"brief-agency-{clients}": partial(lambda clients: write(build_brief(agency(clients)), "html"), clients)
        for clients in (1, 8, 60)
    },
    **{f"client-{campaigns}": partial(client_page, campaigns) for campaigns in (1, 8, 60)},
    "client-year": partial(client_page, 2, days=366),
    "hostile-client": partial(client_page, 30, HOSTILE),
}


def looks(browser: Browser, path: Path, pictures: Path) -> Iterator[str]:
    """Check the layout and loading time of a page in every width and colour scheme."""
    for device, width in WIDTHS.items():
        for scheme in SCHEMES:
            browser.resize(width)
            browser.prefer(scheme)
            seconds = browser.open(path)
            where = f"{device}, {scheme}"
            yield from (f"{where}: exceeds the page's width: {each}" for each in browser.ask(WIDE))
            yield from (f"{where}: {each}" for each in browser.ask(CROPPED))
            if seconds > SOON:
                yield f"{where}: loading took {seconds:.1f} s"
            browser.photograph(pictures / f"{path.stem}-{device}-{scheme}.png")


def is_accessible(browser: Browser, path: Path, _pictures: Path) -> Iterator[str]:
    script = download_axe()
    screens = [(width, scheme, "") for width in WIDTHS.values() for scheme in SCHEMES]
    for width, scheme, media in (*screens, (PAPER, "light", "print")):
        browser.resize(width)
        browser.prefer(scheme, media)
        browser.open(path)
        browser.ask(script)
        found = browser.driver.execute_async_script(VIOLATIONS)
        yield from (f"{width} px, {scheme} {media}: {each}" for each in found)


@cache
def download_axe() -> str:
    npm = shutil.which("npm")
    if not npm:
        raise SystemExit(MISSING)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([npm, "install", "--silent", "--ignore-scripts", "--prefix", folder, AXE], check=True)
        return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def works(browser: Browser, path: Path, _pictures: Path) -> Iterator[str]:
    """Copy the list of what to stop by keyboard."""
    browser.resize(WIDTHS["desktop"])
    browser.prefer("light")
    browser.open(path)
    if browser.ask("return document.querySelectorAll('.copy').length"):
        browser.ask("document.querySelector('.copy').focus()")
        browser.press("\ue007")
        time.sleep(0.2)
        label = browser.ask("return document.querySelector('.copy').textContent")
        if label not in {"Copied", "Selected: press Ctrl+C"}:
            yield f"the list is not copied: {label}"


def reads_without_scripts(browser: Browser, path: Path, pictures: Path) -> Iterator[str]:
    browser.resize(WIDTHS["desktop"])
    browser.scripts(run=False)
    browser.open(path)
    browser.photograph(pictures / f"{path.stem}-no-script.png", 3000)
    controls = "[...document.querySelectorAll('button, input, select')]"
    dead = browser.ask(f"return {controls}.filter((each) => each.checkVisibility()).length")
    browser.scripts(run=True)
    if dead:
        yield f"without JavaScript, {dead} controls are shown that have no effect"


def prints(browser: Browser, path: Path, pictures: Path) -> Iterator[str]:
    """Check that paper crops nothing, lists what to stop and to fix, and is short."""
    browser.resize(PAPER)
    browser.prefer("light", "print")
    browser.open(path)
    yield from (f"in print: {each}" for script in (CROPPED, WIDE, LISTED) for each in browser.ask(script))
    browser.photograph(pictures / f"{path.stem}-print.png", 5000)
    for paper, (width, height) in PAPERS.items():
        about = {"printBackground": True, "paperWidth": width, "paperHeight": height}
        pdf = base64.b64decode(browser.driver.execute_cdp_cmd("Page.printToPDF", about)["data"])
        (pictures / f"{path.stem}-{paper}.pdf").write_bytes(pdf)
        most = MOST_OF_CLIENT if path.stem.startswith("client-") else MOST_SHEETS
        if not 1 <= (sheets := len(re.findall(rb"/Type\s*/Page\b", pdf))) <= most:
            yield f"prints {sheets} pages of {paper}"


def stays_quiet(browser: Browser, path: Path, _pictures: Path) -> Iterator[str]:
    """Check that a page contains no injected elements, requested no URL and logged no message during all checks."""
    browser.open(path)
    strangers = browser.ask(
        "const logo = document.querySelector('header > img:first-child');"
        "return [...document.querySelectorAll('script:not(:last-of-type), img, iframe, object, a[href^=javascript]')]"
        ".filter((node) => node !== logo).length"
    )
    if strangers or browser.ask("return document.scripts.length") != 1:
        yield "contains elements that a name has injected"
    yield from (f"requested {url}" for url in browser.asked_for())
    yield from (f"console: {message}" for message in browser.complaints())


CHECKS: Final = (looks, is_accessible, works, reads_without_scripts, prints, stays_quiet)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="Folder in which to keep the pages and their screenshots.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"Pages to check; by default all: {' '.join(PAGES)}.")
    keep, pages = (options := parser.parse_args()).keep, options.pages or PAGES
    faults = 0
    with tempfile.TemporaryDirectory() as passing, browsing() as browser:
        folder = keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in ((name, PAGES[name]) for name in pages):
            path = folder.resolve() / f"{name}.html"
            path.write_text(make(), encoding="utf-8")
            began = time.perf_counter()
            found = [fault for check in CHECKS for fault in check(browser, path, folder)]
            faults += len(found)
            print(f"{name}: {path.stat().st_size / 1000:,.0f} kB, {time.perf_counter() - began:.1f} s", *found, sep="\n  ")  # noqa: T201 - a command's report
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())

"""Check the pages of `api_pages.py` in Chromium, on a phone and a desktop: layout, accessibility, search, links, and messages.

Run: python -m tools.site_pages FOLDER [--keep PICTURES] [--only PATTERN]

Prints each fault, and exits with 1 if there is one: code or text that is clipped, a page that is too tall, an accessibility
rule of axe-core, a search that finds nothing, a link to a member that stays closed, a request to the network, or a message on
the console. `--keep` keeps pictures of the pages. Requires what `audit_pages` requires.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.audit_pages import VIOLATIONS, WIDTHS, Browser, browsing, download_axe

CLIPPED: Final = """
const room = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility())
  .filter((node) => node.getBoundingClientRect().right > room + 1
    || (node.matches("pre, .attr, .docstring") && node.scrollWidth > node.clientWidth + 1))
  .slice(0, 5).map((node) => `${node.tagName} ${node.className}: ${node.textContent.trim().slice(0, 60)}`);
"""
TALLEST: Final = 25_000
"""Maximum height of a page on a desktop, in CSS pixels."""
FOUND: Final = "return [...document.querySelectorAll('.search-result a')].map((each) => each.getAttribute('href'))"
SEARCHES: Final = {"create_many": "Contacts.create_many", "ledger": "ledger", "SyncClient": "SyncClient"}
"""What people search for, with a part of the address of a result that must be among the first."""


def check_page(browser: Browser, path: Path, pictures: Path | None) -> Iterator[str]:
    """Check on a phone and a desktop that nothing of a page is clipped, and that axe-core finds nothing."""
    for device, width in WIDTHS.items():
        browser.resize(width)
        browser.open(path)
        yield from (f"{device}: clipped: {each}" for each in browser.ask(CLIPPED))
        browser.ask(download_axe())
        yield from (f"{device}: {each}" for each in browser.driver.execute_async_script(VIOLATIONS))
        if device == "desktop" and (height := browser.ask("return document.documentElement.scrollHeight")) > TALLEST:
            yield f"{height} px tall"
        if pictures:
            browser.photograph(pictures / f"{path.stem}-{device}.png", 3000)


def check_search(browser: Browser, path: Path) -> Iterator[str]:
    browser.resize(WIDTHS["desktop"])
    for term, expected in SEARCHES.items():
        browser.open(path)
        browser.ask("document.querySelector('input[type=search]').focus()")
        time.sleep(1)  # the index is loaded
        browser.press(term)
        found = browser.ask(FOUND)
        if not any(expected in address for address in found[:5]):
            yield f"a search for {term} finds {found[:5]}"
        yield from (f"results of {term}: clipped: {each}" for each in browser.ask(CLIPPED))


def check_link(browser: Browser, path: Path) -> Iterator[str]:
    browser.driver.get(f"{path.as_uri()}#Mailbox.spf")
    if not browser.ask("return document.getElementById('Mailbox.spf').checkVisibility()"):
        yield "a link to Mailbox.spf does not open the members of its class"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, metavar="FOLDER")
    parser.add_argument("--keep", type=Path, metavar="PICTURES")
    parser.add_argument("--only", default="*.html", metavar="PATTERN", help="Pattern for the names of pages.")
    options = parser.parse_args()
    site, pictures = options.site.resolve(), options.keep
    if pictures:
        pictures.mkdir(parents=True, exist_ok=True)
    faults = 0
    with browsing() as browser:
        for path in sorted(site.rglob(options.only)):
            found = [*check_page(browser, path, pictures)]
            faults += len(found)
            print(path.relative_to(site), *found, sep="\n  ", flush=True)  # noqa: T201 - a command's report
        found = [*check_search(browser, site / "index.html"), *check_link(browser, site / "outreach_async.html")]
        found += [f"requested {url}" for url in browser.asked_for()]
        found += [f"console: {text}" for text in browser.complaints() if "building search index" not in text]
        print("search, requests, console", *found, sep="\n  ")  # noqa: T201 - a command's report
    return bool(faults or found)


if __name__ == "__main__":
    sys.exit(main())

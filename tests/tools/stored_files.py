"""Write a file of every stored format of this version, to be read by tests of all later versions.

Run: python -m tools.stored_files tests/stored/3

Each file is compressed. When the version of a format changes, write a new folder, and keep the old ones.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

import anyio
from support.cli import serve_in_thread
from support.docs import example_world

from outreach_async import OutreachClient
from outreach_async.__main__ import main
from outreach_async.fake import FakeTransport
from outreach_async.parts import Connection, import_part, plan

ROWS: Final = [{"email": f"user{number}@company.example", "city": "Lyon"} for number in range(5)]
CHANGED: Final = [{**ROWS[0], "city": "Rome"}, *ROWS[1:], {"email": "@", "city": "Lyon"}]


async def _send(folder: Path) -> None:
    """Write journals and ledgers: of runs that have ended, and of runs whose processes were killed."""
    async with OutreachClient(transport=FakeTransport(example_world()), workspace="space_1", owner_key="key_1") as client:
        for name, rows in ("journal", CHANGED), ("killed-journal", CHANGED):
            await _run(client, folder / name, rows, {"journal": folder / name}, is_killed=name.startswith("killed"))
        for name in "ledger", "killed-ledger":
            options: dict[str, Any] = {"ledger": folder / name, "duplicates": "overwrite"}
            await _run(client, folder / name, ROWS, options, is_killed=False)
            await _run(client, folder / name, CHANGED, options, is_killed=name.startswith("killed"))


async def _run(
    client: OutreachClient, path: Path, rows: list[dict[str, str]], options: dict[str, Any], *, is_killed: bool
) -> None:
    kept = dict[str, bytes]()
    async with client.contacts.create_many(rows, concurrency=1, stop_after_rejects=None, **options) as outcomes:
        async for _ in outcomes:
            if is_killed and not kept:
                kept = _read(path)
    _restore(path, kept)


def _read(path: Path) -> dict[str, bytes]:
    """Read a file and its log, as a kill at this moment would leave them."""
    return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}


def _restore(path: Path, kept: dict[str, bytes]) -> None:
    for suffix, content in kept.items():
        Path(f"{path}{suffix}").write_bytes(content)


def _import(folder: Path) -> None:
    """Write what the command line writes: a mapping, an audit with a history, and the journals of parts."""
    service = example_world()
    people = folder / "people.csv"
    lines = ("E-mail,Town", *(f"part{number}@company.example,Lyon" for number in range(3)))
    people.write_text("\n".join(lines), encoding="utf-8")
    with serve_in_thread(service) as url:
        os.environ |= {"OUTREACH_OWNER_KEY": "key_1", "OUTREACH_WORKSPACE": "space_1", "OUTREACH_BASE_URL": url}
        _command("import", "people.csv", "--map", "Town=city", "--save-mapping", "mapping.toml", "--dry-run")
        _command("audit", "--history", "history", "--format", "json", "--output", "audit.json")
        (part,) = plan([people], overrides={"Town": "city"}).parts
        import_part(part, folder / "parts", Connection(base_url=url, workspace="space_1"))
    (folder / "world.json").write_text(service.dump(), encoding="utf-8")


def _command(*arguments: str) -> None:
    sys.argv[1:] = arguments
    main()


def _written(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "people.csv")


def write(target: Path) -> None:
    with tempfile.TemporaryDirectory() as place, chdir(place):
        folder = Path(place)
        anyio.run(_send, folder)
        _import(folder)
        for path in _written(folder):
            (packed := target / f"{path.relative_to(folder)}.gz").parent.mkdir(parents=True, exist_ok=True)
            packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute())

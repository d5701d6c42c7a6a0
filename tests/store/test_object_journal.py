"""Journals as objects: their form, damage, races, lost replies, and secrets."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs
import pytest
from obstore.store import S3Store
from support.journal import facts
from support.s3 import SECRET, Fault, Proxy, environment, serve_s3
from support.scenarios import KEY, SPACE, new_fake
from support.takeovers import DictObjects
from support.time import jump, virtual_time
from support.transport import added
from tools.journal_child import IDENTITY, ROWS, outcome, outcome_of, recorded_identity, steps, window

from outreach_async import Outcome, OutreachClient, Progress, Request, Response, RetryPolicy
from outreach_async._core.limits import RateLimiter
from outreach_async._files.objects import FolderObjects, StoredObjects, open_objects
from outreach_async._plumbing import RunThrottle
from outreach_async.bulk._throttle import FencedProgress
from outreach_async.errors import InvalidRequest, JournalError, TransportError
from outreach_async.fake import FakeTransport
from outreach_async.fake.faults import Exchange
from outreach_async.store import Store, stores_in
from outreach_async.store._objects import ObjectDatabase, encode_object

URL = "memory://run"


def journal_in(objects: Any, **options: Any) -> Store:
    return Store(URL, objects=objects, **options)


def require_complete(journal: Store) -> None:
    assert [facts(each) for each in journal.outcomes()] == [facts(outcome_of(index)) for index in range(ROWS)]
    assert journal.report().state == "finished"


def killed(commits: int) -> DictObjects:
    """Return the objects left by a process that was killed after `commits` commits."""
    objects = DictObjects()
    with closing(journal_in(objects).writer(IDENTITY, resume=False)) as writer:
        for _ in islice(steps(writer), commits):
            pass
    return objects


class _SlowObjects(DictObjects):
    """Objects that take 20 ms each to write."""

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        jump(0.02)
        return super().create(name, content, after=after)


class _RandomIds:
    """A service that answers after 100 ms, with random ids."""

    def __init__(self) -> None:
        self._chance = random.Random(1)  # noqa: S311 - repeatable, not secret

    async def send(self, _request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        await anyio.sleep(0.1)
        body = {"status": "added", "details": "", "id": f"contact_{self._chance.randbytes(12).hex()}"}
        return Response(200, {"content-type": "application/json"}, json.dumps(body).encode())

    async def aclose(self) -> None: ...


class TestForm:
    @pytest.mark.thorough
    @virtual_time
    @pytest.mark.parametrize(("rate", "rows", "most"), [(None, 3_000, 24), (10.0, 300, 40)])
    async def test_a_row_of_a_run_takes_at_most_40_bytes(self, rate: float | None, rows: int, most: float) -> None:
        """Run with 64 requests of 100 ms in flight and writes of 20 ms, without a rate limit and at ten rows per second."""
        objects = _SlowObjects()
        client = OutreachClient(transport=_RandomIds(), workspace="space_1", owner_key="key_1", rate=rate)
        emails = [{"email": f"user{number}@a.example"} for number in range(rows)]
        journal = journal_in(objects, inline=True, clock=anyio.current_time)
        await client.contacts.create_many(emails, concurrency=64, journal=journal)
        assert sum(map(len, objects.contents.values())) / rows <= most
        assert len(objects.contents) <= 5 + rows / 100 * (1 if rate is None else 25)
        assert [outcome.index for outcome in journal.outcomes() if outcome.id] == list(range(rows))

    def test_the_files_of_a_folder_are_private_and_drafts_do_not_count(self, tmp_path: Path) -> None:
        objects = FolderObjects(tmp_path / "a" / "run")
        assert objects.create("0000-0000000000", b"x")
        assert not objects.create("0000-0000000000", b"y")
        (tmp_path / "a" / "run" / ".outreach-draft.tmp").write_bytes(b"")
        assert list(objects.names()) == ["0000-0000000000"]
        modes = {entry.stat().st_mode & 0o777 for entry in (tmp_path / "a" / "run").glob("0000*")}
        assert modes == {0o600}


def flip(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


CHANGED: dict[str, Callable[[bytes], bytes]] = {"empty": lambda _: b"", "torn": lambda content: content[:-1], "flipped": flip}


def damage(objects: DictObjects, name: str, kind: str) -> None:
    content = objects.contents.pop(name)
    if kind in CHANGED:
        objects.contents[name] = CHANGED[kind](content)
    elif kind == "exchanged":
        objects.contents[name] = objects.contents["0000-0000000005" if name != "0000-0000000005" else "0000-0000000006"]
    elif kind == "of another run":
        objects.contents[name] = killed(12).contents[name]


class TestDamage:
    @pytest.mark.covers
    @pytest.mark.thorough
    @pytest.mark.parametrize("number", range(11))
    @pytest.mark.parametrize("kind", [*CHANGED, "deleted", "exchanged", "of another run"])
    def test_damage_is_refused_and_the_journal_can_be_given_up(self, kind: str, number: int) -> None:
        objects = killed(12)
        damage(objects, f"0000-{number:010}", kind)
        journal = journal_in(objects)
        for read in (
            journal.report,
            lambda: list(journal.outcomes()),
            lambda: list(journal.events()),
            lambda: journal.writer(IDENTITY, resume=True),
        ):
            with pytest.raises(JournalError, match=r'memory://run is damaged: object 0000-\d+ is .*earlier="unknown"'):
                read()
        before = dict(objects.contents)
        with closing(journal.writer(IDENTITY, resume=True, earlier="unknown")) as writer:
            assert 2**62 in writer.possibly_sent
            assert len(list(steps(writer))) == 90
        assert before.items() <= objects.contents.items()
        require_complete(journal)
        ((_, event, details),) = journal.events()
        assert (event, details["kept"]) == ("damaged", "generation 0000")
        assert "is damaged: object" in details["reason"]

    def test_events_have_the_time_of_the_wall_clock(self) -> None:
        journal = journal_in(DictObjects(), wall=lambda: 7.0)
        for resume in (False, True):
            journal.writer(IDENTITY, resume=resume).close()
        assert [*journal.events()] == [(7.0, "resumed", {"after": "running"})]

    def test_a_changed_last_object_is_damage(self) -> None:
        for kind in CHANGED:
            objects = killed(12)
            damage(objects, "0000-0000000012", kind)
            with pytest.raises(JournalError, match="0000-0000000012 is damaged: checksum mismatch"):
                journal_in(objects).report()

    def test_after_a_damaged_object_reads_that_have_not_begun_are_cancelled(self) -> None:
        class CountingObjects(DictObjects):
            def read(self, name: str) -> bytes:
                begun.append(name)
                if name != "0000-0000000000":
                    Event().wait(0.2)  # no thread can begin all its reads before the damage is seen
                return self.contents[name]

        begun: list[str] = []
        objects = CountingObjects()
        objects.contents = killed(70).contents
        damage(objects, "0000-0000000000", "flipped")
        with pytest.raises(JournalError, match="0000-0000000000 is damaged"):
            journal_in(objects).report()
        assert len(begun) < 64

    def test_consistent_objects_with_inconsistent_content_are_damage(self) -> None:
        objects = DictObjects()
        inconsistent: list[Any] = [[("no such change",)], [("window", 0)], [("metadata", "marked", "{", 0)]]
        for changes in inconsistent:
            objects.contents = {"0000-0000000000": encode_object(b"12345678", 0, bytes(8), changes)}
            with pytest.raises(JournalError, match=r"memory://run is damaged: (?!object)"):
                journal_in(objects).report()

    def test_an_object_of_a_newer_version_is_refused_and_kept(self) -> None:
        objects = killed(2)
        objects.contents["0000-0000000001"] = b"OAOJ\2"
        earlier: Any
        for earlier in ("known", "unknown"):
            with pytest.raises(InvalidRequest, match="written by a newer version"):
                journal_in(objects).writer(IDENTITY, resume=True, earlier=earlier)
        assert len(objects.contents) == 3

    def test_other_objects_at_the_prefix_are_refused_and_kept(self) -> None:
        objects = DictObjects()
        objects.create("may/contacts.parquet", b"")
        with pytest.raises(InvalidRequest, match=r"objects that do not belong to a journal, such as 'may/contacts\.parquet'"):
            journal_in(objects).writer(IDENTITY, resume=False)
        assert len(objects.contents) == 1

    def test_the_writer_of_a_journal_that_is_given_up_is_stopped(self) -> None:
        objects = killed(0)
        writer = journal_in(objects).writer(IDENTITY, resume=True)
        writer.mark(window(0))
        damage(objects, "0000-0000000000", "flipped")
        with closing(journal_in(objects).writer(IDENTITY, resume=True, earlier="unknown")) as successor:
            with closing(writer), pytest.raises(JournalError, match="another run has taken over the journal"):
                writer.record([outcome(0)])
            successor.mark(window(0))
        assert journal_in(objects).report().rows == 0

    def test_a_write_while_a_journal_is_given_up_does_not_save_its_writer(self) -> None:
        objects = Racing()
        writer = journal_in(objects).writer(IDENTITY, resume=False)
        writer.mark(window(0))
        damage(objects, "0000-0000000000", "flipped")
        objects.race = lambda: writer.record([outcome(0)])
        journal_in(objects).writer(IDENTITY, resume=True, earlier="unknown").close()
        with closing(writer), pytest.raises(JournalError, match="another run has taken over the journal"):
            writer.record([outcome(1)])


class Racing(DictObjects):
    """Objects of a journal to which an earlier writer writes once more while the journal is being opened."""

    race: Callable[[], object] | None = None

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        race, self.race = self.race, None
        if race is not None:
            race()
        return super().create(name, content, after=after)


class TestRaces:
    def test_the_last_write_before_a_takeover_counts(self) -> None:
        objects = Racing()
        earlier = journal_in(objects).writer(IDENTITY, resume=False)
        objects.race = lambda: earlier.mark(window(0))
        with closing(journal_in(objects).writer(IDENTITY, resume=True)) as writer:
            assert writer.marked == 20
            assert 19 in writer.possibly_sent
            with pytest.raises(JournalError, match="another run has taken over the journal"):
                earlier.record([outcome(0)])
            with pytest.raises(JournalError, match="another run has taken over the journal"):  # every later call fails too
                earlier.completed_rows(0, 1)
            writer.record([outcome(0)])
        earlier.close()

    def test_of_two_runs_that_create_a_journal_one_fails(self) -> None:
        objects = Racing()
        objects.race = lambda: journal_in(objects).writer(IDENTITY, resume=False).close()
        with pytest.raises(JournalError, match="another run has taken over the journal"):
            journal_in(objects).writer(IDENTITY, resume=True)

    def test_a_takeover_during_which_the_journal_is_given_up_fails(self) -> None:
        objects = Racing()
        journal_in(objects).writer(IDENTITY, resume=False).close()

        def give_up() -> None:
            whole, objects.contents["0000-0000000000"] = objects.contents["0000-0000000000"], b""
            journal_in(objects).writer(IDENTITY, resume=True, earlier="unknown").close()
            objects.contents["0000-0000000000"] = whole

        objects.race = give_up
        with pytest.raises(JournalError, match="another run has taken over the journal"):
            journal_in(objects).writer(IDENTITY, resume=True)

    def test_a_heartbeat_is_due_five_seconds_after_the_start_of_the_last_write(self) -> None:
        now = 100.0
        with closing(journal_in(DictObjects(), clock=lambda: now).writer(IDENTITY, resume=False)) as writer:
            now = 105.0
            assert [writer.database.heartbeat_due] == [None]
            now = 105.5
            assert [writer.database.heartbeat_due] == [105.5]
            writer.database.heartbeat(105.5)
            assert [writer.database.heartbeat_due] == [None]

    def test_workers_that_wait_for_the_same_heartbeat_share_it(self) -> None:
        now, objects = 0.0, DictObjects()
        with closing(journal_in(objects, clock=lambda: now).writer(IDENTITY, resume=False)) as writer:
            now = 10.0
            writer.database.heartbeat(9.0)
            writer.database.heartbeat(9.5)
            assert len(objects.contents) == 2


class Replacing(DictObjects):
    """Objects in a store that ignores `If-None-Match`."""

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        super().create(name, content, after=after)
        self.contents[name] = content
        return True


class Conflicting(DictObjects):
    """Objects in a store that refuses some creates, because another create of the object is under way."""

    conflicts = 0

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        self.conflicts -= 1
        return self.conflicts < 0 and super().create(name, content, after=after)


class TestStores:
    @pytest.mark.parametrize("earlier", ["known", "unknown"])
    def test_a_store_that_replaces_objects_is_refused_before_a_row_is_sent(self, earlier: Any) -> None:
        objects = Replacing()
        for _ in range(2):
            with pytest.raises(JournalError, match=r"the store replaced 0000-\d+, but it must refuse .*\(If-None-Match: \*\)"):
                journal_in(objects).writer(IDENTITY, resume=True, earlier=earlier)

    def test_a_conflict_with_another_create_is_retried(self) -> None:
        objects, pauses = Conflicting(), list[float]()
        database = ObjectDatabase(objects, URL, time.monotonic, sleep=pauses.append)
        objects.conflicts = 3
        database._append([])
        assert (len(pauses), list(objects.contents)) == (3, ["0000-0000000000"])
        objects.conflicts = 100
        with pytest.raises(OSError, match="0000-0000000001 cannot be written: the store reports a conflict"):
            database._append([])
        database.close()
        assert sum(pauses) < 10


class Failing(DictObjects):
    """Objects that cannot be written, read or listed."""

    broken = ""

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        self._fail("create")
        return super().create(name, content, after=after)

    def read(self, name: str) -> bytes:
        self._fail("read")
        return super().read(name)

    def names(self) -> Iterator[str]:
        self._fail("names")
        return super().names()

    def _fail(self, verb: str) -> None:
        if self.broken == verb:
            raise OSError("503 Service Unavailable")


class TestFailures:
    def test_a_failed_write_ends_the_journal_and_the_run_can_be_resumed(self) -> None:
        objects = Failing()
        with closing(journal_in(objects).writer(IDENTITY, resume=False)) as writer:
            writer.mark(window(0))
            objects.broken = "create"
            with pytest.raises(JournalError, match="journal memory://run: 503 Service Unavailable; fix the cause"):
                writer.record([outcome(0)])
            objects.broken = ""
            with pytest.raises(JournalError, match="503"):
                writer.mark(window(20))
        with closing(journal_in(objects).writer(IDENTITY, resume=True)) as writer:
            assert (writer.marked, writer.completed_rows(0, 20)) == (20, frozenset())

    @pytest.mark.parametrize("verb", ["read", "names", "create"])
    def test_a_failure_while_opening_or_reading_is_no_damage(self, verb: str) -> None:
        objects = Failing()
        journal_in(objects).writer(IDENTITY, resume=False).close()
        objects.broken = verb
        with pytest.raises(JournalError, match="503 Service Unavailable; fix the cause and try again"):
            journal_in(objects).writer(IDENTITY, resume=True, earlier="unknown")
        if verb != "create":
            with pytest.raises(JournalError, match="503 Service Unavailable; fix the cause and try again"):
                journal_in(objects).report()
        objects.broken = ""
        assert journal_in(objects).report().state == "running"

    def test_a_closed_reader_leaves_nothing_behind(self) -> None:
        outcomes = journal_in(killed(40)).outcomes()
        assert next(outcomes).index == 0
        outcomes.close()  # type: ignore[attr-defined] # it is a generator


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("s3://id:s3cret@bucket/run", "without user, password"),
            ("s3://bucket/run?key=s3cret", "without user, password"),
            ("s3://bucket/run#s3cret", "without user, password"),
            ("s3://bucket", "expected a bucket and a prefix, as in s3://bucket/run, got 's3://bucket'"),
            ("s3:///run", "expected a bucket and a prefix"),
            ("memory://", "expected a bucket and a prefix"),
            ("file://host/folder", "expected the absolute path of a folder, as in file:///data/run"),
            ("file:///", "expected the absolute path of a folder"),
            ("https://a.example/run", "expected a path or a URL that starts with one of s3://, gs://, az://, file://, memory://"),
            ("az://container/run", "az://container/run cannot be opened: Account must be specified"),
        ],
    )
    def test_a_url_that_cannot_be_used_is_refused_without_its_secrets(
        self, url: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in os.environ if name.startswith("AZURE_")]:
            monkeypatch.delenv(name)
        with pytest.raises(InvalidRequest, match="journal: ") as caught:
            Store(url)
        assert message in str(caught.value)
        assert "s3cret" not in str(caught.getrepr(style="long").reprcrash)
        assert caught.value.__context__ is None or "s3cret" not in str(caught.value.__context__)

    def test_other_stores_are_opened_without_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        for url in ("gs://bucket/run", "az://container/run"):
            assert repr(Store(url)) == f"Store('{url}')"

    def test_memory_lasts_as_long_as_the_process(self) -> None:
        assert open_objects("memory://one/two").create("a", b"1")
        assert open_objects("memory://one/two").read("a") == b"1"
        assert list(open_objects("memory://one").names()) == ["two/a"]
        assert list(open_objects("memory://on").names()) == []

    def test_without_the_extra_the_error_names_it(self, tmp_path: Path) -> None:
        code = (
            "import sys; sys.modules['obstore'] = None; from outreach_async.store import Store\n"
            "print(Store(sys.argv[1]))\n"
            "try: Store('s3://bucket/run')\n"
            "except ValueError as error: print(error)"
        )
        url = f"file://{tmp_path}/run"
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [
            f"Store('{url}')",
            "journal: s3:// needs the extra 'lake'; run pip install 'outreach_async[lake]'",
        ]


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    with serve_s3() as port:
        yield port


@pytest.fixture
def proxy(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy(s3_port).running() as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        yield proxy


class TestS3:
    @pytest.mark.thorough
    @pytest.mark.parametrize("fault", ["drop the reply", "answer 503", "refuse with 503"])
    def test_a_lost_reply_is_no_takeover(self, proxy: Proxy, fault: Fault) -> None:
        journal = Store(f"s3://journals/{fault.replace(' ', '-')}")
        proxy.faults.append(fault)
        with closing(journal.writer(IDENTITY, resume=False)) as writer:
            for _ in islice(steps(writer), 5):
                proxy.faults.append(fault)
        proxy.faults.extend([fault, "pass", fault])
        with closing(journal.writer(IDENTITY, resume=True)) as writer:
            writer.mark(window(40))
        assert journal.objects is not None
        assert len(proxy.puts) > len([*journal.objects.names()])
        assert journal.report().marked == 60

    def test_a_real_takeover_behind_a_lost_reply_is_one(self, proxy: Proxy) -> None:
        journal = Store("s3://journals/two")
        with closing(journal.writer(IDENTITY, resume=False)) as writer:
            proxy.faults.append("drop the reply")
            with closing(journal.writer(IDENTITY, resume=True)):
                proxy.faults.append("drop the reply")
                with pytest.raises(JournalError, match="another run has taken over the journal"):
                    writer.mark(window(0))

    def test_a_conflict_is_neither_a_takeover_nor_an_error(self, proxy: Proxy) -> None:
        objects = open_objects("s3://journals/conflict")
        proxy.faults.append("conflict")
        assert not objects.create("a", b"")
        assert list(objects.names()) == []

    def test_a_store_that_ignores_the_condition_is_refused(self, proxy: Proxy) -> None:
        proxy.ignores_conditions = True
        with pytest.raises(JournalError, match="the store replaced 0000-0000000000"):
            Store("s3://journals/replaced").writer(IDENTITY, resume=False)

    def test_an_object_that_a_console_creates_for_a_folder_is_ignored(self, proxy: Proxy) -> None:
        put = urllib.request.Request(f"http://127.0.0.1:{proxy.port}/journals/folder/", method="PUT")
        put.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, Signature=none")
        urllib.request.urlopen(put).close()  # noqa: S310 - loopback
        for objects in (open_objects("s3://journals/folder"), StoredObjects(S3Store("journals"), "folder")):
            assert list(objects.names()) == []

    def test_errors_hold_no_secret(self, proxy: Proxy) -> None:
        journal = Store("s3://journals/forbidden")
        proxy.faults.append("forbid")
        with pytest.raises(JournalError, match=r"cannot be written: 403 Forbidden, AccessDenied; fix the cause") as caught:
            journal.writer(IDENTITY, resume=False)
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in f"{error!r} {error}"
            error = error.__cause__ or error.__context__
        assert SECRET not in repr(journal) + repr(attrs.asdict(journal))

    def test_an_object_that_may_not_be_read_is_no_damage(self, proxy: Proxy) -> None:
        objects = open_objects("s3://journals/secret")
        objects.create("a", b"")
        proxy.forbids_reads = True
        with pytest.raises(OSError, match="a cannot be read: 403 Forbidden, AccessDenied"):
            objects.read("a")

    def test_an_object_is_deleted_or_the_error_names_it(self, proxy: Proxy) -> None:
        objects = open_objects("s3://journals/deleted")
        objects.create("a", b"")
        for _ in range(2):
            objects.delete("a")
        assert list(objects.names()) == []
        proxy.forbids_reads = True
        with pytest.raises(OSError, match="a cannot be deleted: 403 Forbidden, AccessDenied"):
            objects.delete("a")

    async def test_a_ledger_in_a_store_sends_what_changed(self, proxy: Proxy, tmp_path: Path) -> None:
        assert proxy.port
        url = f"s3://journals/{tmp_path.name}"
        fake = new_fake()
        unchanged = []
        async with OutreachClient(transport=FakeTransport(fake), owner_key=KEY, workspace=SPACE) as client:
            for number in range(4):
                rows = [{"email": f"user{each}@a.example"} for each in range(number + 1)]
                report = await client.contacts.create_many(rows, ledger=url, duplicates="overwrite")
                unchanged.append(report.outcomes[Outcome.UNCHANGED])
        assert unchanged == [0, 1, 2, 3]
        assert Store(url).contacts().contacts == 4

    @pytest.mark.covers
    @pytest.mark.thorough
    def test_a_missing_bucket_is_named(self, proxy: Proxy) -> None:
        assert proxy.port
        with pytest.raises(JournalError, match=r"journal s3://nobody/run: .*404 Not Found, NoSuchBucket; fix the cause"):
            Store("s3://nobody/run").report()
        with pytest.raises(JournalError, match=r"journal s3://nobody/june: .*404 Not Found, NoSuchBucket; fix the cause"):
            stores_in("s3://nobody/june")
        with pytest.raises(FileNotFoundError):
            open_objects("s3://journals/x").read("missing")


class _MovingFolder:
    """A service that adds every contact. At one request, it removes the folder of the journal."""

    def __init__(self, folder: Path, request: int, *, empty: bool) -> None:
        self.fake = new_fake()
        self._folder = folder
        self._left = request
        self._empty = empty

    def exchange(self, request: Request, /) -> Exchange:
        self._left -= 1
        if not self._left:
            self._folder.rename(self._folder.with_name("away"))
            if self._empty:
                self._folder.mkdir()
        return self.fake.exchange(request)

    def restore(self) -> None:
        with suppress(FileNotFoundError):
            self._folder.rmdir()  # fails if the run wrote to it
        self._folder.with_name("away").rename(self._folder)


@virtual_time
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("request_number", [1, 50, 100])
async def test_a_run_whose_folder_is_removed_stops_and_resumes_with_true_labels(
    tmp_path: Path, request_number: int, empty: bool
) -> None:
    url, rows = f"file://{tmp_path}/journal", [{"email": f"user{index}@a.example"} for index in range(100)]
    service = _MovingFolder(tmp_path / "journal", request_number, empty=empty)
    client = OutreachClient(transport=FakeTransport(service), owner_key=KEY, workspace=SPACE)

    async def create() -> None:
        journal = Store(url, inline=True, linger=0.0, clock=anyio.current_time)
        await client.contacts.create_many(rows, concurrency=2, journal=journal, resume=True)

    with pytest.raises(JournalError, match="the folder was removed, renamed or unmounted during the run; fix the cause"):
        await create()
    service.restore()
    await create()
    assert [outcome.index for outcome in Store(url).outcomes() if outcome.possible == {"skipped"}] == []
    assert Store(url).report().rows == 100


class _SlowFence:
    """A fence whose heartbeat never ends."""

    heartbeat_due = 1.0

    async def heartbeat(self, _due: float, /) -> None:
        await anyio.sleep_forever()


@virtual_time
async def test_a_cancelled_heartbeat_starts_no_attempt() -> None:
    limiter = RateLimiter(RetryPolicy(), max_in_flight=1)
    throttle = RunThrottle(limiter, RetryPolicy())
    throttle.fence = _SlowFence()
    assert not throttle.try_start(anyio.current_time())
    with anyio.move_on_after(1) as scope:
        await throttle.wait_and_start(0.0)
    assert scope.cancelled_caught
    assert limiter.in_flight == 0


def test_only_the_start_of_a_request_waits_for_a_heartbeat() -> None:
    database = SimpleNamespace(heartbeat_due=1.0)
    progress, unknown = (FencedProgress(cast("Any", database)) for _ in range(2))
    progress.sent = False
    with pytest.raises(TransportError, match="stood still"):
        progress.sent = True
    unknown.sent = True  # a transport that did not say before that nothing is sent
    database.heartbeat_due = None
    progress.sent = True
    database.heartbeat_due = 2.0
    progress.sent = True  # of a request that has been sent in part


@attrs.define
class StandsStill:
    """A transport whose first request stands still for a minute before it is sent, after its attempt has started."""

    clock: Callable[[float], None]
    meanwhile: Callable[[], None]
    sent: int = 0
    stood: bool = False

    async def send(self, _request: Request, progress: Progress, /) -> Response:
        progress.sent = False
        await anyio.lowlevel.checkpoint()
        if not self.stood:
            self.stood = True
            self.clock(60.0)
            self.meanwhile()
        progress.sent = True
        self.sent += 1
        return added()

    async def aclose(self) -> None: ...


@virtual_time
@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_a_request_that_stands_still_is_sent_only_after_a_heartbeat(is_taken_over: bool) -> None:
    objects, now = DictObjects(), [0.0]

    def take_over() -> None:
        if is_taken_over:
            journal_in(objects).writer(recorded_identity(journal_in(objects)), resume=True).close()

    transport = StandsStill(lambda seconds: now.append(now[-1] + seconds), take_over)
    client = OutreachClient(transport=transport, owner_key=KEY, workspace=SPACE, retry=RetryPolicy(jitter=lambda: 0.0))
    run = client.contacts.create_many(
        [{"email": "ann@a.example"}], journal=journal_in(objects, inline=True, clock=lambda: now[-1])
    )
    if is_taken_over:
        with pytest.raises(JournalError, match="another run has taken over"):
            await run
    else:
        assert (await run).outcomes[Outcome.ADDED] == 1
    assert transport.sent == (not is_taken_over)

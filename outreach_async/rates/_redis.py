"""Share one rate among processes and hosts over a Redis server.

The key holds a list: a `RateCoordinator`, and the reports that it does not contain yet. Each client appends its report, adds all
reports to the coordinator, and replaces it, unless another client was faster. That one has added the report as well, or the next
one will, so any number of clients agree in two rounds. redis-py's synchronous client runs in a worker thread, which works on
asyncio and trio.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final, NoReturn

import anyio
import attrs
import msgspec

from outreach_async._plumbing import (
    Secret,
    drop_frames,
    mask_string,
    require_module,
    require_rate,
    require_seconds,
    type_name,
)
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.rates import RateCoordinator, RateShare, RateUsage

_LOGGER: Final = logging.getLogger("outreach_async")
_DEFAULT_TIMEOUT: Final = 1.0  # seconds: if the server hangs, a report times out before the share of a busy client expires
_ATTEMPTS: Final = 2  # if the server was restarted, only the second attempt has an open connection
_ROUNDS: Final = 20  # two are enough, unless other processes die in between
_FORMAT: Final = b"outreach-rate-1 "  # start of the list, by which it is told apart from a value of another program or version
_SCRIPT: Final = """
local format, report, expected, state, added = unpack(ARGV)
local stored = redis.call('LINDEX', KEYS[1], 0)
if stored and string.sub(stored, 1, #format) ~= format then return {err = 'WRONGTYPE The value is not the state of a rate'} end
if not stored then redis.call('RPUSH', KEYS[1], format) end
if stored == expected then
  redis.call('LTRIM', KEYS[1], added, -1)
  redis.call('LSET', KEYS[1], 0, state)
end
local now = redis.call('TIME')
if report ~= '' then redis.call('RPUSH', KEYS[1], report, now[1], now[2]) end
redis.call('PEXPIRE', KEYS[1], 600000)
return redis.call('LRANGE', KEYS[1], 0, -1)
"""  # each report is followed by the server's time; a learned limit is forgotten ten minutes after the last report
_REMEMBERED: Final = 60.0  # seconds for which a client's last share is remembered after the client's last report


@attrs.define
class _LastShare:
    share: RateShare
    reported_at: float
    fallback: RateCoordinator | None = None


class RedisRate:
    """A rate that clients share over a Redis server (extra `redis`).

    They run in any number of processes and hosts. All clients with the
    same server and key share the rate. The server must be Redis 5 or
    newer, or compatible with it. The key expires ten minutes after the
    last report of any client. A `RedisRate` has one connection, which is
    opened on first use, and reopened if it is lost.

    While the server is unreachable, or the key holds a value of another
    program, which is never overwritten, a client sends at most half of
    what its last share allowed, because the other half is left for clients
    that still reach the server, and a client that has never received a
    share sends nothing. A warning is logged when this begins, and an info
    record when it ends. The error of a call whose deadline passes
    meanwhile names the server or the key.

    Args:
        url: URL of the server, such as `redis://:password@host:6379/0`,
            `rediss://...` for TLS, or `unix:///path/of/socket`.
        key: Redis key under which the state of the rate is stored.
        limit: Maximum rate of all clients together, in requests per
            second; `None` for no maximum. With or without a maximum, the
            outreach service's own limit is learned from its refusals.
        timeout: Time limit in seconds for sending a report and receiving a
            share. After this time, the server counts as unreachable. With
            more than 1.0, a client's share may expire first; the client
            then sends nothing meanwhile.

    Raises:
        InvalidRequest: An argument is invalid, or redis-py is not
            installed.

    Example:
        ```python
        rate = RedisRate("redis://127.0.0.1:6379/0", key="outreach:rate", limit=100.0)
        print(rate)  # -> <RedisRate key='outreach:rate' limit=100.0>
        client = OutreachClient("https://api.example", rate=rate)
        ```
    """

    @drop_frames
    def __init__(self, url: str, *, key: str, limit: float | None = None, timeout: float = _DEFAULT_TIMEOUT) -> None:
        checked: object = key
        if not isinstance(checked, str) or not checked:
            got = "an empty string" if checked == "" else type_name(checked)
            raise InvalidRequest(f"key: expected the name of a Redis key, got {got}; pass a string such as 'outreach:rate'")
        self._key = key
        self._limit = None if limit is None else require_rate("limit", limit)
        self._timeout = require_seconds("timeout", timeout) or _DEFAULT_TIMEOUT
        require_module("redis", "outreach_async[redis]")
        from redis import Redis

        self._credentials = _Credentials()
        self._pool = _build_pool(url, self._credentials, self._timeout / _ATTEMPTS)
        self._script: Any = Redis(connection_pool=self._pool).register_script(_SCRIPT)
        options: Mapping[str, Any] = self._pool.connection_kwargs
        self._server = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self._clients: dict[str, _LastShare] = {}
        self._is_working = True

    async def renew(self, usage: RateUsage, /) -> RateShare:
        """Record a client's usage, and return its next share; see `Rate`.

        Raises:
            TransportError: The server or its key cannot be used, and the
                client has not received a share before.

        Example:
            ```python
            usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=0)
            try:
                await RedisRate("redis://127.0.0.1:1", key="outreach:rate").renew(usage)
            except TransportError as error:
                print(str(error).partition(":")[0])  # -> rate
            ```
        """
        result: RateShare | str = self._describe_failure(f"no response within {self._timeout:g} s")
        with anyio.move_on_after(self._timeout):
            # The default limiter belongs to the program, whose own threads may use all of it. A thread that outlives the timeout,
            # for example in a name lookup, ends by itself.
            limiter = anyio.CapacityLimiter(1)
            result = await anyio.to_thread.run_sync(self._exchange, usage, abandon_on_cancel=True, limiter=limiter)
        if isinstance(result, str):
            return self._fall_back(usage, result)
        now = time.monotonic()
        self._clients = {name: last for name, last in self._clients.items() if now - last.reported_at < _REMEMBERED}
        self._clients[usage.client] = _LastShare(result, now)
        if not self._is_working:
            self._is_working = True
            _LOGGER.info("rate: the Redis server and key work again")
        return result

    def close(self) -> None:
        """Close the connection. Using the rate again opens a new connection.

        Example:
            ```python
            rate = RedisRate("redis://127.0.0.1:6379", key="outreach:rate")
            rate.close()
            ```
        """
        self._pool.disconnect()

    def __repr__(self) -> str:
        """Show the key and limit, never the URL, which may have a password."""
        return f"<{type(self).__name__} key={self._key!r} limit={self._limit}>"

    def __reduce_ex__(self, _protocol: object, /) -> NoReturn:
        """Refuse to pickle: the rate has a connection and knows a password."""
        remedy = "make a RedisRate with the same server and key in each process"
        raise InvalidRequest(f"pickle: expected data that can be copied, got a RedisRate; {remedy}")

    def _exchange(self, usage: RateUsage) -> RateShare | str:
        """Report to the server, and return the share or a description of the error. Called in a worker thread."""
        from redis.exceptions import ConnectionError as RedisConnectionError

        id_, attempts = token_hex(8), _ATTEMPTS
        report = unsent = msgspec.msgpack.encode((usage, self._limit, id_))
        expected, state, added = b"", b"", 0
        for _ in range(_ROUNDS):
            try:
                stored, *reports = self._script(keys=[self._key], args=[_FORMAT, unsent, expected, state, added])
                content = stored.removeprefix(_FORMAT)
                coordinator = msgspec.msgpack.decode(content, type=RateCoordinator) if content else RateCoordinator()
                mine = coordinator.clients.get(usage.client)
                if mine is not None and mine.share is not None and mine.report == id_:
                    return mine.share
                _add_reports(coordinator, reports)
                unsent = b"" if reports else report  # no report: the server has lost its data
                expected, added = stored, len(reports)
                state = _FORMAT + msgspec.msgpack.encode(coordinator)
            except Exception as error:  # noqa: BLE001 - frames of redis-py contain the password, so no error may leave this function
                if isinstance(error, msgspec.MsgspecError) or str(error).startswith("WRONGTYPE"):
                    return f"the Redis key {self._key!r} holds a value of another program or version; pass another key"
                attempts -= 1
                if not attempts or not isinstance(error, RedisConnectionError):
                    return self._describe_failure(mask_string(f"{type(error).__name__}: {error}", self._credentials.secrets))
        return self._describe_failure("other clients have replaced each result")

    def _describe_failure(self, reason: str) -> str:
        return f"Redis server {self._server} unreachable ({reason}); check the URL and the server"

    def _fall_back(self, usage: RateUsage, reason: str) -> RateShare:
        """Return a share with at most half of the client's last rate; less if the outreach service refuses requests."""
        if self._is_working:
            self._is_working = False
            _LOGGER.warning("rate: %s; clients continue with half of their last shares", reason)
        last = self._clients.get(usage.client)
        if last is None:
            raise TransportError(f"rate: {reason}; this client has not received a share of the rate yet", maybe_sent=False)
        if last.fallback is None:
            last.fallback = RateCoordinator(last.share.rate / 2)
        last.reported_at = time.monotonic()
        return last.fallback.step(usage, last.reported_at)


@attrs.define
class _Credentials:
    """Provides the URL's user and password to redis-py, and hides the password from tools that print attributes."""

    user: str | None = None
    secrets: tuple[Secret, ...] = ()

    def get_credentials(self) -> tuple[str, ...]:
        passwords = tuple(secret.reveal() for secret in self.secrets)
        return passwords if self.user is None else (self.user, *passwords)


def _build_pool(url: str, credentials: _Credentials, timeout: float) -> Any:
    """Return a pool of one connection that is not opened yet, and store the URL's user and password in `credentials`."""
    from redis import BlockingConnectionPool, Connection
    from redis.backoff import NoBackoff
    from redis.connection import parse_url
    from redis.retry import Retry

    try:
        options = parse_url(url)  # type: ignore[no-untyped-call] # redis-py has no annotation here
        if "password" in options:
            credentials.user, credentials.secrets = options.pop("username", None), (Secret(options.pop("password")),)
            options["credential_provider"] = credentials
        options |= {"socket_timeout": timeout, "socket_connect_timeout": timeout, "protocol": 2, "retry": Retry(NoBackoff(), 0)}
        connection_class = options.pop("connection_class", Connection)
        connection_class(**options)  # checks the options without connecting
        # The pool belongs to a process: redis-py makes a new one in a forked child.
        # The state is binary, whatever the URL of a program says about its own values.
        options |= {"max_connections": 1, "timeout": timeout, "connection_class": connection_class, "decode_responses": False}
        return BlockingConnectionPool(**options)  # type: ignore[no-untyped-call] # nor here
    except (AttributeError, TypeError, ValueError):
        pass  # the error may quote the password
    raise InvalidRequest("url: expected the URL of a Redis server, got an invalid value; pass a URL such as redis://host:6379/0")


def _add_reports(coordinator: RateCoordinator, reports: list[bytes]) -> None:
    for report, seconds, microseconds in zip(*[iter(reports)] * 3, strict=True):
        usage, limit, id_ = msgspec.msgpack.decode(report, type=tuple[RateUsage, float | None, str])
        client = coordinator.clients.get(usage.client)
        if client is None or client.report != id_:  # a report whose response was lost is sent again
            coordinator.limit = limit
            coordinator.step(usage, int(seconds) + int(microseconds) / 1e6)
            coordinator.clients[usage.client].report = id_

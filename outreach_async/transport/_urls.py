"""Parse and validate the URLs and other arguments that all transports accept. Error messages do not show credentials."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.transport._wire import PATH_CHARACTERS, has_dot_segments

INVALID_HOST_MESSAGE: Final = "base_url: expected a valid host name, got a name that cannot be encoded for DNS; correct the name"
"""The message for a host name that a backend rejects."""

_UNSAFE_CHARACTERS: Final = re.compile(r"[\s\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_PATH: Final = re.compile(f"[{PATH_CHARACTERS}]*")
_HOST_AND_PORT: Final = re.compile(r"\A\[?(.*?)\]?(?::(\d+))?\Z", re.DOTALL)
_AUTHORIZATION_HEADERS: Final = ("authorization", "proxy-authorization", "cookie")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
"""The default port of each scheme."""


@attrs.frozen(repr=False)
class BaseUrl:
    scheme: str
    host: str
    port: int | None
    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)  # of every request: the basic authorization, if the URL has a user
    secrets: tuple[str, ...] = attrs.field(repr=False)

    def __str__(self) -> str:
        """Return the URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def parse_base_url(text: str) -> BaseUrl:
    parts = _split_url("base_url", text, ("http", "https"), "such as 'https://api.example'")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise InvalidRequest("base_url: expected a URL without a query or fragment, got a query or a fragment; remove both")
    if not _PATH.fullmatch(parts.path):
        raise InvalidRequest("base_url: expected a percent-encoded path, got other characters; encode it with urllib.parse.quote")
    if has_dot_segments(parts.path):
        raise InvalidRequest("base_url: expected a path without the segments '.' and '..', got such a segment; remove it")
    port = None if parts.port == DEFAULT_PORTS[parts.scheme] else parts.port
    headers = {} if parts.username is None else {"authorization": f"Basic {_encode_credentials(parts)}"}
    return BaseUrl(parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"), headers, url_secrets(text))


def service_address(transport: object) -> str | None:
    """Return the `base_url` of a transport without user and password; `None` if it has none, or an invalid one."""
    base_url = getattr(transport, "base_url", None)
    try:
        return None if base_url is None else str(parse_base_url(str(base_url)))
    except InvalidRequest:
        return None


def hide_user(url: str) -> str:
    """Return a URL without user, password, query and fragment, any of which may be a secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def encode_host(host: str) -> str:
    """Return a host name in ASCII, as httpx sends it."""
    if host.isascii():
        return host
    import idna  # a slow import; anyio and httpx require it

    try:
        return idna.encode(host).decode("ascii")
    except idna.IDNAError:
        raise InvalidRequest(INVALID_HOST_MESSAGE) from None


def is_loopback(host: str) -> bool:
    """Return whether a host name or address always means this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")  # RFC 6761, section 6.3


def url_secrets(url: str | None) -> tuple[str, ...]:
    """Return the secrets in a URL: the password (or the user if there is none) and the basic authorization value."""
    parts = urlsplit(url or "")
    return () if parts.username is None else _drop_short([unquote(parts.password or parts.username), _encode_credentials(parts)])


def header_secrets(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in the header fields of a user's client or session: its credentials and cookies."""
    values = [fields.get(name, "") for name in _AUTHORIZATION_HEADERS]
    return _drop_short([*values, *(value.partition(" ")[2] for value in values)])  # the credentials after "Bearer" or "Basic"


def _drop_short(secrets: Iterable[str]) -> tuple[str, ...]:
    return tuple(secret for secret in secrets if len(secret) > 3)  # noqa: PLR2004 - shorter secrets may be common words


def choose_proxy(base: BaseUrl, explicit: str | None, schemes: Collection[str], *, trust_env: bool) -> str | None:
    # The environment's proxy is used only if `explicit` is `None` and `trust_env` is true.
    proxy = explicit
    if proxy is None and trust_env:
        from urllib.request import getproxies  # a slow import

        proxy = choose_environment_proxy(base, getproxies())
    if proxy is not None:
        field = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY" if explicit is None else "proxy"
        _split_url(field, proxy, schemes, "such as 'http://proxy.example:3128'")
    return proxy


def choose_environment_proxy(base: BaseUrl, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment sets for a base URL, or `None` for no proxy. The rules are those of httpx.

    There is one exception: loopback addresses need no entry in `NO_PROXY`. For a proxy, they would mean its own machine.
    """
    # `NO_PROXY` is checked first, then the variable for the scheme (`HTTP_PROXY` or `HTTPS_PROXY`), then `ALL_PROXY`.
    if is_loopback(base.host) or any(_is_exempt(entry.strip(), base) for entry in proxies.get("no", "").split(",")):
        return None
    proxy = proxies.get(base.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _is_exempt(entry: str, base: BaseUrl) -> bool:
    if entry == "*":
        return True
    scheme, _, host = entry.rpartition("://")
    if not host or scheme not in {"", "all", base.scheme}:
        return False
    try:
        return ip_address(base.host) in ip_network(host, strict=False)  # a single address also parses as a network
    except ValueError:
        # As in httpx: "example.com" matches the host and its subdomains, ".example.com" and "*.example.com" only the subdomains,
        # and "http://example.com" only the host.
        ((name, port),) = _HOST_AND_PORT.findall(host)
        bare = name.lower().removeprefix("*")
        is_inside = base.host.endswith(bare if bare.startswith(".") else f".{bare}") and not (scheme and bare == name.lower())
        return (is_inside or base.host == bare) and port in {"", str(base.port)}


def _split_url(field: str, text: str, schemes: Collection[str], example: str) -> SplitResult:
    given: object = text
    if not isinstance(given, str):
        raise InvalidRequest(f"{field}: expected a URL as a string, got {type(given).__name__}; pass a URL {example}")
    try:
        parts = urlsplit(text)
        is_complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or _UNSAFE_CHARACTERS.search(text) or parts.scheme not in schemes:
        raise InvalidRequest(
            f"{field}: expected a URL with a host and one of the schemes {', '.join(schemes)}; pass a URL {example}"
        )
    return parts


def _encode_credentials(parts: SplitResult) -> str:
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return b64encode(pair.encode()).decode()


def require_positive(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        got = value if isinstance(value, int) and -(2**63) < value < 1 else type(value).__name__  # another value may be a secret
        raise InvalidRequest(f"{field}: expected a whole number of 1 or more, got {got}; pass a number such as 64")
    return value


def reject_options(argument: str, **options: object) -> None:
    """Check that the user passed no option that the user's client or session already determines."""
    if names := [name for name, value in options.items() if value is not None]:
        raise InvalidRequest(f"{', '.join(names)}: not allowed together with a {argument}; configure the {argument} instead")


def find_library(value: object, name: str) -> str | None:
    """Return the library that defines the class called `name`, if `value` is an instance of that class; otherwise `None`."""
    # This function imports no library.
    return next((kind.__module__.partition(".")[0] for kind in type(value).__mro__ if kind.__name__ == name), None)

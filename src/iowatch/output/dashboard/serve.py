"""The web server of the site: for reading, on the loopback address; with review, it also records decisions.

docs/review.md describes who may decide, and what protects the server from other web sites.
"""

from __future__ import annotations

import io
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.cookies import CookieError, SimpleCookie
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qs, urlsplit

from iowatch.core import InputError, IowatchError, MachineError, UsageError
from iowatch.output.dashboard.review import PageBuild, ReviewService
from iowatch.reference import current_author
from iowatch.store import History

_MAX_BODY_BYTES = 64 * 1024
# Seconds without data from a client.
_TIMEOUT_S = 30
_POLICY = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_LOOPBACK = ("127.0.0.1", "::1")
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class SignOn:
    """The site's proxy, which signs people on and names them in a header.

    Attributes:
        header: the header with the name.
        origin: where people open the site, `https://iowatch.example.org`.
        proxies: addresses, or networks, whose requests are answered; their header is believed.
    """

    header: str
    origin: str
    proxies: Sequence[str] = _LOOPBACK

    def __post_init__(self) -> None:
        """Raises UsageError: an origin with a path, or something that is no address."""
        parts = urlsplit(self.origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
            raise UsageError(f"'{self.origin}' is no origin", hint="Expected for example https://iowatch.example.org.")
        for text in self.proxies:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise UsageError(f"'{text}' is no address", hint="Expected for example 192.0.2.7.") from error

    def trusts(self, address: str) -> bool:
        """Whether requests from an address come from the proxy."""
        found = ipaddress.ip_address(address.partition("%")[0])
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in ipaddress.ip_network(text) for text in self.proxies)


@dataclass(frozen=True)
class ReviewAccess:
    """Who may decide: with a sign-on those whom it names, else one person, who has the key.

    Attributes:
        person: who has the key.
        key: secret of the address that the server prints; a browser keeps it as a cookie.
        token: secret that pages of this server start contain, and no page of another web site knows.
    """

    service: ReviewService
    person: str
    sign_on: SignOn | None = None
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class _SiteHandler(SimpleHTTPRequestHandler):
    """Files of the site; no listing of directories."""

    timeout = _TIMEOUT_S

    def list_directory(self, path: Any) -> None:
        """Refuse, because pages link to everything that there is to see."""
        self.send_error(404)

    def end_headers(self) -> None:
        """Add what holds for every answer: types are not guessed, no other web site may frame a page."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        super().end_headers()

    def log_message(self, format: str, *words: Any) -> None:
        """Nothing: a request for a page is not worth a line."""


class _ReviewHandler(_SiteHandler):
    """Files of the site; `/review` says what is known about findings (GET) and records decisions (POST)."""

    def __init__(self, *given: Any, access: ReviewAccess, **named: Any) -> None:
        self.access = access
        super().__init__(*given, **named)

    def do_GET(self) -> None:
        """Send a page, or what is known about the findings of one."""
        if not self._is_expected():
            return
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        if parts.path == "/review":
            self._answer(self._review_state, asked.get("finding", []))
        elif "key" in asked and self.access.sign_on is None:
            self._keep_key(parts.path, asked["key"][0])
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        """Send the headers of a page."""
        if self._is_expected():
            super().do_HEAD()

    def do_POST(self) -> None:
        """Record a decision or an event."""
        if self._is_expected() and (document := self._read_document()) is not None:
            self._answer(self.access.service.record, document)

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Open a file; a page with forms gets the token, and the right to ask this server, if the person may decide."""
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() and urlsplit(self.path).path.endswith("/") else path
        if path.suffix != ".html" or not path.is_file() or self._person() is None:
            return super().send_head()
        page = path.read_bytes()
        policy = _POLICY.search(page)
        if policy is None or b"static/review.js" not in page:
            return super().send_head()
        token = f'<meta name="iowatch-review" content="{self.access.token}">'
        page = page[: policy.start()] + token.encode() + page[policy.end() :]
        self.send_response(200)
        self.send_header("Content-Security-Policy", f"{policy[1].decode()}; connect-src 'self'; frame-ancestors 'none'")
        self._send_headers_of(page, "text/html; charset=utf-8")
        return io.BytesIO(page)

    def _is_expected(self) -> bool:
        """Refuse requests that bypass the proxy, and names that another web site gave this address (DNS rebinding)."""
        sign_on, host = self.access.sign_on, self.headers.get("Host", "")
        if sign_on is not None:
            if sign_on.trusts(self.client_address[0]):
                return True
            return self._refuse(403, "This server answers its proxy only.", f"Open {sign_on.origin}")
        if re.sub(r":\d+$", "", host) in _LOOPBACK_NAMES:
            return True
        return self._refuse(403, f"This server is not '{host}'.", "Open the address that it printed when it started.")

    def _person(self) -> str | None:
        """Who sent the request, if that person may decide."""
        access = self.access
        if access.sign_on is None:
            try:
                cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie_name)
            except CookieError:
                return None
            has_key = cookie and secrets.compare_digest(cookie.value.encode(), access.key.encode())
            return access.person if has_key else None
        # Two of them: the proxy did not replace the one that a client sent.
        names = self.headers.get_all(access.sign_on.header) or []
        name = names[0].encode("latin-1").decode("utf-8", "replace").strip() if len(names) == 1 else ""
        return name if name and name.isprintable() and len(name) <= 200 else None

    @property
    def _cookie_name(self) -> str:
        # Cookies do not distinguish the ports of a host.
        return f"iowatch-review-{cast('ThreadingHTTPServer', self.server).server_port}"

    def _keep_key(self, path: str, key: str) -> None:
        self.send_response(303)
        if secrets.compare_digest(key.encode(), self.access.key.encode()):
            self.send_header("Set-Cookie", f"{self._cookie_name}={key}; Path=/; HttpOnly; SameSite=Strict")
        # Not an address of another web site: browsers read a backslash as a slash.
        self.send_header("Location", "/" + path.lstrip("/\\"))
        self._send_headers_of(b"", "text/plain")

    def _review_state(self, ids: Sequence[str], person: str) -> dict[str, Any]:
        return self.access.service.state(ids, person)

    def _read_document(self) -> Mapping[str, Any] | None:
        """The document of a request that a page of this server sent; else None, after a refusal."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self._refuse(413, f"The request is too large or has no length; expected at most {_MAX_BODY_BYTES} bytes.")
            return None
        body = self.rfile.read(int(length))
        sign_on, origin = self.access.sign_on, self.headers.get("Origin", "")
        if urlsplit(self.path).path != "/review":
            self._refuse(404, "Nothing is recorded at this address.")
        elif origin != (sign_on.origin if sign_on else f"http://{self.headers['Host']}"):
            self._refuse(403, f"The request comes from a page of '{origin}'.", "Nothing is recorded.")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(415, "Expected application/json.")
        elif not secrets.compare_digest(self.headers.get("X-Iowatch-Token", "").encode(), self.access.token.encode()):
            self._refuse(403, "The page is older than the start of the server.", "Reload it and decide again.")
        else:
            try:
                document = json.loads(body)
            except (ValueError, RecursionError):
                document = None
            if isinstance(document, dict):
                return document
            self._refuse(400, "Expected a JSON object.")
        return None

    def _answer(self, function: Callable[[Any, str], dict[str, Any]], argument: Any) -> None:
        """Send what a function of the request and the person returns, or its error in plain words."""
        person = self._person()
        if person is None:
            hint = "Open the address that the server printed when it started." if self.access.sign_on is None else None
            self._refuse(403, "You are not signed on to review.", hint)
            return
        try:
            answer = function(argument, person)
        except IowatchError as error:
            self._refuse(400 if error.exit_code == 2 else 500, error.message, error.hint)
        except Exception as error:
            self._refuse(500, f"The server failed: {type(error).__name__}.", "Its log has more.")
            raise
        else:
            self._send_document(409 if answer.get("conflicts") else 200, answer)

    def _refuse(self, status: int, message: str, hint: str | None = None) -> bool:
        self._send_document(status, {"error": message, "hint": hint})
        return False

    def _send_document(self, status: int, document: Mapping[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self._send_headers_of(content, "application/json")
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_headers_of(self, content: bytes, kind: str) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()


def make_access(
    site: Path,
    database: str | None,
    say: Callable[[str], None],
    *,
    review: bool,
    user_header: str | None = None,
    origin: str | None = None,
    proxies: Sequence[str] = (),
) -> ReviewAccess | None:
    """Who may decide on the pages of a site, from the options of the command; None: nobody.

    Raises:
        UsageError: options that do not go together; without sign-on, no name of the current user.
        InputError, MachineError: the history cannot be opened.
    """
    if not review:
        if user_header or origin or proxies:
            raise UsageError("--user-header, --origin and --trusted-proxy are for --review", hint="Add --review.")
        return None
    if (user_header is None) != (origin is None) or (proxies and user_header is None):
        hint = "--user-header X-Remote-User --origin https://iowatch.example.org; docs/review.md has an example."
        raise UsageError("--user-header and --origin belong together, and --trusted-proxy to both", hint=hint)
    History.existing(database).close()
    sign_on = SignOn(user_header, origin, proxies or _LOOPBACK) if user_header and origin else None
    service = ReviewService(PageBuild(site, database), database, say, commits_as_person=sign_on is not None)
    return ReviewAccess(service, "" if sign_on else current_author(), sign_on)


def make_server(
    site: Path, port: int, access: ReviewAccess | None = None, bind: str = _LOOPBACK[0]
) -> ThreadingHTTPServer:
    """Create the server of a built site, which the caller starts.

    Args:
        port: 0 is any free one.
        access: who may decide about findings; None: the server is for reading.
        bind: address to listen on; other than loopback needs a sign-on.

    Raises:
        InputError: there is no built site.
        UsageError: an address without sign-on that other machines reach.
        MachineError: the address or port is not available.
    """
    if not (site / "index.html").is_file():
        raise InputError(f"there is no dashboard at {site}", hint="`iowatch dashboard build` makes it.")
    if bind not in _LOOPBACK and (access is None or access.sign_on is None):
        raise UsageError(f"--bind {bind} needs --review with --user-header", hint="docs/review.md describes the proxy.")
    handler = partial(_ReviewHandler, access=access) if access else _SiteHandler

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET

    try:
        return Server((bind, port), partial(handler, directory=str(site)))
    except OSError as error:
        hint = "Choose another with --port."
        raise MachineError(f"cannot serve on port {port}: {error.strerror}", hint=hint) from error


def serve_site(server: ThreadingHTTPServer, access: ReviewAccess | None, say: Callable[[str], None]) -> None:
    """Serve until interrupted; `say` gets the address to open."""
    with server:
        host = str(server.server_address[0])
        address = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/"
        if access is not None and access.sign_on is not None:
            address = f"{access.sign_on.origin}, through the proxy to port {server.server_port}"
        elif access is not None:
            address += f"?key={access.key}"
            say(f"Decisions are recorded as {access.person}. Whoever has this address can decide:")
        say(f"{address} (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")

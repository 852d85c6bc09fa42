"""The web server of the site that also records decisions: Flask and waitress, the extra `review`.

waitress limits the size of requests and the time of silent clients. docs/review.md describes who may decide, and what
protects the server from other web sites.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import waitress
from flask import Flask, Response, jsonify, redirect, request, send_from_directory
from waitress.server import BaseWSGIServer
from werkzeug.exceptions import InternalServerError
from werkzeug.utils import safe_join

from iowatch.core import IowatchError, UsageError
from iowatch.output.dashboard.compare_service import CompareService
from iowatch.output.dashboard.review import PageBuild, ReviewService
from iowatch.output.dashboard.serve import (
    COMPARE_PAGE,
    LOOPBACK_ADDRESSES,
    PROTECTING_HEADERS,
    TIMEOUT_S,
    ServeOptions,
    address_family,
    listen_error,
    page_address,
    require_site,
)
from iowatch.reference import current_author
from iowatch.store import History

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 64 * 1024
_MAX_NAME_CHARACTERS = 200
# Seconds between searches for clients that were silent for TIMEOUT_S.
_CLEANUP_INTERVAL_S = 5
_CONTENT_POLICY = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class SignOn:
    """The site's proxy, which signs people on and names them in a header.

    Attributes:
        header: the header with the name.
        origin: where people open the site, `https://iowatch.example.org`.
        proxies: addresses, or networks, whose requests are answered, and whose header names the person.
    """

    header: str
    origin: str
    proxies: Sequence[str] = LOOPBACK_ADDRESSES

    def __post_init__(self) -> None:
        """Raises UsageError: an origin with a path, or something that is no address."""
        parts = urlsplit(self.origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
            raise UsageError(f"'{self.origin}' is no origin", hint="Expected for example https://iowatch.example.org.")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise UsageError(f"'{proxy}' is no address", hint="Expected for example 192.0.2.7.") from error

    def trusts(self, client: str) -> bool:
        """Whether requests from an address come from the proxy."""
        # An IPv6 address may end with the name of the interface: `fe80::1%eth0`.
        address = ipaddress.ip_address(client.partition("%")[0])
        # A server that listens on IPv6 sees an IPv4 client as `::ffff:192.0.2.7`.
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in ipaddress.ip_network(proxy) for proxy in self.proxies)


@dataclass(frozen=True)
class ReviewAccess:
    """Who may decide: with a sign-on those whom it names, else one person, who has the key.

    Attributes:
        person: who has the key.
        key: secret of the address that the server prints; a browser keeps it as a cookie.
        compare: computes comparisons on request; None serves the page of the site.
        token: secret that pages of this server start contain, and no page of another web site knows.
    """

    service: ReviewService
    person: str
    sign_on: SignOn | None = None
    compare: CompareService | None = None
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class _RefusedError(Exception):
    """A request that is not answered: the status of the answer, the reason, and what to do."""

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


class _ReviewSite:
    """Answers requests: files of the site, what is known about findings (GET /review), decisions (POST /review)."""

    def __init__(self, site: Path, access: ReviewAccess) -> None:
        self._site = site.absolute()
        self._access = access

    def require_expected(self) -> None:
        """Refuse requests that bypass the proxy, and names that another web site gave this address (DNS rebinding)."""
        sign_on = self._access.sign_on
        if sign_on is None:
            host = request.headers.get("Host", "")
            name = re.sub(r":\d+$", "", host)
            if name not in _LOOPBACK_NAMES:
                hint = "Open the address that it printed when it started."
                raise _RefusedError(403, f"This server is not '{host}'.", hint)
        elif not sign_on.trusts(request.remote_addr or ""):
            raise _RefusedError(403, "This server answers its proxy only.", f"Open {sign_on.origin}")

    def keep_key(self) -> Any:
        """Turn the key in an address into a cookie, and open the same page without it."""
        key = request.args.get("key")
        if key is None or self._access.sign_on is not None or request.path == "/review":
            return None
        # Not an address of another web site: browsers read a backslash as a slash.
        response = redirect("/" + request.path.lstrip("/\\"), 303)
        response.headers["Cache-Control"] = "no-store"
        if _are_equal(key, self._access.key):
            response.set_cookie(self._cookie_name(), key, httponly=True, samesite="Strict")
        return response

    def send_page(self, name: str) -> Response:
        """Send a file of the site; of a directory its first page."""
        if not name or name.endswith("/"):
            name += "index.html"
        if name == COMPARE_PAGE and self._access.compare is not None:
            answer = self._access.compare.answer(request.query_string.decode("ascii", "replace"))
            return Response(answer.page, answer.status, mimetype="text/html", headers={"Cache-Control": "no-store"})
        if name.endswith(".html") and self._person() is not None:
            page = self._page_with_token(name)
            if page is not None:
                return page
        # Waitress takes over the file of an answer, and leaves it open where the client goes away. Without its wrapper
        # the answer closes its file itself.
        request.environ.pop("wsgi.file_wrapper", None)
        return send_from_directory(self._site, name)

    def send_state(self) -> Response:
        """Send what is known about findings."""
        return jsonify(self._access.service.state(request.args.getlist("finding"), self._require_person()))

    def record(self) -> tuple[Response, int]:
        """Record a decision or an event."""
        document = self._read_document()
        answer = self._access.service.record(document, self._require_person())
        return jsonify(answer), 409 if answer["conflicts"] else 200

    def _page_with_token(self, name: str) -> Response | None:
        """A page with forms, with the token and the right to ask this server; None: not such a page."""
        path = safe_join(str(self._site), name)
        if path is None or not Path(path).is_file():
            return None
        page = Path(path).read_bytes()
        policy = _CONTENT_POLICY.search(page)
        if policy is None or b"static/review.js" not in page:
            return None
        # The policy of the file allows no connection; that of the answer allows those to this server.
        token = f'<meta name="iowatch-review" content="{self._access.token}">'.encode()
        page_with_token = page[: policy.start()] + token + page[policy.end() :]
        response = Response(page_with_token, mimetype="text/html")
        allowed = "connect-src 'self'; frame-ancestors 'none'"
        response.headers["Content-Security-Policy"] = f"{policy[1].decode()}; {allowed}"
        response.headers["Cache-Control"] = "no-store"
        return response

    def _person(self) -> str | None:
        """Who sent the request, if that person may decide; else None."""
        sign_on = self._access.sign_on
        if sign_on is None:
            key = request.cookies.get(self._cookie_name())
            has_key = key is not None and _are_equal(key, self._access.key)
            return self._access.person if has_key else None
        # WSGI hands over the bytes of a header as Latin-1; proxies send UTF-8.
        header = request.headers.get(sign_on.header, "")
        name = header.encode("latin-1").decode("utf-8", "replace").strip()
        # A comma joins two headers: the proxy did not replace the one that a client sent.
        if not name or not name.isprintable() or "," in name or len(name) > _MAX_NAME_CHARACTERS:
            return None
        return name

    def _require_person(self) -> str:
        """Who sent the request.

        Raises:
            _RefusedError: that person may not decide.
        """
        person = self._person()
        if person is None:
            hint = None
            if self._access.sign_on is None:
                hint = "Open the address that the server printed when it started."
            raise _RefusedError(403, "You are not signed on to review.", hint)
        return person

    def _cookie_name(self) -> str:
        # Cookies do not distinguish the ports of a host.
        return f"iowatch-review-{request.environ['SERVER_PORT']}"

    def _read_document(self) -> Mapping[str, Any]:
        """The document of a request that a page of this server sent.

        Raises:
            _RefusedError: another page sent it, or it is no document.
        """
        sign_on = self._access.sign_on
        origin = request.headers.get("Origin", "")
        expected_origin = f"http://{request.headers['Host']}" if sign_on is None else sign_on.origin
        if origin != expected_origin:
            raise _RefusedError(403, f"The request comes from a page of '{origin}'.", "Nothing is recorded.")
        # A form of another web site can send other types without asking this server.
        if request.mimetype != "application/json":
            raise _RefusedError(415, "Expected application/json.")
        if not _are_equal(request.headers.get("X-Iowatch-Token", ""), self._access.token):
            raise _RefusedError(403, "The page is older than the start of the server.", "Reload it and decide again.")
        try:
            document = json.loads(request.get_data())
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise _RefusedError(400, "Expected a JSON object.")
        return document


def _are_equal(text: str, secret: str) -> bool:
    """Compare with a secret, in a time that does not depend on it."""
    return secrets.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def _error_answer(status: int, message: str, hint: str | None = None) -> tuple[Response, int]:
    return jsonify(error=message, hint=hint), status


def _refusal_answer(error: _RefusedError) -> tuple[Response, int]:
    return _error_answer(error.status, error.message, error.hint)


def _expected_error_answer(error: IowatchError) -> tuple[Response, int]:
    is_wrong_request = error.exit_code == 2
    return _error_answer(400 if is_wrong_request else 500, error.message, error.hint)


def _internal_error_answer(error: InternalServerError) -> tuple[Response, int]:
    # Flask has logged it with its traceback.
    name = type(error.original_exception or error).__name__
    return _error_answer(500, f"The server failed: {name}.", "Its log has more.")


def _protect_answer(response: Response) -> Response:
    response.headers.update(PROTECTING_HEADERS)
    if response.mimetype == "application/json":
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def make_application(site: Path, access: ReviewAccess) -> Flask:
    """Create the WSGI application of a built site with review."""
    application = Flask(__name__, static_folder=None)
    application.url_map.merge_slashes = False  # `//name` is no file, and no redirect either
    review_site = _ReviewSite(site, access)
    # In this order: a foreign host name is refused before the key is looked at.
    application.before_request(review_site.require_expected)
    application.before_request(review_site.keep_key)
    application.add_url_rule("/review", view_func=review_site.send_state, methods=["GET"])
    application.add_url_rule("/review", view_func=review_site.record, methods=["POST"])
    application.add_url_rule("/", view_func=review_site.send_page, defaults={"name": ""})
    application.add_url_rule("/<path:name>", view_func=review_site.send_page)
    application.register_error_handler(_RefusedError, _refusal_answer)
    application.register_error_handler(IowatchError, _expected_error_answer)
    application.register_error_handler(InternalServerError, _internal_error_answer)
    application.after_request(_protect_answer)
    return application


def make_review_server(
    site: Path, port: int, access: ReviewAccess, bind: str = LOOPBACK_ADDRESSES[0]
) -> BaseWSGIServer:
    """Create the server of a built site with review, which the caller starts (`run`).

    Args:
        port: 0 is any free one.
        bind: address to listen on.

    Raises:
        InputError: there is no built site.
        MachineError: the address or port is not available.
    """
    require_site(site)
    # A port in use is reported as by the server for reading.
    try:
        listener = socket.create_server((bind, port), family=address_family(bind))
    except OSError as error:
        raise listen_error(port, error) from error
    return waitress.create_server(
        make_application(site, access),
        sockets=[listener],
        ident=None,
        max_request_body_size=_MAX_BODY_BYTES,
        channel_timeout=TIMEOUT_S,
        cleanup_interval=_CLEANUP_INTERVAL_S,
    )


def make_access(site: Path, options: ServeOptions) -> ReviewAccess:
    """Who may decide on the pages of a site.

    Raises:
        UsageError: a wrong origin or proxy; without sign-on, no name of the current user.
        InputError, MachineError: the history cannot be opened.
    """
    History.existing(options.database).close()
    builds = PageBuild(site, options.database)
    compare = CompareService(site, options.database)
    if options.user_header is None or options.origin is None:
        return ReviewAccess(ReviewService(builds, options.database), current_author(), compare=compare)
    sign_on = SignOn(options.user_header, options.origin, options.proxies or LOOPBACK_ADDRESSES)
    return ReviewAccess(ReviewService(builds, options.database, commits_as_person=True), "", sign_on, compare)


def serve_review(site: Path, options: ServeOptions) -> None:
    """Serve a site with review until interrupted; the address to open is logged.

    Raises:
        UsageError, InputError, MachineError: as `make_access` and `make_review_server`.
    """
    access = make_access(site, options)
    server = make_review_server(site, options.port, access, options.bind)
    # Port 0 was replaced by a free one.
    port = server.effective_port
    if access.sign_on is None:
        _LOG.info("Decisions are recorded as %s. Whoever has this address can decide:", access.person)
        _LOG.info("%s?key=%s (Ctrl-C ends)", page_address(options.bind, port), access.key)
    else:
        _LOG.info("%s, through the proxy to port %d (Ctrl-C ends)", access.sign_on.origin, port)
    server.run()  # returns after Ctrl-C
    server.close()
    _LOG.info("ended")

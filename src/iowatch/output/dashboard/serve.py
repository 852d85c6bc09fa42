"""The web server of the site for reading; `review_server.py` has the one that also records decisions."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from iowatch.core import InputError, IowatchError, MachineError, UsageError

if TYPE_CHECKING:
    from iowatch.output.dashboard.compare_service import CompareService

_LOG = logging.getLogger(__name__)
# The page that is computed on request where the history can be read.
COMPARE_PAGE = "compare.html"
# Seconds without data from a client.
TIMEOUT_S = 30
LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
# Of every answer: types are not guessed, and no other web site may frame a page.
PROTECTING_HEADERS = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


@dataclass(frozen=True)
class ServeOptions:
    """Options of `iowatch dashboard serve`.

    Attributes:
        port: 0 is any free one.
        bind: address to listen on; other than loopback needs a sign-on.
        review: whether decisions can be made on the pages.
        database: the history in which they are recorded, as for `History.open`.
        user_header: header in which the site's proxy names the person.
        origin: where people open the site behind the proxy.
        proxies: addresses or networks of the proxy; empty is loopback.
    """

    port: int
    bind: str = LOOPBACK_ADDRESSES[0]
    review: bool = False
    database: str | None = None
    user_header: str | None = None
    origin: str | None = None
    proxies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises UsageError: options that do not go together."""
        has_sign_on_option = self.user_header is not None or self.origin is not None or bool(self.proxies)
        if has_sign_on_option and not self.review:
            raise UsageError("--user-header, --origin and --trusted-proxy are for --review", hint="Add --review.")
        is_incomplete = self.user_header is None or self.origin is None
        if has_sign_on_option and is_incomplete:
            hint = "--user-header X-Remote-User --origin https://iowatch.example.org; docs/review.md has an example."
            raise UsageError("--user-header and --origin belong together, and --trusted-proxy to both", hint=hint)
        # Other hosts reach the server then: a key in an address is no protection.
        if self.bind not in LOOPBACK_ADDRESSES and self.user_header is None:
            hint = "docs/review.md describes the proxy."
            raise UsageError(f"--bind {self.bind} needs --review with --user-header", hint=hint)


class _SiteHandler(SimpleHTTPRequestHandler):
    """Files of the site, and comparisons on request; no listing of directories.

    Attributes:
        compare: computes comparisons; None serves the file of the site.
    """

    timeout = TIMEOUT_S

    def __init__(self, *arguments: Any, compare: CompareService | None = None, **names: Any) -> None:
        self.compare = compare
        super().__init__(*arguments, **names)  # answers the request

    def do_GET(self) -> None:
        """Answer the address of the lists with a page that was computed now, others with files."""
        address = urlsplit(self.path)
        if self.compare is None or address.path != f"/{COMPARE_PAGE}":
            super().do_GET()
            return
        try:
            answer = self.compare.answer(address.query)
            status, content, kind = answer.status, answer.page, "text/html"
        except IowatchError as error:
            status, content, kind = HTTPStatus.SERVICE_UNAVAILABLE, str(error), "text/plain"
        body = content.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def list_directory(self, path: Any) -> None:
        """Refuse, because pages link to everything that there is to see."""
        self.send_error(404)

    def end_headers(self) -> None:
        """Add what holds for every answer."""
        for name, value in PROTECTING_HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *words: Any) -> None:
        """Log nothing: a request for a page is not worth a line."""


def require_site(site: Path) -> None:
    """Raise InputError if there is no built site."""
    if not (site / "index.html").is_file():
        raise InputError(f"there is no dashboard at {site}", hint="`iowatch dashboard build` makes it.")


def address_family(bind: str) -> socket.AddressFamily:
    """Family of an address to listen on."""
    return socket.AF_INET6 if ":" in bind else socket.AF_INET


def listen_error(port: int, error: OSError) -> MachineError:
    """Return the error for an address or port that is not available."""
    return MachineError(f"cannot serve on port {port}: {error.strerror}", hint="Choose another with --port.")


def page_address(host: str, port: int) -> str:
    """Address of the first page of a server."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def make_server(
    site: Path, port: int, bind: str = LOOPBACK_ADDRESSES[0], compare: CompareService | None = None
) -> ThreadingHTTPServer:
    """Create the server of a built site for reading, which the caller starts.

    Args:
        port: 0 is any free one.
        bind: address to listen on.
        compare: computes comparisons on request; None serves the site as it is.

    Raises:
        InputError: there is no built site.
        MachineError: the address or port is not available.
    """
    require_site(site)

    class Server(ThreadingHTTPServer):
        address_family = address_family(bind)

    try:
        return Server((bind, port), partial(_SiteHandler, directory=str(site), compare=compare))
    except OSError as error:
        raise listen_error(port, error) from error


def serve_dashboard(site: Path, options: ServeOptions) -> None:
    """Serve a built site until interrupted; the address to open is logged.

    Raises:
        InputError: there is no built site.
        MachineError: the address or port is not available.
    """
    require_site(site)
    # A second of imports, which a missing site does not need.
    from iowatch.output.dashboard.compare_service import find_compare_service

    compare = find_compare_service(site, options.database)
    with make_server(site, options.port, options.bind, compare) as server:
        _LOG.info("%s (Ctrl-C ends)", page_address(options.bind, server.server_port))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            _LOG.info("ended")

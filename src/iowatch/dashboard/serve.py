"""A small web server for the built site, on the loopback address only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from iowatch.errors import InputError, MachineError


def serve(site: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Raises:
        InputError: there is no built site.
        MachineError: the port cannot be had.
    """
    if not (site / "index.html").is_file():
        raise InputError(f"there is no dashboard at {site}", hint="`iowatch dashboard build` makes it.")
    try:
        server = ThreadingHTTPServer(
            ("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=str(site))
        )
    except OSError as error:
        raise MachineError(
            f"cannot serve on port {port}: {error.strerror}", hint="Choose another with --port."
        ) from error
    with server:
        say(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")

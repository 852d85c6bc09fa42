"""Requests to web servers. A refused request is an `UndeliveredError` without its address, which may be a secret."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from iowatch import __version__
from iowatch.output.channels.notice import UndeliveredError

# Seconds for each operation of a connection.
TIMEOUT_S = 10.0
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class RefusedRequestError(UndeliveredError):
    """A server answered with an error.

    Attributes:
        code: of HTTP.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"the server answered {code}")
        self.code = code


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Reject redirects, which would send the token to another host, and turn a POST into a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


# An answer of a chat server has a few words; what follows is not read.
_MAX_ANSWER_BYTES = 65536


@dataclass(frozen=True)
class WebAnswer:
    """What a server answered to a request that it did not refuse.

    Attributes:
        code: of HTTP, 200 to 299.
        content_type: without its parameters, lower case; empty if it is not stated.
        text: the beginning of the body, without surrounding blanks.
    """

    code: int
    content_type: str
    text: str


def post_json(url: str, document: Mapping[str, Any], token: str | None = None) -> WebAnswer:
    """Send a document to a web address, which is a secret.

    Raises:
        UndeliveredError: the address is not of https, or the server refused it or cannot be reached.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return send_request("POST", url, document, headers)


def send_request(
    method: str,
    url: str,
    document: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    most_bytes: int = _MAX_ANSWER_BYTES,
) -> WebAnswer:
    """Send one request; redirects are not followed.

    Args:
        document: sent as JSON; None: a request without a body.
        headers: of authentication.
        most_bytes: of the answer that are read.

    Raises:
        UndeliveredError: the address is not of https, or the server refused it or cannot be reached.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UndeliveredError("its address is not well-formed") from None
    is_local = parts.hostname in _LOOPBACK
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise UndeliveredError("its address must begin with https:// (http:// only on this machine)")
    headers = {"Content-Type": "application/json", "User-Agent": f"iowatch/{__version__}", **headers}
    body = None
    if document is not None:
        body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_local:
        # A proxy would receive requests to this machine unencrypted; those by https pass it as a tunnel.
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310  # scheme checked
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as response:
            content_type = response.headers.get_content_type() if "Content-Type" in response.headers else ""
            text = response.read(most_bytes).decode("utf-8", "replace").strip()
            return WebAnswer(response.status, content_type, text)
    except urllib.error.HTTPError as error:
        error.close()
        raise RefusedRequestError(error.code) from None
    except (OSError, http.client.HTTPException) as error:
        raise connection_error(error, "server") from None
    except ValueError:
        raise UndeliveredError("its address or token is not well-formed") from None


def connection_error(error: Exception, server: str) -> UndeliveredError:
    """Error of a failed connection; without the address, which messages of the libraries may contain."""
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, Exception) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        # The message about another host names it, all others are fixed texts of OpenSSL.
        is_other_host = "mismatch" in cause.verify_message
        why = "it was issued for another host" if is_other_host else cause.verify_message
        return UndeliveredError(f"the server's certificate is not accepted: {why}")
    why = type(cause).__name__
    if isinstance(cause, OSError) and cause.strerror:
        why = cause.strerror
    return UndeliveredError(f"the {server} cannot be reached: {why}")

"""Sending one notice through one channel: time limits, few repeats with growing pauses, no word of a secret."""

from __future__ import annotations

import http.client
import json
import re
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from iowatch import __version__, paths
from iowatch.errors import MachineError
from iowatch.files import write_whole
from iowatch.notify import forms
from iowatch.notify.config import Hook, Issue, Mail
from iowatch.notify.notice import Notice

TIMEOUT_S = 10.0
PAUSES_S = (2.0, 8.0)  # between three attempts
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_HOOKS: dict[str, Callable[[Notice], dict[str, Any]]] = {
    "webhook": forms.generic,
    "slack": forms.slack,
    "mattermost": forms.mattermost,
}


class UndeliveredError(MachineError):
    """Not delivered; `passing` where a repeat may help."""

    def __init__(self, message: str, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another host, and turn a POST into a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def deliver(
    channel: Hook | Mail | Issue,
    notice: Notice,
    *,
    timeout_s: float = TIMEOUT_S,
    pauses_s: tuple[float, ...] = PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Deliver a notice, with one attempt more than there are pauses.

    Raises:
        InputError: a secret is not there or not safe.
        UndeliveredError: all attempts failed, or the first for a reason that stays.
        MachineError: the file of an issue cannot be written.
    """
    for pause in (*pauses_s, None):
        try:
            _attempt(channel, notice, timeout_s)
            return
        except UndeliveredError as error:
            if pause is None or not error.passing:
                raise
            sleep(pause)


def _attempt(channel: Hook | Mail | Issue, notice: Notice, timeout_s: float) -> None:
    if isinstance(channel, Hook):
        token = channel.token.read() if channel.token else None
        _post(channel.url.read(), _HOOKS[channel.kind](notice), token, timeout_s)
    elif isinstance(channel, Mail):
        _mail(channel, notice, timeout_s)
    else:
        _write(channel, notice)


# Reasons are told in our own words: those of the libraries may hold the address, which is a secret.


def _post(url: str, document: dict[str, Any], token: str | None, timeout_s: float) -> None:
    try:
        parts = urlsplit(url)
        safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    except ValueError:
        safe = False
    if not safe:
        raise UndeliveredError("its address must begin with https:// (http:// only on this machine)", False)
    headers = {"Content-Type": "application/json", "User-Agent": f"iowatch/{__version__}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310  # scheme checked
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s):
            return
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
        raise UndeliveredError(f"the server answered {code}", code == 429 or code >= 500) from None
    except (OSError, http.client.HTTPException) as error:
        if (distrusted := _distrusted(error)) is not None:
            raise distrusted from None
        raise UndeliveredError(f"the server cannot be reached: {_named(error)}", True) from None
    except ValueError:
        raise UndeliveredError("its address or token is not well-formed", False) from None


# Numbers of OpenSSL's X509_V_ERR_*; its own words may hold the name of the host, which may be secret.
_DISTRUST = {
    10: "it has expired",
    18: "it is signed by itself",
    19: "its authority is not known here",
    20: "its authority is not known here",
    62: "it is of another host",
    64: "it is of another host",
}


def _distrusted(error: BaseException) -> UndeliveredError | None:
    """What is wrong with a certificate, if that is the error; a repeat does not help."""
    reason = getattr(error, "reason", error)
    found = reason if isinstance(reason, ssl.SSLCertVerificationError) else error
    if not isinstance(found, ssl.SSLCertVerificationError):
        return None
    why = _DISTRUST.get(found.verify_code, f"OpenSSL's reason {found.verify_code}")
    return UndeliveredError(f"the server's certificate is not accepted: {why}", False)


def _named(error: BaseException) -> str:
    reason = getattr(error, "reason", error)
    inner = reason if isinstance(reason, BaseException) else error
    return (inner.strerror if isinstance(inner, OSError) else None) or type(inner).__name__


def _mail(channel: Mail, notice: Notice, timeout_s: float) -> None:
    message = forms.mail(notice, channel)
    message["Date"] = formatdate(localtime=False)
    try:
        server = _connect(channel, timeout_s)
    except (smtplib.SMTPException, OSError) as error:
        raise _refused(error) from None
    try:
        if channel.security == "starttls":
            server.starttls(context=ssl.create_default_context())
        if channel.user is not None and channel.password is not None:
            server.login(channel.user, channel.password.read())
        server.send_message(message)
    except (smtplib.SMTPException, OSError) as error:
        raise _refused(error) from None
    finally:
        # Not quit(): it is delivered by now, and a server that drops the line must not make it twice.
        server.close()


def _connect(channel: Mail, timeout_s: float) -> smtplib.SMTP:
    if channel.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(channel.host, channel.port, timeout=timeout_s, context=context)
    return smtplib.SMTP(channel.host, channel.port, timeout=timeout_s)


def _refused(error: Exception) -> UndeliveredError:
    if (distrusted := _distrusted(error)) is not None:
        return distrusted
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [int(code) for code, _ in error.recipients.values()]
        return UndeliveredError(
            f"the mail server refused all recipients ({codes[0]})", all(c < 500 for c in codes)
        )
    if isinstance(error, smtplib.SMTPResponseException):
        return UndeliveredError(f"the mail server answered {error.smtp_code}", error.smtp_code < 500)
    if isinstance(error, (smtplib.SMTPNotSupportedError, ssl.SSLError)):
        return UndeliveredError(f"the mail server offers no such security: {type(error).__name__}", False)
    return UndeliveredError(f"the mail server cannot be reached: {_named(error)}", True)


def _write(channel: Issue, notice: Notice) -> None:
    """A relative directory is meant in var/."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", notice.key).strip("-.")[:120]
    write_whole(paths.var() / Path(channel.directory).expanduser() / f"{name}.md", forms.issue(notice))

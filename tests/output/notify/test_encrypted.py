"""HTTPS, SMTP over TLS and STARTTLS against local servers, with certificates of an authority made here."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from iowatch.output.channels.notice import UndeliveredError
from iowatch.output.notice_channels import deliver_notice
from tests.output.notify import test_send
from tests.output.notify.test_send import NOTICE, AnyServer, Postbox, Web, hook, mail, serving

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ca.pem`, and for each of `good`, `expired`, `other` (issued for another host) a certificate with its key."""
    place = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    # Since 3.4 there are dates, and since 3.5 no days before today.
    error = subprocess.run(["openssl", "x509", "-help"], capture_output=True, text=True, check=False).stderr
    past = ("-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
    expired = past if "-not_after" in error else ("-days", "-1")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=throw-away",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    for name, host, valid in (
        ("good", "IP:127.0.0.1", ("-days", "1")),
        ("expired", "IP:127.0.0.1", expired),
        ("other", "DNS:elsewhere.example.org", ("-days", "1")),
    ):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (place / "names").write_text(
            f"subjectAltName={host}\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
            "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", *valid, "-extfile", "names",
        )  # fmt: skip
    return place


@pytest.fixture(autouse=True)
def _trusted_authority(monkeypatch: pytest.MonkeyPatch, certificates: Path) -> None:
    """Trust the authority by OpenSSL's variable, as a site would trust its own."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))


def server_context(certificates: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


def https(certificates: Path, name: str) -> AbstractContextManager[Web]:
    server = Web([200])
    server.socket = server_context(certificates, name).wrap_socket(server.socket, server_side=True)
    return serving(_without_error_output(server))


def _without_error_output(server: AnyServer) -> AnyServer:
    """Ignore clients that close the connection during the handshake."""
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    return server


class _StartTls(test_send._Session):
    """STARTTLS of RFC 3207; records whether each line was received in clear or encrypted."""

    server: SecurePostbox

    def handle(self) -> None:
        if self.server.implicit:
            self._encrypt()
        self._say("220 here")
        while line := self.rfile.readline():
            self.server.received_lines.append((isinstance(self.connection, ssl.SSLSocket), line.strip().decode()))
            verb = line.split()[0].decode().upper()
            if verb == "EHLO":
                offer = "AUTH PLAIN" if isinstance(self.connection, ssl.SSLSocket) else "STARTTLS"
                self._say(f"250-here\r\n250 {offer}")
            elif verb == "STARTTLS":
                self._say("220 go on")
                self._encrypt()
            elif verb == "AUTH":
                self._say("235 welcome")
            elif verb == "DATA":
                self._say("354 go on")
                lines = []
                while (text := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(text)
                self.server.mails.append(b"".join(lines))
                self._say("250 taken")
            else:
                self._say("250 ok")

    def _encrypt(self) -> None:
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", 0)

    def finish(self) -> None:
        super().finish()
        self.connection.close()


class SecurePostbox(Postbox):
    """A mail server with STARTTLS, or with TLS from the first byte (`implicit`)."""

    def __init__(self, context: ssl.SSLContext, implicit: bool) -> None:
        super().__init__({})
        self.context, self.implicit = context, implicit
        self.received_lines: list[tuple[bool, str]] = []
        self.RequestHandlerClass = _StartTls


def postbox(certificates: Path, name: str, *, implicit: bool = False) -> AbstractContextManager[SecurePostbox]:
    return serving(_without_error_output(SecurePostbox(server_context(certificates, name), implicit)))


def test_webhook_is_sent_over_https(monkeypatch: pytest.MonkeyPatch, certificates: Path) -> None:
    with https(certificates, "good") as server:
        url = server.url.replace("http://", "https://")
        deliver_notice(hook(monkeypatch, url, token="TOKEN"), NOTICE)
    ((_, headers, document),) = server.seen
    assert headers["Authorization"] == "Bearer TOKEN"
    assert document["kind"] == "finding"


WHY = {"expired": "has expired", "other": "another host", "good": "unable to get local issuer certificate"}


@pytest.mark.parametrize("name", WHY)
def test_webhook_refuses_an_invalid_certificate(monkeypatch: pytest.MonkeyPatch, certificates: Path, name: str) -> None:
    if name == "good":  # valid, but of an authority that is not trusted
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "other.pem"))
    with https(certificates, name) as server:
        channel = hook(monkeypatch, server.url.replace("http://", "https://"), token="TOKEN")
        with pytest.raises(UndeliveredError, match=WHY[name]) as error:
            deliver_notice(channel, NOTICE)
    assert server.seen == []
    assert "127.0.0.1" not in str(error.value)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_is_sent_encrypted(monkeypatch: pytest.MonkeyPatch, certificates: Path, security: str) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "hunter2")
    with postbox(certificates, "good", implicit=security == "tls") as server:
        channel = mail(server, security=security, user="me", password={"environment": "TEST_PASSWORD"})
        deliver_notice(channel, NOTICE)
    assert len(server.mails) == 1
    in_clear = [line for encrypted, line in server.received_lines if not encrypted]
    assert [line.split()[0].upper() for line in in_clear] == (["EHLO", "STARTTLS"] if security == "starttls" else [])
    (login,) = [line for encrypted, line in server.received_lines if encrypted and line.startswith("AUTH")]
    assert base64.b64decode(login.split()[-1]) == b"\0me\0hunter2"


@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize("name", ["expired", "other"])
def test_mail_refuses_an_invalid_certificate(
    monkeypatch: pytest.MonkeyPatch, certificates: Path, security: str, name: str
) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "hunter2")
    with postbox(certificates, name, implicit=security == "tls") as server:
        channel = mail(server, security=security, user="me", password={"environment": "TEST_PASSWORD"})
        with pytest.raises(UndeliveredError, match=WHY[name]):
            deliver_notice(channel, NOTICE)
    assert server.mails == []
    assert not any("AUTH" in line for _, line in server.received_lines)

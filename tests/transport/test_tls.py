"""Certificates: who is trusted, what a listener asks for, and what is said about files that are no use."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.transport.certificates import authority, stranger
from tests.transport.ends import Recorder, connected, listening

from mpreg.errors import MpregError, TransportError
from mpreg.transport import TlsFiles, dial, listen
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio
SECURE = ("wss", "tcps")


def node(*, ask: bool = False, ca: str | None = None) -> TlsFiles:
    pair = authority().issue("node")
    return TlsFiles(cert=pair.cert, key=pair.key, ca=ca or (authority().ca if ask else None), require_client_cert=ask)


def client(*, of: str | None = None) -> TlsFiles:
    pair = authority().issue(of) if of else None
    return TlsFiles(ca=authority().ca, cert=pair and pair.cert, key=pair and pair.key)


@pytest.mark.parametrize("scheme", SECURE)
async def test_an_issuer_that_is_not_trusted_is_refused(scheme: str) -> None:
    async with listening(scheme, tls=node()) as (listener, _):
        for tls in (None, TlsFiles(ca=stranger().ca)):
            with pytest.raises(TransportError, match="verify failed") as refused:
                await dial(listener.url, Recorder().accept, tls=tls)
            assert refused.value.code == "TRANSPORT_TLS"


@pytest.mark.parametrize("scheme", SECURE)
async def test_the_name_is_checked_and_may_be_given(scheme: str) -> None:
    async with listening(scheme, tls=node()) as (listener, _):
        with pytest.raises(TransportError, match=r"(?i)hostname mismatch") as refused:
            await dial(listener.url, Recorder().accept, tls=TlsFiles(ca=authority().ca, server_name="other"))
        assert refused.value.code == "TRANSPORT_TLS"
        link = await dial(listener.url, Recorder().accept, tls=TlsFiles(ca=authority().ca, server_name="node"))
        link.close()
        await link.wait_closed()


@pytest.mark.parametrize("scheme", SECURE)
async def test_a_listener_that_asks_for_certificates_knows_who_comes_and_lets_nobody_else_in(scheme: str) -> None:
    async with connected(scheme, tls=node(ask=True), client_tls=client(of="alice")) as (_, server):
        certificate = server.link.peer.certificate
        assert certificate is not None
        assert certificate["subject"] == ((("commonName", "alice"),),)
    async with listening(scheme, tls=node(ask=True)) as (listener, echoes):
        pair = stranger().issue("mallory")
        for tls in (client(), TlsFiles(ca=authority().ca, cert=pair.cert, key=pair.key)):
            end = Recorder()
            # With TLS 1.3 a client may believe for a moment that it is in.
            try:
                await dial(listener.url, end.accept, tls=tls)
            except MpregError as error:
                assert error.prefix == "TRANSPORT_"  # noqa: PT017 - raised or not, by who is quicker
            else:
                await end.gone()
        assert not echoes.all


@pytest.mark.parametrize("scheme", SECURE)
async def test_a_certificate_that_is_shown_unasked_is_known_too(scheme: str) -> None:
    tls = node(ca=authority().ca)
    async with connected(scheme, tls=tls, client_tls=client(of="bob")) as (_, server):
        assert server.link.peer.certificate is not None
    async with connected(scheme, tls=tls, client_tls=client()) as (end, server):
        assert server.link.peer.certificate is None
        end.link.send(b"{}", Encoding.JSON)
        assert await end.next() == (b"{}", Encoding.JSON)


async def test_files_that_are_no_use_are_named(tmp_path: Path) -> None:
    pair, other = authority().issue("node"), authority().issue("other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    useless = [
        (TlsFiles(), "needs a certificate"),
        (TlsFiles(cert=pair.cert), "needs a certificate"),
        (TlsFiles(cert=pair.cert, key=pair.key, require_client_cert=True), "`ca`"),
        (TlsFiles(cert=str(tmp_path / "none"), key=pair.key), "none: No such file"),
        (TlsFiles(cert=str(text), key=pair.key), "text.pem"),
        (TlsFiles(cert=pair.cert, key=other.key), "other.key"),
        (TlsFiles(cert=pair.cert, key=authority().locked_key("node")), "passphrase"),
        (TlsFiles(cert=pair.cert, key=pair.key, ca=str(text)), "text.pem"),
    ]
    for tls, said in useless:
        with pytest.raises(TransportError, match=said) as refused:
            await listen("wss://127.0.0.1:0", Recorder().accept, tls=tls)
        assert refused.value.code == "TRANSPORT_TLS"
    for tls, said in ((TlsFiles(cert=pair.cert), "needs its key"), (TlsFiles(ca=str(text)), "text.pem")):
        with pytest.raises(TransportError, match=said):
            await dial("wss://127.0.0.1:1", Recorder().accept, tls=tls)


async def test_tls_files_and_the_scheme_must_agree() -> None:
    with pytest.raises(TransportError, match="needs TLS files"):
        await listen("tcps://127.0.0.1:0", Recorder().accept)
    with pytest.raises(TransportError, match="takes no TLS files"):
        await listen("tcp://127.0.0.1:0", Recorder().accept, tls=node())
    with pytest.raises(TransportError, match="takes no TLS files"):
        await dial("ws://127.0.0.1:1", Recorder().accept, tls=client())

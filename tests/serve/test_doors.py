"""Who may connect, and from where."""

import socket
import ssl
import subprocess
import time

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hostbot.serve.contract import ServeConfig, is_loopback
from hostbot.types import BadInput
from hostbot_client import unpack
from hostbot_client.client import PolicyClient, ServerLost
from tests.serve.running import EchoPolicy, client, observation, running

TOKEN = "a-long-enough-token"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "robot.local", ""])
def test_without_a_token_a_server_stays_on_loopback(host):
    with pytest.raises(BadInput, match="token"):
        ServeConfig(host=host)
    assert ServeConfig(host=host, token=TOKEN).host == host


def test_loopback_is_what_it_is():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.evil", ""]))


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def test_without_a_token_nothing_but_loopback_connects():
    """The socket itself refuses another address of this machine, and so does the check behind it."""
    with running() as server:
        with pytest.raises(OSError), socket.create_connection((own_address(), server.port), timeout=2):
            pass
        assert server.get("/healthz")[0] == 200
        elsewhere = type("C", (), {"remote_address": ("192.0.2.7", 5)})()
        assert not server._allowed(elsewhere, None)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Api-Key",
        "Api-Key wrong-token-wrong-token",
        f"Basic {TOKEN}",
        f"Api-Key {TOKEN}x",
        TOKEN,
        f"Api-Key {TOKEN[:-1]}",
    ],
)
def test_a_wrong_token_is_refused_before_the_handshake(header, caplog):
    with running(token=TOKEN) as server:
        headers = {} if header is None else {"Authorization": header}
        with pytest.raises(InvalidStatus) as refusal:
            connect(server.url, additional_headers=headers)
        assert refusal.value.response.status_code == 401
        assert server.get("/healthz")[0] == 200
    assert TOKEN not in caplog.text


def test_the_right_token_is_let_in_and_never_shown():
    with running(token=TOKEN, host="0.0.0.0") as server:
        with PolicyClient(f"ws://{own_address()}:{server.port}", token=TOKEN) as robot:
            assert robot.infer(observation(4))["actions"][0, 0] == 4
        with connect(server.url, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as raw:
            assert unpack(raw.recv())["protocol"] == "openpi"
        assert TOKEN not in repr(server.config)


def test_a_web_page_cannot_connect():
    with running() as server, pytest.raises(InvalidStatus) as refusal:
        connect(server.url, origin="http://evil.example")
    assert refusal.value.response.status_code == 403


def test_tls(tmp_path):
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -addext subjectAltName=IP:127.0.0.1"
    )
    files = {"tls_key": tmp_path / "key.pem", "tls_cert": tmp_path / "cert.pem"}
    subprocess.run(
        [*command.split(), "-keyout", files["tls_key"], "-out", files["tls_cert"]],
        check=True,
        capture_output=True,
    )
    trusting = ssl.create_default_context(cafile=str(files["tls_cert"]))
    with running(**files) as server:
        address = f"wss://127.0.0.1:{server.port}"
        with PolicyClient(address, tls=trusting) as robot:
            assert robot.infer(observation(9))["actions"][0, 0] == 9
        with pytest.raises(ServerLost):
            PolicyClient(address).connect()
        with pytest.raises(ServerLost):
            client(server).connect()
    with pytest.raises(BadInput, match="both"):
        ServeConfig(tls_cert=tmp_path / "cert.pem")


def test_stopping_closes_everything_quickly():
    begin = time.monotonic()
    with running(EchoPolicy(seconds=0.2)) as server:
        robots = [client(server) for _ in range(3)]
        [robot.connect() for robot in robots]
    assert time.monotonic() - begin < 10
    with pytest.raises(ServerLost):
        robots[0].infer(observation())
    assert not server.engine.alive

"""What a server on loopback answers, without the seconds of processor time that a client for TLS takes to begin."""

from contextlib import closing, suppress
from http.client import HTTPConnection

from tests.helpers.waiting import PATIENCE_SECONDS


def scrape(port: int, path: str = "/metrics") -> str:
    """Return the text at a path, which must be there; nothing while nobody listens yet."""
    with suppress(ConnectionRefusedError), closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text
    return ""

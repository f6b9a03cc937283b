"""The baseline of `push`: an eventlet WebSocket server that sends a text to all clients and counts the answers."""

from __future__ import annotations

import sys
import time
from typing import Any

import eventlet
import eventlet.wsgi
from eventlet import websocket

from sopa_ryu.runtime.process import allow_files


def main(port: int, clients: int, size: int, rounds: int) -> None:
    """Wait for the clients, then print the milliseconds of each round."""
    allow_files()
    sockets: list[Any] = []
    answered = [0]

    @websocket.WebSocketWSGI
    def attend(channel: Any) -> None:
        sockets.append(channel)
        while channel.wait() is not None:
            answered[0] += 1

    def play() -> None:
        while len(sockets) < clients:
            eventlet.sleep(0.05)
        text = "x" * size
        for number in range(1, rounds + 1):
            started = time.monotonic()
            for channel in sockets:
                eventlet.spawn_n(channel.send, text)
            while answered[0] < clients * number:
                eventlet.sleep(0.001)
            print(round(1000 * (time.monotonic() - started), 3), flush=True)
            eventlet.sleep(0.2)
        print("done", flush=True)

    listener = eventlet.listen(("127.0.0.1", port), backlog=4096)
    print("listening", flush=True)
    eventlet.spawn(play)
    eventlet.wsgi.server(listener, attend, max_size=2 * clients, log_output=False)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))

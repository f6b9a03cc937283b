"""A controller's end of an OpenFlow 1.3 channel on a plain socket: no Ryu application, no green threads."""

import itertools
import socket
import time
from typing import Any

from sopa_ryu.runtime.library import ProtocolDesc, ofproto_parser, ofproto_v1_3

HEADER_BYTES = 8
ANSWER_SECONDS = 60.0


class OpenFlowClient:
    """Waits for one switch to connect, and then stands in for Ryu's ``Datapath``."""

    def __init__(self) -> None:
        desc = ProtocolDesc(ofproto_v1_3.OFP_VERSION)
        self.ofproto, self.ofproto_parser = desc.ofproto, desc.ofproto_parser
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ANSWER_SECONDS)
        host, port = self._listener.getsockname()
        self.target = f"tcp:{host}:{port}"
        self.address = host, port
        self.id = 0
        self.ports: dict[int, Any] = {}
        self._xids = itertools.count(1)
        self.socket: socket.socket | None = None

    def accept(self) -> None:
        """Wait for the switch and finish the handshake."""
        if self.socket is not None:
            self.socket.close()
        self.socket, _ = self._listener.accept()
        self.socket.settimeout(ANSWER_SECONDS)
        self._send_new(self.ofproto_parser.OFPHello(self))
        self._send_new(self.ofproto_parser.OFPFeaturesRequest(self))
        self.id = self._await(self.ofproto_parser.OFPSwitchFeatures).datapath_id
        self._send_new(self.ofproto_parser.OFPPortDescStatsRequest(self, 0))
        described = self._await(self.ofproto_parser.OFPPortDescStatsReply)
        self.ports = {port.port_no: port for port in described.body}

    def close(self) -> None:
        for opened in (self.socket, self._listener):
            if opened is not None:
                opened.close()

    def set_xid(self, message: Any) -> int:
        xid = next(self._xids)
        message.set_xid(xid)
        return xid

    def send_msg(self, message: Any) -> bool:
        if message.xid is None:
            self.set_xid(message)
        message.serialize()
        self.socket.sendall(message.buf)
        return True

    def receive(self) -> Any:
        """Return the next message of the switch; echo requests are answered."""
        while True:
            header = self._read(HEADER_BYTES)
            version, kind, length, xid = ofproto_parser.header(header)
            body = header + self._read(length - HEADER_BYTES)
            if kind == self.ofproto.OFPT_HELLO:
                continue
            message = ofproto_parser.msg(self, version, kind, length, xid, body)
            if isinstance(message, self.ofproto_parser.OFPEchoRequest):
                reply = self.ofproto_parser.OFPEchoReply(self, message.data)
                reply.set_xid(message.xid)
                self.send_msg(reply)
                continue
            return message

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the switch has closed the connection")
            data += more
        return data

    def _send_new(self, message: Any) -> None:
        self.set_xid(message)
        self.send_msg(message)

    def _await(self, kind: type) -> Any:
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            message = self.receive()
            if isinstance(message, kind):
                return message
        raise TimeoutError(f"no {kind.__name__} came")

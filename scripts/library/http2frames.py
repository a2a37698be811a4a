"""HTTP/2 frames by hand, for clients and servers that do what no library lets them."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4


# Kind, flags, stream, payload.
Frame = tuple[int, int, int, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame: window=N is the window of each stream."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", INITIAL_WINDOW_SIZE, n) for n in values.values()))


def text(value: bytes | str) -> bytes:
    """A string of HPACK, as it is (RFC 7541 section 5.2)."""
    value = value if isinstance(value, bytes) else value.encode()
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, out = len(value) - 127, b"\x7f"
    while rest >= 128:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest]) + value


def block(*fields: tuple[bytes | str, bytes | str]) -> bytes:
    """A header block of literals that nobody is to remember (RFC 7541 section 6.2.2)."""
    return b"".join(b"\0" + text(name) + text(value) for name, value in fields)


def request(path: bytes | str = "/", *fields: tuple[bytes | str, bytes | str], method: str = "GET", authority: str = "h",
            scheme: str = "http") -> bytes:
    return block((":method", method), (":scheme", scheme), (":path", path), (":authority", authority), *fields)


class Connection:
    """One end of a connection: sends what it is told, and gives frames as they come."""

    def __init__(self, sock: socket.socket, preface: bytes = PREFACE, window: int = 65535) -> None:
        self.sock, self.buffer = sock, b""
        sock.sendall(preface + settings(window=window))

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.sock.sendall(frame(kind, flags, stream, payload))

    def read(self, timeout: float = 5) -> Frame | None:
        """The next frame as (kind, flags, stream, payload); None at the end, or when nothing came in time."""
        self.sock.settimeout(timeout)
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            try:
                more = self.sock.recv(65536)
            except (TimeoutError, ConnectionError):
                return None
            if not more:
                return None
            self.buffer += more
        length, kind, flags = int.from_bytes(self.buffer[:3], "big"), self.buffer[3], self.buffer[4]
        stream, payload = int.from_bytes(self.buffer[5:9], "big"), self.buffer[9 : 9 + length]
        self.buffer = self.buffer[9 + length :]
        return kind, flags, stream, payload

    def frames(self, timeout: float = 5) -> Iterator[Frame]:
        """Frames until the end, or until none came for so long."""
        while (got := self.read(timeout)) is not None:
            yield got


def connect(address: str, **options: Any) -> Connection:
    host, port = address.rsplit(":", 1)
    return Connection(socket.create_connection((host, int(port))), **options)

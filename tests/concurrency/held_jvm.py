"""Holds threads of another process's JVM right before they call a method.

Speaks the protocol that debuggers speak (JDWP), so that nothing but Java itself is needed.
"""

from __future__ import annotations

import socket
import struct
from typing import Self

__all__ = ["HeldJvm"]

#: Options of a JVM that can be held; it prints "… at address: <port>" when it starts.
AGENT = "-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=127.0.0.1:0"

_HANDSHAKE = b"JDWP-Handshake"
_CLASSES_BY_SIGNATURE, _ID_SIZES = (1, 2), (1, 7)
_METHODS, _SET_EVENT, _COMPOSITE = (2, 5), (15, 1), (64, 100)
_BREAKPOINT, _SUSPEND_THREAD, _LOCATION_ONLY, _CLASS = 2, 1, 7, 1


class HeldJvm:
    """A connection to a JVM; where it ends, all that was held goes on."""

    def __init__(self, port: int, seconds: float) -> None:
        """Connect to the JVM that listens on a port; no answer may take longer than `seconds`."""
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)
        self._socket.sendall(_HANDSHAKE)
        assert self._exactly(len(_HANDSHAKE)) == _HANDSHAKE
        self._number = 0
        self._events = 0
        field, method, _object, self._class_size, _frame = struct.unpack(
            ">5i", self._ask(_ID_SIZES)
        )
        assert field == method
        self._method_size = method

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Let all go on."""
        self._socket.close()

    def hold_at(self, class_name: str, method: str) -> None:
        """Hold each thread that comes to a method (any of this name) of a class that was used."""
        signature = f"L{class_name.replace('.', '/')};".encode()
        classes = self._ask(_CLASSES_BY_SIGNATURE, struct.pack(">i", len(signature)) + signature)
        (found,) = struct.unpack_from(">i", classes)
        assert found == 1, f"{found} classes {class_name} are loaded"
        of = classes[5 : 5 + self._class_size]
        for number in self._methods(of, method):
            location = bytes([_CLASS]) + of + number + struct.pack(">q", 0)
            modifiers = struct.pack(">iB", 1, _LOCATION_ONLY) + location
            self._ask(_SET_EVENT, bytes([_BREAKPOINT, _SUSPEND_THREAD]) + modifiers)

    def _methods(self, of: bytes, name: str) -> list[bytes]:
        told = self._ask(_METHODS, of)
        (count,), at, found = struct.unpack_from(">i", told), 4, []
        for _ in range(count):
            number, at = told[at : at + self._method_size], at + self._method_size
            texts = []
            for _text in ("name", "signature"):
                (length,) = struct.unpack_from(">i", told, at)
                texts.append(told[at + 4 : at + 4 + length].decode())
                at += 4 + length
            at += 4  # modifiers
            if texts[0] == name:
                found.append(number)
        assert found, f"no method {name}"
        return found

    def wait_until_held(self) -> None:
        """Wait until a thread is held, one more than before."""
        while not self._events:
            self._read()
        self._events -= 1

    def _ask(self, command: tuple[int, int], data: bytes = b"") -> bytes:
        self._number += 1
        header = struct.pack(">iiBBB", 11 + len(data), self._number, 0, *command)
        self._socket.sendall(header + data)
        while True:
            number, answer = self._read()
            if number == self._number:
                return answer

    def _read(self) -> tuple[int | None, bytes]:
        """One packet: the number of the question and the answer; without number an event."""
        length, number, flags, first, second = struct.unpack(">iiBBB", self._exactly(11))
        data = self._exactly(length - 11)
        if flags & 0x80:
            assert (first, second) == (0, 0), f"error {first << 8 | second}"
            return number, data
        if (first, second) == _COMPOSITE and data[5] == _BREAKPOINT:
            self._events += 1
        return None, b""

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self._socket.recv(length - len(data))
            assert more, "the JVM is gone"
            data += more
        return data

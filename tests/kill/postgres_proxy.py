"""A wire between a worker and PostgreSQL that breaks where it is told to: before a statement, or before its answer."""

import contextlib
import re
import socket
import threading
from typing import Literal

READY = re.compile(rb"Z\x00\x00\x00\x05[ITE]$")  # the server has done what it was asked, and says so


class Proxy:
    """Listens on ``port`` and passes on what it is sent to PostgreSQL at ``host`` and ``upstream_port``.

    The ``nth`` statement that holds ``marker``, counted from 0, breaks its connection: ``before`` the server is sent
    it, or ``after`` the server has carried it out and before it can say so. ``broke`` says that this happened.
    """

    def __init__(
        self, host: str, upstream_port: str, marker: bytes, nth: int, when: Literal["before", "after"]
    ) -> None:
        self._upstream = (host, upstream_port)
        self._marker, self._left, self._when = marker, nth, when
        self._lock = threading.Lock()
        self.broke = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and break what is open."""
        for item in self._sockets:
            _shut(item)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                self._sockets += [client, server]
                silent = threading.Event()
                for pump in (self._pass_on, self._answer):
                    threading.Thread(target=pump, args=(client, server, silent), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._upstream
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port or 5432}")
        return server

    def _pass_on(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self._breaks(data):
                    if self._when == "before":
                        break
                    silent.set()
                server.sendall(data)
        if not silent.is_set():
            _shut(client)
            _shut(server)

    def _breaks(self, data: bytes) -> bool:
        with self._lock:
            if self._marker not in data:
                return False
            self._left -= 1
            if self._left != -1:
                return False
            self.broke = True
            return True

    def _answer(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if not silent.is_set():
                    client.sendall(data)
                elif READY.search(data):
                    break
        _shut(client)
        _shut(server)


def _shut(item: socket.socket) -> None:
    with contextlib.suppress(OSError):
        item.shutdown(socket.SHUT_RDWR)
    item.close()

"""Ask the fork server to fork a Python process, and stand in for it. Spark starts this program as its Python.

It imports the standard library only, so that it starts fast. Where no server answers, it becomes a plain Python.

usage: python -IS fork_client.py SOCKET -m MODULE …
"""

import io
import json
import os
import signal
import socket
import sys

_SECONDS = 10.0
"""How long to wait for a server whose queue is full, before this program becomes a plain Python."""


def main(path: str, words: list[str]) -> int:
    """Wait for the forked process, and return its exit code."""
    forked = _fork(path, words)
    if forked is None:
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - the command line that Spark gave
    process, answers = forked
    # Spark ends a worker by a signal to the process that it started.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))
    for standard in (0, 1):  # only the forked process may hold them, so that Spark sees them close
        os.close(standard)
    last = answers.readline()
    return int(last) if last else 1


def _fork(path: str, words: list[str]) -> tuple[int, io.TextIOWrapper] | None:
    """Return the process that was forked and its answers; None if no server answers."""
    request = json.dumps({"words": words, "environment": dict(os.environ), "folder": os.getcwd()}).encode()  # noqa: PTH109
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(path)
            connection.settimeout(None)
            socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
            connection.sendall(request)
            answers = connection.makefile("r")
            process = answers.readline()
    except OSError:
        return None
    return (int(process), answers) if process.strip().isdigit() else None


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2:]))

"""What Spark starts as its Python: asks a process that has imported everything to fork, and stands for the one forked.

It runs without any package, ours included, since it is to be there at once. Where nobody forks, it becomes the Python
that it stands for.

usage: python -IS fork_client.py SOCKET -m MODULE …
"""

import io
import json
import os
import signal
import socket
import sys


def main(path: str, words: list[str]) -> int:
    """How the one that was forked ended."""
    forked = _forked(path, words)
    if forked is None:
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - the words of whoever has started this
    process, told = forked
    # Spark ends a worker by ending the process that it has started.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))
    for standard in (0, 1):  # the other one's alone, whose end is to be noticed
        os.close(standard)
    last = told.readline()
    return int(last) if last else 1


def _forked(path: str, words: list[str]) -> tuple[int, io.TextIOWrapper] | None:
    """The process that does it, and what it tells; None if there is none."""
    asked = json.dumps({"words": words, "environment": dict(os.environ), "folder": os.getcwd()}).encode()  # noqa: PTH109
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
            way.connect(path)
            socket.send_fds(way, [len(asked).to_bytes(4, "big")], [0, 1, 2])
            way.sendall(asked)
            told = way.makefile("r")
            process = told.readline()
    except OSError:
        return None
    return (int(process), told) if process.strip().isdigit() else None


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2:]))

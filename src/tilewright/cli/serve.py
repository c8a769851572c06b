"""Run and time kernels and models for other machines, as a board does that has the device.

  tilewright serve --host 0.0.0.0                   # on the board; prints a key
  export TILEWRIGHT_REMOTE_KEY=...                  # on the other machine, the same key
  tilewright run m.onnx --target "opencl -device=mali" --remote board:9190
  tilewright tune ... --target "opencl -device=mali" --remote board:9190

By default nobody but this machine reaches it, as by `ssh -L 9190:localhost:9190 board`. Whoever has
the key runs programs here, and nothing is encrypted: use --host on a network of your own. Ctrl-C
ends it.
"""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it listens."""
    parser.add_argument("--host", default="127.0.0.1", help="the address that it listens at")
    parser.add_argument("--port", type=int, default=9190, help="0 for one that is free")


def run(args: argparse.Namespace) -> int:
    """Answer until Ctrl-C, or SIGTERM; raises :class:`TilewrightError` where it cannot listen
    there."""
    import secrets
    import signal

    from tilewright.ir.errors import TilewrightError
    from tilewright.tune.serve import Server
    from tilewright.tune.wire import KEY, known_key

    key = known_key()
    if not key:
        key = secrets.token_hex(16).encode()
        print(f"export {KEY}={key.decode()}", flush=True)
    try:
        server = Server(args.host, args.port, key, "tilewright.graph.served")
    except (OSError, OverflowError) as error:
        raise TilewrightError(f"cannot listen at {args.host}:{args.port}: {error}") from None
    print(f"kernels and models are run at {args.host}:{server.port}", flush=True)
    # As services are stopped: processes and folders of connections would stay.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        server.run(lambda line: print(line, flush=True))
    finally:
        server.close()
    return 0

"""Makes `python -m benchmarks` equivalent to `halfseen bench`."""

from __future__ import annotations

import sys

from halfseen.cli.app import run_app

if __name__ == "__main__":
    sys.exit(run_app(["bench", *sys.argv[1:]]))

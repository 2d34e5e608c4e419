"""Run the command line with `python -m halfseen`, for when the command `halfseen` is not on the path."""

from halfseen.cli.app import main

main()

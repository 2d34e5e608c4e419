"""`python -m halfseen`, where the command `halfseen` is not on the path."""

from halfseen.cli.app import main

main()

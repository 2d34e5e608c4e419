"""`python -m halfseen`, where the command `halfseen` is not on the path."""

from halfseen.cli import main

main()

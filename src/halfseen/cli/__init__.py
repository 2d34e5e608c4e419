"""The commands of the command line, a file each. Typer is imported here, so `cli` loads these only to run one."""

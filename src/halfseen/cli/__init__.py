"""The commands of the command line, one file each. Typer is imported here, so `app` loads these only to run one."""

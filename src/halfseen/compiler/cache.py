"""Object files of kernels on disk: where they may be kept, and which of them are of the present code and machine."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

CACHE_DIR = "HALFSEEN_CACHE_DIR"  # set in the environment, the folder for compiled kernels
COMPILED = ("box_muller.py", "randomness.py")  # files with kernels beside the folder `kernels`
_CHECK = 32  # bytes in front of the code by which a damaged file is told
_VERSIONS = 4  # of a file that are kept, of other processors or other versions of the package


def _own(folder: Path) -> Path | None:
    """`folder`, made if need be, if it can be written to and is nobody else's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        theirs = hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()
        if theirs or folder.is_symlink():
            return None  # never load code that somebody else may have put there
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


@cache
def folder() -> Path:
    """Beside the code; where that cannot be written to, a folder of the user's; else a temporary one."""
    named = os.environ.get(CACHE_DIR)
    if named:
        return Path(named)
    beside = Path(__file__).parents[1] / "__pycache__"
    if os.access(beside if beside.exists() else beside.parent, os.W_OK | os.X_OK):
        return beside / "kernels"
    wanted = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(wanted) if os.path.isabs(wanted) else Path(os.path.expanduser("~")) / ".cache"
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return (
        _own(home / "halfseen")
        or _own(Path(tempfile.gettempdir()) / f"halfseen-cache-{user}")
        or Path(tempfile.mkdtemp(prefix="halfseen-cache-"))
    )


@cache
def _version() -> str:
    """Of the compiler, every file with kernels, and the machine. A kernel carries code of others, so all count."""
    from halfseen.compiler import machine

    package = files("halfseen")  # in a folder or in a zip
    sources = [
        *map(package.joinpath, COMPILED),
        *(
            one
            for name in ("compiler", "kernels")
            for one in sorted(package.joinpath(name).iterdir(), key=lambda one: one.name)
            if one.name.endswith(".py")
        ),
    ]
    return sha256(b"".join([machine.identity().encode(), *(one.read_bytes() for one in sources)])).hexdigest()


def _path(name: str, source: str) -> Path:
    version = sha256(f"{_version()}{source}".encode()).hexdigest()[:24]
    return folder() / f"{name}-{version}.o"


def find(name: str, source: str) -> bytes | None:
    """The object file of that unit, if there is one and it is whole; `source` of one that is not of this package."""
    try:
        content = _path(name, source).read_bytes()
    except OSError:
        return None
    check, code = content[:_CHECK], content[_CHECK:]
    return code if sha256(code).digest() == check else None


def keep(name: str, source: str, code: bytes) -> None:
    """Where it cannot be kept it is compiled again next time."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder(), prefix=f".{name}-")
        with open(handle, "wb") as file:
            file.write(sha256(code).digest() + code)
        os.replace(temporary, _path(name, source))
        versions = sorted(folder().glob(f"{name}-*.o"), key=lambda one: -one.stat().st_mtime)
        for old in versions[_VERSIONS:]:
            old.unlink()

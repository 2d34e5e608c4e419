"""Object files of kernels on disk: where they may be kept, and which of them are of the present code and machine."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from halfseen.errors import HalfseenError

CACHE_DIR = "HALFSEEN_CACHE_DIR"  # set in the environment, the folder for compiled kernels
COMPILED = ("box_muller.py", "randomness.py")  # files with kernels beside the folder `kernels`
_CHECK = 32  # bytes in front of the code by which a damaged file is told
_VERSIONS = 4  # of a file that are kept, of other processors or other versions of the package


def _own(folder: Path) -> Path | None:
    """`folder`, made if need be, if it can be written to and is nobody else's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        theirs = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
        if theirs or folder.is_symlink():
            return None  # never load code that somebody else may have put there
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


_BESIDE = Path(__file__).parents[1] / "__pycache__" / "kernels"


@cache
def folder() -> Path:
    """Beside the code; where that cannot be written to, a folder of the user's; else a temporary one."""
    named = os.environ.get(CACHE_DIR)
    if named:
        return Path(named)
    if os.access(next(one for one in (_BESIDE, *_BESIDE.parents) if one.exists()), os.W_OK | os.X_OK):
        return _BESIDE
    wanted = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(wanted) if os.path.isabs(wanted) else Path(os.path.expanduser("~")) / ".cache"
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return (
        _own(home / "halfseen")
        or _own(Path(tempfile.gettempdir()) / f"halfseen-cache-{user}")
        or Path(tempfile.mkdtemp(prefix="halfseen-cache-"))
    )


def _digest_of_sources() -> str:
    """Of the compiler and every file with kernels. A kernel carries code of others, so all count."""
    package = files("halfseen")  # in a folder or in a zip
    folders = (package.joinpath(name) for name in ("compiler", "kernels"))
    sources = [one for folder in folders for one in folder.iterdir() if one.name.endswith(".py")]
    sources += [package.joinpath(name) for name in COMPILED]
    digest = sha256()
    for one in sorted((one for one in sources if one.is_file()), key=lambda one: one.name):
        digest.update(one.read_bytes())
    return digest.hexdigest()


_SOURCES = _digest_of_sources()  # as imported


def check_sources() -> None:
    """Constants are those of the code as imported, the rest is read from its files: they must be the same."""
    if _digest_of_sources() != _SOURCES:
        raise HalfseenError("the files of halfseen have changed since it was imported; start Python again")


@cache
def _machine() -> str:
    from halfseen.compiler import machine

    return machine.identity()


def _file(name: str, source: str) -> str:
    version = sha256(f"{_SOURCES} {_machine()} {source}".encode()).hexdigest()[:24]
    return f"{name}-{version}.o"


def find(name: str, source: str) -> bytes | None:
    """The object file of that unit, if there is one and it is whole; `source` of one that is not of this package.

    Where others have compiled beside the code, as for an image, that serves too.
    """
    for place in (folder(),) if os.environ.get(CACHE_DIR) else (folder(), _BESIDE):
        try:
            content = (place / _file(name, source)).read_bytes()
        except OSError:
            continue
        check, code = content[:_CHECK], content[_CHECK:]
        if sha256(code).digest() == check:
            return code
    return None


def keep(name: str, source: str, code: bytes) -> None:
    """Where it cannot be kept it is compiled again next time."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder(), prefix=f".{name}-")
        try:
            with open(handle, "wb") as file:
                file.write(sha256(code).digest() + code)
            os.chmod(temporary, 0o644)  # others may read what is kept beside the code
            os.replace(temporary, folder() / _file(name, source))
        except BaseException:
            os.unlink(temporary)
            raise
        versions = sorted(folder().glob(f"{name}-*.o"), key=lambda one: -one.stat().st_mtime)
        for old in versions[_VERSIONS:]:
            old.unlink()

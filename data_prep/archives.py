"""Folders, .tar, .tar.gz and .zip read in place through one small interface; nothing is ever unpacked.

A tree lists the paths of its files, relative and with ``/``, and fetches the bytes of those asked for.
What no set is made of (hidden files, ``Thumbs.db``, links that lead in a circle) is passed over and
counted. An archive with a member that climbs out of its folder is refused as a whole: nobody packs such
a thing by accident.
"""

import hashlib
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fccl_mpi.core.errors import UserError

Bytes = Path | bytes | Exception
"""Where a file's bytes are: in a file of its own, at hand, or out of reach for the reason given."""

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
JUNK = {"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx"}
LARGEST_FILE = 4 << 30
"""No published file of a set unpacks to more than this many bytes: what claims to is a decompression bomb."""

_BROKEN_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError)


class Tree(ABC):
    """A folder or an archive. ``shown`` names it in messages, ``passed_over`` counts what was not listed."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.passed_over: Counter[str] = Counter()
        self._paths: list[str] | None = None

    def paths(self) -> list[str]:
        """Every file's path, sorted, so that nothing depends on the order a disk or an archive has."""
        if self._paths is None:
            self._paths = sorted(self._list())
        return self._paths

    def read(self, path: str) -> Path | bytes:
        """Where one file's bytes are. Raises UserError if they are out of reach."""
        for _, found in self.fetch([path]):
            if isinstance(found, Exception):
                raise UserError(f"{self.shown}/{path} cannot be read ({found}): fetch it again") from found
            return found
        raise KeyError(path)

    @abstractmethod
    def fetch(self, paths: Iterable[str], largest: int = LARGEST_FILE) -> Iterator[tuple[str, Bytes]]:
        """Each of ``paths`` with its bytes, in the order in which they are stored.

        A member of an archive that would unpack to more than ``largest`` bytes is out of reach.
        """

    @abstractmethod
    def stamp(self, paths: Iterable[str]) -> str:
        """A digest of names, sizes and times that changes when the files do; no file is read for it."""

    @abstractmethod
    def _list(self) -> Iterator[str]: ...


def open_tree(path: Path) -> Tree:
    """The tree at ``path``: a folder, an archive, a single file, or a folder that holds only archives.

    Raises UserError if there is nothing, or if it is no archive in spite of its name.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: name the folder or archive of raw files with --raw")
    if path.is_dir():
        visible = [entry for entry in sorted(path.iterdir()) if not is_junk(entry.name)]
        archives = [entry for entry in visible if is_archive(entry.name)]
        if archives and not any(entry.is_dir() for entry in visible):
            return _Mounted(path, {entry.name: open_tree(entry) for entry in archives})
        return _Folder(path)
    if path.name.lower().endswith(".zip"):
        return _Zip(path)
    if is_archive(path.name):
        return _Tar(path)
    return _Folder(path.parent, only=path.name)


def is_archive(name: str) -> bool:
    """Whether the name is that of an archive."""
    return name.lower().endswith(ARCHIVES)


def is_junk(name: str) -> bool:
    """Whether the name is that of what operating systems and notebooks leave behind."""
    return name.startswith(".") or name.lower() in JUNK


def what_is_wrong(head: bytes, otherwise: str) -> str:
    """Why a file that begins with ``head`` is not what its name says."""
    if not head:
        return "it is empty"
    start = head[:512].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "it is a web page saved under that name"
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself"
    return otherwise


class _Folder(Tree):
    def __init__(self, root: Path, only: str | None = None) -> None:
        super().__init__(str(root))
        self._root, self._only = root, only

    def _list(self) -> Iterator[str]:
        if self._only is not None:
            yield self._only
            return
        yield from self._walk(self._root, "", [])

    def _walk(self, folder: Path, prefix: str, above: list[tuple[int, int]]) -> Iterator[str]:
        status = folder.stat()
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            self.passed_over["links that lead in a circle"] += 1
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                kind = _kind(entry)
                if is_junk(entry.name):
                    self.passed_over["hidden files and folders"] += 1
                elif kind == "folder":
                    yield from self._walk(folder / entry.name, f"{path}/", [*above, identity])
                elif kind == "file":
                    yield path
                else:
                    self.passed_over[kind] += 1

    def fetch(self, paths: Iterable[str], largest: int = LARGEST_FILE) -> Iterator[tuple[str, Bytes]]:
        for path in paths:
            yield path, self._root / path

    def stamp(self, paths: Iterable[str]) -> str:
        digest = hashlib.sha256()
        for path in paths:
            digest.update(_stamp(self._root / path, path).encode(errors="surrogateescape"))
        return digest.hexdigest()


def _kind(entry: "os.DirEntry[str]") -> str:
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file() or not Path(entry.path).exists():
            return "file"  # a link to nothing counts as a file: reading it will say that it is broken
    except OSError:
        return "links that lead in a circle"
    return "sockets, pipes and devices"


class _Archive(Tree):
    """What .tar and .zip share: members by name, checked before any is used."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def stamp(self, paths: Iterable[str]) -> str:
        text = "\n".join([_stamp(self._path, self._path.name), *paths])
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()

    def _accept(self, name: str) -> str | None:
        """The member's path, or None if it is passed over. Raises UserError if it climbs out."""
        if climbs_out(name):
            raise UserError(
                f"{self._path} has a member {name!r} that would leave the folder it is unpacked in: "
                "do not trust this archive, fetch the set from its publisher"
            )
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if any(is_junk(part) for part in parts):
            self.passed_over["hidden files and folders"] += 1
            return None
        return "/".join(parts)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            raise
        except _BROKEN_ARCHIVE as error:
            with self._path.open("rb") as file:
                wrong = what_is_wrong(file.read(512), f"it is cut short or damaged ({error})")
            size = self._path.stat().st_size
            raise UserError(
                f"{self._path} ({size:,} bytes) cannot be read as an archive: {wrong}; fetch it again"
            ) from error


class _Tar(_Archive):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._reading():
            self._file = tarfile.open(path, "r:*", encoding="utf-8")  # noqa: SIM115
        self._members: dict[str, tarfile.TarInfo] = {}

    def _list(self) -> Iterator[str]:
        with self._reading():
            for member in self._file:
                self._add(member)
            self._check_end()
        return iter(self._members)

    def _add(self, member: tarfile.TarInfo) -> None:
        name = self._accept(member.name)
        if name is None or member.isdir():
            return
        if member.isfile() or member.islnk():  # a hard link stands for the member it names
            self._members[name] = member
        elif member.issym():  # never followed
            self.passed_over["links within archives"] += 1
        else:
            self.passed_over["sockets, pipes and devices"] += 1

    def _check_end(self) -> None:
        """A tar ends with zeros; without them it was cut between two members, which tarfile lets pass."""
        assert self._file.fileobj is not None
        self._file.fileobj.seek(self._file.offset)
        if not self._file.fileobj.read(1):
            raise tarfile.ReadError("the end mark is missing")

    def fetch(self, paths: Iterable[str], largest: int = LARGEST_FILE) -> Iterator[tuple[str, Bytes]]:
        self.paths()
        for path in sorted(paths, key=lambda path: self._members[path].offset_data):
            member = self._members[path]
            if member.size > largest:
                yield path, OverflowError(f"it would unpack to {member.size:,} bytes")
                continue
            with self._reading():
                file = self._file.extractfile(member)
                content = file.read() if file else b""
            yield path, content


class _Zip(_Archive):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._reading():
            self._file = zipfile.ZipFile(path)
        self._members: dict[str, zipfile.ZipInfo] = {}

    def _list(self) -> Iterator[str]:
        for member in self._file.infolist():
            name = self._accept(member.filename)
            if name is None or member.is_dir():
                continue
            if member.flag_bits & 1:
                raise UserError(
                    f"{self._path} is encrypted: unpack it yourself and name the folder with --raw"
                )
            if stat.S_ISLNK(member.external_attr >> 16):
                self.passed_over["links within archives"] += 1
            else:
                self._members[name] = member
        return iter(self._members)

    def fetch(self, paths: Iterable[str], largest: int = LARGEST_FILE) -> Iterator[tuple[str, Bytes]]:
        self.paths()
        for path in sorted(paths, key=lambda path: self._members[path].header_offset):
            member = self._members[path]
            if member.file_size > largest:
                yield path, OverflowError(f"it would unpack to {member.file_size:,} bytes")
                continue
            try:  # every member has its own checksum: one that fails says nothing about the others
                yield path, self._file.read(member)
            except (*_BROKEN_ARCHIVE, NotImplementedError) as error:
                yield path, error


class _Mounted(Tree):
    """A folder of archives, each seen as a folder of that name."""

    def __init__(self, root: Path, trees: dict[str, Tree]) -> None:
        super().__init__(str(root))
        self._trees = trees

    def _list(self) -> Iterator[str]:
        for name, tree in self._trees.items():
            yield from (f"{name}/{path}" for path in tree.paths())
            self.passed_over.update(tree.passed_over)

    def fetch(self, paths: Iterable[str], largest: int = LARGEST_FILE) -> Iterator[tuple[str, Bytes]]:
        for name, inside in self._by_tree(paths):
            for path, found in self._trees[name].fetch(inside, largest):
                yield f"{name}/{path}", found

    def stamp(self, paths: Iterable[str]) -> str:
        return " ".join(self._trees[name].stamp(inside) for name, inside in self._by_tree(paths))

    def _by_tree(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        wanted: dict[str, list[str]] = {name: [] for name in self._trees}
        for path in paths:
            name, _, inside = path.partition("/")
            wanted[name].append(inside)
        yield from ((name, inside) for name, inside in wanted.items() if inside)


def climbs_out(name: str) -> bool:
    """Whether a member of that name would be unpacked outside of its folder."""
    depth = 0
    for part in PurePosixPath(name.replace("\\", "/")).parts:
        depth += -1 if part == ".." else 1
        if depth < 0 or part == "/" or part.endswith(":"):
            return True
    return False


def _stamp(path: Path, shown: str) -> str:
    try:
        status = path.stat()
    except OSError:
        return f"{shown} broken\n"
    return f"{shown} {status.st_size} {status.st_mtime_ns}\n"

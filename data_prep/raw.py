"""The published files of a set: found by name, checked against their checksums, fetched when asked."""

import bz2
import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from io import BufferedIOBase, BytesIO
from pathlib import Path

from data_prep.archives import Tree, open_tree, what_is_wrong
from data_prep.source import Options
from fccl_mpi.core.errors import UserError


def open_raw(options: Options, download: Callable[[Path], None] | None = None) -> Tree:
    """The tree of raw files that ``--raw`` names, after fetching them where ``--download`` asks for it."""
    if options.download:
        if download is None:
            raise UserError("this set has no --download: fetch it by hand, see --list for where")
        download(options.raw)
    return open_tree(options.raw)


def fetch(folder: Path, name: str, urls: Iterable[str], md5: str) -> None:
    """Download one file by torchvision's means from the first of ``urls`` that answers."""
    from torchvision.datasets.utils import download_url  # pulls in torch, so only where it is needed

    failures = []
    for url in urls:
        try:
            download_url(url, folder, name, md5)
            return
        except (OSError, RuntimeError) as error:  # URLError is an OSError
            failures.append(f"{url}: {error}")
    raise UserError(
        f"{name} cannot be downloaded ({'; '.join(failures)}): put it into {folder} by other means "
        "and leave out --download"
    )


def find(tree: Tree, *names: str) -> str | None:
    """The path of the file called one of ``names``, whatever the case; the least deep of several."""
    wanted = {name.lower() for name in names}
    found = [path for path in tree.paths() if path.rpartition("/")[2].lower() in wanted]
    return min(found, key=lambda path: (path.count("/"), path), default=None)


def require(tree: Tree, *names: str, hint: str) -> str:
    """As ``find``, but it is an error if there is none."""
    found = find(tree, *names)
    if found is None:
        raise UserError(f"{tree.shown} holds no {' or '.join(names)}: {hint}")
    return found


def check_md5(shown: str, found: str, expected: str | None, options: Options) -> None:
    """Raise UserError if a file's md5 is not the publisher's."""
    if expected is not None and found != expected and not options.any_checksum:
        raise UserError(
            f"{shown} has the md5 {found} where its publisher's has {expected}: fetch it again, "
            "or add --any-checksum if you know why it differs"
        )


def check_file(tree: Tree, path: str, known: Mapping[str, str], options: Options) -> Path | bytes:
    """Where the file's bytes are, after its md5 was compared to the one ``known`` under its name."""
    content = tree.read(path)
    name = path.rpartition("/")[2]
    if name in known and not options.any_checksum:
        digest = hashlib.md5(usedforsecurity=False)
        with binary(content) as file:
            first = file.read(512)
            digest.update(first)
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != known[name]:
            wrong = what_is_wrong(first, "")
            shown = f"{tree.shown}/{path}" + (f" ({wrong})" if wrong else "")
            check_md5(shown, digest.hexdigest(), known[name], options)
    return content


def binary(content: Path | bytes) -> BufferedIOBase:
    """The bytes as an open file."""
    return content.open("rb") if isinstance(content, Path) else BytesIO(content)


def unpacked(content: Path | bytes, shown: str, limit: int) -> tuple[bytes, bool]:
    """The content of a .gz, .bz2 or plain file, at most ``limit`` bytes of it, and whether that is all.

    A stream that ends too soon gives what there was of it, so that the caller can say how much is missing.
    Raises UserError if it is damaged.
    """
    raw = binary(content)
    head = raw.read(512)
    raw.seek(0)
    stream = raw
    if head[:2] == b"\x1f\x8b":
        stream = gzip.GzipFile(fileobj=raw)
    elif head[:3] == b"BZh":
        stream = bz2.BZ2File(raw)
    blocks: list[bytes] = []
    left = limit
    with raw, stream:
        try:
            while left and (block := stream.read1(min(1 << 20, left))):  # read() would lose the end
                blocks.append(block)
                left -= len(block)
        except EOFError:
            left = 0
        except (OSError, zlib.error) as error:
            wrong = what_is_wrong(head, f"it is damaged ({error})")
            raise UserError(f"{shown} cannot be unpacked: {wrong}; fetch it again") from error
    return b"".join(blocks), left > 0

"""Which folder of a path is the domain, which the part (train or test), which the class.

Image sets agree on class folders and on little else: some have a folder ``images`` between, some put
everything into a folder of the set's name, some split into train and test above or below the domain.
Known tasks are read by their names wherever they stand; trees of unknown names by their depth.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from data_prep.archives import Tree
from data_prep.classes import Names, Task, normalised
from data_prep.progress import printable
from fccl_mpi.core.errors import UserError

FILLERS = {"images", "image", "imgs", "img"}
PARTS = {
    **dict.fromkeys(("train", "training", "imgstrain", "trainimages", "trainset"), "train"),
    **dict.fromkeys(("test", "testing", "imgstest", "testimages", "testset"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "imgsval", "imgsvalid"), "val"),
}


class File(NamedTuple):
    """An image file: its path in the tree, its part (``""`` where the set has none), its class."""

    path: str
    part: str
    label: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """The files of a tree by domain, each domain's in the order of their paths, and all classes."""

    classes: Names
    files: dict[str, list[File]]


def find_task(tree: Tree, task: Task) -> Found:
    """The files of a known task. Raises UserError at folders of a domain that are none of its classes."""
    files: dict[str, list[File]] = {name: [] for name in task.domains.names}
    odd: list[str] = []
    for path in tree.paths():
        folders = path.split("/")[:-1]
        places = [place for place, name in enumerate(folders) if task.domains.find(name) is not None]
        if not places:
            tree.passed_over["files outside of the domains' folders"] += 1
        elif file := _known(path, folders[: places[0]], folders[places[0] + 1 :], task.classes):
            files[task.domains.names[task.domains.find(folders[places[0]]) or 0]].append(file)
        else:
            odd.append(path)
    _pass_over_or_refuse(tree, odd, [file.path for found in files.values() for file in found], task.name)
    return Found(classes=task.classes, files=files)


def find_classes(tree: Tree, classes: Names) -> list[File]:
    """The files of a tree of class folders with known names, with or without parts."""
    placed = {path: _known(path, [], path.split("/")[:-1], classes) for path in tree.paths()}
    found = [file for file in placed.values() if file]
    odd = [path for path, file in placed.items() if not file]
    _pass_over_or_refuse(tree, odd, [file.path for file in found], "the set")
    return found


def find_any_task(tree: Tree, single_domain: str = "", known: Names | None = None) -> Found:
    """The files of a tree ``…/domain/class/file`` of unknown names, with or without parts.

    With ``single_domain`` the tree is ``…/class/file`` and that is the name of its one domain. Classes
    are all that occur in any domain, sorted; or those ``known``, if they cover all that occur.
    """
    placed = _by_depth(tree, 1 if single_domain else 2)
    classes = _distinct(folders[-1] for _, _, folders in placed)
    if known and all(known.find(name) is not None for name in classes.names):
        classes = known
    domains = _distinct([single_domain] if single_domain else (folders[-2] for _, _, folders in placed))
    files: dict[str, list[File]] = {name: [] for name in domains.names}
    for path, part, folders in placed:
        domain = 0 if single_domain else domains.find(folders[-2]) or 0
        files[domains.names[domain]].append(File(path, part, classes.find(folders[-1]) or 0))
    return Found(classes=classes, files=files)


def find_any_classes(tree: Tree) -> tuple[list[File], Names]:
    """The files of a tree ``…/class/file`` of unknown names, or of files alone: then there is no class."""
    if all("/" not in path for path in tree.paths()):
        return [File(path, "", 0) for path in tree.paths()], Names(())
    placed = _by_depth(tree, 1)
    classes = _distinct(folders[-1] for _, _, folders in placed)
    return [File(path, part, classes.find(folders[-1]) or 0) for path, part, folders in placed], classes


def own_parts(files: Sequence[File]) -> dict[str, list[File]]:
    """The files by ``"train"`` and ``"test"`` where a set comes split; ``val`` serves where there is no test.

    Otherwise all under ``""``.
    """
    parts: dict[str, list[File]] = defaultdict(list)
    for file in files:
        parts[file.part].append(file)
    if "test" not in parts and "val" in parts:
        parts["test"] = parts.pop("val")
    if set(parts) >= {"train", "test"}:
        return {part: parts[part] for part in ("train", "test")}
    return {"": [file for part in sorted(parts) for file in parts[part]]}


def _known(path: str, above: Sequence[str], below: Sequence[str], classes: Names) -> File | None:
    """The file of a known class: the first folder below the domain that bears a class's name."""
    labels = [(place, label) for place, name in enumerate(below) if (label := classes.find(name)) is not None]
    if not labels:
        return None
    place, label = labels[0]
    parts = [part for name in [*above, *below[:place], *below[place + 1 :]] if (part := _part(name))]
    return File(path, parts[-1] if parts else "", label)


def _part(name: str) -> str:
    return PARTS.get(normalised(name), "")


def _by_depth(tree: Tree, levels: int) -> list[tuple[str, str, list[str]]]:
    """(path, part, folders) of every file in a tree of ``levels`` meaningful folders.

    A folder is a part only if all folders beside it are: ``train`` among ``bus`` and ``car`` is a class.
    """
    beside: dict[tuple[str, ...], set[str]] = defaultdict(set)
    split = [(path, path.split("/")[:-1]) for path in tree.paths()]
    for _, folders in split:
        for depth, name in enumerate(folders):
            beside[tuple(folders[:depth])].add(name)
    only_parts = {above for above, names in beside.items() if all(_part(name) for name in names)}
    placed = []
    for path, folders in split:
        is_part = [tuple(folders[:depth]) in only_parts for depth in range(len(folders))]
        parts = [_part(name) for name, part in zip(folders, is_part, strict=True) if part]
        rest = [
            name
            for name, part in zip(folders, is_part, strict=True)
            if not part and normalised(name) not in FILLERS
        ]
        placed.append((path, parts[-1] if parts else "", rest))
    depths = Counter(len(folders) for _, _, folders in placed)
    usual = max(depths, key=lambda depth: depths[depth], default=0)
    for path, _, folders in placed:
        if len(folders) < usual and len(folders) < levels:
            tree.passed_over["files outside of class folders"] += 1
        elif len(folders) != usual or usual < levels:
            needed = "domain/class/file" if levels == 2 else "class/file"
            raise UserError(
                f"{tree.shown}/{printable(path)} is not where it is expected, in a tree of {needed}, all at "
                "one depth: move it, or name the right folder with --raw"
            )
    return [entry for entry in placed if len(entry[2]) == usual]


def _distinct(names: Iterable[str]) -> Names:
    """The names without those that only spell another differently, in sorted order."""
    spelled: dict[str, str] = {}
    for name in sorted(set(names)):
        spelled.setdefault(normalised(name), name)
    return Names(printable(spelled[key]) for key in sorted(spelled))


def _pass_over_or_refuse(tree: Tree, odd: Sequence[str], found: Sequence[str], whose: str) -> None:
    """Files beside class folders are passed over; folders that ought to be classes are refused."""
    above = {""}
    for path in found:
        parents = path.split("/")[:-1]
        above.update("/".join(parents[:depth]) for depth in range(len(parents)))
    folders = Counter(path.rpartition("/")[0] for path in odd)
    unknown = {name: count for name, count in folders.items() if name not in above}
    if beside := folders.total() - sum(unknown.values()):
        tree.passed_over["files outside of class folders"] += beside
    if unknown:
        listed = ", ".join(f"{printable(name)} ({count} files)" for name, count in sorted(unknown.items()))
        raise UserError(
            f"{tree.shown} has folders that are no class of {whose}: {listed}; rename or remove them"
        )

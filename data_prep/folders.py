"""Private domains that are folders of class folders of image files.

===================  ========================================================  =====================
``office_home``      Venkateswara et al. 2017, 4 domains × 65 classes          15,588 images
``office31``         Saenko et al. 2010, 3 domains × 31 classes                4,110 images
``office_caltech``   Gong et al. 2012, 4 domains × 10 classes                  2,533 images
``pacs``             Li et al. 2017, 4 domains × 7 classes                     9,991 images
``image_folder``     any tree of domain/class/file, with ``--task NAME``       (or a public set)
===================  ========================================================  =====================

None of the published four comes split; 70 of 100 images of a class are for training, from a fixed seed.
``--released-split`` tests on all of a domain instead, its training images included, as the program
released with FCCL does.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from data_prep.archives import Tree
from data_prep.classes import (
    OFFICE31,
    OFFICE_CALTECH,
    OFFICE_HOME,
    PACS,
    Names,
    Task,
    normalised,
    report_missing,
)
from data_prep.decoding import Decoded, decode_all
from data_prep.digits import split_note
from data_prep.layout import File, Found, find_any_task, find_task, own_parts
from data_prep.progress import say
from data_prep.public import plan_public_folder
from data_prep.raw import open_raw
from data_prep.source import DomainImages, Options, Recipe, Source, domain_path, file_name
from data_prep.splits import split_by_class
from fccl_mpi.core.errors import UserError
from fccl_mpi.data.schema import Split, read_domain_header

OVERLAPPING = "as released: tested on the whole domain, its training images included"


def plan_task(task: Task, title: str, options: Options) -> list[Recipe]:
    """A file for every domain of a known task, or for those that ``--domain`` names."""
    tree = open_raw(options)
    found = find_task(tree, task)
    return _plan(tree, task.name, title, found, _chosen(found, task.domains, options), options)


def plan_any(options: Options) -> list[Recipe]:
    """A file for every domain of a user's own tree, or one public set."""
    if bool(options.task) == bool(options.public):
        raise UserError(
            "image_folder needs either --task NAME (domain/class/file) or --public NAME (class/file)"
        )
    if options.public:
        return plan_public_folder(options)
    tree = open_raw(options)
    single = (
        options.domain[0] if len(options.domain) == 1 and not _has_domain(tree, options.domain[0]) else ""
    )
    found = find_any_task(tree, single)
    domains = Names(found.files)
    found = find_any_task(tree, single, _classes_of_others(domains, options))
    return _plan(
        tree, options.task, f"images of {tree.shown}", found, _chosen(found, domains, options), options
    )


def _classes_of_others(domains: Names, options: Options) -> Names | None:
    """The classes of the task's domains that other trees were made into, which a new domain shares."""
    own = {domain_path(options, file_name(options.task), file_name(name)) for name in domains.names}
    folder = domain_path(options, file_name(options.task), "").parent
    others = [path for path in sorted(folder.glob("*.h5")) if path not in own]
    return Names(read_domain_header(others[0]).classes) if others else None


def _has_domain(tree: Tree, name: str) -> bool:
    return any(normalised(name) in map(normalised, path.split("/")[:-1]) for path in tree.paths())


def _chosen(found: Found, domains: Names, options: Options) -> list[str]:
    for name in options.domain:
        if domains.find(name) is None:
            raise UserError(f"--domain {name} is none of {', '.join(domains.names)}: name one of these")
    chosen = [domains.names[domains.find(name) or 0] for name in options.domain] or list(domains.names)
    empty = [name for name in chosen if not found.files[name]]
    if empty:
        raise UserError(
            f"{options.raw} has no images of {', '.join(empty)}: complete it, or say --domain for the others"
        )
    return chosen


def _plan(
    tree: Tree, task: str, title: str, found: Found, domains: Sequence[str], options: Options
) -> list[Recipe]:
    say(f"{tree.shown}: {', '.join(f'{name} {len(found.files[name]):,} files' for name in domains)}")
    if passed := _passed_over(tree):
        say(f"{tree.shown}: passed over {passed}")
    recipes = []
    for name in domains:
        files = found.files[name]
        labels = np.array([file.label for file in files])
        missing = report_missing(
            f"{task}/{name}", found.classes.names, labels, allowed=options.allow_missing_classes
        )
        if missing:
            say(f"{task}/{name} has no image of {', '.join(missing)}")
        make = partial(_make, tree, task, name, title, files, found.classes.names, missing, options)
        stamp = tree.stamp([file.path for file in files])
        path = domain_path(options, file_name(task), file_name(name))
        recipes.append(
            Recipe(path=path, fingerprint=options.fingerprint(stamp, *found.classes.names), make=make)
        )
    return recipes


def _make(
    tree: Tree,
    task: str,
    domain: str,
    title: str,
    files: Sequence[File],
    classes: tuple[str, ...],
    missing: list[str],
    options: Options,
) -> DomainImages:
    train, test, note = _split(tree, task, domain, files, classes, options)
    # All images once, those for training first, so that both splits are views of one array.
    order = [*train, *(file for file in test if note != OVERLAPPING)]
    if note == OVERLAPPING:
        chosen = set(train)
        order += [file for file in test if file not in chosen]
    decoded = decode_all(tree, [file.path for file in order], options, f"{task}/{domain}")
    labels = np.array([file.label for file in order], np.int64)
    if decoded.broken:
        left = labels[decoded.kept]
        missing = report_missing(f"{task}/{domain}", classes, left, allowed=options.allow_missing_classes)
    first = _kept(decoded, labels, slice(0, len(train)))
    rest = _kept(decoded, labels, slice(0 if note == OVERLAPPING else len(train), None))
    lists = {"broken_files": decoded.broken, "missing_classes": missing}
    notes: dict[str, str | int] = {
        "split": note,
        "resized_by": options.filter,
        "background": options.background,
        "passed_over": _passed_over(tree),
        "broken": len(decoded.broken),
    }
    return DomainImages(
        task=file_name(task),
        domain=file_name(domain),
        classes=classes,
        train=first,
        test=rest,
        source=f"{title}; {domain} in {tree.shown}",
        notes=notes,
        lists={name: lines for name, lines in lists.items() if lines},
    )


def _split(
    tree: Tree, task: str, domain: str, files: Sequence[File], classes: tuple[str, ...], options: Options
) -> tuple[Sequence[File], Sequence[File], str]:
    """Training files, test files, and what the file says about them."""
    parts = own_parts(files)
    if "train" in parts:
        if options.released_split:
            raise UserError(f"{tree.shown} comes split into train and test: leave out --released-split")
        return parts["train"], parts["test"], "as published"
    labels = np.array([file.label for file in files])
    rows = split_by_class(
        labels, classes, share=options.train_share, seed=options.seed, purpose=(task, domain)
    )
    train, test = ([files[row] for row in part] for part in rows)
    if options.released_split:
        return train, files, OVERLAPPING
    return train, test, split_note("all images", options)


def _kept(decoded: Decoded, labels: np.ndarray, part: slice) -> Split:
    kept = decoded.kept[part]
    if kept.all():
        return Split(images=decoded.images[part], labels=labels[part])
    return Split(images=decoded.images[part][kept], labels=labels[part][kept])


def _passed_over(tree: Tree) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(tree.passed_over.items()))


def _source(task: Task, title: str, published: str) -> Source:
    domains = ", ".join(task.domains.names)
    return Source(
        name=task.name,
        title=title,
        makes=f"{task.name}/{{{','.join(task.domains.names)}}}.h5",
        wants=f"a folder or archive with {domains}, each of {len(task.classes.names)} class folders",
        published=published,
        options=frozenset({"filter", "folders", "domains", "split", "seed"}),
        plan=partial(plan_task, task, title),
    )


SOURCES = (
    _source(
        OFFICE_HOME,
        "Office-Home (Venkateswara et al. 2017)",
        "https://www.hemanthdv.org/officeHomeDataset.html",
    ),
    _source(OFFICE31, "Office-31 (Saenko et al. 2010)", "https://faculty.cc.gatech.edu/~judy/domainadapt/"),
    _source(
        OFFICE_CALTECH,
        "Office-Caltech-10 (Gong et al. 2012)",
        "the ten classes that Office-31 and https://data.caltech.edu/records/nyy15-4j048 share",
    ),
    _source(PACS, "PACS (Li et al. 2017)", "https://domaingeneralization.github.io/#data"),
    Source(
        name="image_folder",
        title="any tree of images of your own",
        makes="NAME/{domains}.h5 with --task NAME, public/NAME.h5 with --public NAME",
        wants="domain/class/file for a task, class/file or files alone for a public set; with train and test "
        "folders above or below, at will",
        published="by you",
        options=frozenset({"filter", "folders", "domains", "split", "seed", "names", "public"}),
        plan=plan_any,
    ),
)

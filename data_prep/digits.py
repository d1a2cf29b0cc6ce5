"""What the five sources of digits share: parts as published, or one part split per class."""

from collections.abc import Callable, Mapping

import numpy as np

from data_prep.classes import DIGITS
from data_prep.pixels import Look, resize
from data_prep.source import DomainImages, Options
from data_prep.splits import split_by_class
from fccl_mpi.data.schema import SIDE, Split

Labelled = tuple[np.ndarray, np.ndarray]
"""Images uint8 (N, h, w) or (N, h, w, 3) and labels int64 (N,)."""


def wanted_parts(options: Options) -> list[str]:
    """``--part``, or both parts."""
    return [options.part] if options.part else ["train", "test"]


def digits_domain(
    name: str,
    read: Mapping[str, Callable[[], Labelled]],
    source: str,
    options: Options,
    pictures: Mapping[str, str] | None = None,
    parts_are: str = "as published",
) -> DomainImages:
    """A domain of digits from its parts; split per class where there is but one.

    ``read`` gives images uint8 (N, h, w) or (N, h, w, 3) and labels int64 (N,) of each part;
    ``pictures`` says what digits a part is made of, if other domains are made of them too; ``parts_are`` is
    the file's word for two parts.
    """
    look = Look(options.filter, options.background)
    splits = {}
    notes: dict[str, str | int] = {}
    for part, reader in read.items():
        images, labels = reader()
        if images.shape[1:3] != (SIDE, SIDE):
            notes["resized_by"] = options.filter
        splits[part] = Split(images=resize(images, look), labels=labels)
    first, *_, last = [*read, *read]
    if first != last:
        train, test = splits["train"], splits["test"]
        notes["split"] = parts_are
    else:
        train, test = split_whole(splits[first], "digits", name, DIGITS.names, options)
        notes["split"] = split_note(f"the published {first} part", options)
    if pictures:
        notes |= {"train_origin": pictures[first], "test_origin": pictures[last]}
    return DomainImages(
        task="digits",
        domain=name,
        classes=DIGITS.names,
        train=train,
        test=test,
        source=source,
        notes=notes,
    )


def split_whole(
    whole: Split, task: str, domain: str, classes: tuple[str, ...], options: Options
) -> tuple[Split, Split]:
    """Disjoint training and test images, drawn per class."""
    rows = split_by_class(
        whole.labels, classes, share=options.train_share, seed=options.seed, purpose=(task, domain)
    )
    train, test = (Split(images=whole.images[part], labels=whole.labels[part]) for part in rows)
    return train, test


def split_note(what: str, options: Options) -> str:
    """What a file says about how it was split."""
    share = round(100 * options.train_share)
    return f"{what}, {share} to {100 - share} per class from seed {options.seed}"

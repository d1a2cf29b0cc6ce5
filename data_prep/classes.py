"""One truth for labels: the classes and domains of every task, found again however folders spell them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data_prep.progress import printable
from fccl_mpi.core.errors import UserError


def normalised(name: str) -> str:
    """The name without regard to case, spaces, ``_``, ``-`` and ways of encoding accents."""
    folded = unicodedata.normalize("NFKC", printable(name)).casefold()
    return "".join(letter for letter in folded if not letter.isspace() and letter not in "_-")


class Names:
    """An ordered list of names, each known under every spelling that normalises alike and under aliases."""

    def __init__(self, names: Iterable[str], aliases: Mapping[str, str] | None = None) -> None:
        self.names = tuple(names)
        self._index = {normalised(name): index for index, name in enumerate(self.names)}
        if len(self._index) < len(self.names):
            twice = [name for name, count in Counter(map(normalised, self.names)).items() if count > 1]
            raise UserError(f"two names mean the same: {', '.join(twice)}; rename one")
        for alias, name in (aliases or {}).items():
            self._index[normalised(alias)] = self._index[normalised(name)]

    def find(self, name: str) -> int | None:
        """The index of the name, or None."""
        return self._index.get(normalised(name))


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


@dataclass(frozen=True)
class Task:
    """A task of several domains that share a list of classes."""

    name: str
    domains: Names
    classes: Names


DIGITS = Names("0123456789")

OFFICE_HOME = Task(
    "office_home",
    Names(("art", "clipart", "product", "real_world")),
    Names(
        words(
            """
        Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards
        Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder
        Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug
        Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes Printer Push_Pin Radio Refrigerator Ruler
        Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon Table Telephone ToothBrush Toys Trash_Can
        TV Webcam
        """
        )
    ),
)

OFFICE31 = Task(
    "office31",
    Names(("amazon", "dslr", "webcam")),
    Names(
        words(
            """
        back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp desktop_computer
        file_cabinet headphones keyboard laptop_computer letter_tray mobile_phone monitor mouse mug
        paper_notebook pen phone printer projector punchers ring_binder ruler scissors speaker stapler
        tape_dispenser trash_can
        """
        )
    ),
)

OFFICE_CALTECH = Task(
    "office_caltech",
    Names(("amazon", "caltech", "dslr", "webcam"), {"caltech10": "caltech"}),
    Names(
        words("back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug projector"),
        {  # as Caltech-256 and copies of the ten classes call them
            "touring_bike": "bike",
            "head_phones": "headphones",
            "headphone": "headphones",
            "computer_keyboard": "keyboard",
            "laptop": "laptop_computer",
            "laptop_101": "laptop_computer",
            "computer_monitor": "monitor",
            "computer_mouse": "mouse",
            "coffee_mug": "mug",
            "video_projector": "projector",
        },
    ),
)

PACS = Task(
    "pacs",
    Names(("art_painting", "cartoon", "photo", "sketch")),
    Names(words("dog elephant giraffe guitar horse house person")),
)


def report_missing(where: str, classes: Sequence[str], labels: np.ndarray, *, allowed: bool) -> list[str]:
    """The classes without an image. Raises UserError if there are any, unless that is allowed."""
    present = set(np.unique(labels).tolist())
    missing = [name for label, name in enumerate(classes) if label not in present]
    if missing and not allowed:
        raise UserError(
            f"{where} has no image of {len(missing)} of {len(classes)} classes ({', '.join(missing)}): "
            "complete the raw files, or add --allow-missing-classes"
        )
    return missing

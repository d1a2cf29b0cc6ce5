"""Untrusted input by the thousand: files and settings that are damaged, hostile or nonsense.

    python -m tests.fuzz --inputs 10000

Each input must be refused with a UserError that names the file and the reason in one line, or be read as
what it was before it was spoiled. It must not crash the interpreter, hang, ask for much memory, load a
pickle or lead to another file. Inputs follow from (seed, number) alone: ``--only N`` tries one again.
"""

import argparse
import functools
import json
import random
import resource
import signal
import string
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from fccl_mpi.config.compose import compose, digest, to_dict
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import sha256_of
from fccl_mpi.data import schema
from fccl_mpi.data.schema import Split, content_digest, write_domain, write_public
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.store.checkpoint import COMMIT, Checkpoints, read_model, write_model
from fccl_mpi.store.folder import RunFolder
from fccl_mpi.store.history import History

MEMORY = 2 << 30  # bytes of address space for a worker, its libraries included
PATIENCE_S = 20  # for one input
BATCH = 250  # inputs of one worker


class WrongError(Exception):
    """What an input led to and must not."""


def require(holds: bool, what: str) -> None:
    """Raise WrongError unless ``holds``."""
    if not holds:
        raise WrongError(what)


# --- files: a good one, and what readers may make of it once it is spoiled ---------------------------------


def images_of(count: int, seed: int) -> Split:
    """Random images of two classes."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return Split(images=images, labels=np.arange(count, dtype=np.int64) % 2)


SPLITS = {"train": images_of(2, 0), "test": images_of(1, 1)}
STATE = {
    "conv.weight": np.random.default_rng(2).random((4, 3, 3, 3), np.float32),
    "norm.num_batches_tracked": np.array(7),
    "meme:classifier.bias": np.zeros(5, np.float32),
}
METRICS = [{"round": number, "top1": [[33.3, 50.0]], "loss": {"red": {"local": 1.5}}} for number in range(3)]


def make_domain(path: Path) -> None:
    """A domain file."""
    write_domain(path, task="t", domain="d", classes=("cat", "dög"), source="here", **SPLITS)


def make_public(path: Path) -> None:
    """A labelled public file."""
    split = SPLITS["train"]
    write_public(path, name="p", images=split.images, labels=split.labels, classes=("a", "b"), source="s")


def make_model(path: Path) -> None:
    """A checkpoint's model."""
    write_model(path, STATE, {"participant": "red", "round": 1})


def read_header(path: Path) -> None:
    """The header of a domain."""
    header = schema.read_domain_header(path)
    require((header.classes, header.train_size, header.test_size) == (("cat", "dög"), 2, 1), "other header")


def read_split(path: Path, name: str) -> None:
    """Images of a domain."""
    found, good = schema.read_split(path, name), SPLITS[name]
    same = np.array_equal(found.images, good.images) and np.array_equal(found.labels, good.labels)
    require(same, f"other {name} images")


def read_public(path: Path) -> None:
    """A public set."""
    images, labels = schema.read_public(path)
    require(np.array_equal(images, SPLITS["train"].images), "other public images")
    require(labels is None or np.array_equal(labels, SPLITS["train"].labels), "other public labels")


def read_state(path: Path, like: dict[str, np.ndarray] | None) -> None:
    """A model."""
    state = read_model(path, like)
    require(state.keys() == STATE.keys(), "other tensors")
    require(all(np.array_equal(state[name], STATE[name]) for name in STATE), "other values")


HDF5_FILES: dict[str, tuple[Callable[[Path], None], list[Callable[[Path], object]]]] = {
    "domain": (
        make_domain,
        [
            schema.read_kind,
            schema.verify,
            read_header,
            *(functools.partial(read_split, name=name) for name in SPLITS),
        ],
    ),
    "public": (make_public, [schema.read_public_header, read_public]),
    "model": (make_model, [functools.partial(read_state, like=like) for like in (STATE, None)]),
}


# --- spoiling: bytes, then the structure of HDF5 ------------------------------------------------------------

NUMBERS = (0, 1, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def spoil_bytes(content: bytes, dice: random.Random) -> bytes:
    """The content truncated, flipped, overwritten, cut or doubled somewhere."""
    spoiled = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        place, length = dice.randrange(len(spoiled) + 1), dice.choice((1, 2, 8, 64, 700))
        match dice.randrange(7):
            case 0:
                spoiled[place:] = b""
            case 1:
                spoiled[place : place + length] = dice.randbytes(length)
            case 2:
                spoiled[place : place + 1] = bytes([dice.randrange(256)])
            case 3:
                spoiled[place : place + 8] = dice.choice(NUMBERS).to_bytes(8, "little")
            case 4:
                del spoiled[place : place + length]
            case 5:
                spoiled[place:place] = spoiled[place : place + length]
            case 6:
                spoiled[place : place + length] = bytes(length)
        if not spoiled:
            break
    return bytes(spoiled)


DTYPES = (
    *("u1", "i1", "<i2", ">i8", "<u8", "f2", "<f4", ">f8", "c8", "?", "S1", "S100"),
    [("a", "i4"), ("b", "f8")],
    h5py.string_dtype(),
    h5py.string_dtype("ascii", 7),
    h5py.vlen_dtype(np.int64),
    h5py.enum_dtype({"a": 0, "b": 1}),
    h5py.ref_dtype,
    np.dtype(("u1", (4,))),
)
VALUES = (
    *(0, 1, -1, 1 << 40, 1.5, float("nan"), True, False, "", "domain", "public", "x" * 60_000),
    np.bytes_(b"\xff\xfe"),
    np.void(b"\x00\xff"),
    np.zeros(0),
    np.zeros(5_000),
    np.ones((2, 2), bool),
    ["a", "b"],
    h5py.Empty("f"),
)


def spoil_structure(path: Path, other: Path, dice: random.Random) -> bool:
    """Change something by means of HDF5 itself; whether some reader must refuse what results."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        name = dice.choice(names)
        old = file[name]
        data, shape, dtype = old[()], old.shape, old.dtype
        match dice.randrange(16):
            case 0 | 1 | 2:
                holder = dice.choice([file, *(found for found in file.values() if len(found.attrs))])
                key = dice.choice([*holder.attrs])
                del holder.attrs[key]
                if dice.random() < 0.9:
                    holder.attrs[key] = dice.choice(VALUES)
                return False
            case 3:
                del file[name]
                return True
            case 4:
                del file[name]
                match dice.randrange(3):
                    case 0:
                        file.create_group(name)
                    case 1:
                        file[name] = np.dtype("f8")
                    case 2:
                        file[name] = h5py.Empty(dice.choice(("f", "i8", "u1")))
                return True
            case 5:
                del file[name]
                file.create_dataset(name, shape, dice.choice(DTYPES))
                return False
            case 6:
                del file[name]
                wrong = tuple(dice.choice((0, 1, 2, 3, 32)) for _ in range(dice.randrange(6)))
                file.create_dataset(name, data=np.zeros(wrong, dtype if dtype.kind != "O" else "u1"))
                return False
            case 7 | 8:
                del file[name]
                tail = shape[1:] if len(shape) else ()
                rows = 1 << dice.randrange(20, 45)
                chunks = dice.choice((None, (1, *tail)))
                file.create_dataset(name, (rows, *tail), dtype, chunks=chunks)
                return True
            case 9:
                del file[name]
                file[name] = h5py.ExternalLink(dice.choice((other.name, str(other), path.name)), f"/{name}")
                return True
            case 10:
                del file[name]
                target = dice.choice((f"/{name}", "/loop", "/nowhere", "/", "."))
                file["loop"] = h5py.SoftLink(f"/{name}")
                file[name] = h5py.SoftLink(target)
                return True
            case 11:
                group = file[name].parent
                group["again"] = dice.choice((group, file["/"]))  # a cycle
                return False
            case 12 if dtype.kind != "O" and len(shape):
                del file[name]
                layout = h5py.VirtualLayout(shape, dtype)
                layout[...] = h5py.VirtualSource(dice.choice((str(other), ".")), name, shape)
                file.create_virtual_dataset(name, layout)
                return True
            case 13 if dtype.kind != "O" and len(shape):
                raw = path.with_suffix(".raw")
                raw.write_bytes(np.ascontiguousarray(data).tobytes())
                del file[name]
                file.create_dataset(name, shape, dtype, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
                return True
            case 14 if len(shape):
                del file[name]
                properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                properties.set_chunk(shape)
                match dice.randrange(4):
                    case 0:
                        properties.set_deflate(9)
                    case 1:
                        properties.set_shuffle()
                    case 2:
                        properties.set_fletcher32()
                    case 3:  # a filter that is not there
                        properties.set_filter(32_000 + dice.randrange(100), h5py.h5z.FLAG_OPTIONAL)
                file.create_dataset(name, data=data, dtype=dtype, dcpl=properties)
                return True
            case 15 if name.endswith("labels"):
                data[dice.randrange(len(data))] = dice.choice((-1, 2, 1 << 62, -(1 << 63)))
                old[...] = data
                holder = old.parent
                holder.attrs["digest"] = content_digest(holder["images"][()], data)
                return True
    return False


def to_old_format(path: Path) -> None:
    """Write a file anew as HDF5 1.6 would have, which has no checksums to tell damage by."""
    old_path = path.with_suffix(".old")
    with h5py.File(path) as new, h5py.File(old_path, "w", libver="earliest") as old:
        for name in new:
            new.copy(name, old)
        for name in new.attrs:
            old.attrs.create(name, new.attrs[name], dtype=new.attrs.get_id(name).dtype)
    old_path.replace(path)


def try_hdf5(dice: random.Random, folder: Path) -> str:
    """Spoil an HDF5 file and read it; what came of it."""
    kind = dice.choice(list(HDF5_FILES))
    make, readers = HDF5_FILES[kind]
    path, other = folder / "spoiled.h5", folder / "other.h5"
    old_format = dice.random() < 0.5
    for each in (path, other):
        make(each)
        if old_format:
            to_old_format(each)
    refused = 0
    if dice.random() < 0.5:
        how, must_refuse = "bytes", False
        path.write_bytes(spoil_bytes(path.read_bytes(), dice))
    else:
        how, must_refuse = "structure", spoil_structure(path, other, dice)
    for read in readers:
        refused += refuses(lambda: read(path), path.name)  # noqa: B023
    require(bool(refused) or not must_refuse, f"{kind}: a {how} change that must be refused was read")
    return f"{kind} {how} {'refused' if refused else 'read'}"


def refuses(read: Callable[[], object], name: str) -> bool:
    """Whether a UserError comes, which must name ``name`` and the reason in one line."""
    try:
        read()
    except UserError as error:
        told = str(error)
        require(name in told and "\n" not in told and len(told) < 3_000, f"told as {told[:300]!r}")
        return True
    return False


# --- JSON, YAML and settings --------------------------------------------------------------------------------


def some_json(dice: random.Random, depth: int = 3) -> object:
    """Any JSON value, of Python's dialect."""
    match dice.randrange(11 if depth else 8):
        case 0:
            return dice.choice((None, True, False))
        case 1:
            return dice.choice((0, 1, -1, 2, 10**30, 1.0, float("nan"), float("inf")))
        case 2 | 3:
            return "".join(dice.choices(string.printable + "\0\ud800é", k=dice.randrange(8)))
        case 4:
            return dice.choice(("..", "../secret", "/etc/passwd", "red/../red", ".", "", "a" * 300, "red"))
        case 5 | 6 | 7:
            return dice.choice(("round", "files", "data", "config"))
        case 8:
            return [some_json(dice, depth - 1) for _ in range(dice.randrange(4))]
    keys = ("round", "files", "data", "red", "../secret", "..", "x")
    return {dice.choice(keys): some_json(dice, depth - 1) for _ in range(dice.randrange(4))}


def spoil_json(value: object, dice: random.Random) -> object:
    """A JSON value with one part of it, however deep, replaced."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        return value | {dice.choice((key, key, key, "../secret")): spoil_json(value[key], dice)}
    return some_json(dice)


def spoil_text(content: bytes, dice: random.Random, deepest: int = 200_000) -> bytes:
    """Bytes of a text that are no longer those of one, or are too deep for a parser."""
    if dice.random() < 0.1:
        return dice.choice((b"[", b'{"a":', b"- ", b"\xff\xfe", b"9")) * dice.choice((1, 1_000, deepest))
    return spoil_bytes(content, dice)


def try_commit(dice: random.Random, folder: Path) -> str:
    """Spoil a commit.json, or the model that it names, and look for the newest intact checkpoint."""
    checkpoints = Checkpoints(folder / "checkpoints")
    make_model(folder / "secret.h5")
    for round in (1, 2):
        make_model(checkpoints.model_path(round, "red"))
        files = {"red": sha256_of(checkpoints.model_path(round, "red"))}
        checkpoints.commit(round, files, {"config": "c", "data": {"red": "d"}}, keep=0)
    path = checkpoints.folder / "round_0002" / COMMIT
    match dice.randrange(3):
        case 0:
            path.write_bytes(spoil_text(path.read_bytes(), dice))
        case 1:
            path.write_text(json.dumps(spoil_json(json.loads(path.read_bytes()), dice)), errors="replace")
        case 2:
            model = checkpoints.model_path(2, "red")
            model.write_bytes(spoil_bytes(model.read_bytes(), dice))
    told: list[str] = []
    found = checkpoints.newest_intact(told.append)
    require(found is not None and found[0] in (1, 2), f"{found} was found, not round 1 or 2")
    assert found is not None
    require(set(found[1]["files"]) == {"red"}, f"models of {list(found[1]['files'])} were taken")
    require(bool(told) == (found[0] == 1), "a damage was not told")
    require(all("round_0002" in line and "\n" not in line for line in told), f"told as {told}")
    return f"commit {'refused' if told else 'read'}"


def try_metrics(dice: random.Random, folder: Path) -> str:
    """Spoil a metrics.jsonl, read it and go on after round 1."""
    history = History(folder / "metrics.jsonl")
    for line in METRICS:
        history.append(line)
    if dice.random() < 0.5:
        history.path.write_bytes(spoil_text(history.path.read_bytes(), dice))
    else:
        lines = [json.dumps(spoil_json(line, dice) if dice.random() < 0.5 else line) for line in METRICS]
        history.path.write_text("\n".join(lines) + dice.choice(("\n", "")), errors="replace")

    def read() -> None:
        for number, line in enumerate(history.read()):
            require(isinstance(line, dict) and line["round"] == number, f"round {number} is {line}")
        history.cut(1)
        require(len(history.read()) == 2, "a lost round was not told")

    return f"metrics {'refused' if refuses(read, history.path.name) else 'read'}"


@functools.cache
def default_config() -> Config:
    """The configuration of a command line without settings."""
    return compose([], methods=METHODS)


def try_config_file(dice: random.Random, folder: Path) -> str:
    """Spoil a run's config.yaml and claim the folder again."""
    run = RunFolder(replace(default_config(), out=str(folder)))
    run.claim()
    path = run.path / "config.yaml"
    path.write_bytes(spoil_text(path.read_bytes(), dice, deepest=3_000))
    again = RunFolder(run.config)
    run.release()
    return f"config.yaml {'refused' if refuses(again.claim, path.name) else 'read'}"


WORDS = (
    *("", "0", "-1", "1", "7", "1.5", "1e309", "-0.0", "nan", "inf", "null", "true", "yes", "???", "{a:1}"),
    *("{}", "[]", "[1,2]", "[1,[2]]", "[0.1,0.2,0.3]", "0,1", "range(1,3)", "choice(1,2)", "int(3)", "'a b'"),
    *("${seed}", "${out}", "${nothing}", "${oc.env:HOME}", "${oc.env:NONE}", "$", "${", '"', "\\", "{", "~"),
    *("../..", "a/b", "a.b", "é", "日本", "9" * 400, "x" * 5_000, "resnet10", "os:system", "fccl_mpi:main"),
)


def some_settings(dice: random.Random) -> list[str]:
    """Overrides as a user might mistype them."""
    ours = ("domain", "share", "model", "width", "local_epochs")
    known = [*to_dict(default_config()), *(f"participants.mnist.{key}" for key in ours), "participants.mnist"]
    known += ["participants.new.domain", "public.file", "public.mean", "public.std", "method.temperature"]
    signs, equals = ("", "", "", "", "+", "++", "~"), ("=", "=", "=", "")
    settings = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        key = dice.choice(known) if dice.random() < 0.9 else dice.choice(WORDS)
        value = "".join(dice.choices(string.printable, k=5)) if dice.random() < 0.2 else dice.choice(WORDS)
        settings.append(dice.choice(signs) + key + dice.choice(equals) + value)
    return settings


def try_settings(dice: random.Random, folder: Path) -> str:
    """Compose a configuration of nonsense."""
    settings = some_settings(dice)
    try:
        config = compose(settings, methods=METHODS)
    except UserError as error:
        require(0 < len(str(error)) < 20_000, f"{settings} is told as {str(error)[:300]!r}")
        return "settings refused"
    require(isinstance(config, Config) and len(digest(config)) == 64, f"{settings} give no configuration")
    json.dumps(to_dict(config), allow_nan=False)
    return "settings read"


TRIALS = (*[try_hdf5] * 15, *[try_commit] * 2, *[try_metrics] * 2, try_config_file, try_settings)


# --- workers, which may die of an input, and who looks after them ------------------------------------------


def work(seed: int, numbers: Sequence[int]) -> None:
    """Try inputs one by one; a line of JSON before each and after it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    default_config()
    pickles: list[str] = []
    sys.addaudithook(lambda event, _: pickles.append(event) if event == "pickle.find_class" else None)
    for number in numbers:
        print(json.dumps({"begun": number}), flush=True)
        signal.alarm(PATIENCE_S)
        dice = random.Random(f"{seed}/{number}")
        trial = dice.choice(TRIALS)
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome, wrong = trial(dice, Path(folder)), ""
                require(
                    trial is try_settings or not pickles, "a pickle was loaded"
                )  # compose copies by pickle
            except Exception as error:  # anything but a UserError is a find
                outcome, wrong = f"{trial.__name__} WRONG", f"{type(error).__name__}: {error}"
                if not isinstance(error, WrongError):
                    place = error.__traceback__
                    while place and place.tb_next:
                        place = place.tb_next
                    wrong += f" ({place.tb_frame.f_code.co_filename}:{place.tb_lineno})" if place else ""
        signal.alarm(0)
        pickles.clear()
        print(json.dumps({"outcome": outcome, "wrong": wrong}), flush=True)


def look_after(seed: int, first: int, last: int) -> tuple[Counter[str], dict[int, str]]:
    """Have inputs ``first`` to ``last`` tried, by another worker after each that dies; outcomes and finds."""
    outcomes: Counter[str] = Counter()
    finds: dict[int, str] = {}
    while first < last:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--seed", str(seed)]
        command += ["--worker", str(first), str(last)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        number = first
        for line in map(json.loads, done.stdout.splitlines()):
            number = line.get("begun", number)
            if "outcome" in line:
                outcomes[line["outcome"]] += 1
                first = number + 1
                if line["wrong"]:
                    finds[number] = line["wrong"]
        if first < last:
            outcomes["DIED"] += 1
            finds[first] = f"the worker ended with {done.returncode}: {done.stderr.strip()[-1500:]}"
            first += 1
    return outcomes, finds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 where nothing was found, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="workers at a time")
    parser.add_argument("--only", type=int, help="try this one, in this process")
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker or options.only is not None:
        work(options.seed, range(*options.worker) if options.worker else [options.only])
        return 0
    outcomes: Counter[str] = Counter()
    finds: dict[int, str] = {}
    starts = range(0, options.inputs, BATCH)
    with ThreadPoolExecutor(options.jobs) as pool:
        batches = pool.map(
            lambda first: look_after(options.seed, first, min(first + BATCH, options.inputs)), starts
        )
        for first, (counted, found) in zip(starts, batches, strict=True):
            outcomes += counted
            finds |= found
            for number, what in found.items():
                print(f"input {number}: {what}", flush=True)
            if not first % (10 * BATCH):
                print(f"{min(first + BATCH, options.inputs):>7} inputs, {len(finds)} finds", flush=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>7} {outcome}")
    print(f"{outcomes.total()} inputs of seed {options.seed}: {len(finds)} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())

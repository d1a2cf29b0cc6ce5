"""A fault campaign: runs of scenario `tiny` under a real mpirun, killed again and again, then compared.

    python -m tests.campaign --kills 100

Each course of runs is one run that is killed by anything at any time, from import to exit, and started
again by the same command until it is done. Whatever was done to it, the job must be gone soon, leave no
process and no file that cannot be read, and end with the bytes of a run that nobody disturbed.
"""

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import sha256_of
from fccl_mpi.federation.world import launch_of, mpi_library
from fccl_mpi.store import diagnostics
from fccl_mpi.store.checkpoint import Checkpoints, read_model
from fccl_mpi.store.history import History
from tests.conftest import PRESETS, make_tiny_images
from tests.mpi.conftest import OPEN_MPI

SETTINGS = ("method=fccl", "method=fml", "exchange=round", "checkpoint_every=2")
RANKS = ("server", "red", "green")
SIGNALS = (*[signal.SIGKILL] * 3, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # half of them SIGKILL
GONE_S = 5.0
"""So long may a job last after a SIGKILL."""
STOPPED_S = 120.0
"""So long after a request to stop, which lets a round, or the pretraining, come to its end."""
KILLS_PER_COURSE = 12
"""So often a run is killed before it is left to end."""
MARK = "FCCL_TEST_CAMPAIGN"


class Job:
    """One mpirun, and every process it started: they are known by a mark in their environment."""

    def __init__(self, data: Path, out: Path, setting: str, rounds: int) -> None:
        self.output = out.parent / "output.txt"
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        program = (sys.executable, "-m", "fccl_mpi.run", "--config-dir", str(PRESETS), "scenario=tiny")
        own = ("~participants.blue", "~participants.grey", f"data={data}", f"out={out}", f"rounds={rounds}")
        self.begun = time.monotonic()
        with self.output.open("wb") as output:
            self.mpirun = subprocess.Popen(
                ["mpirun", "-n", str(len(RANKS)), *program, *own, setting],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[1],
                env={**os.environ, **OPEN_MPI, **dict([self._mark.split("=")])},
                start_new_session=True,
            )

    def processes(self) -> dict[int, dict[str, str]]:
        """All living ones, with their environments."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # ended meanwhile
            if self._mark in entries:
                found[int(folder.name)] = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        return found

    def process_of(self, who: str) -> int | None:
        """The process of a rank, or mpirun itself; None where it is not there."""
        if who == "mpirun":
            return self.mpirun.pid
        ranks = {pid: launch_of(environment) for pid, environment in self.processes().items()}
        wanted = [pid for pid, launch in ranks.items() if launch and RANKS[launch.rank] == who]
        return wanted[0] if wanted else None

    def gone_after(self, limit: float, what: str = "its end") -> float:
        """Wait until no process is left, at most ``limit`` seconds; how long that took.

        Raises Failed, having ended what is left, where it takes longer.
        """
        begun = time.monotonic()
        while (self.mpirun.poll() is None) | bool(left := self.processes()):
            if time.monotonic() - begun > limit:
                names = ", ".join(f"{pid} {name_of(pid)}" for pid in left)
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                self.mpirun.wait()
                raise FailedError(f"{limit:.0f} s after {what} there are still {names}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def last_words(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(errors="replace")[-2000:]


class FailedError(Exception):
    """Something that must not happen."""


class Campaign:
    """Courses of runs in a folder, and what was found."""

    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        self.folder, self.rounds, self.random = folder, rounds, random.Random(seed)
        self.data = make_tiny_images(folder / "data")
        self.undisturbed: dict[str, tuple[dict[str, object], float]] = {}
        self.kinds: Counter[str] = Counter()
        self.slowest = 0.0
        self.equal = self.left_behind = self.starts = 0
        self.failures: list[str] = []

    def start(self, setting: str, name: str) -> Job:
        """Start the command of a setting with its own ``out=``."""
        out = self.folder / name / "runs"
        out.parent.mkdir(exist_ok=True)
        self.starts += 1
        return Job(self.data, out, setting, self.rounds)

    def finish(self, setting: str, name: str) -> dict[str, object]:
        """Let a run come to its end and return what must be equal."""
        job = self.start(setting, name)
        job.gone_after(300)
        if job.mpirun.returncode:
            raise FailedError(f"left alone, it ends with {job.mpirun.returncode}: {job.last_words()}")
        return result_of(self.folder / name / "runs")

    def reference(self, setting: str) -> tuple[dict[str, object], float]:
        """What an undisturbed run of a setting ends with, and how many seconds it takes."""
        if setting not in self.undisturbed:
            begun = time.monotonic()
            result = self.finish(setting, f"undisturbed-{len(self.undisturbed)}")
            self.undisturbed[setting] = result, time.monotonic() - begun
        return self.undisturbed[setting]

    def course(self, number: int, setting: str, kills: int) -> int:
        """One run from begin to end, killed at most ``kills`` times; returns how often it was."""
        expected, duration = self.reference(setting)
        name, dealt = f"course-{number}", 0
        out = self.folder / name / "runs"
        while dealt < kills:
            job = self.start(setting, name)
            what = self.kill(job, duration)
            if what is None:
                break
            dealt += 1
            self.kinds[what] += 1
            limit = GONE_S if "SIGKILL" in what else STOPPED_S
            at = time.monotonic() - job.begun
            took = job.gone_after(limit, what)
            self.slowest = max(self.slowest, took) if limit == GONE_S else self.slowest
            self.say(
                f"{sum(self.kinds.values()):>4}  {setting:<18} {at:5.1f} s  {what:<24} "
                f"exit {job.mpirun.returncode:>3}, gone in {took:4.1f} s, round {look_through(out)} kept"
            )
            if job.mpirun.returncode == 0:
                break
        if self.finish(setting, name) != expected:
            raise FailedError(f"it does not end with the bytes of an undisturbed run: {out}")
        self.equal += 1
        left = list(out.rglob("*.part"))
        if any("pretrained" not in part.parts for part in left):
            raise FailedError(f"it leaves temporary files behind: {left}")
        self.left_behind += len(left)
        self.say(f"      {setting:<18} done after {dealt} kills, equal to the undisturbed run")
        shutil.rmtree(out.parent)
        return dealt

    def kill(self, job: Job, duration: float) -> str | None:
        """Send a signal at a random time, and say what to whom; None where the job was done before."""
        number, who = self.random.choice(SIGNALS), self.random.choice(("mpirun", *RANKS))
        moment = job.begun + self.random.uniform(0, duration)
        while time.monotonic() < moment or not (process := job.process_of(who)):
            if job.mpirun.poll() is not None:
                job.gone_after(GONE_S)
                if job.mpirun.returncode:
                    raise FailedError(f"by itself it ends with {job.mpirun.returncode}: {job.last_words()}")
                return None
            time.sleep(0.01)
        try:
            os.kill(process, number)
        except ProcessLookupError:
            return None
        return f"{number.name} to {who}"

    def say(self, line: str) -> None:
        """A line of progress."""
        print(line, flush=True)


def result_of(out: Path) -> dict[str, object]:
    """Of a run: sha256 of its weights and pretrained models, and its metrics without their times."""
    (run,) = out.glob("tiny/*/*-s0")
    found = Checkpoints(run / "checkpoints").newest_intact()
    assert found is not None
    lines = [
        {k: v for k, v in line.items() if k != "seconds"} for line in History(run / "metrics.jsonl").read()
    ]
    pretrained = {path.name: sha256_of(path) for path in (out / "pretrained").rglob("*.h5")}
    return {"round": found[0], "metrics": lines, **found[1]["files"], **pretrained}


def look_through(out: Path) -> int:
    """Read every file of a run that is not temporary; how many rounds its newest checkpoint holds.

    Raises FailedError where one cannot be read.
    """
    try:
        for path in [*out.rglob("pretrained/tiny/*.h5"), *out.rglob("checkpoints/*/*.h5")]:
            read_model(path)
        rounds = 0
        for run in out.glob("tiny/*/*-s0"):
            if (run / diagnostics.NAME).exists():
                diagnostics.read(run)
            damages: list[str] = []
            found = Checkpoints(run / "checkpoints").newest_intact(damages.append)
            if damages:
                raise FailedError(f"a checkpoint is damaged: {damages}")
            rounds = found[0] if found else 0
            if len(History(run / "metrics.jsonl").read()) < (rounds + 1 if found else 0):
                raise FailedError(f"metrics.jsonl lacks a round that the checkpoint {rounds} has")
    except UserError as error:
        raise FailedError(f"a file cannot be read: {error}") from error
    return rounds


def name_of(process: int) -> str:
    """Its command line."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "(ended)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 where nothing is lost, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of what is killed and when")
    parser.add_argument("--rounds", type=int, default=6, help="of each run")
    parser.add_argument(
        "--settings", nargs="+", default=SETTINGS, metavar="KEY=VALUE", help="of each run in turn"
    )
    parser.add_argument("--folder", type=Path, help="where to, and kept; by default a temporary one")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    begun = time.monotonic()
    campaign = Campaign(folder, options.rounds, options.seed)
    campaign.say(f"{mpi_library()}, {len(RANKS)} ranks, {options.rounds} rounds, {options.kills} kills")
    for number, setting in enumerate(itertools.cycle(options.settings)):
        left = options.kills - sum(campaign.kinds.values())
        if left <= 0 or len(campaign.failures) > 5:
            break
        try:
            campaign.course(number, setting, min(left, KILLS_PER_COURSE))
        except FailedError as failure:
            campaign.failures.append(f"course {number} ({setting}): {failure}")
            campaign.say(f"FAILED {campaign.failures[-1]}")
    dealt = sum(campaign.kinds.values())
    for what, count in sorted(campaign.kinds.items()):
        campaign.say(f"  {count:>3} {what}")
    seconds, equal, failed = time.monotonic() - begun, campaign.equal, len(campaign.failures)
    campaign.say(
        f"{dealt} kills in {campaign.starts} starts, {seconds:.0f} s: {equal} runs ended equal to undisturbed"
        f" ones, {failed} failures; gone in {campaign.slowest:.1f} s at most after SIGKILL; "
        f"{campaign.left_behind} temporary files left beside pretrained models"
    )
    if options.folder is None and not campaign.failures:
        shutil.rmtree(folder)
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())

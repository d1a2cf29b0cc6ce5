"""One sweep: what its command line can be asked to do."""

import argparse
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.types import IntervalSweep
from rich.console import Console

from fccl_mpi.config.compose import parse, to_yaml
from fccl_mpi.config.schema import Config
from fccl_mpi.core.cores import own_cores
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.stopping import EXIT_CODE
from fccl_mpi.sweep import grid
from fccl_mpi.sweep.folder import RUNNING, SweepFolder
from fccl_mpi.sweep.launcher import Launcher
from fccl_mpi.sweep.local import Local, gpus_here, side_by_side
from fccl_mpi.sweep.points import (
    Point,
    Points,
    alternatives,
    combine,
    is_of_a_method,
    names_of_groups,
    read_axes,
)
from fccl_mpi.sweep.slurm import Queued, Slurm
from fccl_mpi.sweep.status import (
    FINISHED,
    Status,
    exit_code,
    last_line,
    results_table,
    status_table,
    statuses,
    summary,
)
from fccl_mpi.sweep.work import estimate

if TYPE_CHECKING:
    from fccl_mpi.sweep.search import Search


class Sweep:
    """The points of a command line and their folder; a method for each thing to do, with its exit code."""

    def __init__(self, options: argparse.Namespace, methods: Mapping[str, type]) -> None:
        """Read the words and find the folder. Raises UserError where they do not fit."""
        self.options = options
        self.points = Points(methods=methods, config_dir=options.config_dir)
        watched = sys.stdout.isatty()
        self.console = Console(highlight=False, markup=False, width=None if watched else 1000)
        from_file, explicit = read_axes(options.points) if options.points else ([], [])
        self.words, self.explicit = [*from_file, *options.overrides], explicit or [()]
        self.names = names_of_groups(methods, options.config_dir)
        own = [self.words, explicit, str(options.config_dir), options.search and options.metric]
        name = options.name or hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]
        self.folder = SweepFolder(Path(self._out()) / "sweeps" / name)
        self.slurm = Slurm(
            folder=self.folder,
            script=options.script,
            site_options=options.sbatch,
            points_per_task=options.points_per_task,
            max_running=options.max_running,
        )

    @cached_property
    def configs(self) -> dict[Point, Config]:
        """All points, composed and checked; of a search, those at the ends of its axes."""
        if self.options.search:
            return self._search().corners
        axes = ([(other,) for other in alternatives(word, self.names)] for word in self.words)
        return self.points.make(combine([self.explicit, *axes]))

    def print_config(self) -> int:
        """Print the configuration of each point, as YAML."""
        for config in self.configs.values():
            print("---", to_yaml(config), sep="\n", end="")
        return 0

    def dry_run(self) -> int:
        """Print the points and the work that is left."""
        found = self.look(self.configs)
        begun = {status.point: status.line["round"] for status in found if status.line}
        needs = self._needs(found)
        self.console.print(status_table(found), summary(found), sep="\n")
        self.console.print(f"to do: {estimate(self.configs, begun)}")
        if runs := len(grid.first(needs, needs)):
            self.console.print(f"before: {runs} runs that pretrain for {len(needs)} points which share that")
        self.console.print(f"what is kept of the sweep: {self.folder.path}")
        return 0

    def status(self) -> int:
        """Print how far each point is."""
        found = self.look(self.folder.load())
        self.console.print(status_table(found), summary(found), sep="\n")
        return exit_code(found)

    def table(self) -> int:
        """Print the accuracies of the finished points."""
        found = self.look(self.folder.load())
        self.console.print(results_table(found), summary(found), sep="\n")
        return exit_code(found)

    def cancel(self) -> int:
        """Stop what is running or queued."""
        names, starter = self.slurm.cancel(), self.folder.starter()
        if starter:
            process, host = starter.removeprefix("process ").split(" on ")
            if host != socket.gethostname():
                raise UserError(f"{starter} runs this sweep: cancel it there")
            os.kill(int(process), signal.SIGTERM)
        self.console.print(f"cancelled: {len(names)} points in SLURM's queue, {starter or 'nothing here'}")
        return 0

    def run_here(self) -> int:
        """Run what is not finished on this machine."""
        begun = time.monotonic()
        with self._this_machine(self.configs) as launcher, self.folder.starting():
            found, todo = self._begin()
            needs = {point: run for point, run in self._needs(found).items() if point in todo}
            stopped = grid.run_all(todo, needs, launcher, self.console)
        wall, used = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        found, cpu = self.look(self.configs), used.ru_utime + used.ru_stime
        self.console.print(f"{summary(found)}; {wall:.0f} s, {cpu:.0f} s of work on {len(own_cores())} cores")
        return EXIT_CODE if stopped else exit_code(found)

    def submit(self) -> int:
        """Submit to SLURM what is neither finished nor queued."""
        self.slurm.check()
        assert self.configs  # composed and checked before anything is written
        with self.folder.starting():
            found, todo = self._begin()
            grid.submit(todo, self._needs(found), self.slurm, self.console)
        return 0

    def search(self) -> int:
        """Try the points that promise most, by a study of Optuna's."""
        search = self._search()
        if self.options.launcher == "local":
            where: AbstractContextManager[Launcher] = self._this_machine(search.corners)
        else:
            self.slurm.check()
            where = nullcontext(Queued(self.slurm, slots=self.options.max_running or 4))
        with where as launcher, self.folder.starting():
            stopped = search.run(launcher, self.console)
        self.console.print(search.best())
        return EXIT_CODE if stopped else int(search.failed)

    def _search(self) -> "Search":
        from fccl_mpi.sweep.search import Search, Space

        if self.explicit != [()]:
            raise UserError("--search takes axes: explicit points are for a grid")
        metric, trials = self.options.metric, self.options.trials
        return Search(Space(self.words, self.names), self.points, self.folder, metric=metric, trials=trials)

    def _begin(self) -> tuple[list[Status], list[Point]]:
        """Write down the points; returns how far they are, and those to be started."""
        self.folder.save(self.configs)
        found = self.look(self.configs)
        todo = [one.point for one in found if one.state not in (FINISHED, RUNNING) and not one.queued]
        queued = sum(one.queued for one in found)
        in_queue = f"; {queued} are in SLURM's queue" if queued else ""
        self.console.print(f"{summary(found)}{in_queue}; all about them lies in {self.folder.path}")
        return found, todo

    @contextmanager
    def _this_machine(self, points: Iterable[Point]) -> Iterator[Local]:
        gpus = gpus_here(os.environ)
        slots = self.options.max_running or side_by_side(list(points), gpus)
        launcher = Local(self.folder, slots=slots, gpus=gpus)
        try:
            yield launcher
        finally:
            launcher.stop(launcher.running)  # there are some only after an error

    def look(self, points: Iterable[Point]) -> list[Status]:
        """How far points are."""
        return statuses(self.folder, points, self.slurm.queue() if shutil.which("squeue") else {})

    def _needs(self, found: list[Status]) -> dict[Point, Point]:
        """The runs that make pretrained models for points that share them, where nobody has made them yet."""
        begun = {status.point for status in found if status.line}
        needs = self.points.pretraining(self.configs, begun)
        return {point: run for point, run in needs.items() if last_line(run) is None}

    def _out(self) -> str:
        """Where runs lie, by the first of all points; intervals and settings of methods do not bear on it."""
        words = [word for word in self.words if not isinstance(parse(word).value(), IntervalSweep)]
        firsts = ([(alternatives(word, self.names)[0],)] for word in words)
        (settings,) = combine([self.explicit[:1], *firsts])
        return self.points.compose([word for word in settings if not is_of_a_method(word)]).out

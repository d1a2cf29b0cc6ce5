"""A search instead of a grid: Optuna proposes points, and stops those that are worse than others were."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.seeds import derive
from fccl_mpi.store.history import History
from fccl_mpi.sweep.folder import SweepFolder
from fccl_mpi.sweep.grid import first, run_all, stopping
from fccl_mpi.sweep.launcher import Asked, Launcher
from fccl_mpi.sweep.points import Point, Points
from fccl_mpi.sweep.status import FINISHED, MEASURES, last_line, statuses, verdict

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    from fccl_mpi.sweep.space import Space
except ImportError as error:
    raise UserError('--search optuna needs Optuna: pip install "fccl_mpi[search]"') from error

AGAIN = "again"  # the attribute of a trial that goes on with one which was stopped: that one's number


@dataclass(kw_only=True)
class Trial:
    """A proposal under way: a point for each seed, worth the mean of their metrics."""

    proposal: optuna.Trial
    points: list[Point]
    waiting: list[Point]
    """Those that have not started."""
    told: int = 0
    """Rounds that Optuna has heard of."""
    value: float = 0.0
    """Of the last of them."""
    outcome: TrialState | None = None
    """Known before its last run has ended where it is worth no more time."""
    said: str = ""


class Search:
    """The trials of one study, which is kept in the sweep's folder: a call goes on where one has stopped."""

    def __init__(
        self, space: Space, points: Points, folder: SweepFolder, *, metric: str, trials: int
    ) -> None:
        """Raises UserError where a setting does not fit."""
        if metric not in MEASURES:
            raise UserError(f"--metric {metric} is none of {', '.join(MEASURES)}")
        self.space, self.points, self.folder, self.metric, self.trials = space, points, folder, metric, trials
        points.learn(space.choices)
        self.corners = points.make(space.corners())
        self.failed = False

    def run(self, launcher: Launcher, console: Console) -> bool:
        """Go on with the study to its last trial; returns whether that was stopped on request."""
        self.launcher, self.console = launcher, console
        self.all = {point.name: point for point in (self.folder.load() if self.folder.exists() else [])}
        self.folder.save(self.all.values())
        self.study = self._study()
        if run_all(self._pretraining(), {}, launcher, console):
            return True
        self.active: list[Trial] = []
        self.ended: set[Point] = set()
        asked = Asked()
        while True:
            self.ended.update(launcher.ended())
            if asked.anew():
                console.print(stopping(len(launcher.running)))
                launcher.stop(launcher.running)
            while not asked and launcher.has_room() and self._start_one():
                pass
            if not asked:
                self.active = [trial for trial in self.active if not self._settle(trial)]
            if not launcher.running and (asked or not self.active):
                return bool(asked)
            time.sleep(launcher.poll_s)

    def best(self) -> str:
        """The best trial so far, in a sentence."""
        done = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not done:
            return "no trial is complete"
        best = self.study.best_trial
        chosen = " ".join(f"{key}={value}" for key, value in best.params.items())
        return f"best of {len(done)} complete trials: {best.number}, {self.metric} {best.value:.2f}, {chosen}"

    def _study(self) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(self.folder.study))),
            study_name=self.folder.path.name,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
        )
        seed = derive(0, self.folder.path.name, len(study.trials)) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        for left in study.get_trials(states=(TrialState.RUNNING,)):  # when the last call was stopped
            study.tell(left.number, state=TrialState.FAIL)
            study.enqueue_trial(left.params, user_attrs={AGAIN: left.number})
        return study

    def _pretraining(self) -> list[Point]:
        """Runs that make pretrained models where all trials share them: where both ends of all axes do."""
        begun = [point for point in self.corners if last_line(point)]
        needs = self.points.pretraining(self.corners, begun)
        return [run for run in first(needs, needs) if last_line(run) is None]

    def _start_one(self) -> bool:
        """Start a point of a trial, or begin a trial; returns False where there is nothing left to start."""
        for trial in self.active:
            if trial.waiting:
                point = trial.waiting.pop(0)
                if point not in self.launcher.running and not self._is_finished(point):
                    self.folder.forget_states([point])
                    self.ended.discard(point)
                    self.launcher.start(point)
                return True
        trials = self.study.get_trials(deepcopy=False)
        left_over = any(trial.state == TrialState.WAITING for trial in trials)
        if not left_over and sum(AGAIN not in trial.user_attrs for trial in trials) >= self.trials:
            return False
        proposal = self.study.ask(self.space.axes)
        try:
            points = list(self.points.make(self.space.settings(proposal.params)))
        except UserError as error:
            self._tell(proposal, TrialState.FAIL, f"cannot be tried: {error}")
            return True
        self.all |= {point.name: point for point in points}
        self.folder.save(self.all.values())
        self.active.append(Trial(proposal=proposal, points=points, waiting=list(points)))
        return True

    def _settle(self, trial: Trial) -> bool:
        """Tell Optuna what is new of a trial; returns whether it is over."""
        if trial.outcome is None:
            try:
                trial.outcome, trial.said = self._judge(trial)
            except UserError as damage:
                trial.outcome, trial.said = TrialState.FAIL, str(damage)
            if trial.outcome is None:
                return False
            trial.waiting.clear()
            self.launcher.stop(self._running(trial))
        if self._running(trial):
            return False
        self._tell(trial.proposal, trial.outcome, trial.said, trial.value)
        return True

    def _judge(self, trial: Trial) -> tuple[TrialState | None, str]:
        """What becomes of a trial, None if that is open, and what to say of it; reports its new rounds."""
        histories = [History(Path(point.folder) / "metrics.jsonl").read() for point in trial.points]
        rounds = trial.points[0].rounds
        for round in range(trial.told, min(*map(len, histories), rounds + 1)):
            trial.told = round + 1
            if any(history[round]["top1"] is None for history in histories):
                continue  # evaluate_every has passed it over
            values = [history[round][self.metric] for history in histories]
            if None in values:
                return TrialState.FAIL, f"its runs have no {self.metric}"
            trial.value = statistics.fmean(values)
            trial.proposal.report(trial.value, round)
            if round < rounds and trial.proposal.should_prune():
                return TrialState.PRUNED, f"{self.metric} {trial.value:.2f} after round {round}: pruned"
        found = statuses(self.folder, trial.points, {})
        if all(status.state == FINISHED for status in found):
            return TrialState.COMPLETE, f"{self.metric} {trial.value:.2f}"
        for status in found:
            if status.point in self.ended and status.state != FINISHED:
                return TrialState.FAIL, verdict(status)
        return None, ""

    def _running(self, trial: Trial) -> list[Point]:
        """Its running points that no other trial waits for."""
        others = {point for other in self.active if other is not trial for point in other.points}
        return [point for point in trial.points if point in self.launcher.running and point not in others]

    def _tell(self, proposal: optuna.Trial, outcome: TrialState, said: str, value: float = 0.0) -> None:
        self.study.tell(proposal, value if outcome == TrialState.COMPLETE else None, state=outcome)
        self.failed = self.failed or outcome == TrialState.FAIL
        chosen = " ".join(f"{key}={value}" for key, value in proposal.params.items())
        self.console.print(f"trial {proposal.number}: {chosen}: {said}")

    def _is_finished(self, point: Point) -> bool:
        return statuses(self.folder, [point], {})[0].state == FINISHED

"""What rank 0 holds: the run's folder, its history, what public logits say. It needs no torch."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fccl_mpi.config.schema import Config
from fccl_mpi.federation.exchange import Exchange, average
from fccl_mpi.federation.voice import Voice, accuracy_table
from fccl_mpi.store.board import Board
from fccl_mpi.store.folder import RunFolder


class Server:
    """The server of a federation."""

    def __init__(
        self,
        config: Config,
        exchange: Exchange,
        folder: RunFolder,
        voice: Voice,
        classes: int,
        data: dict[str, str],
    ) -> None:
        self.config, self.exchange, self.folder, self.voice = config, exchange, folder, voice
        self.classes, self.data = classes, data
        self.board = Board(folder.path / "tensorboard") if config.tensorboard else None
        self.names = list(config.participants)
        self.domains = [own.domain for own in config.participants.values()]
        self.public_batches = config.public_size // config.public_batch_size * config.public_epochs
        self.agreements: list[float] = []
        self._begun = time.perf_counter()
        self._bytes: Counter[str] = Counter()

    def begin_to_receive(self, kind: str, shape: tuple[int, int]) -> Callable[[], None]:
        """Take part in an exchange of logits, or another kind, on public images; what is returned ends it.

        Of logits it is noted then how far all agree, where each one's are seen.
        """
        mean = self.config.collective == "allreduce"
        receive = self.exchange.begin(kind, None, shape, mean=mean)

        def finish() -> None:
            everyone = receive()
            if kind == "logits" and not mean:
                votes = everyone.argmax(axis=2)
                self.agreements.append(float((votes == votes[0]).all(axis=0).mean()))

        return finish

    def receive_average(self) -> None:
        """Take part in an average of parameters."""
        average(self.exchange, None)

    def begin_round(self) -> None:
        """Start the clocks of a round."""
        self.agreements.clear()
        self._begun, self._bytes = time.perf_counter(), Counter(self.exchange.bytes_exchanged)

    def record(self, round: int, reports: list[dict[str, Any]]) -> None:
        """Turn the participants' reports into the round's line of metrics.jsonl and of the screen."""
        line: dict[str, Any] = {"round": round}
        for place, measure in ((1, "top1"), (2, "top5")):
            known = reports[0]["correct"] is not None and (measure == "top1" or self.classes >= 5)
            matrix = accuracy_matrix(reports, self.domains, place) if known else None
            line[measure] = matrix
            line[f"intra_{measure}"], line[f"inter_{measure}"] = means(matrix, self.domains)
        wall = time.perf_counter() - self._begun
        phases = sorted({phase for report in reports for phase in report["seconds"]})
        line["agreement"] = float(np.mean(self.agreements)) if self.agreements else None
        line["loss"] = {name: report["loss"] for name, report in zip(self.names, reports, strict=True)}
        line["seconds"] = {"wall": round_(wall)} | {
            phase: {n: round_(r["seconds"].get(phase, 0.0)) for n, r in zip(self.names, reports, strict=True)}
            for phase in phases
        }
        line["bytes_by_kind"] = dict(self.exchange.bytes_exchanged - self._bytes)
        line["bytes_exchanged"] = sum(line["bytes_by_kind"].values())
        self.folder.history.append(line)
        if self.board:
            self.board.append(line, self.names)
        self.voice.done(round)
        self.voice.say(
            f"round {round:>3}/{self.config.rounds}"
            + ("" if line["intra_top1"] is None else f"  intra {line['intra_top1']:6.2f} %")
            + ("" if line["inter_top1"] is None else f"  inter {line['inter_top1']:6.2f} %")
            + "".join(f"  {k} {v:.4f}" for k, v in mean_losses(reports).items())
            + f"  {line['bytes_exchanged'] / 1e6:.2f} MB  {wall:.1f} s"
        )

    def commit(self, round: int, digests: list[str]) -> None:
        """Make the models that the participants have written the checkpoint of ``round``."""
        about = {"config": self.folder.digest, "data": self.data}
        files = dict(zip(self.names, digests, strict=True))
        self.folder.checkpoints.commit(round, files, about, self.config.keep)

    def conclude(self) -> None:
        """Show the last round's accuracy matrix and where everything lies."""
        last = self.folder.history.read()[-1]
        self.voice.say(
            accuracy_table(self.names, last["top1"], f"top-1 accuracy in %, round {last['round']}")
        )
        inter = "" if last["inter_top1"] is None else f", inter-domain {last['inter_top1']:.2f} %"
        self.voice.say(
            f"intra-domain {last['intra_top1']:.2f} %{inter}; everything lies in {self.folder.path}"
        )


def accuracy_matrix(reports: list[dict[str, Any]], domains: Sequence[str], place: int) -> list[list[float]]:
    """Percent of correct test images, K x K: a row for each participant, a column for each one's domain."""
    found = []
    for report in reports:
        counts = [report["correct"][domain] for domain in domains]
        found.append([100 * count[place] / count[0] for count in counts])
    return found


def means(matrix: list[list[float]] | None, domains: Sequence[str]) -> tuple[float | None, float | None]:
    """Intra-domain mean (the diagonal) and inter-domain mean (participants on other domains than their own).

    The inter-domain mean is the mean over participants of each one's mean (Eq. 9), None where there is one
    domain only.
    """
    if matrix is None:
        return None, None
    rows = []
    for row, own in zip(matrix, domains, strict=True):
        others = {domain: value for value, domain in zip(row, domains, strict=True) if domain != own}
        if others:
            rows.append(sum(others.values()) / len(others))
    diagonal = [row[index] for index, row in enumerate(matrix)]
    return sum(diagonal) / len(diagonal), sum(rows) / len(rows) if rows else None


def mean_losses(reports: list[dict[str, Any]]) -> dict[str, float]:
    """The collaborative and the local loss, each the mean over the participants that have it."""
    found = {}
    for name in ("collaborative", "local"):
        values = [report["loss"][name] for report in reports if report["loss"].get(name) is not None]
        if values:
            found[name] = sum(values) / len(values)
    return found


def round_(seconds: float) -> float:
    """Seconds to the millisecond."""
    return round(seconds, 3)

"""What a round consists of is seen for every method, and doing it again leaves no trace."""

from pathlib import Path

import pytest
import torch

from fccl_mpi.bench.floor import Acts, Pass, Recorder, Step, replay, trained_images
from fccl_mpi.bench.measure import refuse_unwritable
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.federation.exchange import Exchange
from fccl_mpi.federation.inprocess import run_in_process
from fccl_mpi.federation.participant import Participant
from fccl_mpi.federation.rounds import participate, serve
from fccl_mpi.federation.world import Place
from fccl_mpi.store.folder import RunFolder
from tests.unit.federation.test_federation import federate, numbers, weights

ASKED, MODEL = Pass("", 16, False, False), Pass("", 16, True, True)
LEARNT = [MODEL, Step("")]
PRIVATE = [MODEL, Step(""), Pass("", 4, True, True), Step("")]
TEACHER = [Pass("", 20, False, False)]
MEME = [act for size in (16, 4) for act in (Pass("", size, True, True), Pass("meme", size, True, True))]


def benched(config: Config) -> tuple[RunFolder, Acts]:
    """A federation between threads with a floor after each round, and what participant red did in round 1."""
    seen: list[Acts] = []

    def work(link: Exchange) -> None:
        who = ["server", *config.participants][link.rank]
        place = Place(rank=link.rank, who=who, host="here", device="cpu", threads=1)
        recorder: Recorder | None = None

        def probe(me: Participant) -> None:
            nonlocal recorder
            if recorder is None:
                recorder = Recorder(me)
                return
            wall, cpu = replay(me, recorder.acts)
            assert set(wall) == set(cpu) == set(recorder.acts) and min(wall.values()) > 0
            if who == "red":
                seen.append(dict(recorder.acts))
            recorder.acts.clear()

        if link.rank == 0:
            serve(config, link, place)
        else:
            participate(config, link, place, torch.device("cpu"), probe=probe)
            recorder.close()

    run_in_process(work, ["server", *config.participants])
    return RunFolder(config), seen[0]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("fccl", {"teachers": TEACHER, "collaborate": 2 * [ASKED] + 2 * LEARNT, "local": PRIVATE}),
        ("fccl_plus", {"teachers": TEACHER, "collaborate": 2 * LEARNT, "local": PRIVATE}),
        ("fedmatch", {"collaborate": 2 * [MODEL, MODEL, Step("")], "local": PRIVATE}),
        ("fml", {"local": [*MEME[:2], Step("meme"), Step(""), *MEME[2:], Step("meme"), Step("")]}),
        ("solo", {}),
    ],
)
def test_the_floor_is_what_a_round_does_and_leaves_no_trace(tiny, tmp_path, method, expected):
    def config(folder: str) -> Config:
        few = ("~participants.blue", "~participants.grey", "diagnostics=false")
        return tiny(f"method={method}", *few, f"out={tmp_path / folder}")

    folder, acts = benched(config("benched"))
    tests = 2 * [Pass("", 30, False, False)]  # of two domains
    assert acts == expected | {"evaluate": tests}
    assert trained_images(acts) == sum(
        act.images for some in expected.values() for act in some if isinstance(act, Pass) and act.grad
    )
    plain = federate(config("plain"))
    assert numbers(folder) == numbers(plain) and weights(folder) == weights(plain)


def test_a_result_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path):
    refuse_unwritable(tmp_path / "new" / "bench.json")
    with pytest.raises(UserError, match=r"cannot be written \(Is a directory\): choose another --json"):
        refuse_unwritable(tmp_path)

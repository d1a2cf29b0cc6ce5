"""metrics.jsonl: whole lines in their order, or a sentence that says which is not."""

from pathlib import Path

import pytest

from fccl_mpi.core.errors import UserError
from fccl_mpi.store.history import History


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Rounds 0 to 3."""
    found = History(tmp_path / "metrics.jsonl")
    for round in range(4):
        found.append({"round": round, "loss": round / 3})
    return found


def test_a_line_cut_short_is_left_out_and_removed(history):
    with history.path.open("a") as file:
        file.write('{"round": 4, "lo')
    assert [line["round"] for line in history.read()] == [0, 1, 2, 3]
    history.cut(3)
    history.append({"round": 4})
    assert [line["round"] for line in history.read()] == [0, 1, 2, 3, 4]


def test_rounds_after_a_checkpoint_are_forgotten_and_nothing_else_changes(history):
    lines = history.path.read_bytes().splitlines(keepends=True)
    history.cut(1)
    assert history.path.read_bytes() == b"".join(lines[:2])
    before = history.path.stat().st_mtime_ns
    history.cut(1)
    assert history.path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "line", ["[1]", "{", '{"round": 5}', "{}", '{"round": NaN}', "[" * 100_000, "\ud800"]
)
def test_a_damaged_line_is_named(history, line):
    lines = history.path.read_text().splitlines()
    lines[2] = line
    history.path.write_text("\n".join(lines) + "\n", errors="surrogatepass")
    for use in (history.read, lambda: history.cut(1)):
        with pytest.raises(UserError, match=r"metrics\.jsonl, line 3, is damaged .*restore it"):
            use()


def test_a_lost_round_is_named(history):
    with pytest.raises(UserError, match=r"metrics\.jsonl lacks round 4, which a checkpoint has"):
        history.cut(5)


def test_numbers_that_json_does_not_have_are_no_line(history):
    with pytest.raises(ValueError):
        history.append({"round": 4, "loss": float("nan")})
    assert len(history.read()) == 4

"""What the tests of data_prep share: running a command in this process and looking at what came of it."""

import signal

import pytest

from data_prep.__main__ import main


@pytest.fixture
def prep(tmp_path, monkeypatch, capsys):
    """Run ``data_prep`` with ``tmp_path / "data"`` as its data folder; give (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments):
        words = [str(word) for word in arguments]
        if words[0] not in ("verify", "inspect") and not words[0].startswith("-"):
            words += ["--data", str(tmp_path / "data")]
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"

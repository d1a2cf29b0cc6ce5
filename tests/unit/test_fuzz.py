"""A short run of the fuzzer; a long one is ``python -m tests.fuzz --inputs 10000``."""

from tests import fuzz


def test_spoiled_inputs_are_refused_with_a_reason_or_read_as_they_were(capsys):
    assert fuzz.main(["--inputs", "300", "--seed", "5"]) == 0, capsys.readouterr().out

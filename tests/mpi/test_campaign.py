"""A short fault campaign; a long one is ``python -m tests.campaign --kills 100``."""

from tests import campaign


def test_whatever_is_killed_ends_with_the_bytes_of_an_undisturbed_run(tmp_path, capsys):
    short = ("--kills", "6", "--rounds", "3", "--settings", "method=fml")
    code = campaign.main([*short, "--folder", str(tmp_path)])
    assert code == 0, capsys.readouterr().out

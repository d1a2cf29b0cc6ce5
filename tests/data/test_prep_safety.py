"""Whatever happens half-way, nothing half-made passes for whole, and the user reads one clear sentence."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
import rawsets

from data_prep.archives import open_tree
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import ABANDONED_S
from fccl_mpi.data.schema import read_public_header, verify

REPOSITORY = Path(__file__).resolve().parents[2]
LINUX = sys.platform == "linux"


def command(*arguments):
    return [sys.executable, "-m", "data_prep", *map(str, arguments)]


def environment(**changes):
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **changes}


def run(cwd, *arguments, env=None, **options):
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=env or environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        **options,
    )


def start(cwd, *arguments):
    return subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def members(session):
    """The processes of a session that still run."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            alive.append(int(stat.parent.name))
    return alive


@pytest.fixture
def many(tmp_path):
    """Enough small images to keep two processes busy for a moment."""
    rawsets.write_classes(tmp_path / "raw", [f"class{number}" for number in range(15)], 50)
    return ("image_folder", "--raw", "raw", "--public", "many", "--data", "data", "--processes", "2")


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
def test_kill_9_half_way_ten_times_then_a_clean_redo(tmp_path, many):
    begin = time.monotonic()
    assert run(tmp_path, *many).returncode == 0
    duration = time.monotonic() - begin
    target = tmp_path / "data/public/many.h5"
    expected = verify(target)
    target.unlink()
    for tenth in range(1, 11):
        process = start(tmp_path, *many)
        time.sleep(duration * tenth / 10.5)
        process.kill()
        process.communicate()
        for _ in range(100):
            if not members(process.pid):
                break
            time.sleep(0.1)
        assert members(process.pid) == []  # the decoding processes ended with it
        if target.exists():
            assert verify(target) == expected
            target.unlink()
    assert run(tmp_path, *many).returncode == 0
    assert verify(target) == expected


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("wait", [0, 0.3])
def test_a_stop_half_way_is_clean_and_short(tmp_path, number, code, wait):
    rawsets.write_classes(tmp_path / "raw", [f"class{number}" for number in range(60)], 100)
    many = ("image_folder", "--raw", "raw", "--public", "many", "--data", "data", "--processes", "1")
    process = start(tmp_path, *many)
    line = process.stdout.readline()
    assert "6000 files" in line.replace(",", "")  # from here on it decodes, for two seconds or so
    time.sleep(wait)
    os.killpg(process.pid, number)  # as a terminal's Ctrl-C and a batch system's stop reach all of them
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    assert rawsets.tree_of(tmp_path / "data") == set()


def test_a_file_that_was_not_finished_is_made_again(prep, data, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    arguments = ("image_folder", "--raw", "raw", "--public", "x")
    assert prep(*arguments)[0] == 0
    _, out, _ = prep(*arguments)
    assert "up to date" in out
    path = data / "public/x.h5"
    with h5py.File(path, "r+") as file:
        del file.attrs["complete"]
    assert prep("verify", path)[0] == 2
    _, out, _ = prep(*arguments)
    assert "up to date" not in out
    path.write_bytes(path.read_bytes()[:1000])
    assert prep("verify", path)[0] == 2
    assert prep(*arguments)[0] == 0
    assert prep("verify", path)[0] == 0


def test_a_second_run_does_nothing_unless_something_changed(prep, data, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    arguments = ("image_folder", "--raw", "raw", "--public", "x")
    prep(*arguments)
    path = data / "public/x.h5"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    prep(*arguments)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    digest = read_public_header(path).digest
    prep(*arguments, "--force")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) != before
    assert read_public_header(path).digest == digest
    _, out, _ = prep(*arguments, "--filter", "box")
    assert "8 public images" in out
    rawsets.write_image(tmp_path / "raw/a/0000.png", shift=3)
    prep(*arguments)
    assert read_public_header(path).digest != digest


def test_what_a_killed_process_left_is_removed_later(prep, data, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    folder = data / "public"
    folder.mkdir(parents=True)
    old, new = folder / ".x.h5.old.part", folder / ".x.h5.new.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 2 * ABANDONED_S,) * 2)
    prep("image_folder", "--raw", "raw", "--public", "x")
    assert rawsets.tree_of(folder) == {"x.h5", new.name}


def small_tmpfs(folder):
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, check=False
    )
    return mounted.returncode == 0


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="mounts a small file system, which only root may")
def test_a_full_disk(tmp_path, many):
    if not small_tmpfs(tmp_path / "data"):
        pytest.skip("mounting is not allowed here")
    try:
        result = run(tmp_path, *many)
        left = rawsets.tree_of(tmp_path / "data")
    finally:
        subprocess.run(["umount", tmp_path / "data"], check=True)
    assert result.returncode == 2, result.stderr
    assert "no space is left" in result.stderr
    assert result.stderr.count("\n") == 1
    assert left == set()


def test_a_limit_on_the_size_of_files(tmp_path, many):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = run(tmp_path, *many, preexec_fn=limit)
    assert result.returncode == 2, result.stderr
    assert "cannot be written" in result.stderr
    assert "Traceback" not in result.stderr
    assert rawsets.tree_of(tmp_path / "data") == set()


def test_a_data_folder_that_is_a_file(prep, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    (tmp_path / "data").touch()
    code, _, err = prep("image_folder", "--raw", "raw", "--public", "x")
    assert code == 2
    assert "in the way" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_may_not_be_written(prep, data, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    data.mkdir(mode=0o555)
    code, _, err = prep("image_folder", "--raw", "raw", "--public", "x")
    assert code == 2
    assert "may not write" in err


def test_raw_folders_are_only_read(prep, tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    folders = [tmp_path / "raw", tmp_path / "raw/a", tmp_path / "raw/b"]
    for folder in folders:
        folder.chmod(0o555)
    before = [folder.stat().st_mtime_ns for folder in folders]
    code, _, err = prep("image_folder", "--raw", "raw", "--public", "x")
    for folder in folders:
        folder.chmod(0o755)
    assert code == 0, err
    assert [folder.stat().st_mtime_ns for folder in folders] == before


@pytest.mark.parametrize("strict", [True, False])
def test_spaces_and_foreign_names_under_lc_all_c(tmp_path, strict):
    raw, data = tmp_path / "my images é", tmp_path / "my data ü"
    rawsets.write_classes(raw / "Straße im Süden", ("猫", "dog house"), 4)
    rawsets.write_classes(raw / "day", ("猫", "Dog_House"), 4)
    (raw / "day/猫").joinpath(os.fsdecode(b"caf\xff.png")).write_bytes(b"broken")
    env = environment(LC_ALL="C", LANG="C")
    if strict:  # as a Python without its own remedies against the C locale
        env |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = ("image_folder", "--raw", raw, "--task", "Länder und Straßen", "--data", data)
    result = run(tmp_path, *arguments, env=env)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "xff.png" in result.stderr
    result = run(tmp_path, *arguments, "--skip-broken", env=env)
    assert result.returncode == 0, result.stderr
    files = sorted(data.rglob("*.h5"))
    assert [path.stem for path in files] == ["day", "straße_im_süden"]
    with h5py.File(files[0]) as file:
        assert sorted(file["classes"].asstr()[:]) == ["Dog_House", "猫"]
    for name in ("verify", "inspect"):
        result = run(tmp_path, name, files[0], env=env)
        assert result.returncode == 0, result.stderr


def test_no_mpi_no_torch_no_network(tmp_path):
    rawsets.write_classes(tmp_path / "raw", ("a", "b"))
    program = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('the network was touched')\n"
        "socket.socket.connect = refuse\n"
        "from data_prep.__main__ import main\n"
        "assert main(['--list']) == 0\n"
        "assert main(['image_folder', '--raw', 'raw', '--public', 'x']) == 0\n"
        "assert not {'torch', 'torchvision', 'mpi4py'} & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_what_needs_an_extra_says_which(prep, tmp_path, monkeypatch):
    rawsets.write_mat(tmp_path / "raw/train_32x32.mat", [1, 2])
    rawsets.write_mat(tmp_path / "raw/test_32x32.mat", [1, 2])
    rawsets.write_classes(tmp_path / "folder", ("a", "b"))
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    code, _, err = prep("svhn", "--raw", "raw", "--any-checksum")
    assert code == 2
    assert "fccl_mpi[data_prep]" in err
    monkeypatch.setitem(sys.modules, "PIL", None)
    code, _, err = prep("image_folder", "--raw", "folder", "--public", "x")
    assert code == 2
    assert "fccl_mpi[data_prep]" in err


def test_a_wrong_command_line_is_an_error(prep, capsys):
    for arguments in (["cifar1000"], ["mnist", "--released-split"], ["mnist", "--train-share", "2"], []):
        try:
            code = prep(*arguments)[0] if arguments else prep("--")[0]
        except SystemExit as error:
            code = error.code
        assert code == 2
    assert capsys.readouterr().out == ""


def test_a_tree_knows_nothing_of_what_is_not_there(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        open_tree(tmp_path / "nowhere")

"""A private SLURM of two pretended nodes on this machine, for tests, as root, without systemd.

By hand: ``python -m tests.slurm.cluster`` starts one, says how to use it, and stops it on Ctrl-C.
"""

import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # where Debian has the daemons
FINISHED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
MailProg=/bin/true
# MPICH under srun names its shared memory by job and step, and a killed job leaves it behind: no id twice
FirstJobId={first_job}
# no cgroups, no binding, no accounting
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
# more CPUs and GPUs than the machine has
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
NodeName=DEFAULT CPUs=64 RealMemory=100000 Gres=gpu:4
NodeName=alpha NodeHostname={host} NodeAddr=127.0.0.1 Port={alpha}
NodeName=beta NodeHostname={host} NodeAddr=127.0.0.1 Port={beta}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
# quick reactions
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
KillWait=5
# so that a sweep of a few hundred tasks is too long for one array
MaxArraySize=101
ReturnToService=2
MinJobAge=86400
"""


def until(answer: Callable[[], T], seconds: float, what: str) -> T:
    """The first true answer; raises TimeoutError where there is none in ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (found := answer()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return found


class Cluster:
    """The daemons; commands find them by the environment variable SLURM_CONF."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fccl-slurm-"))
        self.folder.chmod(0o755)  # munge wants its socket reachable
        self.conf = self.folder / "slurm.conf"
        self.daemons: list[subprocess.Popen] = []

    def start(self) -> None:
        """Configure, start, and wait for both nodes. Raises RuntimeError with the daemons' last words."""
        host, port = socket.gethostname().split(".")[0], free_ports(3)
        first_job = int(time.time()) % 60_000_000 + 1000
        settings = {"host": host, "port": port, "alpha": port + 1, "beta": port + 2, "first_job": first_job}
        self.conf.write_text(CONF.format(folder=self.folder, **settings))
        for gpu in range(4):  # slurmd wants devices: more of /dev/null
            os.mknod(self.folder / f"gpu{gpu}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        gpus = f"AutoDetect=off\nNodeName=alpha,beta Name=gpu File={self.folder}/gpu[0-3]\n"
        (self.folder / "gres.conf").write_text(gpus)
        (self.folder / "cgroup.conf").touch()
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key-file"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        files = ("socket", "key-file", "pid-file", "seed-file")
        self._launch("munged", "--foreground", *(f"--{name}={self.folder}/munge.{name}" for name in files))
        self._launch("slurmctld", "-D")
        self._launch("slurmd", "-D", "-N", "alpha")
        self._launch("slurmd", "-D", "-N", "beta")
        try:
            until(lambda: self.call("sinfo", "-ho", "%T %D").stdout == "idle 2\n", 30, "both nodes idle")
        except TimeoutError as error:
            words = "\n".join(log.read_text()[-1000:] for log in self.folder.glob("*.log"))
            raise RuntimeError(f"{error}\n{words}") from error

    def stop(self) -> None:
        """Cancel all jobs, end the daemons, and leave no process and no file."""
        self.call("scancel", "--user=root")
        with suppress(TimeoutError):
            until(lambda: self.call("squeue", "-h").stdout == "", 20, "all jobs cancelled")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for process in processes_with(f"SLURM_CONF={self.conf}\0", "SLURM_JOB_ID="):
            with suppress(ProcessLookupError):
                os.kill(process, 9)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, *command: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
        """Run one of SLURM's commands."""
        env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.conf), **environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=cwd)

    def submit(self, *command: str, cwd: Path, **environment: str) -> "Job":
        """``sbatch`` with ``command`` in the folder ``cwd``."""
        done = self.call("sbatch", "--parsable", *command, cwd=cwd, **environment)
        assert done.returncode == 0, done.stderr
        return Job(self, int(done.stdout), cwd / f"slurm-{done.stdout.strip()}.log")

    def _launch(self, program: str, *options: str) -> None:
        with (self.folder / f"{program}-{len(self.daemons)}.log").open("w") as log:
            command = [shutil.which(program, path=PATH) or program, *options]
            env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.conf)}
            daemon = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        self.daemons.append(daemon)


@dataclass(frozen=True)
class Job:
    """A submitted job."""

    cluster: Cluster
    id: int
    log_file: Path

    @property
    def state(self) -> str:
        """RUNNING, PENDING, COMPLETED, ..."""
        return self.cluster.call("squeue", "-h", "-t", "all", "-j", str(self.id), "-o", "%T").stdout.strip()

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    @property
    def exit_code(self) -> int:
        """Of the batch script."""
        return int(self._shown("ExitCode=([0-9]+)"))

    @property
    def restarts(self) -> int:
        """How often it was requeued."""
        return int(self._shown("Restarts=([0-9]+)"))

    def wait_for(self, *states: str, seconds: float = 240) -> str:
        """Wait until it is in one of ``states``, and return that."""
        return self._until(lambda: self.state in states and self.state, seconds, f"job in {states}")

    def wait_for_log(self, text: str, seconds: float = 60) -> None:
        """Wait until it has printed ``text``."""
        self._until(lambda: text in self.log, seconds, f"'{text}' in the log")

    def skip_the_delay(self) -> None:
        """Have it start again soon: SLURM lets a requeued job wait for two minutes.

        Not at once, for slurmd refuses a job in the second in which it was killed; and again if need be, for
        SLURM may set its own time after ours.
        """
        self.wait_for("PENDING", seconds=60)
        while self.state == "PENDING":
            self.cluster.call("scontrol", "update", f"JobId={self.id}", "StartTime=now+2")
            with suppress(TimeoutError):
                until(lambda: self.state != "PENDING", 6, "started")

    def _until(self, answer: Callable[[], T], seconds: float, what: str) -> T:
        try:
            return until(answer, seconds, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {self.state} and says:\n{self.log}") from None

    def _shown(self, pattern: str) -> str:
        return re.search(pattern, self.cluster.call("scontrol", "show", "job", str(self.id)).stdout)[1]


def free_ports(count: int) -> int:
    """The first of ``count`` consecutive TCP ports that are free now."""
    while True:
        sockets = [socket.socket() for _ in range(count)]
        try:
            sockets[0].bind(("", 0))
            first = sockets[0].getsockname()[1]
            for offset, other in enumerate(sockets[1:], 1):
                other.bind(("", first + offset))
            return first
        except (OSError, OverflowError):
            continue
        finally:
            for each in sockets:
                each.close()


def processes_with(*marks: str) -> list[int]:
    """Ids of the processes whose environment, of entries that end in a zero byte, holds all ``marks``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = "\0" + (folder / "environ").read_text(errors="replace")
            if all(f"\0{mark}" in environment for mark in marks):
                found.append(int(folder.name))
    return found


def missing(install: bool = os.environ.get("FCCL_TEST_APT") == "1") -> str:
    """Why no cluster can be started here, or an empty string. Installs Debian's packages if it may."""
    if os.geteuid():
        return "only root can start a private SLURM"
    lacking = ", ".join(program for program in PROGRAMS if shutil.which(program, path=PATH) is None)
    if lacking and install:
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        for command in (["update", "-q"], ["install", "-yq", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", *command], check=True, capture_output=True, timeout=300)
        return missing(install=False)
    return f"{lacking} are missing: FCCL_TEST_APT=1 installs {' '.join(PACKAGES)}" if lacking else ""


if __name__ == "__main__":
    cluster = Cluster()
    try:
        cluster.start()
        print(f"export SLURM_CONF={cluster.conf}\nCtrl-C stops it", flush=True)
        with suppress(KeyboardInterrupt):
            time.sleep(86400)
    finally:
        cluster.stop()

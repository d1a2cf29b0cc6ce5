"""What the batch scripts see of `fccl_mpi.run`, as quick to start and to stop as MPI itself.

``python -m fccl_mpi.run CHECKPOINT`` shows where each rank is. With a CHECKPOINT it is finished; without one
it goes on until it is asked to stop, makes it, and exits with 75.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

asked: list[int] = []
for name in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(name, lambda number, _: asked.append(number))

# A signal may come early.
from fccl_mpi.federation.exchange import MpiExchange  # noqa: E402
from fccl_mpi.federation.world import join, load_mpi  # noqa: E402

checkpoint = Path(sys.argv[1])
comm = load_mpi()
names = ["red", "green", "blue", "grey"][: comm.size - 1]
link = MpiExchange(comm, ["server", *names])
place, _ = join(SimpleNamespace(participants=names, device="auto", threads=0), comm, link)
node, shown = os.environ["SLURMD_NODENAME"], os.environ.get("CUDA_VISIBLE_DEVICES")
own = f"{place.who}, {place.device}, threads {place.threads}, pid {os.getpid()}, shown {shown}"
lines = comm.gather(f"rank {comm.rank} on {node}: {own}")
if lines:
    print(*lines, "finished" if checkpoint.exists() else "going on", sep="\n", flush=True)
if comm.bcast(checkpoint.exists()):
    sys.exit(0)
deadline = time.monotonic() + 60
while not comm.allreduce(len(asked)):
    if time.monotonic() > deadline:
        comm.Abort(1)
    time.sleep(0.05)
if comm.rank == 0:
    checkpoint.touch()
comm.barrier()
sys.exit(75)

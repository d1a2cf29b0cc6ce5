"""What `fccl_mpi.run` does on each rank: settings, MPI, image sets, rounds, an exit code for how it ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fccl_mpi.config.cli import Parser
from fccl_mpi.config.compose import compose, to_yaml
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import AgreedError, UserError
from fccl_mpi.core.stopping import EXIT_CODE, StopRequest
from fccl_mpi.federation.exchange import Exchange, MpiExchange, agree
from fccl_mpi.federation.rounds import participate, serve
from fccl_mpi.federation.world import Place, check_size, ending_together, join, load_mpi, speaks
from fccl_mpi.methods.registry import METHODS

if TYPE_CHECKING:
    import torch

    Work = Callable[[MpiExchange, Place, torch.device | None], bool]


def run(arguments: Sequence[str] | None, stop: StopRequest) -> int:
    """Run the command line; returns the exit code: 0 done, 2 the user's error, 75 stopped on request."""
    parser = Parser(program="fccl_mpi.run", purpose="Run one federation over MPI.", methods=METHODS)
    try:
        options = parser.parse_args(arguments)
        config = compose(options.overrides, methods=METHODS, config_dir=options.config_dir)
        if options.print_config:
            print(to_yaml(config), end="")
            return 0
    except UserError as error:
        return refuse(error) if speaks(os.environ) else 2

    def work(exchange: Exchange, place: Place, device: torch.device | None) -> bool:
        return federate(config, exchange, place, device, stop)

    return on_ranks(config, stop, work)


def on_ranks(config: Config, stop: StopRequest, work: Work, program: str = "fccl_mpi.run") -> int:
    """Do ``work`` on every rank, which ends all of them together; returns the exit code.

    ``work`` takes the exchange, this rank's place and its device (None on the server), and returns whether
    it was stopped on request.
    """
    try:
        stop.after(config.stop_after)
        comm = load_mpi()
        check_size(comm.size, list(config.participants), os.environ, program)
    except UserError as error:
        return refuse(error) if speaks(os.environ) else 2
    try:
        who = ["server", *config.participants]
        with ending_together(comm, who[comm.rank]):
            exchange = MpiExchange(comm, who, timeout=60 * config.timeout)
            place, device = join(config, comm, exchange)
            prepare_images(config, exchange)
            stopped = work(exchange, place, device)
    except AgreedError as error:
        return refuse(error) if comm.rank == 0 else 2
    return EXIT_CODE if stopped else 0


def federate(
    config: Config,
    exchange: Exchange,
    place: Place,
    device: torch.device | None,
    stop: object = False,
    probe: Callable[[Any], None] | None = None,
) -> bool:
    """This rank's part in all rounds, as server or participant; returns whether it was stopped on request."""
    if device is None:
        return serve(config, exchange, place, stop, probe)
    return participate(config, exchange, place, device, stop, probe)


def prepare_images(config: Config, exchange: Exchange) -> None:
    """Have rank 0 make the embedded image sets, or say how to make those that are missing. Collective."""
    error = None
    if exchange.rank == 0:
        try:
            if config.task == "quickstart":
                make_embedded_images(config)
            refuse_missing_images(config)
        except UserError as found:
            error = found
    agree(exchange, error)


def make_embedded_images(config: Config) -> None:
    """Make those of the quickstart's image sets that the run needs and that are not there yet."""
    from data_prep import quickstart

    data = Path(config.data)
    needed = {*(own.domain for own in config.participants.values()), Path(config.public.file).stem}
    names = [name for name in (*quickstart.DOMAINS, *quickstart.PUBLIC) if name in needed]
    if quickstart.missing(data, names):
        print(f"making the embedded image sets in {data / 'quickstart'}", flush=True)
        quickstart.make(data, names)


def refuse_missing_images(config: Config) -> None:
    """Raise UserError naming the files that are missing, each with the command that makes it."""
    files = [f"{config.task}/{own.domain}.h5" for own in config.participants.values()]
    missing = [
        file for file in dict.fromkeys([*files, config.public.file]) if not Path(config.data, file).exists()
    ]
    if missing:
        from data_prep.registry import command_for

        where = "" if config.data == "data" else f" --data {config.data}"
        listed = []
        for file in missing:
            command = command_for(file, config.scenario)
            listed.append(f"{Path(config.data, file)}" + (f" ({command}{where})" if command else ""))
        raise UserError(
            f"scenario={config.scenario} lacks image sets: make them, or let data= name their folder: "
            + ", ".join(listed)
        )


def refuse(error: UserError) -> int:
    """Tell the user what to mend, in one sentence."""
    sys.stdout.flush()
    print(f"fccl_mpi: {error}", file=sys.stderr, flush=True)
    return 2

"""The command line of `fccl_mpi.bench`: measure on all ranks, or predict from what was measured."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fccl_mpi.bench import model, show
from fccl_mpi.bench.measure import measure
from fccl_mpi.config.cli import Parser
from fccl_mpi.config.compose import compose, to_yaml
from fccl_mpi.config.schema import require
from fccl_mpi.core.errors import UserError
from fccl_mpi.core.stopping import StopRequest
from fccl_mpi.federation.exchange import MpiExchange
from fccl_mpi.federation.job import on_ranks, refuse
from fccl_mpi.federation.world import Place, speaks
from fccl_mpi.methods.registry import METHODS

if TYPE_CHECKING:
    import torch

PROGRAM = "fccl_mpi.bench"


def run(arguments: Sequence[str] | None, stop: StopRequest) -> int:
    """Run the command line; returns the exit code: 0 done, 2 the user's error, 75 stopped on request."""
    try:
        options = make_parser().parse_intermixed_args(arguments)
        if options.predict:
            show.predictions(*predict(options))
            return 0
        require(options.rounds >= 1, "--rounds", options.rounds, "1 or more")
        # pretraining is no part of a round; diagnostics come after the last
        overrides = ["pretrain_epochs=1", *options.overrides, "diagnostics=false", f"rounds={options.rounds}"]
        config = compose(overrides, methods=METHODS, config_dir=options.config_dir)
        if options.print_config:
            print(to_yaml(config), end="")
            return 0
    except UserError as error:
        return refuse(error) if speaks(os.environ) else 2

    def work(exchange: MpiExchange, place: Place, device: torch.device | None) -> bool:
        return measure(config, exchange, place, device, stop, options.json)

    return on_ranks(config, stop, work, PROGRAM)


def make_parser() -> Parser:
    """The run's command line, and what is said here alone."""
    parser = Parser(
        program=PROGRAM,
        purpose="Measure a few rounds of a federation beside their bare computation, or predict larger ones.",
        methods=METHODS,
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds measured (%(default)s)")
    parser.add_argument(
        "--json", type=Path, default=Path("bench.json"), metavar="FILE", help="result (%(default)s)"
    )
    parser.add_argument(
        "--predict",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="predict instead: the first file says who takes part, all of them what an exchange costs",
    )
    parser.add_argument("--participants", metavar="K[,K...]", help="how many to predict for (as measured)")
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes they are spread over (as measured)")
    return parser


def predict(options: Namespace) -> tuple[list[model.Bench], model.Latency, list[model.Terms]]:
    """What was measured, the cost of an exchange, and the terms of a round for every number asked for.

    Raises UserError for a file or a number that does not fit.
    """
    benches = [model.read(path) for path in options.predict]
    asked = (options.participants or str(len(benches[0].participants))).split(",")
    for word in asked:
        require(word.isdecimal() and int(word) >= 1, "--participants", word, "1 or more")
    nodes = benches[0].nodes if options.nodes is None else options.nodes
    require(nodes >= 1, "--nodes", nodes, "1 or more")
    latency = model.fit(benches)
    measured = {bench.size: bench for bench in reversed(benches)}

    def terms(participants: int) -> model.Terms:
        like = measured.get((participants, nodes), benches[0])
        return model.predict(benches[0], latency, participants, nodes, like.lanes)

    return benches, latency, [terms(int(word)) for word in asked]

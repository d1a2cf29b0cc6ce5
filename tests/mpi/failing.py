"""`fccl_mpi.run` with something that goes wrong, named by FCCL_TEST_FAILURE."""

import os
import sys
import time

from fccl_mpi.federation import exchange
from fccl_mpi.run import main

begin = exchange.MpiExchange.begin


def failing(self: exchange.MpiExchange, *things: object, **options: object) -> object:
    """Fail on rank FCCL_TEST_RANK in the third exchange, while the others wait in it."""
    self.calls = getattr(self, "calls", 0) + 1
    if self.rank == int(os.environ["FCCL_TEST_RANK"]) and self.calls == 3:
        print(f"failing at {time.time()}", flush=True)
        if os.environ["FCCL_TEST_FAILURE"] == "exception":
            raise KeyError("a bug")
        sys.exit(3)
    return begin(self, *things, **options)


exchange.MpiExchange.begin = failing
sys.exit(main())

"""The CPU cores of a process."""

import os

from fccl_mpi.core.cores import own_cores


def test_own_cores_are_those_that_the_launcher_bound():
    bound = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(bound)})
        assert own_cores() == {max(bound)}
    finally:
        os.sched_setaffinity(0, bound)

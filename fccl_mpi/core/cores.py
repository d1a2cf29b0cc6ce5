"""The CPU cores of a process."""

import os


def own_cores() -> set[int]:
    """The CPU cores that this process may use, as its launcher bound it; all, if the system does not tell."""
    return set(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))

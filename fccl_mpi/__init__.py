"""Heterogeneous federated learning on HPC clusters: participants exchange nothing but logits, by MPI."""

import os

__version__ = "0.1.0"

# HDF5 reads this when it is loaded, and obeys it before what a program asks for. No file of ours is ever
# changed in place, so that locks guard nothing; on many network file systems they fail.
os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"

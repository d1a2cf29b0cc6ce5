"""Heterogeneous federated learning on HPC clusters: participants exchange nothing but logits, by MPI."""

__version__ = "0.1.0"

"""A run's folder: configuration, HDF5 checkpoints, metrics, log. No torch, no MPI."""

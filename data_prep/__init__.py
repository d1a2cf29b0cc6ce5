"""Raw image sets to HDF5: one file per source, no MPI, no torch. `python -m data_prep --help`."""

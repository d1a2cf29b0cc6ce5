"""Many runs from one command: its points, their launchers, their status. Imports neither torch nor MPI."""

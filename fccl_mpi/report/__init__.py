"""From run folders to tables, figures and one page of HTML. No torch, no MPI."""

# What the batch scripts have in common. `federate` starts a rank of fccl_mpi.run for every task of the job and
# asks the run to stop before the time is up; `leave` returns to the queue until it is finished.

# mpirun fits every MPI, as long as it is that MPI's own. A site without one, such as a Cray, has a fitting srun.
library='import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.get_vendor()[0])'
if [ -n "${FCCL_LAUNCHER:-}" ]; then
    read -ra launcher <<<"$FCCL_LAUNCHER"
elif command -v mpirun >/dev/null; then
    launcher=(mpirun --bind-to none) # Open MPI would put all threads of a rank on one core
else
    case $(python -c "$library") in
        "Open MPI") launcher=(srun --mpi=pmix) ;;
        MPICH | Intel*) launcher=(srun --mpi=pmi2) ;;
        *) launcher=(srun) ;; # the site's default
    esac
fi

if [ "${launcher[0]}" = srun ]; then
    # A rank that dies ends the job, but not by --kill-on-bad-exit=1: that kills ranks which are about to leave
    # with exit code 2 or 75, and makes it 143.
    launcher+=(--kill-on-bad-exit=0 --wait=10)
    unset SLURM_NTASKS_PER_NODE # already heeded; srun warns where it does not divide the tasks
    # MPICH names its shared memory by job and step. A killed one leaves it behind, and a requeued job, whose
    # steps count from 0 again, would hang on it.
    for ((i = 0; i < ${SLURM_RESTART_COUNT:-0} * ${each:-1}; i++)); do srun --nodes=1 --ntasks=1 true; done
fi

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.tcache_count=0} # wide models on CPUs then need less memory
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it from the job by itself

# SLURM signals this shell alone, for ranks are not always in a step of their own. TERM it sends to all.
stopping=
federation=
trap 'stopping=1; [ -z "$federation" ] || kill -USR1 $federation 2>/dev/null' USR1
trap 'stopping=1' TERM

# Run a federation with these settings; returns its exit code.
federate() {
    [ -z "$stopping" ] || return 75
    "${launcher[@]}" -n "$SLURM_NTASKS" python -m fccl_mpi.run "$@" &
    federation=$!
    while kill -0 $federation 2>/dev/null; do wait $federation; done # a signal interrupts wait
    wait $federation
    local code=$?
    federation=
    return $code
}

# End the job with this exit code. 75: stopped on request. The same command goes on from the last checkpoint,
# unless the job was cancelled meanwhile.
leave() {
    local job=$SLURM_JOB_ID # of an array, this task alone: one of them has the id of all
    [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    if [ "$1" = 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ] \
        && [ "$(squeue --noheader --job="$job" --format=%T)" = RUNNING ]; then
        scontrol requeue "$job"
    fi
    exit "$1"
}

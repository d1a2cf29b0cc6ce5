# What the batch scripts have in common; they source it with the run's settings as "$@". It starts a rank of
# fccl_mpi.run for every task of the job, asks the run to stop before the time is up, and returns to the queue
# until it is finished.

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
    for ((i = 0; i < ${SLURM_RESTART_COUNT:-0}; i++)); do srun --nodes=1 --ntasks=1 true; done
fi

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it from the job by itself

# SLURM signals this shell alone, for ranks are not always in a step of their own. TERM it sends to all.
"${launcher[@]}" -n "$SLURM_NTASKS" python -m fccl_mpi.run "$@" &
federation=$!
trap 'kill -USR1 $federation' USR1
trap : TERM
while kill -0 $federation 2>/dev/null; do wait $federation; done # a signal interrupts wait
wait $federation
code=$?

# 75: stopped on request. The same command goes on from the last checkpoint, unless the job was cancelled meanwhile.
if [ $code = 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ] \
    && [ "$(squeue --noheader --job="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code

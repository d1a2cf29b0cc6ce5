"""The one exception that is the user's to mend."""


class UserError(ValueError):
    """Something the user can put right: shown as one sentence without a traceback, exit code 2.

    The sentence says what is wrong, where (rank, participant, file, key) and what to do.
    """

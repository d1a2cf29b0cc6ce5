"""Errors that are the user's to mend."""


class UserError(ValueError):
    """Something the user can put right: shown as one sentence without a traceback, exit code 2.

    The sentence says what is wrong, where (rank, participant, file, key) and what to do.
    """


class AgreedError(UserError):
    """A UserError that every rank raises at the same place, so that none waits for another."""

"""Errors that end a job, other than the errors of stores."""


class JobFailedError(Exception):
    """A job of Spark failed for a reason that is not one of kip30's errors."""


class IncompleteRunError(Exception):
    """The run stopped before its end; what is done is entered in the manifest."""


class KeysNotWrittenError(Exception):
    """Some keys of a DataFrame were not written; the message names them and counts the others."""

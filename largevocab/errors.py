"""Mistakes that a user can mend."""


class UserError(ValueError):
  """Bad input. The message is one line that names the key, file, line or shape and the
  remedy; the command line prints it alone, without a traceback."""

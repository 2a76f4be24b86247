"""The version of the distribution, in this one place (read by the build and by `--version`)."""

__version__ = "0.1.0"

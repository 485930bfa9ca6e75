"""Predictions at any scale, from one rank's program."""

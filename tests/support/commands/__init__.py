"""Calls of the commands, commands in forked processes, and the texts that they print."""

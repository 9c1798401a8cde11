"""The daemon, as people use it: the real command, real processes."""

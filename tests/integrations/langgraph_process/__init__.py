"""The run of a graph in a process that can be killed."""

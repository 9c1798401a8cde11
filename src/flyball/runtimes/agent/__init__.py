"""Units that are Python functions: what they are given (a context), and how they are run, inline or in a process.

Inline they share this process: cheap, by the thousand, and at their mercy. What cannot be trusted to end gets a process
of its own, which can be killed.
"""

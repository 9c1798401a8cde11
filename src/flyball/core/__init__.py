"""The heart: time, windows, decisions, events, failures, the shape of a policy, codec and preflight.

Everything here is pure. The present is an argument; nothing reads a clock, throws dice or does I/O.
"""

"""The fire drill: every safeguard is provoked in earnest, under the user's own numbers, and has to be seen to fire.

Nothing here decides, and nothing is faked: real children, a real store, a real daemon, real kill -9, each in a scratch
folder of its own. What is seen is read from the journal, from what commands answer, and from the processes themselves.
Each exercise knows also what it sees if its safeguard is not there, so that its absence is found and not waited for.
"""

"""Adapters: other people's agent frameworks make their steps known here, without changes to anybody's agent.

Each is an extra and imports its framework when it is imported itself; nothing else imports them. An adapter decides
nothing. It asks leave where the framework lets it, tells the model what the answer says, and raises where the run has
to end.
"""

"""Hosts of a fleet: each holds a lease on the store that all share. Who cannot renew it ends what it runs, in time; who
finds one that ran out fences it, and what it ran is lost and taken over."""

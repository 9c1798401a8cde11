"""What all tests share: hypothesis makes up the same cases each time, so that a failure is one for everybody."""

from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None, deadline=None, print_blob=True)
settings.load_profile("same")

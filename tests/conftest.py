"""Settings for every test that uses hypothesis."""

from hypothesis import settings

# The same examples every time, so that a failure is about the change at hand; `make fuzz` looks for new ones.
# No deadline: the first call of a kernel compiles it.
settings.register_profile("mussurana", derandomize=True, deadline=None)
settings.load_profile("mussurana")

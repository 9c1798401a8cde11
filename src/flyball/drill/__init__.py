"""The fire drill: every safeguard is provoked through the real path, and has to fire."""

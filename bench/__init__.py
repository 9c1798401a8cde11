"""Speed beside peers, in one run, as ratios: `python -m bench`."""

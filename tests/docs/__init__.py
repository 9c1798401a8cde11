"""What README and docs tell people to type is typed here. Where to add something: `tables.py`."""

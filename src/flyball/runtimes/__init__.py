"""The hands: what starts, watches and ends things, and obeys the governor. One place to run things a file."""

"""A unit of the fleet: it does nothing but write down that it lives, a few hundred times a second, by a clock that is
the same for all processes of this machine. So whoever reads it sees when two lived at once, whatever flyball says."""

import os
import time

EVERY = 0.005


def main() -> None:
    """Live until killed."""
    me = f"{os.environ['FLYBALL_RUN']} {os.environ['FLYBALL_HOST__NAME']} {os.getpid()}"
    notes = os.open(
        f"{os.environ['NOTES']}/{os.environ['FLYBALL_UNIT']}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
    )
    while True:
        os.write(notes, f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {me}\n".encode())
        time.sleep(EVERY)


if __name__ == "__main__":
    main()

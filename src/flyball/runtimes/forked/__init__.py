"""One function in a forked child of the program, which can be killed, and which reaches the program for all that is
the program's: its governor, its store, and whatever else it offers as a service.

A fork and not a new interpreter, because what is run is full of closures, which no other process can import."""

from flyball.runtimes.forked.link import Cut, Link
from flyball.runtimes.forked.packing import CannotRead, CannotSend, Raised
from flyball.runtimes.forked.parent import Forked, Gone, Prompt, clear
from flyball.runtimes.forked.remote import RemoteGovernor, governor_services

__all__ = [
    "CannotRead",
    "CannotSend",
    "Cut",
    "Forked",
    "Gone",
    "Link",
    "Prompt",
    "Raised",
    "RemoteGovernor",
    "clear",
    "governor_services",
]

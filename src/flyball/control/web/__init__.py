"""The page and its API over HTTP: who comes in, and how a verb is asked for there. What a verb means is not known here.

Whatever comes in is untrusted until its token is known: nothing but `/health` is answered without one.
"""

from typing import Final

ADDRESS: Final = "http.json"
"""A file in the state folder with the address in force. There is no secret in it."""

"""The fleet from outside: real daemons, a real PostgreSQL, links that are cut, and witnesses that tell who ran when."""

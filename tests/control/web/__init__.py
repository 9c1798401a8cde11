"""Tests of the page and its API, over real sockets."""

"""Metrics: what Prometheus is told, counted from the journal; and traces, made of it. Nothing here decides, and nothing
is asked of the governor: who wants to know what happened reads the journal."""

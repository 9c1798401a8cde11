"""Tables for people: SQL views over the states, to be looked at with any tool for the database that keeps them.

A view is computed from the states when somebody looks, so it cannot disagree with what the policies know.
"""

from typing import Final

_FAILURES: Final = """
SELECT
    failure.key AS fingerprint,
    state.subject AS task_id,
    coalesce(json_extract(failure.value, '$.error'), '') AS error_type,
    json_extract(failure.value, '$.count') AS count,
    json_extract(failure.value, '$.first') / 1e6 AS first_seen,
    json_extract(failure.value, '$.last') / 1e6 AS last_seen,
    coalesce(wait.until, json_extract(failure.value, '$.last')) / 1e6 AS cooldown_until,
    json_extract(failure.value, '$.count') >= {failures_max} AS quarantined
FROM state, json_each(state.data, '$.failures') AS failure
LEFT JOIN (
    SELECT state.subject, failure.key AS fingerprint, json_extract(failure.value, '$.until') AS until
    FROM state, json_each(state.data, '$.failures') AS failure
    WHERE state.policy = 'cooldown' AND state."by" = 'unit'
) AS wait ON wait.subject = state.subject AND wait.fingerprint = failure.key
WHERE state.policy = 'quarantine' AND state."by" = 'unit'
"""

# The same in PostgreSQL's words.
_POSTGRES_FAILURES: Final = """
SELECT
    failure.key AS fingerprint,
    state.subject AS task_id,
    coalesce(failure.value ->> 'error', '') AS error_type,
    (failure.value ->> 'count')::bigint AS count,
    (failure.value ->> 'first')::bigint / 1e6::float8 AS first_seen,
    (failure.value ->> 'last')::bigint / 1e6::float8 AS last_seen,
    coalesce(wait.until, (failure.value ->> 'last')::bigint) / 1e6::float8 AS cooldown_until,
    (failure.value ->> 'count')::bigint >= {failures_max} AS quarantined
FROM state CROSS JOIN LATERAL json_each(state.data::json -> 'failures') AS failure
LEFT JOIN (
    SELECT state.subject, failure.key AS fingerprint, (failure.value ->> 'until')::bigint AS until
    FROM state CROSS JOIN LATERAL json_each(state.data::json -> 'failures') AS failure
    WHERE state.policy = 'cooldown' AND state.by = 'unit'
) AS wait ON wait.subject = state.subject AND wait.fingerprint = failure.key
WHERE state.policy = 'quarantine' AND state.by = 'unit'
"""


def failures_view(failures_max: int) -> str:
    """The SELECT of the view `failures`: one row for each kind of failure of each unit that is remembered. Times are
    Unix seconds; a wait that is forgotten ended when it began. `failures_max` is the failure at which a unit is
    quarantined: the states do not say."""
    return _FAILURES.format(failures_max=int(failures_max))


def postgres_failures_view(failures_max: int) -> str:
    """The same for a PostgreSQL."""
    return _POSTGRES_FAILURES.format(failures_max=int(failures_max))

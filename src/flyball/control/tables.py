"""Tables for people: SQL views over the states, to be looked at with any SQLite tool.

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


def failures_view(failures_max: int) -> str:
    """The SELECT of the view `failures`: one row for each kind of failure of each unit that is remembered. Times are
    Unix seconds; a wait that is forgotten ended when it began. `failures_max` is the failure at which a unit is
    quarantined: the states do not say."""
    return _FAILURES.format(failures_max=int(failures_max))

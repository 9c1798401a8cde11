-- What the server does in one round trip. Made anew with every step of the tables; see schema.py.
--
-- 1718384994 is `flyb`: whoever writes holds the advisory lock (1718384994, 1), from before it looks until it has
-- committed. It is fairer and cheaper than the lock of a row, and nobody is left holding it.

-- The end of the journal, and of these keys the version (0: there is no record), and the record if it is another one
-- than the version that was seen. All as of one instant.
CREATE OR REPLACE FUNCTION flyball.look(
    policies text[], bys text[], subjects text[], seen bigint[],
    OUT seq bigint, OUT at bigint, OUT version bigint, OUT now bigint, OUT base bigint,
    OUT versions bigint[], OUT datas text[]
) LANGUAGE sql VOLATILE AS $$
    SELECT head.seq, head.at, head.version, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, head.base,
        found.versions, found.datas
    FROM flyball.head, (
        SELECT array_agg(coalesce(state.version, 0) ORDER BY key.place) AS versions,
            array_agg(CASE WHEN state.version <> key.seen THEN state.data END ORDER BY key.place) AS datas
        FROM unnest(policies, bys, subjects, seen) WITH ORDINALITY AS key (policy, by, subject, seen, place)
        LEFT JOIN flyball.state ON state.subject = key.subject AND state.by = key.by AND state.policy = key.policy
    ) AS found
$$;

-- Write what a group of drafts made, if all that they saw is still so. `result`: 'ok'; 'stale': it is not, and here is
-- what is; NULL: the connection was given up by its owner; 'new': the tables are those of a newer flyball.
--
-- What was seen need not be looked up where nobody has committed since: `seen_version` says since when, or is -1. Whoever
-- has been alone for a while does not even say what it saw (`seen` is NULL), and has to if it turns out not to be.
-- Every expression costs some microseconds in every transaction: so there are few of them on the usual way through.
CREATE OR REPLACE FUNCTION flyball.commit_drafts(
    knows integer, me bigint, my_token bigint,
    policies text[], bys text[], subjects text[], seen bigint[], seen_version bigint, seen_seq bigint, not_before bigint,
    put_policies text[], put_bys text[], put_subjects text[], put_datas text[],
    gone_policies text[], gone_bys text[], gone_subjects text[],
    lines integer, ats bigint[], units text[], events text[], verbs text[], bodies text[],
    journal_max bigint, wake boolean,
    OUT result text, OUT seq bigint, OUT at bigint, OUT version bigint, OUT now bigint,
    OUT base bigint, OUT versions bigint[], OUT datas text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    was flyball.head;
BEGIN
    PERFORM pg_advisory_xact_lock(1718384994, 1);
    SELECT h.* INTO was FROM flyball.head h;
    IF was.oldest > knows OR was.at > not_before OR (was.seq <> seen_seq AND seen_seq >= 0) THEN
        result := CASE WHEN was.oldest > knows THEN 'new' ELSE 'stale' END;
    ELSIF was.version <> seen_version THEN
        IF seen IS NULL OR EXISTS (
            SELECT FROM unnest(policies, bys, subjects, seen) AS key (policy, by, subject, seen)
            WHERE key.seen <> coalesce((
                SELECT s.version FROM flyball.state s
                WHERE s.subject = key.subject AND s.by = key.by AND s.policy = key.policy
            ), 0)
        ) THEN
            result := 'stale';
        END IF;
    END IF;
    IF result IS NOT NULL THEN
        SELECT l.seq, l.at, l.version, l.now, l.base, l.versions, l.datas
        INTO seq, at, version, now, base, versions, datas
        FROM flyball.look(policies, bys, subjects, seen) l;
        RETURN;
    END IF;
    IF was.mark > 0 OR was.seq + lines >= journal_max / 4 THEN
        PERFORM FROM flyball.writer w WHERE w.id = me FOR UPDATE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        -- What was changed after the mark is kept already.
        INSERT INTO flyball.undo
        SELECT was.mark, key.policy, key.by, key.subject, s.data
        FROM unnest(put_policies || gone_policies, put_bys || gone_bys, put_subjects || gone_subjects)
            AS key (policy, by, subject)
        LEFT JOIN flyball.state s ON s.subject = key.subject AND s.by = key.by AND s.policy = key.policy
        WHERE was.mark > 0 AND coalesce(s.version, 0) <= was.marked
        ON CONFLICT DO NOTHING;
        SELECT b.base, b.mark, b.marked INTO was.base, was.mark, was.marked
        FROM flyball.bound(was, was.seq + lines, ats[lines], journal_max) b;
    END IF;
    WITH mine AS (
        -- What came of it, should the answer be lost. Without this row the connection may write no more.
        UPDATE flyball.writer w SET token = my_token, seq = was.seq + lines, at = now() WHERE w.id = me RETURNING w.id
    ), put AS (
        INSERT INTO flyball.state AS s
        SELECT put.policy, put.by, put.subject, was.version + 1, put.data
        FROM mine, unnest(put_policies, put_bys, put_subjects, put_datas) AS put (policy, by, subject, data)
        ON CONFLICT ON CONSTRAINT state_pkey DO UPDATE SET version = excluded.version, data = excluded.data
    ), gone AS (
        DELETE FROM flyball.state s
        USING mine, unnest(gone_policies, gone_bys, gone_subjects) AS gone (policy, by, subject)
        WHERE s.subject = gone.subject AND s.by = gone.by AND s.policy = gone.policy
    ), added AS (
        INSERT INTO flyball.journal
        SELECT was.seq + line.place, line.at, line.unit, line.event, line.verb, line.body
        FROM mine, unnest(ats, units, events, verbs, bodies) WITH ORDINALITY
            AS line (at, unit, event, verb, body, place)
    )
    UPDATE flyball.head h SET seq = h.seq + lines, at = coalesce(ats[lines], h.at), version = h.version + 1,
        base = was.base, mark = was.mark, marked = was.marked
    FROM mine
    RETURNING 'ok' || CASE WHEN wake THEN pg_notify('flyball', '')::text ELSE '' END, h.seq, h.at, h.version,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, h.base
    INTO result, seq, at, version, now, base;
END
$$;

-- Keep the journal within its limit: a mark every quarter of it, and when it is full, the older half goes.
CREATE OR REPLACE FUNCTION flyball.bound(
    was flyball.head, last bigint, last_at bigint, journal_max bigint, OUT base bigint, OUT mark bigint, OUT marked bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    base := was.base;
    mark := was.mark;
    marked := was.marked;
    IF last > was.seq AND last - was.mark >= greatest(1, journal_max / 4) THEN
        INSERT INTO flyball.mark VALUES (last, last_at);
        mark := last;
        marked := was.version + 1;
    END IF;
    IF last - was.base > journal_max THEN
        base := coalesce((SELECT max(m.seq) FROM flyball.mark m WHERE last - m.seq >= journal_max / 2), was.base);
        DELETE FROM flyball.mark m WHERE m.seq < bound.base;
    END IF;
END
$$;

-- Begin the journal at the last mark that leaves so many entries, with a new mark if there is none near the end. How
-- many entries are forgotten by that; -1: the tables are those of a newer flyball.
CREATE OR REPLACE FUNCTION flyball.trim_journal(knows integer, keep bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    was flyball.head;
    first bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1718384994, 1);
    SELECT h.* INTO was FROM flyball.head h;
    IF was.oldest > knows THEN
        RETURN -1;
    END IF;
    IF was.seq - was.mark >= greatest(1, keep / 4) THEN
        INSERT INTO flyball.mark VALUES (was.seq, was.at);
        was.mark := was.seq;
        was.marked := was.version;
    END IF;
    first := coalesce((SELECT max(m.seq) FROM flyball.mark m WHERE was.seq - m.seq >= keep), was.base);
    DELETE FROM flyball.mark m WHERE m.seq < first;
    UPDATE flyball.head SET base = first, mark = was.mark, marked = was.marked;
    RETURN first - was.base;
END
$$;

-- Delete some of what was forgotten: entries first, then what was kept of records. Whether there may be more.
CREATE OR REPLACE FUNCTION flyball.sweep(chunk bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    first bigint := (SELECT h.base FROM flyball.head h);
    oldest bigint;
    gone bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1718384994, 2) THEN
        RETURN false;
    END IF;
    SELECT j.seq INTO oldest FROM flyball.journal j ORDER BY j.seq LIMIT 1;
    IF oldest <= first THEN
        DELETE FROM flyball.journal j WHERE j.seq <= least(first, oldest + chunk - 1);
        RETURN true;
    END IF;
    DELETE FROM flyball.undo u WHERE (u.mark, u.subject, u.by, u.policy) IN (
        SELECT o.mark, o.subject, o.by, o.policy FROM flyball.undo o WHERE o.mark < first ORDER BY o.mark LIMIT chunk
    );
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone = chunk;
END
$$;

CREATE OR REPLACE FUNCTION flyball.is_json(data text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM data::json;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END
$$;

-- A store as version 1 left it: four entries, of which the first two are forgotten. Never edit this file.
PRAGMA journal_mode = WAL;
CREATE TABLE state (
    policy TEXT NOT NULL, "by" TEXT NOT NULL, subject TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (subject, "by", policy)
) WITHOUT ROWID;
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY, at INTEGER NOT NULL,
    unit TEXT NOT NULL, event TEXT NOT NULL, verb TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX journal_unit ON journal (unit, seq);
CREATE TABLE mark (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE undo (
    mark INTEGER NOT NULL, policy TEXT NOT NULL, "by" TEXT NOT NULL, subject TEXT NOT NULL,
    data TEXT,
    PRIMARY KEY (mark, subject, "by", policy)
) WITHOUT ROWID;
INSERT INTO state VALUES ('counter', 'unit', 'a', '4');
INSERT INTO journal VALUES (3, 30, 'b', 'put', 'PROCEED', '{"subject": "b", "value": null}');
INSERT INTO journal VALUES (4, 40, 'a', 'put', 'PROCEED', '{"subject": "a", "value": 4}');
INSERT INTO mark VALUES (2, 20);
INSERT INTO undo VALUES (2, 'counter', 'unit', 'a', '2'), (2, 'counter', 'unit', 'b', '1');
PRAGMA application_id = 0x666C7962;
PRAGMA user_version = 1;

-- The local log: records in the order of their offsets, as they would lie on a Kafka partition.
-- SQLite in WAL mode: one writer at a time, readers never wait for it.

CREATE TABLE IF NOT EXISTS records (
    "offset"    INTEGER PRIMARY KEY AUTOINCREMENT,  -- from 1; never given twice, gaps are possible
    key         BLOB NOT NULL,                      -- case id (a manifest: producer id), UTF-8
    headers     TEXT NOT NULL,                      -- JSON array of [name, value] pairs
    value       BLOB NOT NULL,                      -- the eval case as JSON, UTF-8
    appended_at REAL NOT NULL                       -- Unix seconds, the writer's clock
) STRICT;

CREATE TABLE IF NOT EXISTS cursors (
    name        TEXT PRIMARY KEY,                   -- who reads, e.g. the Kafka topic fed from here
    next_offset INTEGER NOT NULL,                   -- the first offset not yet handed on
    updated_at  REAL NOT NULL                       -- Unix seconds
) STRICT;

CREATE TABLE IF NOT EXISTS meta (
    name  TEXT PRIMARY KEY,                         -- log_id: tells this log from another one
    value TEXT NOT NULL                             --         that lay at the same path before
                                                    -- boot_id: the machine's run that last wrote
) STRICT;

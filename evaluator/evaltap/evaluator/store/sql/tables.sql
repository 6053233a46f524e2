-- The tables of an evaltap database.  Append-only: no primary keys, no unique or secondary indexes
-- (that is where DuckDB's write-ahead log and index bugs live); rows are de-duplicated when they are
-- written, and readers use the latest_* views.  All times are UTC.

CREATE TABLE IF NOT EXISTS meta (
  key   VARCHAR NOT NULL,             -- schema_version: the layout of this file; cluster:<topic>: where it was read
  value VARCHAR NOT NULL
);

-- A case is a session; of each run or version of the agent another one, which is part of eval_set_id.  One row for each revision of it: every new or re-emitted turn adds one.
CREATE TABLE IF NOT EXISTS cases (
  app_name              VARCHAR NOT NULL,
  eval_set_id           VARCHAR NOT NULL,
  eval_id               VARCHAR NOT NULL,
  revision              INTEGER NOT NULL,  -- sum of the revisions of its turns
  eval_mode             VARCHAR,
  user_id               VARCHAR,
  turn_count            INTEGER NOT NULL,
  service               VARCHAR,
  framework             VARCHAR,
  convention            VARCHAR,
  recorder_version      VARCHAR,
  inclusion_probability DOUBLE,            -- chance in (0, 1] that sampling kept it: the largest of its turns; NULL: 1
  case_json             VARCHAR NOT NULL,  -- the eval case without its turns
  landed_at             TIMESTAMP NOT NULL
);

-- A turn: the user's message, what the agent did, its answer.  One row for each revision of it.
CREATE TABLE IF NOT EXISTS turns (
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  started_at    TIMESTAMP,
  status        VARCHAR,              -- ok | error | incomplete; NULL: not recorded
  user_text     VARCHAR,
  final_text    VARCHAR,              -- NULL: there was none, or it was not captured (see capture)
  tool_count    INTEGER NOT NULL,
  models        VARCHAR[],
  input_tokens  BIGINT,
  output_tokens BIGINT,
  cost_usd      DOUBLE,
  latency_ms    DOUBLE,
  error_type    VARCHAR,
  error_message VARCHAR,
  trace_id      VARCHAR,
  root_span_id  VARCHAR,
  close_reason  VARCHAR,
  capture       JSON,                 -- {field: missing | truncated | redacted | synthesized | ambiguous}
  actual_json   VARCHAR NOT NULL,     -- the turn as it was recorded
  expected_json VARCHAR,              -- the turn as it should have been; NULL: no reference
  event_id      VARCHAR NOT NULL,     -- ce_id of the record that brought it
  producer_id   VARCHAR NOT NULL,
  seq           BIGINT NOT NULL,
  landed_seq    BIGINT NOT NULL,      -- order of landing in this file
  landed_at     TIMESTAMP NOT NULL,
  sampling_reason       VARCHAR,      -- head, or the rule that decided to keep it; NULL: not sampled
  inclusion_probability DOUBLE,       -- chance in (0, 1] that it was kept; NULL: 1
  agent_name    VARCHAR,
  version       VARCHAR,              -- of the agent: a release, a commit, a prompt
  environment   VARCHAR,              -- where it ran: production, staging
  tags          VARCHAR[],
  run           VARCHAR               -- name of the recording, where cases are recorded several times
);

CREATE TABLE IF NOT EXISTS tool_calls (
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  call_index    INTEGER NOT NULL,     -- from 0, in the order of the turn
  call_id       VARCHAR,
  tool_name     VARCHAR,
  agent         VARCHAR,
  parent_id     VARCHAR,              -- the enclosing agent-as-tool call
  arguments     JSON,
  result        JSON,
  error_type    VARCHAR,
  error_message VARCHAR,
  started_at    TIMESTAMP,
  duration_ms   DOUBLE
);

-- What users, or whoever reviews for them, think of turns; append-only, one row for each feedback.
CREATE TABLE IF NOT EXISTS feedback (
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR,              -- NULL: see trace_id; both NULL: the session as a whole
  trace_id      VARCHAR,
  feedback_id   VARCHAR NOT NULL,
  name          VARCHAR NOT NULL,     -- what was asked, for example thumbs
  positive      BOOLEAN,              -- thumbs up or down; NULL: neither
  score         DOUBLE,               -- on the scale of the name
  comment       VARCHAR,
  correction    VARCHAR,              -- what the answer should have been
  given_by      VARCHAR,
  producer_id   VARCHAR NOT NULL,
  given_at      TIMESTAMP NOT NULL,
  landed_at     TIMESTAMP NOT NULL
);

-- Records that could not be landed, with their reason and their raw bytes.
CREATE TABLE IF NOT EXISTS dead_letters (
  topic             VARCHAR NOT NULL,
  partition_number  INTEGER NOT NULL,
  record_offset     BIGINT NOT NULL,
  reason            VARCHAR NOT NULL,
  detail            VARCHAR NOT NULL,
  parked            BOOLEAN NOT NULL,  -- not broken but too new: replay it after an upgrade
  record_key        BLOB,
  record_headers    JSON,  -- [name, text] each; [name, null, base64] for a value that is not UTF-8
  record_value      BLOB,
  landed_at         TIMESTAMP NOT NULL
);

-- Where to go on reading each log; written in the transaction that writes the rows.
CREATE TABLE IF NOT EXISTS offsets (
  topic            VARCHAR NOT NULL,
  partition_number INTEGER NOT NULL,
  next_offset      BIGINT NOT NULL,
  landed_at        TIMESTAMP NOT NULL
);

-- Traces of raw telemetry that were read but lie beyond the offsets, in part or as a whole, because an
-- older trace of the partition was still open; one row for each partition they lie in.
CREATE TABLE IF NOT EXISTS read_traces (
  trace_id         VARCHAR NOT NULL,
  topic            VARCHAR NOT NULL,
  partition_number INTEGER NOT NULL,
  first_offset     BIGINT NOT NULL,
  next_offset      BIGINT NOT NULL,     -- what lies before it was read
  memory           VARCHAR NOT NULL,    -- the assembler's own note: readings, runs, digests of turns
  landed_at        TIMESTAMP NOT NULL
);

-- What producers say they numbered and dropped; proves completeness.
CREATE TABLE IF NOT EXISTS manifests (
  producer_id VARCHAR NOT NULL,
  highest_seq BIGINT NOT NULL,
  drops       JSON NOT NULL,          -- {reason: count}
  closing     BOOLEAN NOT NULL,
  stated_at   TIMESTAMP NOT NULL,
  landed_at   TIMESTAMP NOT NULL
);

-- The numbers of records that were consumed, whatever became of them; v_completeness adds them up.
CREATE TABLE IF NOT EXISTS consumed_ranges (
  producer_id VARCHAR NOT NULL,
  first_seq   BIGINT NOT NULL,
  last_seq    BIGINT NOT NULL,
  landed_at   TIMESTAMP NOT NULL
);

-- The numbers of records whose turns were erased on somebody's request.
CREATE TABLE IF NOT EXISTS erasures (
  producer_id VARCHAR NOT NULL,
  seq         BIGINT NOT NULL,
  erased_at   TIMESTAMP NOT NULL
);

-- A scoring run: one set of metrics applied to files or to what has landed.
CREATE TABLE IF NOT EXISTS runs (
  run_id          VARCHAR NOT NULL,
  kind            VARCHAR NOT NULL,   -- files | landed | live | gate
  source          VARCHAR NOT NULL,
  evaltap_version VARCHAR NOT NULL,
  started_at      TIMESTAMP NOT NULL
);

CREATE TABLE IF NOT EXISTS run_metrics (
  run_id            VARCHAR NOT NULL,
  metric_index      INTEGER NOT NULL,  -- order in the metrics file
  metric_name       VARCHAR NOT NULL,
  evaluator_name    VARCHAR NOT NULL,
  evaluator_version VARCHAR NOT NULL,
  threshold         DOUBLE NOT NULL,
  metric_digest     VARCHAR NOT NULL,  -- hash of the metric and its evaluator's version
  metric_json       VARCHAR NOT NULL   -- without keys
);

CREATE TABLE IF NOT EXISTS run_ends (
  run_id     VARCHAR NOT NULL,
  case_count BIGINT NOT NULL,
  ended_at   TIMESTAMP NOT NULL
);

-- One row for each case revision, metric version and run.
CREATE TABLE IF NOT EXISTS scores (
  score_id          VARCHAR NOT NULL,  -- hash of run, case, revision and metric version
  run_id            VARCHAR NOT NULL,
  app_name          VARCHAR NOT NULL,
  eval_set_id       VARCHAR NOT NULL,
  eval_id           VARCHAR NOT NULL,
  revision          INTEGER NOT NULL,
  metric_name       VARCHAR NOT NULL,
  score             DOUBLE,            -- NULL: there is none, see status and reason
  status            VARCHAR NOT NULL,  -- passed | failed | not_evaluated | error | crashed (the run failed)
  threshold         DOUBLE NOT NULL,
  reason            VARCHAR,
  evaluator_name    VARCHAR NOT NULL,
  evaluator_version VARCHAR NOT NULL,
  metric_digest     VARCHAR NOT NULL,
  turn_count        INTEGER NOT NULL,
  scored_at         TIMESTAMP NOT NULL
);

-- One row for each turn revision, metric version and run.
CREATE TABLE IF NOT EXISTS turn_scores (
  score_id      VARCHAR NOT NULL,      -- hash of run, turn, its revision and metric version
  run_id        VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_index    INTEGER NOT NULL,      -- from 0
  turn_revision INTEGER NOT NULL,
  metric_name   VARCHAR NOT NULL,
  score         DOUBLE,
  status        VARCHAR NOT NULL,      -- as in scores; crashed is the turn whose run failed
  threshold     DOUBLE NOT NULL,
  reason        VARCHAR,
  metric_digest VARCHAR NOT NULL,
  scored_at     TIMESTAMP NOT NULL
);

-- What a judge said, sample by sample: of each rubric, or of the whole turn (an empty rubric_id).
CREATE TABLE IF NOT EXISTS rubric_votes (
  run_id        VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  metric_name   VARCHAR NOT NULL,
  sample_index  INTEGER NOT NULL,      -- from 0
  rubric_id     VARCHAR NOT NULL,
  score         DOUBLE,                -- NULL: the sample could not be used, see reason
  reason        VARCHAR,
  scored_at     TIMESTAMP NOT NULL,
  evidence       VARCHAR,              -- what the judge quotes for it
  evidence_found BOOLEAN,              -- the quote stands in the trace; NULL: no quote was asked for
  confidence     DOUBLE                -- from 0 to 1, by the judge's own word; NULL: not asked for
);

-- Every answer of a judge, and what it cost; one row for each sample, with or without a verdict.
CREATE TABLE IF NOT EXISTS judge_calls (
  run_id        VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  metric_name   VARCHAR NOT NULL,
  sample_index  INTEGER NOT NULL,      -- as in rubric_votes; -1: asked beforehand, to make the question
  judge         VARCHAR NOT NULL,      -- judge | panel-1, panel-2, ... | second (of a cascade)
  model         VARCHAR,               -- as the endpoint names it; NULL: there was no answer
  status        VARCHAR NOT NULL,      -- passed | failed | error | not_evaluated (not asked, see reason)
  score         DOUBLE,
  reason        VARCHAR,               -- why there is no verdict; NULL when there is one
  cached        BOOLEAN NOT NULL,      -- answered from the cache: nothing was spent now
  input_tokens  BIGINT,                -- 0 when cached; NULL: not told
  output_tokens BIGINT,
  cost_usd      DOUBLE,                -- 0 when cached; NULL: price or tokens are not known
  saved_usd     DOUBLE,                -- what the cached answer cost when it was given
  latency_ms    DOUBLE,
  scored_at     TIMESTAMP NOT NULL
);

-- How far rows were published on topics; append-only, the newest row of a name counts.
CREATE TABLE IF NOT EXISTS outbox (
  name            VARCHAR NOT NULL,    -- what is published, and the topic
  published_until TIMESTAMP NOT NULL,  -- time and key of the last row that the broker has taken
  published_key   VARCHAR NOT NULL,
  written_at      TIMESTAMP NOT NULL
);

-- Turns that people are asked about; append-only.  An item is the same content for the same purpose, so nothing
-- is queued twice.
CREATE TABLE IF NOT EXISTS review_items (
  item_id               VARCHAR NOT NULL,  -- hash of the queue and of what is reviewed
  queue                 VARCHAR NOT NULL,
  app_name              VARCHAR NOT NULL,
  eval_set_id           VARCHAR NOT NULL,
  eval_id               VARCHAR NOT NULL,
  invocation_id         VARCHAR NOT NULL,
  turn_revision         INTEGER NOT NULL,
  reason                VARCHAR NOT NULL,  -- why it was picked
  priority              DOUBLE NOT NULL,   -- the largest first
  needed                INTEGER NOT NULL,  -- reviewers, 1 to 3
  inclusion_probability DOUBLE,            -- of the draw for labels; NULL: it was not drawn
  added_at              TIMESTAMP NOT NULL
);

-- What reviewers did; append-only: a change of mind and an undo are rows, too.
CREATE TABLE IF NOT EXISTS reviews (
  review_id     VARCHAR NOT NULL,
  item_id       VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  reviewer      VARCHAR NOT NULL,
  action        VARCHAR NOT NULL,          -- claim | approve | edit | reject | skip | undo
  after         JSON,                      -- of an edit: the turn as it should be
  labels        VARCHAR[],
  comment       VARCHAR,
  undoes        VARCHAR,                   -- the review_id that an undo takes back
  reviewed_at   TIMESTAMP NOT NULL
);

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
  kind            VARCHAR NOT NULL,   -- files | landed | live | gate (its metrics are the gate's dimensions)
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
  metric_json       VARCHAR NOT NULL,  -- without keys
  references_digest VARCHAR            -- which reference_cases it compared landed cases with; NULL: none
);

-- What landed cases were expected to be, as given by --references; kept so that readers see it, too.
CREATE TABLE IF NOT EXISTS reference_cases (
  references_digest VARCHAR NOT NULL,  -- hash of all references of the file and of how cases are joined
  join_by           VARCHAR NOT NULL,  -- eval_id | user_text | auto
  eval_id           VARCHAR NOT NULL,  -- of the reference
  said              VARCHAR[] NOT NULL, -- hashes of what its user says, turn by turn; the words are not kept
  turns_json        VARCHAR NOT NULL,  -- JSON array of the expected turns, without the user's words
  kept_at           TIMESTAMP NOT NULL
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

-- The gates of runs of kind gate.
CREATE TABLE IF NOT EXISTS gate_runs (
  run_id    VARCHAR NOT NULL,
  gate_json VARCHAR NOT NULL,          -- with the thresholds that held, without keys
  digest    VARCHAR NOT NULL           -- hash of gate_json
);

-- What a gate found; one row for each answer that it judged.  `scores` has the verdict on each dimension under the
-- same run and revision, with the dimension as the metric.
CREATE TABLE IF NOT EXISTS gate_results (
  run_id         VARCHAR NOT NULL,
  app_name       VARCHAR NOT NULL,
  eval_set_id    VARCHAR NOT NULL,
  eval_id        VARCHAR NOT NULL,
  revision       INTEGER NOT NULL,     -- as in scores: counts the answers to the case in this file
  trial          INTEGER NOT NULL,     -- from 1: the case that comes again, or another loop of `revise`
  attempt        INTEGER NOT NULL,     -- from 1, in its trial: more than one where `revise` asked again
  status         VARCHAR NOT NULL,     -- passed | failed | incomplete (something could not be checked)
  passed         BOOLEAN NOT NULL,
  feedback_given VARCHAR,              -- what the agent was told before it; NULL: the first attempt
  feedback       VARCHAR NOT NULL,     -- what the gate said; empty when it passed
  user_id        VARCHAR,
  case_json      VARCHAR NOT NULL,     -- the eval case as it was judged
  judged_at      TIMESTAMP NOT NULL
);

-- Each dimension of a gate_results row.
CREATE TABLE IF NOT EXISTS gate_dimensions (
  run_id      VARCHAR NOT NULL,
  app_name    VARCHAR NOT NULL,
  eval_set_id VARCHAR NOT NULL,
  eval_id     VARCHAR NOT NULL,
  revision    INTEGER NOT NULL,
  trial       INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  dimension_index INTEGER NOT NULL,    -- order in the gate file
  name        VARCHAR NOT NULL,
  status      VARCHAR NOT NULL,        -- passed | failed | informs (no threshold) | not_evaluated | error | crashed
  score       DOUBLE,                  -- NULL: a metric of it has none
  threshold   DOUBLE NOT NULL,         -- 0 where it has none
  reason      VARCHAR NOT NULL,
  metrics     JSON NOT NULL,           -- [{metricName, score, reason}]: its score is their mean
  judged_at   TIMESTAMP NOT NULL
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

-- What people did on the page besides reviewing; append-only: taking something back is a row, too.
CREATE TABLE IF NOT EXISTS changes (
  change_id   VARCHAR NOT NULL,
  app_name    VARCHAR,                     -- of the case that it is about; NULL: of none
  eval_set_id VARCHAR,
  eval_id     VARCHAR,
  who         VARCHAR NOT NULL,
  role        VARCHAR NOT NULL,
  action      VARCHAR NOT NULL,            -- pick | drop | export | add_to_set | take_from_set | invite | log_in | end_session
  target      VARCHAR NOT NULL,            -- the file, person or form; empty where the case says it
  detail      JSON,                        -- {cases: [...]} of a set; no content of cases
  undoes      VARCHAR,                     -- the change_id that this takes back
  changed_at  TIMESTAMP NOT NULL
);

-- What watches on live traffic found; append-only: when an alarm begins and when it ends is a row each.
CREATE TABLE IF NOT EXISTS alerts (
  alert_id VARCHAR NOT NULL,               -- hash of watch, slice and begin: one for all rows of an alarm
  watch    VARCHAR NOT NULL,
  slice    JSON NOT NULL,                  -- {dimension: value}; {} is all that is watched
  status   VARCHAR NOT NULL,               -- firing | resolved
  turned_at TIMESTAMP NOT NULL,            -- when it began or ended, in the time of the traffic
  event    JSON NOT NULL,                  -- as `monitor replay --json` says it, without the cases
  told     BOOLEAN NOT NULL,               -- receivers are told; not of what was over when it was found
  noted_at TIMESTAMP NOT NULL
);

-- Cases to look at for an alarm.
CREATE TABLE IF NOT EXISTS alert_cases (
  alert_id VARCHAR NOT NULL,
  eval_id  VARCHAR NOT NULL,
  noted_at TIMESTAMP NOT NULL
);

-- Which receivers were told of alarms; a notice without a row here is still to be sent.
CREATE TABLE IF NOT EXISTS alert_deliveries (
  alert_id  VARCHAR NOT NULL,
  status    VARCHAR NOT NULL,              -- of the alarm: firing | resolved
  receiver  VARCHAR NOT NULL,              -- its name or type, and its place in the file
  outcome   VARCHAR NOT NULL,              -- delivered | gave_up
  detail    VARCHAR,                       -- why it could not be delivered
  attempts  INTEGER NOT NULL,
  ended_at  TIMESTAMP NOT NULL
);

-- From when on the traffic of a watch counts (`monitor rebase`); the newest row of a watch does.
CREATE TABLE IF NOT EXISTS watch_starts (
  watch    VARCHAR NOT NULL,
  since    TIMESTAMP NOT NULL,
  noted_at TIMESTAMP NOT NULL
);

-- Which turns a rule of the monitoring file lets a metric score; append-only, the newest row of a turn revision and
-- metric version counts.  Without rules there are no rows: everything is scored.
CREATE TABLE IF NOT EXISTS sampling_decisions (
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  metric_name   VARCHAR NOT NULL,
  metric_digest VARCHAR NOT NULL,
  rule          VARCHAR,                   -- NULL: no rule holds
  unit          VARCHAR NOT NULL,          -- turn | session: what shares a draw
  probability   DOUBLE NOT NULL,           -- chance of being scored, fixed before the draw; 0: uncovered
  draw          DOUBLE NOT NULL,           -- from 0 to 1, a hash of the session or turn; below the probability: scored
  decision      VARCHAR NOT NULL,          -- score | skip | uncovered
  reason        VARCHAR NOT NULL,          -- rate | always:<n> | after:<metric> | budget | no_rule
  decided_at    TIMESTAMP NOT NULL
);

-- Summaries: what the web page reads instead of the rows above, of which they are made: `consume --ui` and
-- `ui` keep them true.  Empty in a file that no page has shown.  A turn's time is when it started, or landed
-- where that is not known; only its newest revision counts, and its weight is one over its inclusion
-- probability.

-- One row for each case as it stands now, and for each that was scored from a file.
CREATE TABLE IF NOT EXISTS case_index (
  case_key              UBIGINT NOT NULL,  -- md5_number_lower(concat_ws(chr(31), app_name, eval_set_id, eval_id))
  app_name              VARCHAR NOT NULL,
  eval_set_id           VARCHAR NOT NULL,
  eval_id               VARCHAR NOT NULL,
  first_at              TIMESTAMP NOT NULL,  -- time of its first and its last turn, else of its scores
  last_at               TIMESTAMP NOT NULL,
  first_seq             BIGINT,              -- all revisions of its turns have a landed_seq from .. to
  last_seq              BIGINT,
  first_scored_at       TIMESTAMP,           -- all its scores and turn_scores have a scored_at from .. to
  last_scored_at        TIMESTAMP,
  turns                 INTEGER NOT NULL,
  calls                 INTEGER NOT NULL,
  errors                INTEGER NOT NULL,    -- turns with status error or incomplete
  cost_usd              DOUBLE,              -- NULL: no turn says
  latency_ms            DOUBLE,              -- of its slowest turn
  tokens                HUGEINT,             -- in and out; NULL: no turn says
  user_id               VARCHAR,
  service               VARCHAR,
  models                VARCHAR[],
  opening               VARCHAR,             -- the first 160 letters of what the user said first
  tools                 VARCHAR[],           -- by first use
  path                  VARCHAR,             -- the calls of each turn joined by ' > ', turns with calls by ' | '
  failed                VARCHAR[],           -- metrics by the status of their latest score; failed: crashed, too
  errored               VARCHAR[],
  not_evaluated         VARCHAR[],
  passed                VARCHAR[],
  lowest                DOUBLE,              -- of the latest scores
  severity              TINYINT NOT NULL,    -- 5 crashed, 4 failed, 3 error, 2 not_evaluated, 1 unscored, 0 passed
  gaps                  VARCHAR[],           -- fields that are not simply captured
  feedback              TINYINT,             -- 1 up, -1 down, 0 both
  inclusion_probability DOUBLE NOT NULL,     -- the largest of its turns; 1 without sampling
  reviewed              VARCHAR,             -- the newest decision: approve | edit | reject; skip: all skipped it
  labels                VARCHAR[]            -- of all decisions
);

-- Turns by minute of their time; sums of costs and tokens are of those that are known.
CREATE TABLE IF NOT EXISTS turns_by_minute (
  bucket        TIMESTAMP NOT NULL,
  app_name      VARCHAR NOT NULL,
  turns         BIGINT NOT NULL,
  errors        BIGINT NOT NULL,           -- status error
  weight        DOUBLE NOT NULL,           -- turns of the traffic that they stand for
  cost_usd      DOUBLE,
  input_tokens  HUGEINT,
  output_tokens HUGEINT,
  incomplete    BIGINT NOT NULL            -- status incomplete
);
CREATE TABLE IF NOT EXISTS turns_by_hour (
  bucket        TIMESTAMP NOT NULL,
  app_name      VARCHAR NOT NULL,
  turns         BIGINT NOT NULL,
  errors        BIGINT NOT NULL,
  weight        DOUBLE NOT NULL,
  cost_usd      DOUBLE,
  input_tokens  HUGEINT,
  output_tokens HUGEINT,
  incomplete    BIGINT NOT NULL
);

-- The scores of turns as in latest_weighted_turn_scores, by minute of the turn's time.  A pass rate (Hajek) is
-- the w of passed over the w of passed, failed and crashed; n in effect (Kish) is w squared over w2.
CREATE TABLE IF NOT EXISTS scores_by_minute (
  bucket        TIMESTAMP NOT NULL,
  app_name      VARCHAR NOT NULL,
  metric_name   VARCHAR NOT NULL,
  metric_digest VARCHAR NOT NULL,
  status        VARCHAR NOT NULL,
  n             BIGINT NOT NULL,           -- turns
  score_sum     DOUBLE,                    -- of weight times score
  w             DOUBLE NOT NULL,           -- sum of weights
  w2            DOUBLE NOT NULL,           -- sum of their squares
  scored_w      DOUBLE NOT NULL            -- sum of weights where there is a score: score_sum over it is the mean
);
CREATE TABLE IF NOT EXISTS scores_by_hour (
  bucket        TIMESTAMP NOT NULL,
  app_name      VARCHAR NOT NULL,
  metric_name   VARCHAR NOT NULL,
  metric_digest VARCHAR NOT NULL,
  status        VARCHAR NOT NULL,
  n             BIGINT NOT NULL,
  score_sum     DOUBLE,
  w             DOUBLE NOT NULL,
  w2            DOUBLE NOT NULL,
  scored_w      DOUBLE NOT NULL
);

-- Latencies of turns in bins 5 % wide: bin b holds 1.05^b up to 1.05^(b+1) milliseconds, so a quantile is known
-- to within 2.5 %.  Bin 0 holds what is shorter, too.
CREATE TABLE IF NOT EXISTS latency_by_minute (
  bucket   TIMESTAMP NOT NULL,
  app_name VARCHAR NOT NULL,
  bin      SMALLINT NOT NULL,
  n        BIGINT NOT NULL,                -- turns
  w        DOUBLE NOT NULL                 -- sum of their weights
);
CREATE TABLE IF NOT EXISTS latency_by_hour (
  bucket   TIMESTAMP NOT NULL,
  app_name VARCHAR NOT NULL,
  bin      SMALLINT NOT NULL,
  n        BIGINT NOT NULL,
  w        DOUBLE NOT NULL
);

-- Tool calls by tool and by bin of their duration, as above; sum over the bins for all calls of a tool.
CREATE TABLE IF NOT EXISTS tools_by_minute (
  bucket    TIMESTAMP NOT NULL,            -- of the turn
  app_name  VARCHAR NOT NULL,
  tool_name VARCHAR,
  bin       SMALLINT,                      -- NULL: the duration is not known
  calls     BIGINT NOT NULL,
  errors    BIGINT NOT NULL                -- calls that failed
);
CREATE TABLE IF NOT EXISTS tools_by_hour (
  bucket    TIMESTAMP NOT NULL,
  app_name  VARCHAR NOT NULL,
  tool_name VARCHAR,
  bin       SMALLINT,
  calls     BIGINT NOT NULL,
  errors    BIGINT NOT NULL
);

-- How far the summaries go; no row: they are not made yet.
CREATE TABLE IF NOT EXISTS page_marks (
  name        VARCHAR NOT NULL,            -- summaries
  landed_seq  BIGINT NOT NULL,             -- of turns
  scored_at   TIMESTAMP NOT NULL,          -- of scores and turn_scores
  feedback_at TIMESTAMP NOT NULL,          -- landed_at of feedback
  reviewed_at TIMESTAMP NOT NULL,          -- of reviews
  decided_at  TIMESTAMP NOT NULL,          -- of sampling_decisions
  written_at  TIMESTAMP NOT NULL
);

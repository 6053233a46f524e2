-- The tables of an evaltap database.  Append-only: no primary keys, no unique or secondary indexes
-- (that is where DuckDB's write-ahead log and index bugs live); rows are de-duplicated when they are
-- written, and readers use the latest_* views.  All times are UTC.

CREATE TABLE IF NOT EXISTS meta (
  key   VARCHAR NOT NULL,             -- schema_version: layout version of this file; cluster:<topic>: id of the cluster it was read from
  value VARCHAR NOT NULL
);

-- A case is a session, within one run or version of the agent (part of eval_set_id).  One row for each revision: every new or re-emitted turn adds one.
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
  inclusion_probability DOUBLE,            -- probability in (0, 1] that sampling kept it: the largest of its turns; NULL: 1
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
  user_text     VARCHAR USING COMPRESSION zstd,
  final_text    VARCHAR USING COMPRESSION zstd,            -- NULL: there was none, or it was not captured (see capture)
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
  actual_json   VARCHAR NOT NULL USING COMPRESSION zstd,   -- the turn as recorded
  expected_json VARCHAR USING COMPRESSION zstd,            -- the reference: the turn as it should have been; NULL: none
  event_id      VARCHAR NOT NULL,     -- ce_id of its record
  producer_id   VARCHAR NOT NULL,
  seq           BIGINT NOT NULL,
  landed_seq    BIGINT NOT NULL,      -- order of landing in this file
  landed_at     TIMESTAMP NOT NULL,
  sampling_reason       VARCHAR,      -- head, or the rule that decided to keep it; NULL: not sampled
  inclusion_probability DOUBLE,       -- probability in (0, 1] that it was kept; NULL: 1
  agent_name    VARCHAR,
  version       VARCHAR,              -- version of the agent: a release, a commit, a prompt
  environment   VARCHAR,              -- where it ran: production, staging
  tags          VARCHAR[],
  run           VARCHAR               -- name of the recording, if cases are recorded several times
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
  arguments     JSON USING COMPRESSION zstd,
  result        JSON USING COMPRESSION zstd,
  error_type    VARCHAR,
  error_message VARCHAR,
  started_at    TIMESTAMP,
  duration_ms   DOUBLE
);

-- Feedback on turns from users or reviewers; append-only, one row for each piece of feedback.
CREATE TABLE IF NOT EXISTS feedback (
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR,              -- NULL: see trace_id; both NULL: the whole session
  trace_id      VARCHAR,
  feedback_id   VARCHAR NOT NULL,
  name          VARCHAR NOT NULL,     -- the question asked, e.g. thumbs
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
  parked            BOOLEAN NOT NULL,  -- too new rather than broken: replay it after an upgrade
  record_key        BLOB,
  record_headers    JSON,  -- [name, text] each; [name, null, base64] for a value that is not UTF-8
  record_value      BLOB,
  landed_at         TIMESTAMP NOT NULL
);

-- Where to continue reading each log; written in the same transaction as the rows.
CREATE TABLE IF NOT EXISTS offsets (
  topic            VARCHAR NOT NULL,
  partition_number INTEGER NOT NULL,
  next_offset      BIGINT NOT NULL,
  landed_at        TIMESTAMP NOT NULL
);

-- Traces of raw telemetry that were read but are partly or entirely beyond the offsets, because an older
-- trace of the partition was still open; one row for each of their partitions.
CREATE TABLE IF NOT EXISTS read_traces (
  trace_id         VARCHAR NOT NULL,
  topic            VARCHAR NOT NULL,
  partition_number INTEGER NOT NULL,
  first_offset     BIGINT NOT NULL,
  next_offset      BIGINT NOT NULL,     -- everything before it was read
  memory           VARCHAR NOT NULL,    -- internal state of the assembler: readings, runs, digests of turns
  landed_at        TIMESTAMP NOT NULL
);

-- Manifests: what producers numbered and dropped; used to prove completeness.
CREATE TABLE IF NOT EXISTS manifests (
  producer_id VARCHAR NOT NULL,
  highest_seq BIGINT NOT NULL,
  drops       JSON NOT NULL,          -- {reason: count}
  closing     BOOLEAN NOT NULL,
  stated_at   TIMESTAMP NOT NULL,
  landed_at   TIMESTAMP NOT NULL
);

-- The numbers of all consumed records, landed or not; v_completeness adds them up.
CREATE TABLE IF NOT EXISTS consumed_ranges (
  producer_id VARCHAR NOT NULL,
  first_seq   BIGINT NOT NULL,
  last_seq    BIGINT NOT NULL,
  landed_at   TIMESTAMP NOT NULL
);

-- The numbers of records whose turns were erased on request.
CREATE TABLE IF NOT EXISTS erasures (
  producer_id VARCHAR NOT NULL,
  seq         BIGINT NOT NULL,
  erased_at   TIMESTAMP NOT NULL
);

-- A scoring run: one set of metrics applied to files or to landed cases.
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
  references_digest VARCHAR            -- the reference_cases that landed cases were compared with; NULL: none
);

-- The expected turns of landed cases, from --references; stored so that readers can show them.
CREATE TABLE IF NOT EXISTS reference_cases (
  references_digest VARCHAR NOT NULL,  -- hash of all references of the file and of how cases are joined
  join_by           VARCHAR NOT NULL,  -- eval_id | user_text | auto
  eval_id           VARCHAR NOT NULL,  -- of the reference
  said              VARCHAR[] NOT NULL, -- hashes of the user's messages, one for each turn; the texts are not stored
  turns_json        VARCHAR NOT NULL,  -- JSON array of the expected turns, without the user's messages
  kept_at           TIMESTAMP NOT NULL
);

CREATE TABLE IF NOT EXISTS run_ends (
  run_id     VARCHAR NOT NULL,
  case_count BIGINT NOT NULL,
  ended_at   TIMESTAMP NOT NULL
);

-- Experiments: runs of an agent on the cases of a set; one row for each start, also for one that resumes.
CREATE TABLE IF NOT EXISTS experiments (
  experiment_id   VARCHAR NOT NULL,
  set_name        VARCHAR NOT NULL,
  agent           VARCHAR NOT NULL,    -- as given: module:name, an address, a command
  version         VARCHAR NOT NULL,    -- label of the agent; empty: none
  runs            INTEGER NOT NULL,    -- trials wanted of each case
  configuration   JSON NOT NULL,       -- {part: digest}: what must be the same for an experiment to go on
  evaltap_version VARCHAR NOT NULL,
  started_at      TIMESTAMP NOT NULL
);

-- Units of experiments: one run of the agent on one case.  Append-only, the newest row of a trial counts.
CREATE TABLE IF NOT EXISTS units (
  experiment_id VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,      -- as in turns: set, version and run of the recording
  eval_id       VARCHAR NOT NULL,
  trial         INTEGER NOT NULL,      -- from 1
  attempt       INTEGER NOT NULL,      -- from 1: an interrupted or invalid attempt is made again
  state         VARCHAR NOT NULL,      -- begun | ran (recorded whole) | scored | crashed (the agent) | invalid (ours) | forked (in a replay)
  reason        VARCHAR,               -- of crashed and invalid
  turn_count    INTEGER NOT NULL,      -- turns that the agent was asked
  seconds       DOUBLE,
  mocks         JSON,                  -- turn by turn: calls answered from a recording, misses, unused calls
  written_at    TIMESTAMP NOT NULL,
  ended_by      VARCHAR,               -- why a simulated conversation ended: stop_signal | limit | agent_error | tool_miss | simulator_error | reference_error; NULL: no simulated user
  partners_usd  DOUBLE                 -- what simulated user and agent of the expected turns have cost; NULL: nothing, or unknown
);

-- What a replay compares with: its sessions as they were recorded.  Other experiments have none.
CREATE TABLE IF NOT EXISTS recorded_sessions (
  experiment_id VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,      -- as in units
  conversation  VARCHAR NOT NULL USING COMPRESSION zstd,  -- JSON: the turns, each with message, calls and answer
  verdicts      JSON NOT NULL,         -- turn by turn {metric: whether it passed}, without those that have no verdict
  written_at    TIMESTAMP NOT NULL
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
  score             DOUBLE,            -- NULL: no score, see status and reason
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
  status        VARCHAR NOT NULL,      -- as in scores; crashed: the run of this turn failed
  threshold     DOUBLE NOT NULL,
  reason        VARCHAR,
  metric_digest VARCHAR NOT NULL,
  scored_at     TIMESTAMP NOT NULL
);

-- A judge's votes, sample by sample, for each rubric or for the whole turn (an empty rubric_id).
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
  evidence       VARCHAR,              -- the judge's quote for its vote
  evidence_found BOOLEAN,              -- whether the quote is in the trace; NULL: no quote was requested
  confidence     DOUBLE                -- from 0 to 1, as stated by the judge; NULL: not requested
);

-- Every answer of a judge and its cost; one row for each sample, with or without a verdict.
CREATE TABLE IF NOT EXISTS judge_calls (
  run_id        VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  metric_name   VARCHAR NOT NULL,
  sample_index  INTEGER NOT NULL,      -- as in rubric_votes; -1: a preparatory request that creates the question
  judge         VARCHAR NOT NULL,      -- judge | panel-1, panel-2, ... | second (of a cascade)
  model         VARCHAR,               -- as the endpoint names it; NULL: no answer
  status        VARCHAR NOT NULL,      -- passed | failed | error | not_evaluated (not asked, see reason)
  score         DOUBLE,
  reason        VARCHAR,               -- why there is no verdict; NULL when there is one
  cached        BOOLEAN NOT NULL,      -- answered from the cache, at no cost
  input_tokens  BIGINT,                -- 0 when cached; NULL: unknown
  output_tokens BIGINT,
  cost_usd      DOUBLE,                -- 0 when cached; NULL: price or tokens unknown
  saved_usd     DOUBLE,                -- what the cached answer originally cost
  latency_ms    DOUBLE,
  scored_at     TIMESTAMP NOT NULL
);

-- The scored cases of curated sets, and how much traffic each represents.
CREATE TABLE IF NOT EXISTS curated_cases (
  run_id        VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  weight        DOUBLE NOT NULL,       -- turns of the traffic; 0: none
  scored_at     TIMESTAMP NOT NULL
);

-- The gates of runs of kind gate.
CREATE TABLE IF NOT EXISTS gate_runs (
  run_id    VARCHAR NOT NULL,
  gate_json VARCHAR NOT NULL,          -- with the thresholds in effect, without keys
  digest    VARCHAR NOT NULL           -- hash of gate_json
);

-- Results of gates; one row for each judged answer.  `scores` has the verdict on each dimension under the
-- same run and revision, with the dimension as the metric.
CREATE TABLE IF NOT EXISTS gate_results (
  run_id         VARCHAR NOT NULL,
  app_name       VARCHAR NOT NULL,
  eval_set_id    VARCHAR NOT NULL,
  eval_id        VARCHAR NOT NULL,
  revision       INTEGER NOT NULL,     -- as in scores: counts the answers to the case in this file
  trial          INTEGER NOT NULL,     -- from 1: a repeat of the case, or another loop of `revise`
  attempt        INTEGER NOT NULL,     -- from 1 within its trial: more than one if `revise` asked again
  status         VARCHAR NOT NULL,     -- passed | failed | incomplete (something could not be checked)
  passed         BOOLEAN NOT NULL,
  feedback_given VARCHAR,              -- the feedback that the agent got before this attempt; NULL: the first attempt
  feedback       VARCHAR NOT NULL,     -- the gate's feedback; empty if it passed
  user_id        VARCHAR,
  case_json      VARCHAR NOT NULL,     -- the eval case as judged
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
  score       DOUBLE,                  -- NULL: one of its metrics has none
  threshold   DOUBLE NOT NULL,         -- 0 if it has none
  reason      VARCHAR NOT NULL,
  metrics     JSON NOT NULL,           -- [{metricName, score, reason}]: the dimension's score is their mean
  judged_at   TIMESTAMP NOT NULL
);

-- How far rows were published to topics; append-only, the newest row of a name counts.
CREATE TABLE IF NOT EXISTS outbox (
  name            VARCHAR NOT NULL,    -- what is published, and the topic
  published_until TIMESTAMP NOT NULL,  -- time and key of the last row that the broker accepted
  published_key   VARCHAR NOT NULL,
  written_at      TIMESTAMP NOT NULL
);

-- Turns queued for review; append-only.  An item is the same content for the same purpose, so nothing is
-- queued twice.
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
  inclusion_probability DOUBLE,            -- of the sample for labels; NULL: not sampled
  added_at              TIMESTAMP NOT NULL
);

-- Actions of reviewers; append-only: a changed decision and an undo are rows, too.
CREATE TABLE IF NOT EXISTS reviews (
  review_id     VARCHAR NOT NULL,
  item_id       VARCHAR NOT NULL,
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  reviewer      VARCHAR NOT NULL,
  action        VARCHAR NOT NULL,          -- claim | approve | edit | reject | skip | undo
  after         JSON,                      -- for an edit: the corrected turn
  labels        VARCHAR[],
  comment       VARCHAR,
  undoes        VARCHAR,                   -- the review_id that an undo reverts
  reviewed_at   TIMESTAMP NOT NULL
);

-- Actions of people on the page, except reviews; append-only: an undo is a row, too.
CREATE TABLE IF NOT EXISTS changes (
  change_id   VARCHAR NOT NULL,
  app_name    VARCHAR,                     -- of the case concerned; NULL: none
  eval_set_id VARCHAR,
  eval_id     VARCHAR,
  who         VARCHAR NOT NULL,
  role        VARCHAR NOT NULL,
  action      VARCHAR NOT NULL,            -- pick | drop | export | add_to_set | take_from_set | invite | log_in | end_session
  target      VARCHAR NOT NULL,            -- the file, person or form; empty if the case identifies it
  detail      JSON,                        -- {cases: [...]} for a set; never the content of cases
  undoes      VARCHAR,                     -- the change_id that this reverts
  changed_at  TIMESTAMP NOT NULL
);

-- Alarms of watches on live traffic; append-only, with a row for the beginning and a row for the end of an alarm.
-- While an alarm is on, alarms of the same cause are added to the `also` of its first row.
CREATE TABLE IF NOT EXISTS alerts (
  alert_id VARCHAR NOT NULL,               -- hash of watch, slice, quantile, beginning and the alarm before: one for all rows of an alarm
  watch    VARCHAR NOT NULL,
  slice    JSON NOT NULL,                  -- {dimension: value}; {}: all watched traffic
  status   VARCHAR NOT NULL,               -- firing | resolved
  turned_at TIMESTAMP NOT NULL,            -- when it began or ended, in traffic time
  event    JSON NOT NULL,                  -- as in `monitor replay --json`, without the cases
  told     BOOLEAN NOT NULL,               -- whether receivers are notified; false if the alarm had already ended when found
  noted_at TIMESTAMP NOT NULL
);

-- Cases to look at for an alarm.
CREATE TABLE IF NOT EXISTS alert_cases (
  alert_id VARCHAR NOT NULL,
  eval_id  VARCHAR NOT NULL,
  noted_at TIMESTAMP NOT NULL
);

-- Which receivers were notified of alarms; a notice without a row here is still to be sent.
CREATE TABLE IF NOT EXISTS alert_deliveries (
  alert_id  VARCHAR NOT NULL,
  status    VARCHAR NOT NULL,              -- of the alarm: firing | resolved
  receiver  VARCHAR NOT NULL,              -- its name or type, and its position in the file
  outcome   VARCHAR NOT NULL,              -- delivered | gave_up
  detail    VARCHAR,                       -- why it could not be delivered
  attempts  INTEGER NOT NULL,
  ended_at  TIMESTAMP NOT NULL
);

-- Since when the traffic of a watch counts (`monitor rebase`); the newest row of a watch applies.
CREATE TABLE IF NOT EXISTS watch_starts (
  watch    VARCHAR NOT NULL,
  since    TIMESTAMP NOT NULL,
  noted_at TIMESTAMP NOT NULL
);

-- The state of each watch at the last evaluation by `consume --monitor`; its rows are replaced.
CREATE TABLE IF NOT EXISTS watch_states (
  watch    VARCHAR NOT NULL,
  slice    JSON NOT NULL,                  -- {dimension: value}; {}: all watched traffic
  status   VARCHAR NOT NULL,               -- learning | waiting | ok | firing | no_data
  event    JSON NOT NULL,                  -- as in `monitor replay --json`, without the cases
  evaluated_at TIMESTAMP NOT NULL
);

-- Which turns the rules of the monitoring file select for a metric; append-only, the newest row of a turn revision
-- and metric version counts.  Without rules there are no rows, and everything is scored.
CREATE TABLE IF NOT EXISTS sampling_decisions (
  app_name      VARCHAR NOT NULL,
  eval_set_id   VARCHAR NOT NULL,
  eval_id       VARCHAR NOT NULL,
  invocation_id VARCHAR NOT NULL,
  turn_revision INTEGER NOT NULL,
  metric_name   VARCHAR NOT NULL,
  metric_digest VARCHAR NOT NULL,
  rule          VARCHAR,                   -- NULL: no rule matches
  unit          VARCHAR NOT NULL,          -- turn | session: the unit that shares a draw
  probability   DOUBLE NOT NULL,           -- probability of being scored, fixed before the draw; 0: uncovered
  draw          DOUBLE NOT NULL,           -- from 0 to 1, a hash of the session or turn; scored if below the probability
  decision      VARCHAR NOT NULL,          -- score | skip | uncovered
  reason        VARCHAR NOT NULL,          -- rate | always:<n> | after:<metric> | budget | no_rule
  decided_at    TIMESTAMP NOT NULL
);

-- Summaries: aggregates of the rows above, which the web page reads instead.  `consume --ui` and `ui` keep them up
-- to date; they are empty in a file that no page has shown.  A turn's time is when it started, or when it landed if
-- that is unknown.  Only its newest revision counts, and its weight is one over its inclusion probability.

-- One row for the current state of each case, including those scored from a file.
CREATE TABLE IF NOT EXISTS case_index (
  case_key              UBIGINT NOT NULL,  -- md5_number_lower(concat_ws(chr(31), app_name, eval_set_id, eval_id))
  app_name              VARCHAR NOT NULL,
  eval_set_id           VARCHAR NOT NULL,
  eval_id               VARCHAR NOT NULL,
  first_at              TIMESTAMP NOT NULL,  -- time of its first and last turn, otherwise of its scores
  last_at               TIMESTAMP NOT NULL,
  first_seq             BIGINT,              -- range of landed_seq of all revisions of its turns
  last_seq              BIGINT,
  first_scored_at       TIMESTAMP,           -- range of scored_at of all its scores and turn_scores
  last_scored_at        TIMESTAMP,
  turns                 INTEGER NOT NULL,
  calls                 INTEGER NOT NULL,
  errors                INTEGER NOT NULL,    -- turns with status error or incomplete
  cost_usd              DOUBLE,              -- of the turns whose cost is known; NULL: of none
  unpriced              INTEGER,             -- turns whose cost is unknown
  latency_ms            DOUBLE,              -- of its slowest turn
  tokens                HUGEINT,             -- input and output; NULL: not known for any turn
  user_id               VARCHAR,
  service               VARCHAR,
  models                VARCHAR[],
  opening               VARCHAR,             -- the first 160 characters of the user's first message
  tools                 VARCHAR[],           -- in order of first use
  path                  VARCHAR,             -- the calls of each turn joined by ' > ', turns with calls joined by ' | '
  failed                VARCHAR[],           -- metrics by the status of their latest score; failed includes crashed
  errored               VARCHAR[],
  not_evaluated         VARCHAR[],
  passed                VARCHAR[],
  lowest                DOUBLE,              -- lowest of the latest scores
  severity              TINYINT NOT NULL,    -- the worst status: 5 crashed, 4 failed, 3 error, 2 not_evaluated, 1 unscored, 0 passed
  gaps                  VARCHAR[],           -- fields that were not fully captured
  feedback              TINYINT,             -- 1 up, -1 down, 0 both
  inclusion_probability DOUBLE NOT NULL,     -- the largest of its turns; 1 without sampling
  reviewed              VARCHAR,             -- the newest decision: approve | edit | reject; skip: everybody skipped it
  labels                VARCHAR[]            -- labels of all decisions
);

-- Turns by minute of their time; sums of costs and tokens cover the known ones.
CREATE TABLE IF NOT EXISTS turns_by_minute (
  bucket        TIMESTAMP NOT NULL,
  app_name      VARCHAR NOT NULL,
  turns         BIGINT NOT NULL,
  errors        BIGINT NOT NULL,           -- status error
  weight        DOUBLE NOT NULL,           -- turns of the traffic that they represent
  cost_usd      DOUBLE,
  input_tokens  HUGEINT,
  output_tokens HUGEINT,
  incomplete    BIGINT NOT NULL,           -- status incomplete
  priced        DOUBLE                     -- weight of the turns whose cost is known
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
  incomplete    BIGINT NOT NULL,
  priced        DOUBLE
);

-- The scores of turns as in latest_weighted_turn_scores, by minute of the turn's time.  A pass rate (Hajek) is
-- the w of passed over the w of passed, failed and crashed; the effective n (Kish) is w squared over w2.
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
  scored_w      DOUBLE NOT NULL            -- sum of weights of scored turns: score_sum divided by it is the mean
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

-- Latencies of turns in bins 5 % wide: bin b contains 1.05^b up to 1.05^(b+1) milliseconds, so a quantile is known
-- to within 2.5 %.  Bin 0 also contains anything shorter.
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
  bin       SMALLINT,                      -- NULL: duration unknown
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

-- Turns and calls that sampling left out, as the recorded ones of their kind stand for them: all traffic is their
-- sum with turns_by_minute or tools_by_minute.  Without sampling there is no row.
CREATE TABLE IF NOT EXISTS left_out_by_minute (
  bucket    TIMESTAMP NOT NULL,
  app_name  VARCHAR NOT NULL,
  kind      VARCHAR NOT NULL,              -- turns | calls
  tool_name VARCHAR,                       -- of calls
  n         DOUBLE NOT NULL,               -- below 0: recorded without a chance to stand for any traffic
  errors    DOUBLE NOT NULL,               -- turns with status error or incomplete; calls that failed
  cost_usd  DOUBLE                         -- of turns
);
CREATE TABLE IF NOT EXISTS left_out_by_hour (
  bucket    TIMESTAMP NOT NULL,
  app_name  VARCHAR NOT NULL,
  kind      VARCHAR NOT NULL,
  tool_name VARCHAR,
  n         DOUBLE NOT NULL,
  errors    DOUBLE NOT NULL,
  cost_usd  DOUBLE
);

-- How far the summaries are up to date; no row: not built yet.
CREATE TABLE IF NOT EXISTS page_marks (
  name        VARCHAR NOT NULL,            -- summaries | summaries of traffic: by minute and hour without runs on cases
  landed_seq  BIGINT NOT NULL,             -- of turns
  scored_at   TIMESTAMP NOT NULL,          -- of scores and turn_scores
  feedback_at TIMESTAMP NOT NULL,          -- landed_at of feedback
  reviewed_at TIMESTAMP NOT NULL,          -- of reviews
  decided_at  TIMESTAMP NOT NULL,          -- of sampling_decisions
  written_at  TIMESTAMP NOT NULL
);

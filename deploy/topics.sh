#!/bin/sh
# Creates evaltap's topics on a cluster if they are missing; use kafka-configs.sh to change them later.
#   BOOTSTRAP=broker-1:9092 PARTITIONS=12 REPLICATION=3 MIN_INSYNC=2 sh deploy/topics.sh
# Needs Kafka's kafka-topics.sh on the PATH; client settings in the file COMMAND_CONFIG.
set -eu

BOOTSTRAP=${BOOTSTRAP:-localhost:9092}
PREFIX=${PREFIX:-evaltap}
PARTITIONS=${PARTITIONS:-6}          # depends on the agents' throughput
REPLICATION=${REPLICATION:-1}
MIN_INSYNC=${MIN_INSYNC:-1}          # 2 of 3 replicas: an acknowledged turn survives the loss of one
RETENTION_DAYS=${RETENTION_DAYS:-7}  # longer than the evaluator may be down
MAX_BYTES=${MAX_BYTES:-2097152}      # a turn is at most 1 MiB; its envelope and a batch need room

# topic NAME SETTING...: creates a topic unless it exists
topic() {
  name=$1
  shift
  for setting in "$@"; do set -- "$@" --config "$setting"; shift; done
  kafka-topics.sh --bootstrap-server "$BOOTSTRAP" ${COMMAND_CONFIG:+--command-config "$COMMAND_CONFIG"} \
    --create --if-not-exists --topic "$name" --partitions "$PARTITIONS" --replication-factor "$REPLICATION" \
    --config min.insync.replicas="$MIN_INSYNC" --config retention.ms=$((RETENTION_DAYS * 86400000)) "$@"
}

topic "$PREFIX.cases" "max.message.bytes=$MAX_BYTES"
topic "$PREFIX.cases.dlq" "max.message.bytes=$MAX_BYTES"
topic "$PREFIX.scores"
# Written by a Collector.  The broker's clock decides when a trace is complete.
topic otlp_spans message.timestamp.type=LogAppendTime
topic otlp_logs message.timestamp.type=LogAppendTime

package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// never is the longest period that kfake can wait for: 292 years.
const never = math.MaxInt64 / 1_000_000

// pinned are the settings of kfake that are the node's own: at every start it has
// these, and no client changes them.
func pinned(cfg *config.Config) map[string]string {
	return map[string]string{
		maxTimeoutName: kfakeMaxTimeout(cfg),
		// kfake compacts by deleting every segment and writing new ones: a crash
		// in between loses the partition, and with it what the coordinator
		// decided. At the same time it applies retention, which it does without
		// regard to transactions. So it does neither.
		"log.cleaner.backoff.ms": strconv.FormatInt(never, 10),
		// It never forgets a producer, and the coordinator's log asks.
		"producer.id.expiration.ms": strconv.Itoa(math.MaxInt32),
		"log.segment.bytes":         strconv.Itoa(int(cfg.SegmentBytes)),
		// It would write the logs of producers and of groups anew on the one loop
		// that serves everybody, with an fsync for each producer: 10 s for 10,000.
		// A start does it instead (package durable).
		"state.log.compact.bytes": strconv.Itoa(math.MaxInt64),
		"group.max.size":          strconv.Itoa(int(cfg.GroupMaxSize)),
	}
}

// rule is what the values of a setting may be. kfake takes any, keeps it, and
// lives by it at the next start.
type rule struct {
	must string
	ok   func(value string) bool
}

func number(from, to int64) rule {
	return rule{fmt.Sprintf("a number from %d to %d", from, to), func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= from && n <= to
	}}
}

func oneOf(values ...string) rule {
	return rule{"one of " + strings.Join(values, ", "), func(v string) bool { return slices.Contains(values, v) }}
}

func listOf(values ...string) rule {
	return rule{"some of " + strings.Join(values, ", ") + ", with commas between", func(v string) bool {
		return v == "" || !slices.ContainsFunc(strings.Split(v, ","), func(one string) bool { return !slices.Contains(values, strings.TrimSpace(one)) })
	}}
}

func integer(from int64) rule { return number(from, math.MaxInt32) }

func long(from int64) rule { return number(from, math.MaxInt64) }

var (
	yesOrNo  = oneOf("true", "false")
	anything = rule{ok: func(string) bool { return true }}
	fraction = rule{"a number from 0 to 1", func(v string) bool {
		x, err := strconv.ParseFloat(v, 64)
		return err == nil && x >= 0 && x <= 1
	}}
	codecs       = oneOf("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
	timestampBy  = oneOf("CreateTime", "LogAppendTime")
	segmentBytes = integer(1 << 20)
)

// leastMessage is what message.max.bytes may not fall below: the coordinator's
// log has no limit of its own, and could not be written.
const leastMessage = 1_048_588

// brokerSettings are those of the broker that clients may change while it runs,
// with Kafka's types and ranges. Kafka can change more of them, and kfake has
// none of those.
var brokerSettings = map[string]rule{
	"compression.type":           codecs,
	"connections.max.reauth.ms":  integer(0), // in Kafka of the configuration alone
	"log.message.timestamp.type": timestampBy,
	"log.retention.bytes":        long(-1),
	"log.retention.ms":           long(-1),
	"log.roll.ms":                long(1),
	"message.max.bytes":          integer(leastMessage),
	"min.insync.replicas":        integer(1),
}

// topicSettings are all of Kafka's for topics. Most mean nothing to kfake; they
// are kept, and shown, for those who copy topics.
var topicSettings = map[string]rule{
	"cleanup.policy":                          listOf("compact", "delete"),
	"compression.gzip.level":                  number(-1, 9),
	"compression.lz4.level":                   number(1, 17),
	"compression.type":                        codecs,
	"compression.zstd.level":                  number(-131072, 22),
	"delete.retention.ms":                     long(0),
	"errors.deadletterqueue.group.enable":     yesOrNo,
	"file.delete.delay.ms":                    long(0),
	"flush.messages":                          long(1),
	"flush.ms":                                long(0),
	"follower.replication.throttled.replicas": anything,
	"index.interval.bytes":                    integer(0),
	"leader.replication.throttled.replicas":   anything,
	"local.retention.bytes":                   long(-2),
	"local.retention.ms":                      long(-2),
	"max.compaction.lag.ms":                   long(1),
	"max.decompressed.message.bytes":          integer(1),
	"max.message.bytes":                       integer(0),
	"message.downconversion.enable":           yesOrNo,
	"message.timestamp.after.max.ms":          long(0),
	"message.timestamp.before.max.ms":         long(0),
	"message.timestamp.type":                  timestampBy,
	"min.cleanable.dirty.ratio":               fraction,
	"min.compaction.lag.ms":                   long(0),
	"min.insync.replicas":                     integer(1),
	"preallocate":                             yesOrNo,
	"remote.copy.lag.bytes":                   long(-1),
	"remote.copy.lag.ms":                      long(-1),
	"remote.log.copy.disable":                 yesOrNo,
	"remote.log.delete.on.disable":            yesOrNo,
	"remote.storage.enable":                   yesOrNo,
	"retention.bytes":                         long(-1),
	"retention.ms":                            long(-1),
	"segment.bytes":                           segmentBytes,
	"segment.index.bytes":                     integer(4),
	"segment.jitter.ms":                       long(0),
	"segment.ms":                              long(1),
	"unclean.leader.election.enable":          yesOrNo,
}

// groupSettings are those of groups.
var groupSettings = map[string]rule{
	"consumer.heartbeat.interval.ms":   integer(1),
	"consumer.session.timeout.ms":      integer(1),
	"share.auto.offset.reset":          anything, // by_duration:PT1H, too
	"share.delivery.count.limit":       integer(1),
	"share.heartbeat.interval.ms":      integer(1),
	"share.isolation.level":            oneOf("read_committed", "read_uncommitted"),
	"share.max.share.sessions":         integer(1),
	"share.max.size":                   integer(1),
	"share.partition.max.record.locks": integer(1),
	"share.record.lock.duration.ms":    integer(1),
	"share.session.timeout.ms":         integer(1),
}

// refuseSetting says why a setting may not have a value; empty: it may. A nil
// value takes the setting away.
func refuseSetting(rules map[string]rule, name string, value *string) string {
	r, known := rules[name]
	switch {
	case !known:
		return "there is no such setting, or it cannot be changed while the node runs: " + name
	case value != nil && !r.ok(*value):
		return name + " must be " + r.must
	}
	return ""
}

// kfakeSettings is the file in which kfake keeps the broker's settings.
const kfakeSettings = "broker_configs.json"

// mendSettings takes out what would be refused today. An older node took it, and
// kfake would not live with it, or not start.
func mendSettings(cfg *config.Config, log zerolog.Logger) error {
	path := filepath.Join(cfg.LogDir, kfakeSettings)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept struct {
		Version int               `json:"version"`
		Configs map[string]string `json:"configs"`
	}
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return fmt.Errorf("reading the broker's settings in %s: %w", path, err)
	}
	all, own := len(kept.Configs), pinned(cfg)
	maps.DeleteFunc(kept.Configs, func(name, value string) bool {
		if _, is := own[name]; is {
			return false
		}
		why := refuseSetting(brokerSettings, name, &value)
		if why != "" {
			log.Warn().Str("setting", name).Str("value", value).Str("reason", why).
				Msg("the data directory has a setting of the broker that is not allowed; the default holds")
		}
		return why != ""
	})
	if len(kept.Configs) == all {
		return nil
	}
	if text, err = json.Marshal(kept); err != nil {
		return err
	}
	if err = replaceFile(path, string(text)); err != nil {
		return fmt.Errorf("mending the broker's settings: %w", err)
	}
	return nil
}

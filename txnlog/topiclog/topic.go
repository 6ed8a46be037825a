package topiclog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// SettingError is a setting of the existing topic that contradicts the
// configuration of the coordinator.
type SettingError struct {
	Topic   string
	Setting string
	Have    string
	Want    string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("topiclog: topic %s has %s=%s, and the coordinator is configured for %s; change one of the two",
		e.Topic, e.Setting, e.Have, e.Want)
}

const logAppendTime = "LogAppendTime"

// ensureTopic makes sure that the topic is what the configuration says,
// creating it when that is allowed.
func ensureTopic(ctx context.Context, client *kgo.Client, o *Options) error {
	admin := kadm.NewClient(client)
	created := false
	for {
		topics, err := admin.ListTopics(ctx, o.Topic)
		if err != nil {
			return fmt.Errorf("topiclog: cannot describe topic %s: %w", o.Topic, err)
		}
		detail := topics[o.Topic]
		switch {
		case detail.Err == nil && len(detail.Partitions) > 0:
			if err := checkTopic(detail, o); err != nil {
				return err
			}
			if err := checkConfigs(ctx, admin, o); err != nil {
				return err
			}
			if err := checkBrokers(ctx, admin, o); err != nil {
				return err
			}
			tellWriters(ctx, admin, o)
			return nil
		case detail.Err != nil && !errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
			return fmt.Errorf("topiclog: cannot describe topic %s: %w", o.Topic, detail.Err)
		case !o.Create:
			return fmt.Errorf("topiclog: topic %s does not exist, and the coordinator is not configured to create it", o.Topic)
		case !created:
			if err := createTopic(ctx, admin, o); err != nil {
				return err
			}
			created = true
		}
		// The broker that is asked next may not have heard of it yet.
		select {
		case <-ctx.Done():
			return fmt.Errorf("topiclog: waiting for topic %s to appear: %w", o.Topic, ctx.Err())
		case <-o.Clock.After(50 * time.Millisecond):
		}
	}
}

func createTopic(ctx context.Context, admin *kadm.Client, o *Options) error {
	set := func(v string) *string { return &v }
	_, err := admin.CreateTopic(ctx, o.Partitions, o.ReplicationFactor, map[string]*string{
		"cleanup.policy":      set("compact"),
		"compression.type":    set("uncompressed"),
		"min.insync.replicas": set(strconv.Itoa(o.MinInsyncReplicas)),
		"segment.bytes":       set(strconv.Itoa(o.SegmentBytes)),
		// A coordinator whose clock is an hour ahead would be refused with
		// INVALID_TIMESTAMP under CreateTime (message.timestamp.after.max.ms),
		// and no decision must depend on its clock.
		"message.timestamp.type": set(logAppendTime),
	}, o.Topic)
	if errors.Is(err, kerr.InvalidReplicationFactor) {
		err = fmt.Errorf("%w; set global.transaction.state.log.replication.factor and .min.isr to what the home cluster has brokers for", err)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("topiclog: cannot create topic %s with %d partitions, replication factor %d, min.insync.replicas %d: %w",
			o.Topic, o.Partitions, o.ReplicationFactor, o.MinInsyncReplicas, err)
	}
	return nil
}

func checkTopic(detail kadm.TopicDetail, o *Options) error {
	if n := len(detail.Partitions); n != int(o.Partitions) {
		return o.contradiction("partitions", strconv.Itoa(n), strconv.Itoa(int(o.Partitions)))
	}
	for _, p := range detail.Partitions {
		// More than configured is stronger, and what a reassignment under
		// way looks like.
		if n := len(p.Replicas); n < int(o.ReplicationFactor) {
			return o.contradiction(fmt.Sprintf("replication factor (of partition %d)", p.Partition),
				strconv.Itoa(n), strconv.Itoa(int(o.ReplicationFactor)))
		}
	}
	return nil
}

func checkConfigs(ctx context.Context, admin *kadm.Client, o *Options) error {
	all, err := admin.DescribeTopicConfigs(ctx, o.Topic)
	if err != nil {
		return fmt.Errorf("topiclog: cannot describe the settings of topic %s: %w", o.Topic, err)
	}
	topic, err := all.On(o.Topic, nil)
	if err == nil {
		err = topic.Err
	}
	if err != nil {
		return fmt.Errorf("topiclog: cannot describe the settings of topic %s: %w", o.Topic, err)
	}
	for _, c := range topic.Configs {
		if err := checkConfig(c.Key, c.MaybeValue(), o); err != nil {
			return err
		}
	}
	return nil
}

func checkConfig(key, have string, o *Options) error {
	switch key {
	case "cleanup.policy":
		// "delete", alone or beside "compact", removes decisions by age.
		if have != "compact" {
			return o.contradiction(key, have, "compact")
		}
	case "min.insync.replicas":
		if n, err := strconv.Atoi(have); err != nil || n < o.MinInsyncReplicas {
			return o.contradiction(key, have, strconv.Itoa(o.MinInsyncReplicas)+" or more")
		}
	case "unclean.leader.election.enable":
		// An unclean leader forgets what every replica had acknowledged.
		if have == "true" {
			return o.contradiction(key, have, "false")
		}
	case "message.timestamp.type":
		// Brokers forget a producer, and with it the fence, by the time stamp
		// of its last batch (ProducerStateManager). Counter-example under
		// CreateTime: the clock of the new owner is a day slow, so its claim is
		// forgotten as soon as it is written, and the owner before may write
		// again.
		if have != logAppendTime {
			return o.contradiction(key, have, logAppendTime)
		}
	case "max.message.bytes":
		if n, err := strconv.Atoi(have); err != nil || n < o.BatchBytes+batchOverhead {
			return o.contradiction(key, have, strconv.Itoa(o.BatchBytes+batchOverhead)+" or more")
		}
	}
	return nil
}

func (o *Options) contradiction(setting, have, want string) error {
	return &SettingError{Topic: o.Topic, Setting: setting, Have: have, Want: want}
}

package topiclog

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Clock is time as the log sees it. Now is compared with earlier readings only; it
// should have a monotonic reading beside the wall clock's, as time.Now has.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives once d has passed.
	After(d time.Duration) <-chan time.Time
}

// Options say where the log lies and what it must be like. Zero values take
// the defaults named here; Clock and one seed broker in ClientOpts have none.
type Options struct {
	// ClientOpts reach the home cluster: seed brokers, TLS, SASL, dialer.
	// The principal needs Describe, Read, Write and DescribeConfigs on the
	// topic (and Create, with Create), Write on the transactional ids
	// "__gtc-*", and on the cluster DescribeConfigs to have the brokers'
	// producer.id.expiration.ms checked and Describe to have the size of the
	// partitions compared with what is read, and to be told who may write.
	ClientOpts []kgo.Opt
	// Topic is txnlog.Topic by default.
	Topic string
	// Partitions is 50 by default. It can never change: it decides which
	// partition holds an id.
	Partitions int32
	// ReplicationFactor and MinInsyncReplicas are 3 and 2 by default. On a
	// real cluster they are what makes a decision durable.
	ReplicationFactor int16
	MinInsyncReplicas int
	// SegmentBytes is 100 MiB by default, as for Kafka's own state topics:
	// small segments keep the part that compaction cannot touch small.
	SegmentBytes int
	// Create makes the topic when there is none; else its absence is an
	// error.
	Create bool

	// Private: nobody but this node reaches the topic, so who may write to it is
	// not asked.
	Private bool

	// NodeID and Host name this node in its claims.
	NodeID int32
	Host   string
	Logger zerolog.Logger
	Clock  Clock

	// BatchBytes (512 KiB) and BatchRecords (10,000) bound one batch. An
	// append that is larger by itself is one batch all the same.
	BatchBytes   int
	BatchRecords int
	// AppendTimeout (30 s) is how long a batch is sent again before its fate
	// is given up as unknown.
	AppendTimeout time.Duration
	// KeepAlive (1 h) is how often the claim is rewritten: brokers forget a
	// producer that has not written to a partition for
	// producer.id.expiration.ms (a day), and the fence with it.
	KeepAlive time.Duration
	// ReInit (24 h) is how often the producer id is initialised again: the
	// cluster forgets a transactional id that was idle for
	// transactional.id.expiration.ms (seven days).
	ReInit time.Duration
}

func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Topic, txnlog.Topic)
	setDefault(&o.Partitions, 50)
	setDefault(&o.ReplicationFactor, 3)
	setDefault(&o.MinInsyncReplicas, 2)
	setDefault(&o.SegmentBytes, 100<<20)
	setDefault(&o.BatchBytes, 512<<10)
	setDefault(&o.BatchRecords, 10_000)
	setDefault(&o.AppendTimeout, 30*time.Second)
	setDefault(&o.KeepAlive, time.Hour)
	setDefault(&o.ReInit, 24*time.Hour)
	switch {
	case o.Clock == nil:
		return o, errors.New("topiclog: Options.Clock is missing")
	case o.Partitions < 0 || o.ReplicationFactor < 0 || o.MinInsyncReplicas < 0 || o.SegmentBytes < 0 ||
		o.BatchBytes < 0 || o.BatchRecords < 0 || o.AppendTimeout < 0 || o.KeepAlive < 0 || o.ReInit < 0:
		return o, errors.New("topiclog: an option is negative")
	case o.MinInsyncReplicas > int(o.ReplicationFactor):
		return o, fmt.Errorf("topiclog: min.insync.replicas %d is more than the replication factor %d, so nothing could ever be written", o.MinInsyncReplicas, o.ReplicationFactor)
	}
	return o, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// transactionalID is the id whose epochs fence the owners of a partition. With
// another topic it has another name, so that two coordinators that share a
// cluster and not a topic leave each other alone.
func (o *Options) transactionalID(partition int32) string {
	if o.Topic == txnlog.Topic {
		return fmt.Sprintf("__gtc-%d", partition)
	}
	return fmt.Sprintf("__gtc-%s-%d", o.Topic, partition)
}

// clientOpts are those of the caller behind ours, so that the caller's win.
func (o *Options) clientOpts() []kgo.Opt {
	return append([]kgo.Opt{
		kgo.ClientID(fmt.Sprintf("gtc-log-%d", o.NodeID)),
		// A broker that does not answer is given up and asked again within
		// AppendTimeout; kgo would wait 10 s beyond the request's own.
		kgo.RequestTimeoutOverhead(5 * time.Second),
		// A topic just created, or a leader just moved, is asked for again at
		// once and not from the cache.
		kgo.MetadataMinAge(50 * time.Millisecond),
		// Else the first append after a quiet minute pays for a connection.
		kgo.ConnIdleTimeout(5 * time.Minute),
	}, o.ClientOpts...)
}

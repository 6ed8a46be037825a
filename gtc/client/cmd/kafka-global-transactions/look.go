package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/inspect"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	lookTries = 5  // of what a broker answers with an error that passes
	atOnce    = 16 // partitions of a cluster
)

// cluster is one that the tool looks at.
type cluster struct {
	name   string
	id     string
	cl     *kgo.Client
	named  bool // its producer epochs name transactions (transaction.version 2)
	topics map[string]kmsg.MetadataResponseTopic
}

// finding is what one partition shows of a transaction.
type finding struct {
	Participant   string
	ClusterID     string
	ProducerID    int64
	ProducerEpoch int16
	Decision      decision
	Topic         string
	TopicID       string // by which a topic that was created anew can be told
	Partition     int32  // -1: the topic, or the participant, as a whole
	LogStart      int64
	LogEnd        int64
	ReadFrom      int64
	Spans         []inspect.Span `json:",omitempty"`
	Verdict       verdict
	Says          string
}

// openCluster asks a cluster who it is and what it has.
func openCluster(ctx context.Context, name string, addrs []string, access []kgo.Opt) (*cluster, error) {
	cl, err := dial(append(access, kgo.RetryTimeout(timeout)), addrs...)
	if err != nil {
		return nil, err
	}
	c := &cluster{name: name, cl: cl}
	if err := c.learn(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("--participant %s=%s: %w", name, strings.Join(addrs, ","), err)
	}
	return c, nil
}

func (c *cluster) learn(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	meta, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return err
	}
	if meta.ClusterID == nil {
		return errors.New("it does not say its cluster id")
	}
	c.id, c.topics = *meta.ClusterID, map[string]kmsg.MetadataResponseTopic{}
	for _, t := range meta.Topics {
		if t.Topic != nil {
			c.topics[*t.Topic] = t
		}
	}
	features, err := again(ctx, func() (*kmsg.ApiVersionsResponse, error) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "0"
		resp, failed := req.RequestWith(ctx, c.cl)
		if failed == nil {
			failed = kerr.ErrorForCode(resp.ErrorCode)
		}
		return resp, failed
	})
	if err != nil {
		return err
	}
	c.named = slices.ContainsFunc(features.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
		return f.Name == "transaction.version" && f.MaxVersionLevel >= 2
	})
	return nil
}

// again asks once more where the answer passes, as a leader that has moved does.
func again[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		got, err := ask()
		if err == nil || try == lookTries || !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

// places are the topics to look at: those that the transaction is known to have
// written to, and all the others that the principal is shown.
func (c *cluster) places(where places) (expected, others []string) {
	expected = where.of(c.name)
	if where.all {
		for topic := range maps.Keys(c.topics) {
			if !slices.Contains(expected, topic) {
				others = append(others, topic)
			}
		}
		slices.Sort(others)
	}
	return expected, others
}

// look finds what a participant shows of its transaction.
func (c *cluster) look(ctx context.Context, tx described, p participant, where places) []finding {
	blank := finding{
		Participant: c.name, ClusterID: c.id, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch,
		Decision: decisionOf(tx, p), Partition: -1,
	}
	expected, others := c.places(where)
	var all []finding
	for _, topic := range expected {
		here := c.topic(ctx, blank, tx, p, topic)
		all = append(all, here...)
		if !leftover(p) {
			all = append(all, missing(here, topic)...)
		}
	}
	for _, topic := range others {
		all = append(all, c.topic(ctx, blank, tx, p, topic)...)
	}
	if where.all && !leftover(p) {
		all = append(all, missing(all, "")...)
	}
	return all
}

// missing says that nothing is where a commit has left something: in a topic, or
// on the whole cluster, since who has nothing open is no participant.
func missing(looked []finding, topic string) []finding {
	if len(looked) == 0 || looked[0].Decision != decidedCommit || slices.ContainsFunc(looked, func(f finding) bool { return f.Verdict != nothing }) {
		return nil
	}
	f := looked[0]
	f.Topic, f.Partition, f.Spans, f.Verdict = topic, -1, nil, contradicts
	f.LogStart, f.LogEnd, f.ReadFrom = 0, 0, 0
	f.Says = "no partition shows anything of it: the topic was created anew, lost it, or was never written to"
	if topic == "" {
		f.TopicID, f.Says = "", "no partition of any topic shows anything of it"
	}
	return []finding{f}
}

// topic looks at the partitions of one topic.
func (c *cluster) topic(ctx context.Context, f finding, tx described, p participant, topic string) []finding {
	f.Topic = topic
	meta, there := c.topics[topic]
	if !there {
		if f.Verdict = nothing; f.Decision == decidedCommit {
			f.Verdict = contradicts
		}
		f.Says = "the topic is gone, or may not be described"
		return []finding{f}
	}
	if err := kerr.ErrorForCode(meta.ErrorCode); err != nil {
		f.Verdict, f.Says = notRead, err.Error()
		return []finding{f}
	}
	compacted := c.isCompacted(ctx, meta)
	var mu sync.Mutex
	var all []finding
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, part := range meta.Partitions {
		g.Go(func() error {
			f := f
			f.Partition = part.Partition
			v := view{
				decision: f.Decision, told: p.State != wire.ParticipantPending && p.State != wire.ParticipantOrphaned,
				epoch: p.ProducerEpoch, named: c.named, decidedAt: tx.DecisionTimestampMillis, compacted: compacted,
			}
			if leftover(p) { // it was decided earlier, nobody says when
				v.decidedAt = 0
			}
			_, err := again(ctx, func() (struct{}, error) { return struct{}{}, c.read(ctx, &v, &f, tx, p) })
			if err != nil {
				f.Verdict, f.Says = notRead, err.Error()
			} else {
				f.Verdict, f.Says = v.judge()
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, f)
			return nil
		})
	}
	_ = g.Wait() // every error is a finding
	slices.SortFunc(all, func(a, b finding) int { return int(a.Partition - b.Partition) })
	return all
}

// isCompacted also where nobody may say: a marker without records proves nothing then.
func (c *cluster) isCompacted(ctx context.Context, t kmsg.MetadataResponseTopic) bool {
	configs, err := kadm.NewClient(c.cl).DescribeTopicConfigs(ctx, *t.Topic)
	if err != nil || len(configs) != 1 || configs[0].Err != nil {
		return true
	}
	return slices.ContainsFunc(configs[0].Configs, func(k kadm.Config) bool {
		return k.Key == "cleanup.policy" && strings.Contains(k.MaybeValue(), "compact")
	})
}

// read reads a partition from where the transaction may have begun, and from the
// log's start when that was too late.
func (c *cluster) read(ctx context.Context, v *view, f *finding, tx described, p participant) (err error) {
	if v.open, err = inspect.Ongoing(ctx, c.cl, f.Topic, f.Partition, p.ProducerID); err != nil {
		return err
	}
	from := int64(0)
	if since := begun(tx, p, v.decision); since > 0 {
		if from, err = inspect.OffsetAt(ctx, c.cl, f.Topic, f.Partition, since); err != nil {
			return err
		}
	}
	if v.open.From >= 0 {
		from = min(from, v.open.From)
	}
	for {
		v.shown, err = inspect.Read(ctx, c.cl, inspect.Question{
			Topic: f.Topic, Partition: f.Partition, ProducerID: p.ProducerID, From: from, Enough: v.enough,
		})
		if err != nil {
			return err
		}
		if v.shown.From <= v.shown.LogStart || v.whole() {
			break
		}
		from = 0
	}
	f.TopicID = base64.RawURLEncoding.EncodeToString(v.shown.TopicID[:])
	f.LogStart, f.LogEnd, f.ReadFrom, f.Spans = v.shown.LogStart, v.shown.LogEnd, v.shown.From, v.spans()
	return nil
}

// begun is when the transaction had not begun yet, in ms; 0 when nobody knows.
func begun(tx described, p participant, d decision) int64 {
	at := tx.DecisionTimestampMillis
	if leftover(p) {
		return 0
	}
	if d == undecided {
		at = time.Now().UnixMilli() - max(p.OpenSinceMillis, 0)
	}
	return max(at-int64(tx.TimeoutMillis)-clockSkew, 0)
}

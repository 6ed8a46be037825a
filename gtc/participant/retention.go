package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Retention is for how long a cluster keeps what has to outlast an outage. Values
// are milliseconds.
type Retention struct {
	// IDExpirationMillis is the lowest transactional.id.expiration.ms of its
	// brokers; -1 while it is not known.
	IDExpirationMillis int64
	// TopicMillis is the retention.ms of the topics that transactions were seen
	// to write to; not of those that are kept for ever, or may not be looked at.
	TopicMillis map[string]int64
}

const (
	idExpirationMillis = "transactional.id.expiration.ms"
	retentionMillis    = "retention.ms"
	cleanupPolicy      = "cleanup.policy"

	// retentionEvery is the pause between two looks at the settings, which
	// people change; retentionSoon when a topic was seen that was not asked about.
	retentionEvery = 10 * time.Minute
	retentionSoon  = time.Minute
	// topicsKept bounds the topics that are remembered; beyond it the new ones
	// are not asked about.
	topicsKept = 1000
)

// retention of one cluster.
type retention struct {
	mu     sync.Mutex
	topics map[string]struct{} // that were written to
	fresh  bool                // one of them was not asked about yet
	known  Retention
	asked  bool
	atMono int64 // when it was asked last
	said   map[string]bool
}

// wrote remembers the topics of a transaction that was looked at.
func (r *retention) wrote(topics []kmsg.DescribeTransactionsResponseTransactionStateTopic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range topics {
		if _, known := r.topics[t.Topic]; known || len(r.topics) >= topicsKept {
			continue
		}
		if r.topics == nil {
			r.topics = make(map[string]struct{})
		}
		r.topics[t.Topic], r.fresh = struct{}{}, true
	}
}

// due reports whether the cluster has to be asked, and about which topics; if so
// it counts as asked now: what fails is not tried again at once.
func (r *retention) due(now int64) (topics []string, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := retentionEvery
	if r.fresh {
		wait = retentionSoon
	}
	if r.asked && now-r.atMono < wait.Milliseconds() {
		return nil, false
	}
	r.asked, r.atMono, r.fresh = true, now, false
	return slices.Sorted(maps.Keys(r.topics)), true
}

// Retention tells what is known of a cluster. It asks the cluster seldom, and is
// for nobody who waits: neither a commit nor a vote does.
func (c *Clusters) Retention(ctx context.Context, clusterID string) (Retention, error) {
	cl := c.known(clusterID)
	if cl == nil {
		return Retention{}, fmt.Errorf("no cluster %q is known", clusterID)
	}
	r := &cl.retention
	if topics, due := r.due(cl.clock().Mono); due {
		if err := cl.askRetention(ctx, topics); err != nil {
			return Retention{}, fmt.Errorf("cluster %q: retention: %w", cl.cfg.Alias, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known
	known.TopicMillis = maps.Clone(known.TopicMillis)
	return known, nil
}

func (c *cluster) askRetention(ctx context.Context, topics []string) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	found := Retention{IDExpirationMillis: -1, TopicMillis: make(map[string]int64)}
	for _, node := range nodes {
		if _, err := s.verify(ctx, node); err != nil {
			return err
		}
		got, err := s.settings(ctx, node, kmsg.ConfigResourceTypeBroker, []string{strconv.Itoa(int(node))}, idExpirationMillis)
		if err != nil {
			return err
		}
		for _, of := range got {
			millis, told := of.millis(idExpirationMillis)
			switch {
			case !told:
				c.notKnown(idExpirationMillis, of.err)
			case found.IDExpirationMillis < 0 || millis < found.IDExpirationMillis:
				found.IDExpirationMillis = millis
			}
		}
	}
	var gone []string
	for some := range slices.Chunk(topics, gatherLimit) {
		got, err := s.settings(ctx, nodes[0], kmsg.ConfigResourceTypeTopic, some, retentionMillis, cleanupPolicy)
		if err != nil {
			return err
		}
		for _, of := range got {
			millis, told := of.millis(retentionMillis)
			switch {
			case errors.Is(of.err, kerr.UnknownTopicOrPartition):
				gone = append(gone, of.name)
			case !told:
				c.notKnown(retentionMillis, of.err)
			case millis >= 0 && strings.Contains(of.values[cleanupPolicy], "delete"):
				found.TopicMillis[of.name] = millis
			}
		}
	}
	c.retention.mu.Lock()
	defer c.retention.mu.Unlock()
	for _, t := range gone {
		delete(c.retention.topics, t)
	}
	c.retention.known = found
	return nil
}

// notKnown says once that a setting cannot be seen.
func (c *cluster) notKnown(setting string, why error) {
	c.retention.mu.Lock()
	defer c.retention.mu.Unlock()
	if c.retention.said[setting] {
		return
	}
	if c.retention.said == nil {
		c.retention.said = make(map[string]bool)
	}
	c.retention.said[setting] = true
	c.log.Info().AnErr("why", why).Str("setting", setting).
		Msg("not known whether the cluster keeps long enough what has to outlast an outage; grant the coordinator's principal DESCRIBE_CONFIGS on the cluster and its topics, if the cluster has the setting")
}

// nodes are the brokers of the cluster.
func (s *session) nodes(ctx context.Context) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return nil, fmt.Errorf("asking for the brokers: %w", err)
	}
	nodes := make([]int32, len(resp.Brokers))
	for i, b := range resp.Brokers {
		nodes[i] = b.NodeID
	}
	if len(nodes) == 0 {
		return nil, errors.New("the cluster names no broker")
	}
	return nodes, nil
}

// settingsOf are those of one broker or topic.
type settingsOf struct {
	name   string
	err    error
	values map[string]string
}

// millis is the value of a setting, if it was told.
func (s settingsOf) millis(setting string) (int64, bool) {
	n, err := strconv.ParseInt(s.values[setting], 10, 64)
	return n, err == nil
}

func (s *session) settings(ctx context.Context, node int32, kind kmsg.ConfigResourceType, names []string, settings ...string) ([]settingsOf, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, settings
		req.Resources = append(req.Resources, res)
	}
	resp, err := ask[*kmsg.DescribeConfigsResponse](ctx, s, node, req)
	if err != nil {
		return nil, err
	}
	all := make([]settingsOf, len(resp.Resources))
	for i, r := range resp.Resources {
		all[i] = settingsOf{name: r.ResourceName, err: kerr.ErrorForCode(r.ErrorCode), values: make(map[string]string)}
		for _, c := range r.Configs {
			if c.Value != nil {
				all[i].values[c.Name] = *c.Value
			}
		}
	}
	return all, nil
}

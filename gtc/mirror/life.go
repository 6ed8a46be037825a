package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

const (
	// openTimeout bounds one try to get hold of the clusters and the id.
	openTimeout = time.Minute
	// pollTimeout is how long a poll waits for records, while other things may
	// be due.
	pollTimeout = 100 * time.Millisecond
	// positionInterval is how often a position is committed that moved without
	// a record to mirror.
	positionInterval = 5 * time.Second

	// kgo's own, which have to go with what is configured.
	messageBytes   = 100 << 20 // one message to or from a broker at most
	partitionBytes = 1 << 20   // of one partition in one fetch
	heartbeat      = 3 * time.Second
)

// life is a flow from one beginning to the next error. All state that it has of
// the clusters it has read from them.
type life struct {
	*task
	source, target *side
	direct         map[string]bool // cluster ids
	keeper         *keeper
	gtc            *client.Client
	consumer       *kgo.Client

	// mu guards owned: it changes in a rebalance, which waits for the loop.
	mu    sync.Mutex
	owned map[string]map[int32]*partition

	plan        plan
	ways        []*way
	positionDue time.Time
	batchDue    time.Time

	plans chan plan         // new ones, of the refresher
	looks chan []groupsLook // new ones, of the watcher, by way
	ask   chan chan<- error // for a refresh now
}

// live runs the flow once.
func (t *task) live(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &life{
		task: t, owned: map[string]map[int32]*partition{},
		plans: make(chan plan, 1), looks: make(chan []groupsLook, 1), ask: make(chan chan<- error),
	}
	var background sync.WaitGroup
	defer l.close()
	defer background.Wait()
	defer cancel()
	if err := l.open(ctx); err != nil {
		return err
	}
	background.Go(func() { l.keepTopics(ctx) })
	if len(l.ways) > 0 {
		background.Go(func() { l.watchGroups(ctx) })
	}
	for ctx.Err() == nil {
		if err := l.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var err error
	if l.source, l.target, l.direct, err = l.sides(ctx); err != nil {
		return err
	}
	if l.source.id == l.target.id {
		return &client.ClusterIDMismatchError{Cluster: l.target.alias, Got: l.target.id, Err: errors.New("it is the same cluster as " + l.source.alias)}
	}
	l.setWays()
	l.keeper = &keeper{flow: l.flow, policy: l.policy, source: l.source, target: l.target, bothWays: l.bothWays, log: l.log}
	first, err := l.keeper.refresh(ctx)
	if err != nil {
		return err
	}
	if l.gtc, err = client.Open(ctx, l.clientOptions()); err != nil {
		return err
	}
	if l.consumer, err = kgo.NewClient(l.consumerOpts()...); err != nil {
		return err
	}
	l.log.Info().Int("topics", len(first)).Str("group", l.flow.GroupID()).Msg("the flow runs")
	return l.follow(first)
}

func (l *life) clientOptions() client.Options {
	o := client.Options{
		GlobalTransactionalID: l.flow.transactionalID(l.instance),
		Coordinator:           l.o.Coordinator, CoordinatorOpts: l.o.CoordinatorOpts,
		Clusters: map[string]client.Cluster{}, Ring: l.flow.Ring, TransactionTimeout: l.flow.TransactionTimeout,
	}
	for _, s := range []*side{l.source, l.target} {
		c := l.o.Clusters[s.alias]
		o.Clusters[s.alias] = client.Cluster{
			ID: s.id, Dialer: c.Dialer, TwoPhaseCommit: c.TwoPhaseCommit,
			ClientOpts: append(slices.Clone(c.ClientOpts),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(l.flow.MaxRequestSize),
				kgo.BrokerMaxWriteBytes(max(messageBytes, 2*l.flow.MaxRequestSize)),
				kgo.ProducerLinger(0), kgo.MaxBufferedRecords(l.flow.BatchRecords),
				// Partitions that were added are seen soon.
				kgo.MetadataMaxAge(10*time.Second), kgo.MetadataMinAge(250*time.Millisecond)),
		}
	}
	return o
}

func (l *life) consumerOpts() []kgo.Opt {
	return l.o.Clusters[l.source.alias].opts(
		kgo.ConsumerGroup(l.flow.GroupID()),
		// A static member, so that an instance that comes back has its
		// partitions at once.
		kgo.InstanceID(l.instance), kgo.SessionTimeout(l.flow.SessionTimeout),
		kgo.HeartbeatInterval(min(heartbeat, l.flow.SessionTimeout/3)),
		// Eager: after each rebalance every position is read anew from the
		// group's offsets, so none is left from a batch that was dropped.
		kgo.Balancers(kgo.StickyBalancer()),
		kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { l.assigned(got) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { l.revoked(gone) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { l.revoked(gone) }),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers move the position, so that it reaches the end of the log,
		// where the position of an application's group may stand.
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset().AtStart()),
		kgo.FetchMaxBytes(l.flow.BatchBytes), kgo.FetchMaxPartitionBytes(min(partitionBytes, l.flow.BatchBytes)),
		kgo.BrokerMaxReadBytes(max(messageBytes, 2*l.flow.BatchBytes)), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.MetadataMinAge(250*time.Millisecond),
	)
}

// closing bounds the end of a flow.
const closing = 10 * time.Second

func (l *life) close() {
	if l.consumer != nil {
		l.consumer.CloseAllowingRebalance()
	}
	if l.gtc != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		if err := l.gtc.Close(ctx); err != nil {
			l.log.Warn().Err(err).Msg("closing")
		}
	}
	l.mu.Lock()
	for topic, ps := range l.owned {
		for n := range ps {
			l.stats.forget(topic, n)
		}
	}
	l.mu.Unlock()
	l.source.close()
	l.target.close()
}

func (l *life) assigned(got map[string][]int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, ns := range got {
		if l.owned[topic] == nil {
			l.owned[topic] = map[int32]*partition{}
		}
		for _, n := range ns {
			l.owned[topic][n] = newPartition(topic, n, l.policy.RemoteTopic(l.source.alias, topic))
			l.stats.setLag(topic, n, 0)
		}
	}
}

func (l *life) revoked(gone map[string][]int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, ns := range gone {
		for _, n := range ns {
			delete(l.owned[topic], n)
			l.stats.forget(topic, n)
		}
	}
}

// round takes what has come and mirrors it. Rebalances wait meanwhile.
func (l *life) round(ctx context.Context) error {
	if wait := l.batchDue.Sub(l.clock.Now()); wait > 0 {
		if l.pause(ctx, min(wait, l.flow.BatchLinger)) != nil {
			return nil // told to end
		}
	}
	polling, cancel := context.WithTimeout(ctx, pollTimeout)
	fetches := l.consumer.PollRecords(polling, l.flow.BatchRecords)
	cancel()
	defer l.consumer.AllowRebalance()
	l.batchDue = l.clock.Now().Add(l.flow.BatchLinger)
	if ctx.Err() != nil {
		return nil
	}
	if err := l.takeNews(ctx); err != nil {
		return err
	}
	if err := l.fetchErrors(ctx, fetches); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.sort(ctx, fetches)
	if err != nil {
		return err
	}
	if err := l.positionsForGroups(ctx); err != nil {
		return err
	}
	due := l.due(b)
	now := l.clock.Now()
	switch {
	case len(b.records) > 0 || !due.empty():
	case b.dirty && now.After(l.positionDue):
	default:
		if !b.dirty {
			l.stats.idle()
		}
		return nil
	}
	l.positionDue = now.Add(positionInterval)
	return l.mirror(ctx, b, due)
}

// takeNews takes what the background has found.
func (l *life) takeNews(ctx context.Context) error {
	select {
	case p := <-l.plans:
		if err := l.follow(p); err != nil {
			return err
		}
	default:
	}
	select {
	case looks := <-l.looks:
		l.mu.Lock()
		for i, w := range l.ways {
			w.update(looks[i].named(w, l.owned), l.owned)
		}
		l.mu.Unlock()
	default:
	}
	return ctx.Err()
}

// follow subscribes to what is in the plan, and reports what is no longer.
func (l *life) follow(p plan) error {
	for _, topic := range slices.Sorted(maps.Keys(l.plan)) {
		before, now := l.plan[topic], p[topic]
		var kind LossKind
		switch {
		case now.remote == "":
			kind = LossDeleted
		case now.id != before.id:
			kind = LossRecreated
		default:
			continue
		}
		err := l.loss(kind, topic, -1, fmt.Sprintf("topic id %s is no longer there", before.id))
		if err != nil {
			return err
		}
		// The consumer goes on with a topic of another id only as a new one.
		l.consumer.PurgeTopicsFromConsuming(topic)
		delete(l.plan, topic)
	}
	var added []string
	for topic := range p {
		if _, ok := l.plan[topic]; !ok {
			added = append(added, topic)
		}
	}
	l.plan = p
	if len(added) > 0 {
		slices.Sort(added)
		l.log.Info().Strs("topics", added).Msg("topics added")
		l.consumer.AddConsumeTopics(added...)
	}
	return nil
}

// loss reports that the source has lost something, and is the error that stops
// the flow, unless it is to go on.
func (l *life) loss(kind LossKind, topic string, partition int32, detail string) error {
	e := &DataLossError{Flow: l.flow.Name(), Kind: kind, Topic: topic, Partition: partition, Detail: detail}
	l.stats.lost(kind)
	if l.flow.DataLoss == DataLossStop {
		return e
	}
	l.log.Error().Str("kind", string(kind)).Str("topic", topic).Int32("partition", partition).Str("detail", detail).
		Msg("data loss on the source; data.loss.policy=continue goes on")
	return nil
}

// fetchErrors looks after partitions that cannot be read.
func (l *life) fetchErrors(ctx context.Context, fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		var cut *kgo.ErrDataLoss
		switch {
		case errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, context.Canceled):
		case errors.As(e.Err, &cut):
			if err := l.loss(LossTruncation, e.Topic, e.Partition, cut.Error()); err != nil {
				return err
			}
			l.reset(e.Topic, e.Partition, true)
		case errors.Is(e.Err, kerr.OffsetOutOfRange):
			if err := l.outOfRange(ctx, e.Topic, e.Partition); err != nil {
				return err
			}
		case errors.Is(e.Err, kerr.UnknownTopicID), errors.Is(e.Err, kerr.UnknownTopicOrPartition):
			if err := l.refreshNow(ctx); err != nil {
				return err
			}
		case e.Topic == "": // of the group
			return fmt.Errorf("group %s on %s: %w", l.flow.GroupID(), l.source.alias, e.Err)
		default:
			return fmt.Errorf("consume %s-%d on %s: %w", e.Topic, e.Partition, l.source.alias, e.Err)
		}
	}
	return nil
}

// reset forgets what is known of a partition whose position has been moved.
func (l *life) reset(topic string, n int32, rewritten bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owned[topic][n] != nil {
		p := newPartition(topic, n, l.policy.RemoteTopic(l.source.alias, topic))
		p.rewritten = rewritten
		l.owned[topic][n] = p
	}
}

// outOfRange finds out on which side of the log the position fell out, and goes
// on with what is there. Of a topic that was created again that is everything:
// the broker may have kept the position in the one before.
func (l *life) outOfRange(ctx context.Context, topic string, n int32) error {
	at, err := l.source.locate(ctx, topic, n)
	if err != nil {
		return err
	}
	start, _, high, err := l.source.bounds(ctx, at)
	if err != nil {
		return err
	}
	position, err := l.committed(ctx, topic, n)
	if err != nil {
		return err
	}
	kind, to, detail := LossRetention, start, fmt.Sprintf("the position is %d and the log begins at %d", position, start)
	if position > high {
		p := newPartition(topic, n, l.policy.RemoteTopic(l.source.alias, topic))
		newest, found, _, err := l.newestHeld(ctx, p)
		if err != nil {
			return err
		}
		kind, to, detail = LossTruncation, high, fmt.Sprintf("the position is %d and the log ends at %d", position, high)
		if found && l.replaced(p, newest) {
			kind, to = LossRecreated, start
		}
	}
	if err := l.loss(kind, topic, n, detail); err != nil {
		return err
	}
	l.reset(topic, n, kind == LossTruncation)
	l.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {n: {Epoch: -1, Offset: to}}})
	return nil
}

// committed is the mirror's own committed position; -1 for none.
func (l *life) committed(ctx context.Context, topic string, n int32) (int64, error) {
	own, err := fetchOffsets(kadm.RequireStable(ctx), l.source, []string{l.flow.GroupID()})
	if err != nil {
		return 0, err
	}
	if at, ok := own[l.flow.GroupID()][topic][n]; ok {
		return at, nil
	}
	return -1, nil
}

// positionsForGroups learns the position of partitions that nothing has come
// from, and which some group's offsets wait for.
func (l *life) positionsForGroups(ctx context.Context) error {
	unknown := map[*partition]bool{}
	for _, w := range l.ways {
		if w.fresh {
			w.unverified(l.owned, unknown)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	own, err := fetchOffsets(kadm.RequireStable(ctx), l.source, []string{l.flow.GroupID()})
	if err != nil {
		return err
	}
	for p := range unknown {
		at, ok := own[l.flow.GroupID()][p.topic][p.number]
		if !ok {
			continue // nothing of it has been mirrored
		}
		if err := l.verifyOrReset(ctx, p, at); err != nil {
			return err
		}
	}
	return nil
}

package client

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// ErrNoTxn is the answer of GroupSession.End without a Begin before it.
var ErrNoTxn = errors.New("client: no transaction is open: call Begin first")

// errRebalanced: partitions that were read from have been taken away.
var errRebalanced = errors.New("client: partitions were taken away since their records were read")

// GroupSessionOptions configure NewGroupSession.
type GroupSessionOptions struct {
	// Client is what Open takes. Every instance of the application has a
	// GlobalTransactionalID of its own, which it keeps over restarts; they
	// share the group.
	Client Options

	// Cluster is the name, in Client.Clusters, of the cluster that is consumed
	// from, where the group lives.
	Cluster string

	// ConsumerOpts are the consumer's options: kgo.ConsumerGroup and
	// kgo.ConsumeTopics at least. The ClientOpts and the Dialer of the cluster
	// come before them, so that seed brokers, TLS and SASL need not be
	// repeated. Overruled are the isolation level (read_committed), automatic
	// commits (none), and the functions for assigned, revoked and lost
	// partitions.
	ConsumerOpts []kgo.Opt
}

// GroupSession consumes in a group of one cluster, and commits the group's
// offsets in one global transaction with what is produced from the records, to
// that cluster and others. It is what kgo.GroupTransactSession is within one
// cluster: Poll, Begin, Txn.Produce, End, and again. Every record's effects are
// committed once, whatever dies, with any number of instances:
//
//   - When partitions are taken away from this instance, End aborts, since
//     somebody else may have read their records already, and what this instance
//     still has is read again.
//   - What an instance commits after it was replaced is refused by the group's
//     coordinator (KIP-447: member id and generation come with the offsets). The
//     one that replaced it fetches stable offsets, and so waits for what was
//     committed just before and is not decided yet.
//
// Poll, Begin, End and Close are for one goroutine. Produce on the Txn is for
// any number, until End is called.
type GroupSession struct {
	cl       *Client
	consumer *kgo.Client
	group    string
	source   *participant // the cluster that is consumed from

	txn     *Txn
	ending  bool  // txn takes no more
	added   bool  // the offsets are a part of txn
	behind  bool  // the consumer is to go back to the committed offsets
	stopped error // nothing can go on

	mu    sync.Mutex // of what the rebalances change
	moves int        // rebalances that concerned this instance
	taken bool       // partitions were taken away since the last End
	first offsetMap  // of the records since the last End
	next  offsetMap  // behind them
}

type offsetMap = map[string]map[int32]kgo.EpochOffset

// NewGroupSession opens the global transactional id, which aborts what an
// earlier life of this instance has left open, and then joins the group. Its
// errors are Open's, those of kgo.NewClient, *UnknownClusterError when
// o.Cluster is not among o.Client.Clusters, and *WrongClusterError when the
// consumer's seed brokers are of another cluster.
func NewGroupSession(ctx context.Context, o GroupSessionOptions) (*GroupSession, error) {
	conf, ok := o.Client.Clusters[o.Cluster]
	if !ok {
		return nil, &UnknownClusterError{Cluster: o.Cluster}
	}
	cl, err := Open(ctx, o.Client)
	if err != nil {
		return nil, err
	}
	s := &GroupSession{cl: cl, source: cl.slots[0].session.participant(o.Cluster), first: offsetMap{}, next: offsetMap{}}
	if err := s.join(ctx, conf, o.ConsumerOpts); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// join makes the consumer.
func (s *GroupSession) join(ctx context.Context, conf Cluster, more []kgo.Opt) error {
	opts := with(conf.ClientOpts, more...)
	if conf.Dialer != nil {
		opts = append(opts, kgo.Dialer(conf.Dialer))
	}
	var err error
	s.consumer, err = kgo.NewClient(append(opts,
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { s.moved(nil) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { s.moved(taken) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { s.moved(taken) }),
	)...)
	if err != nil {
		return err
	}
	s.group, _ = s.consumer.OptValue(kgo.ConsumerGroup).(string)
	if s.group == "" {
		return errors.New("client: ConsumerOpts without kgo.ConsumerGroup")
	}
	id, err := clusterIDOf(ctx, s.consumer)
	if err != nil {
		return &ParticipantError{Cluster: s.source.name, Err: err}
	}
	if id != s.source.clusterID {
		return &WrongClusterError{Group: s.group, ClusterID: id}
	}
	return nil
}

// Consumer is the consuming client, for looking at it: pausing partitions, its
// lag, hooks. Committing with it, or setting its offsets, breaks the session.
func (s *GroupSession) Consumer() *kgo.Client { return s.consumer }

// moved is called by kgo when partitions come or go. Partitions that go are not
// given up before it returns.
func (s *GroupSession) moved(taken map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves++
	s.taken = s.taken || len(taken) > 0
}

// Poll returns records to be processed, at most max (all that is there if max
// is 0 or less), as kgo's PollRecords does. Several calls may be made for one
// transaction. An error in the fetches that is the session's own has no topic.
func (s *GroupSession) Poll(ctx context.Context, max int) kgo.Fetches {
	if err := s.ready(ctx); err != nil {
		return kgo.NewErrFetch(err)
	}
	fetches := s.consumer.PollRecords(ctx, max)
	s.mu.Lock()
	defer s.mu.Unlock()
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		first, last := p.Records[0], p.Records[len(p.Records)-1]
		if _, known := s.first[p.Topic][p.Partition]; !known {
			put(s.first, p, kgo.EpochOffset{Epoch: first.LeaderEpoch, Offset: first.Offset})
		}
		put(s.next, p, kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1})
	})
	return fetches
}

func put(m offsetMap, p kgo.FetchTopicPartition, o kgo.EpochOffset) {
	if m[p.Topic] == nil {
		m[p.Topic] = map[int32]kgo.EpochOffset{}
	}
	m[p.Topic][p.Partition] = o
}

// ready makes the consumer stand where the next records are to be read.
func (s *GroupSession) ready(ctx context.Context) error {
	switch {
	case s.stopped != nil:
		return s.stopped
	case s.ending:
		return ErrTxnOpen // what is polled now would be taken for a part of it
	case s.behind:
		if err := s.rewind(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.txn == nil && len(s.first) == 0 {
		s.taken = false // nothing that was read is held
	}
	return nil
}

// Begin starts the transaction for what was polled since the last End, and for
// what is polled before the next. Its errors are those of Client.Begin; a
// *FencedError, a *HeuristicError or ErrClosed stays.
func (s *GroupSession) Begin(ctx context.Context) (*Txn, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if s.txn != nil {
		return nil, ErrTxnOpen
	}
	txn, err := s.cl.Begin(ctx)
	if err != nil {
		return nil, s.stop(err)
	}
	s.txn, s.ending, s.added = txn, false, false
	return txn, nil
}

// stop remembers an error after which nothing can go on.
func (s *GroupSession) stop(err error) error {
	_, fenced := errors.AsType[*FencedError](err)
	_, heuristic := errors.AsType[*HeuristicError](err)
	unknown, ok := errors.AsType[*UnknownOutcomeError](err)
	heuristic = heuristic || errors.Is(err, wire.HeuristicOutcome) // of an earlier transaction
	_, contradicted := errors.AsType[*ContradictionError](err)
	if fenced || heuristic || contradicted || ok && unknown.Final || errors.Is(err, ErrClosed) {
		s.stopped = err
	}
	return err
}

// End ends the transaction: with commit, the offsets of what was polled are
// added to it and it is committed. committed says what became of it:
//
//   - true, nil: committed, records and offsets.
//   - false, nil: aborted as asked, or because partitions were taken away in a
//     rebalance. The records that this instance still has are read again.
//   - false and an *AbortedError: aborted for another reason, and read again as
//     well. The session can go on.
//   - false and an *UnknownOutcomeError that is not final: not known. Nothing
//     can be read before it is: call End again, which asks again.
//   - any other error (*HeuristicError, *FencedError, *ContradictionError, an
//     outcome that will not be known): the session stops, and every later call returns the error.
//     Close it. After a *HeuristicError the clusters differ until somebody has
//     looked; after the others a new session of the same id goes on with what
//     has been decided.
//
// When reading again cannot be arranged within ctx, the error says so, and Poll
// tries again.
func (s *GroupSession) End(ctx context.Context, commit bool) (result Result, committed bool, err error) {
	switch {
	case s.stopped != nil:
		return Result{}, false, s.stopped
	case s.txn == nil:
		return Result{}, false, ErrNoTxn
	}
	s.ending = true
	if commit {
		err = s.addOffsets(ctx)
		_, stale := errors.AsType[*StaleGroupError](err)
		if stale || errors.Is(err, errRebalanced) || errors.Is(err, ErrNotMember) {
			commit = false
		}
		// Any other error aborts the transaction, and Commit says so.
	}
	if commit {
		result, err = s.txn.Commit(ctx)
	} else {
		result, err = s.txn.Abort(ctx)
	}
	_, aborted := errors.AsType[*AbortedError](err)
	switch {
	case err == nil && result.Outcome == OutcomeCommitted, errors.Is(err, ErrCommitted):
		s.txn, s.ending = nil, false
		s.forget()
		return result, true, nil
	case err == nil || aborted:
		s.txn, s.ending, s.behind = nil, false, true
		return result, false, errors.Join(err, s.rewind(ctx))
	}
	return result, false, s.stop(err)
}

// addOffsets makes the offsets a part of the transaction.
//
// The generation is taken before the look whether partitions went away: of a
// generation with which they were still here, the group's coordinator has given
// them to nobody. The other way round they could go in between, and the offsets
// be accepted under the next generation, of which somebody else has them.
func (s *GroupSession) addOffsets(ctx context.Context) error {
	if s.added {
		return nil
	}
	s.mu.Lock()
	nothing := len(s.next) == 0
	s.mu.Unlock()
	if nothing {
		s.added = true
		return nil
	}
	g, err := GroupOf(ctx, s.consumer)
	if err != nil {
		s.txn.fail(&OffsetsError{Cluster: s.source.name, Group: s.group, Err: err})
		return err
	}
	s.mu.Lock()
	taken, next := s.taken, clone(s.next)
	s.mu.Unlock()
	if taken {
		return errRebalanced
	}
	if err := s.txn.CommitOffsets(ctx, g, next); err != nil {
		return err
	}
	s.added = true
	return nil
}

func clone(m offsetMap) offsetMap {
	c := make(offsetMap, len(m))
	for topic, partitions := range m {
		c[topic] = maps.Clone(partitions)
	}
	return c
}

// forget drops what was polled.
func (s *GroupSession) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *GroupSession) drop() { s.first, s.next, s.taken = offsetMap{}, offsetMap{}, false }

// rewind takes the consumer back to the group's committed offsets, for the
// partitions that were read from since the last End and are still this
// instance's; kgo leaves the others alone. Where nothing is committed it goes
// back to the first record read. The cluster is asked, because the partition may
// have been another instance's for a while; and if any rebalance comes between
// the answer and its use, it is asked again.
func (s *GroupSession) rewind(ctx context.Context) error {
	for {
		s.mu.Lock()
		moves, first := s.moves, clone(s.first)
		s.mu.Unlock()
		target := first
		if len(first) > 0 {
			committed, err := s.source.committed(ctx, s.group, first)
			if err != nil {
				return err
			}
			for topic, partitions := range committed {
				maps.Copy(target[topic], partitions)
			}
		}
		if s.setOffsets(moves, target) {
			s.behind = false
			return nil
		}
	}
}

// setOffsets sets the positions unless a rebalance has come after moves.
func (s *GroupSession) setOffsets(moves int, to offsetMap) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves != moves {
		return false
	}
	s.consumer.SetOffsets(to)
	s.drop()
	return true
}

// Close aborts an open transaction for which commit was not asked, and leaves
// the group. One whose outcome is not known goes on without this client, and
// whoever gets its partitions waits for the outcome.
func (s *GroupSession) Close(ctx context.Context) error {
	err := s.cl.Close(ctx)
	if s.consumer != nil {
		s.consumer.Close()
	}
	return err
}

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	input      = "in"
	output     = "out"
	partitions = 4
)

// pipeline consumes on us and produces to eu.
type pipeline struct {
	env
	ring int
}

func newPipeline(t *testing.T, records int) pipeline {
	t.Helper()
	p := pipeline{env: newEnv(t)}
	for addr, topic := range map[string]string{p.us.addr: input, p.eu.addr: output} {
		adm := kadm.NewClient(plain(t, addr))
		if _, err := adm.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	cl := plain(t, p.us.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range records {
		r := &kgo.Record{Topic: input, Partition: int32(i % partitions), Value: []byte(fmt.Sprintf("%05d", i))}
		cl.Produce(t.Context(), r, nil)
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p pipeline) session(t *testing.T, id string, opts ...kgo.Opt) *GroupSession {
	t.Helper()
	o := p.options()
	o.GlobalTransactionalID, o.Ring = id, p.ring
	s, err := NewGroupSession(deadline(t, patience), GroupSessionOptions{
		Client: o, Cluster: "us",
		ConsumerOpts: append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(input),
			kgo.HeartbeatInterval(50*time.Millisecond), kgo.FetchMaxWait(50*time.Millisecond)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// step polls until there is something, and produces it.
func step(ctx context.Context, t *testing.T, s *GroupSession, max int) (*Txn, []string) {
	t.Helper()
	var records []*kgo.Record
	for len(records) == 0 {
		fetches := s.Poll(ctx, max)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		records = fetches.Records()
	}
	txn, err := s.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, r := range records {
		values = append(values, string(r.Value))
		txn.Produce(ctx, "eu", &kgo.Record{Topic: output, Value: r.Value}, nil)
	}
	return txn, values
}

// check compares what is visible with what went in, and the group's offsets with
// the ends of the logs.
func (p pipeline) check(t *testing.T, records int) {
	t.Helper()
	ctx := deadline(t, patience)
	seen := map[string]int{}
	for _, v := range readAll(t, p.eu.addr, output) {
		seen[v]++
	}
	for i := range records {
		if n := seen[fmt.Sprintf("%05d", i)]; n != 1 {
			t.Errorf("record %d is there %d times", i, n)
		}
	}
	if len(seen) != records {
		t.Errorf("%d different records, want %d", len(seen), records)
	}
	adm := kadm.NewClient(plain(t, p.us.addr))
	logs, err := adm.ListEndOffsets(ctx, input)
	if err != nil {
		t.Fatal(err)
	}
	offsets, err := adm.FetchOffsetsForTopics(ctx, group, input)
	if err != nil {
		t.Fatal(err)
	}
	logs.Each(func(l kadm.ListedOffset) {
		if o, ok := offsets.Lookup(input, l.Partition); !ok || o.At != l.Offset {
			t.Errorf("partition %d: the group stands at %d, the log ends at %d", l.Partition, o.At, l.Offset)
		}
	})
}

// Instances come and go while there is work; every record's effect is there
// once. A third of the transactions is aborted.
func TestGroupSessionsOfManyInstances(t *testing.T) {
	for name, opt := range map[string]kgo.Opt{
		"cooperative":       kgo.Balancers(kgo.CooperativeStickyBalancer()),
		"eager, with rings": kgo.Balancers(kgo.RangeBalancer()),
	} {
		t.Run(name, func(t *testing.T) {
			const records = 400
			p := newPipeline(t, records)
			if name != "cooperative" {
				p.ring = 3
			}
			var done atomic.Int64
			ctx, stop := context.WithCancel(deadline(t, 2*time.Minute))
			var wg sync.WaitGroup
			work := func(name string, lives int) {
				for life := range lives {
					s := p.session(t, name, opt)
					for i := 0; ctx.Err() == nil && (life == lives-1 || i < 5); i++ {
						fetches := s.Poll(ctx, 7)
						if fetches.NumRecords() == 0 {
							continue
						}
						txn, err := s.Begin(ctx)
						if err != nil {
							break
						}
						fetches.EachRecord(func(r *kgo.Record) {
							txn.Produce(ctx, "eu", &kgo.Record{Topic: output, Value: r.Value}, nil)
						})
						_, committed, err := s.End(ctx, i%3 != 1)
						if err != nil && ctx.Err() == nil {
							t.Errorf("%s: End: %v", name, err)
							break
						}
						if committed && done.Add(int64(fetches.NumRecords())) == records {
							stop()
						}
					}
					if err := s.Close(context.Background()); err != nil {
						t.Errorf("%s: Close: %v", name, err)
					}
				}
			}
			for i := range 3 {
				wg.Go(func() { work(fmt.Sprint("instance-", i), 3) })
			}
			wg.Wait()
			stop()
			if n := done.Load(); n != records {
				t.Errorf("%d records were told to be committed, want %d", n, records)
			}
			p.check(t, records)
		})
	}
}

func TestGroupSessionAbortReadsAgain(t *testing.T) {
	p := newPipeline(t, 40)
	s := p.session(t, "one")
	ctx := deadline(t, patience)
	total := 0
	for i := 0; total < 40; i++ {
		_, values := step(ctx, t, s, 9)
		commit := i%2 == 1
		_, committed, err := s.End(ctx, commit)
		if err != nil || committed != commit {
			t.Fatalf("End = %v, %v, want %v", committed, err, commit)
		}
		if committed {
			total += len(values)
		}
	}
	p.check(t, 40)
	if _, _, err := s.End(ctx, true); !errors.Is(err, ErrNoTxn) {
		t.Errorf("End = %v, want ErrNoTxn", err)
	}
}

// A record that fails is an AbortedError; the session goes on with the same
// records.
func TestGroupSessionGoesOnAfterAnAbort(t *testing.T) {
	p := newPipeline(t, 8)
	s := p.session(t, "one")
	ctx := deadline(t, patience)
	txn, _ := step(ctx, t, s, 0)
	txn.Produce(ctx, "eu", &kgo.Record{Topic: output, Value: make([]byte, 3<<20)}, nil)
	if _, committed, err := s.End(ctx, true); committed || !errors.As(err, new(*AbortedError)) || !errors.As(err, new(*RecordError)) {
		t.Fatalf("End = %v, %v, want an AbortedError", committed, err)
	}
	for total := 0; total < 8; {
		_, values := step(ctx, t, s, 0)
		if _, committed, err := s.End(ctx, true); err != nil || !committed {
			t.Fatalf("End = %v, %v", committed, err)
		}
		total += len(values)
	}
	p.check(t, 8)
}

// A rebalance between Poll and End: the transaction aborts without an error, and
// whoever has the partitions then does the work, once.
func TestGroupSessionAbortsAfterARebalance(t *testing.T) {
	for name, opt := range map[string]kgo.Opt{
		"cooperative": kgo.Balancers(kgo.CooperativeStickyBalancer()),
		"eager":       kgo.Balancers(kgo.RangeBalancer()),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline(t, 40)
			first := p.session(t, "one", opt)
			ctx := deadline(t, patience)
			_, values := step(ctx, t, first, 0)
			for len(values) < 40 { // of all partitions, so that any is missed
				fetches := first.Poll(ctx, 0)
				fetches.EachRecord(func(r *kgo.Record) {
					values = append(values, string(r.Value))
					first.txn.Produce(ctx, "eu", &kgo.Record{Topic: output, Value: r.Value}, nil)
				})
			}
			second := p.session(t, "two", opt)
			for taken := false; !taken; {
				first.mu.Lock()
				taken = first.taken
				first.mu.Unlock()
				if err := pause(ctx, time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			if _, committed, err := first.End(ctx, true); err != nil || committed {
				t.Fatalf("End = %v, %v, want an abort without an error", committed, err)
			}
			var done atomic.Int64
			all, stop := context.WithCancel(ctx)
			defer stop()
			var wg sync.WaitGroup
			for _, s := range []*GroupSession{first, second} {
				wg.Go(func() {
					for all.Err() == nil {
						fetches := s.Poll(all, 0)
						if fetches.NumRecords() == 0 {
							continue
						}
						txn, err := s.Begin(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						fetches.EachRecord(func(r *kgo.Record) {
							txn.Produce(ctx, "eu", &kgo.Record{Topic: output, Value: r.Value}, nil)
						})
						_, committed, err := s.End(ctx, true)
						if err != nil {
							t.Error(err)
							return
						}
						if committed && done.Add(int64(fetches.NumRecords())) == 40 {
							stop()
						}
					}
				})
			}
			wg.Wait()
			p.check(t, 40)
		})
	}
}

// Not known is neither committed nor aborted: nothing is read before it is, and
// End asks again.
func TestGroupSessionWaitsForAnUnknownOutcome(t *testing.T) {
	p := newPipeline(t, 8)
	var silent atomic.Bool
	silent.Store(true)
	p.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		return refusal(0), silent.Load()
	}
	s := p.session(t, "one")
	ctx := deadline(t, patience)
	_, values := step(ctx, t, s, 0)
	var unknown *UnknownOutcomeError
	if _, committed, err := s.End(expiresWhen(t, func() bool { return p.count(wire.KeyEndGlobalTxn) > 1 }), true); committed || !errors.As(err, &unknown) || !unknown.Asked {
		t.Fatalf("End = %v, %v, want an UnknownOutcomeError", committed, err)
	}
	if err := s.Poll(ctx, 0).Err0(); !errors.Is(err, ErrTxnOpen) {
		t.Errorf("Poll = %v, want ErrTxnOpen", err)
	}
	if _, err := s.Begin(ctx); !errors.Is(err, ErrTxnOpen) {
		t.Errorf("Begin = %v, want ErrTxnOpen", err)
	}
	silent.Store(false)
	if _, committed, err := s.End(ctx, true); err != nil || !committed {
		t.Fatalf("End again = %v, %v", committed, err)
	}
	for total := len(values); total < 8; {
		_, values := step(ctx, t, s, 0)
		if _, committed, err := s.End(ctx, true); err != nil || !committed {
			t.Fatalf("End = %v, %v", committed, err)
		}
		total += len(values)
	}
	p.check(t, 8)
}

func TestGroupSessionStopsAtAHeuristicOutcome(t *testing.T) {
	p := newPipeline(t, 8)
	p.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		resp := refusal(wire.HeuristicOutcome.Code)
		resp.Outcome = wire.OutcomeCommitted
		for _, c := range req.Participants {
			resp.Participants = append(resp.Participants, wire.EndGlobalTxnResponseParticipant{
				ClusterID: c.ClusterID, State: wire.ParticipantHeuristicAbort, ProducerID: -1, ProducerEpoch: -1,
			})
		}
		return resp, true
	}
	s := p.session(t, "one")
	ctx := deadline(t, patience)
	step(ctx, t, s, 0)
	_, committed, err := s.End(ctx, true)
	if committed || !errors.As(err, new(*HeuristicError)) {
		t.Fatalf("End = %v, %v, want a HeuristicError", committed, err)
	}
	if got := s.Poll(ctx, 0).Err0(); !errors.Is(got, err) {
		t.Errorf("Poll = %v", got)
	}
	if _, got := s.Begin(ctx); !errors.Is(got, err) {
		t.Errorf("Begin = %v", got)
	}
	if _, _, got := s.End(ctx, true); !errors.Is(got, err) {
		t.Errorf("End = %v", got)
	}
}

func TestGroupSessionOfTheWrongCluster(t *testing.T) {
	p := newPipeline(t, 0)
	o := GroupSessionOptions{Client: p.options(), Cluster: "asia", ConsumerOpts: []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(input)}}
	if _, err := NewGroupSession(t.Context(), o); !errors.As(err, new(*UnknownClusterError)) {
		t.Errorf("NewGroupSession = %v, want an UnknownClusterError", err)
	}
	o.Cluster, o.ConsumerOpts = "us", append(slices.Clone(o.ConsumerOpts), kgo.SeedBrokers(p.eu.addr))
	var wrong *WrongClusterError
	if _, err := NewGroupSession(t.Context(), o); !errors.As(err, &wrong) || wrong.ClusterID != p.eu.id {
		t.Errorf("NewGroupSession = %v, want a WrongClusterError", err)
	}
	o.ConsumerOpts = nil
	if _, err := NewGroupSession(t.Context(), o); err == nil {
		t.Error("NewGroupSession without a group succeeded")
	}
}

// A group that cannot be made out (its cluster does not tell its id) is no
// reason to commit the records without its offsets: they would come again.
func TestNoCommitWithoutTheOffsetsOfAGroupThatCannotBeAsked(t *testing.T) {
	p := newPipeline(t, 4)
	s := p.session(t, "one")
	step(deadline(t, patience), t, s, 0)
	consumer := s.consumer
	s.consumer = plain(t, p.us.addr) // of which GroupOf can say nothing
	_, committed, err := s.End(deadline(t, patience), true)
	s.consumer = consumer
	if committed || !errors.As(err, new(*AbortedError)) || !errors.As(err, new(*OffsetsError)) {
		t.Errorf("End = %v, %v, want an AbortedError because of an OffsetsError", committed, err)
	}
	if got := readAll(t, p.eu.addr, output); len(got) != 0 {
		t.Errorf("eu shows %q, and the group's offsets are where they were", got)
	}
}

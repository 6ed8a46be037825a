package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	committedTotal = `gtc_transactions_ended_total{outcome="committed"}`
	abortedTotal   = `gtc_transactions_ended_total{outcome="aborted"}`
	refusedTotal   = `gtc_votes_refused_total{cluster="b",reason="refused"}`
	tornTotal      = `gtc_heuristic_outcomes_total{cluster="b"}`
)

// counts compares the metrics as they are now.
func (st *stage) counts(when string, want map[string]float64) {
	st.t.Helper()
	got := gather(st.t, st.s.Metrics())
	for name, n := range want {
		if got[name] != n {
			st.t.Errorf("%s: %s is %v, want %v", when, name, got[name], n)
		}
	}
}

// counted waits for the metrics.
func (st *stage) counted(want map[string]float64) {
	st.t.Helper()
	eventually(st.t, func() error {
		got := gather(st.t, st.s.Metrics())
		for name, n := range want {
			if got[name] != n {
				return fmt.Errorf("%s is %v, want %v", name, got[name], n)
			}
		}
		return nil
	})
}

// nextTerm fails an append, so that the partition is claimed and read again.
func (st *stage) nextTerm(store *memlog.Store) {
	st.t.Helper()
	st.active()
	claims := st.log.Stats().Claims
	store.Hold(0)
	opening := make(chan *wire.InitGlobalTxnResponse, 1)
	go func() { opening <- st.handle(initRequest("other", 1, "a")).(*wire.InitGlobalTxnResponse) }()
	st.inFlight(1)
	st.log.Fail(0)
	<-opening
	st.log.Release(0)
	eventually(st.t, func() error {
		if st.log.Stats().Claims == claims {
			return errors.New("it is not claimed again")
		}
		return nil
	})
	st.active().barrier()
}

func soon(o *service.Options) { o.LazyLinger = time.Millisecond }

// What a record says is counted when it is durable.
func TestARecordCountsWhenItIsDurable(t *testing.T) {
	for _, tc := range []struct {
		name     string
		vote     gtc.VoteCode
		end      gtc.EndOutcome
		decision map[string]float64 // when that is durable
		all      map[string]float64 // when the completion is
	}{
		{"committed", gtc.VotePrepared, gtc.EndDone, map[string]float64{committedTotal: 0}, map[string]float64{committedTotal: 1}},
		{"refused", gtc.VoteRefused, gtc.EndDone, map[string]float64{refusedTotal: 1, abortedTotal: 0}, map[string]float64{refusedTotal: 1, abortedTotal: 1}},
		{"torn", gtc.VotePrepared, gtc.EndAborted, map[string]float64{tornTotal: 0, committedTotal: 0}, map[string]float64{tornTotal: 1, committedTotal: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store, c := memlog.NewStore(1), newClusters()
			c.vote["b"] = tc.vote
			c.end = func(_ context.Context, _ string, p txnlog.Participant, _ bool) gtc.EndAnswer {
				a := done(p)
				if p.ClusterID == "b" {
					a.Outcome = tc.end
				}
				return a
			}
			st := play(t, store, c, soon).active()
			s := st.open("pay", "a", "b")
			store.Hold(0)
			s.ending(true, time.Minute)
			st.inFlight(1)
			st.counts("before the decision is durable", map[string]float64{committedTotal: 0, abortedTotal: 0, refusedTotal: 0, tornTotal: 0})
			st.log.Ack(0)
			st.inFlight(1) // the completion
			st.counts("before the completion is durable", tc.decision)
			st.log.Release(0)
			st.counted(tc.all)
		})
	}
}

// An append of unknown fate is counted when the next term finds it in the log;
// else what it says happens again, and is counted then.
func TestAnAppendOfUnknownFateIsCountedOnce(t *testing.T) {
	for name, lose := range map[string]func(*memlog.Log) bool{
		"landed": func(l *memlog.Log) bool { return l.LoseAck(0) },
		"absent": func(l *memlog.Log) bool { return l.Fail(0) },
	} {
		t.Run(name, func(t *testing.T) {
			store, c := memlog.NewStore(1), newClusters()
			c.vote["b"] = gtc.VoteRefused
			c.end = func(_ context.Context, _ string, p txnlog.Participant, _ bool) gtc.EndAnswer {
				a := done(p)
				if p.ClusterID == "b" {
					a.Outcome = gtc.EndCommitted // against the decision
				}
				return a
			}
			st := play(t, store, c, soon).active()
			s := st.open("pay", "a", "b")
			store.Hold(0)
			answer := s.ending(true, time.Minute)
			st.inFlight(1)
			if !lose(st.log) {
				t.Fatal("nothing was in flight")
			}
			<-answer
			// The next term: where the decision is absent, the client asks again.
			st.active()
			st.log.Release(0)
			s.until(true)
			want := map[string]float64{refusedTotal: 1, abortedTotal: 1, tornTotal: 1, committedTotal: 0}
			st.counted(want)
			st.nextTerm(store)
			st.counts("after another term", want)
		})
	}
}

// The completion is lost in both ways, and read again in a third term.
func TestACompletionIsCountedOnceOverTerms(t *testing.T) {
	for name, lose := range map[string]func(*memlog.Log) bool{
		"landed": func(l *memlog.Log) bool { return l.LoseAck(0) },
		"absent": func(l *memlog.Log) bool { return l.Fail(0) },
	} {
		t.Run(name, func(t *testing.T) {
			store := memlog.NewStore(1)
			st := play(t, store, newClusters(), soon).active()
			s := st.open("pay", "a", "b")
			store.Hold(0)
			answer := s.ending(true, time.Minute)
			st.inFlight(1)
			st.log.Ack(0)
			decided(t, <-answer, wire.OutcomeCommitted)
			st.inFlight(1) // the completion
			st.counts("before the completion is durable", map[string]float64{committedTotal: 0})
			lose(st.log)
			st.log.Release(0)
			st.counted(map[string]float64{committedTotal: 1})
			st.nextTerm(store)
			st.counts("after another term", map[string]float64{committedTotal: 1})
		})
	}
}

// A transaction that an operator has given up, and that is completed after all
// when its cluster is back, has ended once; so it has for a coordinator that reads
// the log in between.
func TestATransactionThatIsRevivedIsCountedOnce(t *testing.T) {
	for _, reload := range []bool{false, true} {
		t.Run(fmt.Sprint("reload ", reload), func(t *testing.T) {
			store, c := memlog.NewStore(1), newClusters()
			c.end = func(ctx context.Context, id string, p txnlog.Participant, commit bool) gtc.EndAnswer {
				if p.ClusterID == "b" {
					return retry(ctx, id, p, commit)
				}
				return done(p)
			}
			st := play(t, store, c, soon).active()
			s := st.open("pay", "a", "b")
			decided(t, s.endPending(), wire.OutcomeCommitted)
			if resp := st.resolve("pay", wire.ResolveGiveUp, "b"); resp.ErrorCode != 0 {
				t.Fatalf("%+v", resp)
			}
			st.counted(map[string]float64{committedTotal: 1, tornTotal: 1})
			c.set(func() { // b is back
				c.open["b"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, AuditTopic: "t", StartMillis: 1}}
			})
			eventually(t, func() error {
				if d := st.describe("pay"); d.State != "PrepareCommit" {
					return fmt.Errorf("state %s", d.State)
				}
				return nil
			})
			if reload {
				st.nextTerm(store)
			}
			c.set(func() { c.end = nil })
			eventually(t, func() error {
				if d := st.describe("pay"); d.State != "CompleteCommit" {
					return fmt.Errorf("state %s", d.State)
				}
				return nil
			})
			s.sequence++
			decided(t, s.until(true), wire.OutcomeCommitted) // one more, behind its record
			st.counted(map[string]float64{committedTotal: 2, tornTotal: 1})
		})
	}
}

// A participant shows open what it had ended: restored from a copy. It is told the
// decision again, and that is counted and said.
func TestAParticipantThatForgotIsCounted(t *testing.T) {
	const forgotTotal = `gtc_participant_forgot_total{cluster="b"}`
	store, c, said := memlog.NewStore(1), newClusters(), new(safeBuffer)
	c.end = func(_ context.Context, _ string, p txnlog.Participant, _ bool) gtc.EndAnswer {
		c.set(func() { delete(c.open, p.ClusterID) })
		return done(p)
	}
	st := play(t, store, c, soon, func(o *service.Options) { o.Logger = zerolog.New(said) }).active()
	s := st.open("pay", "a", "b")
	decided(t, s.end(true, time.Minute), wire.OutcomeCommitted)
	st.counted(map[string]float64{committedTotal: 1, forgotTotal: 0})
	c.set(func() {
		c.open["b"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, AuditTopic: "t", StartMillis: 1}}
	})
	st.counted(map[string]float64{forgotTotal: 1, tornTotal: 0})
	eventually(t, func() error {
		if told := c.heard(); len(told) != 3 || told[2] != "pay b commit" {
			return fmt.Errorf("told %v", told)
		}
		return nil
	})
	st.nextTerm(store)
	st.counts("after another term", map[string]float64{committedTotal: 1, forgotTotal: 1})
	for _, cause := range []string{"restored from a copy", "unclean leader", "answered from its cache", `"cluster":"b"`, `"decided":"commit"`} {
		if !strings.Contains(said.String(), cause) {
			t.Errorf("the log does not say %q", cause)
		}
	}
}

// safeBuffer takes what is logged while it is read.
type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// What a cluster has had open for fifty seconds is not new to the next coordinator.
func TestAFailoverDoesNotMakeTheOldestYoung(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	c.open["a"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, StartMillis: time.Now().UnixMilli() - 50_000}}
	st := play(t, store, c).active()
	st.open("pay", "a", "b")
	for range 2 {
		eventually(t, func() error {
			if oldest := gather(t, st.s.Metrics())[`gtc_transactions_oldest_age_seconds{phase="undecided"}`]; oldest < 50 {
				return fmt.Errorf("the oldest is %v s old, want 50 at least", oldest)
			}
			return nil
		})
		st = play(t, store, c).active()
	}
}

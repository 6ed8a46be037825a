package topiclog

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

func TestTheClaimIsKeptAlive(t *testing.T) {
	s, _ := kfakeStore(t)
	clock := newTestClock()
	l := s.open(t, func(o *Options) { o.Clock = clock })
	w, _ := logtest.Claim(t, l, 0)
	mustAppend(t, w, logtest.Put("a", 1))
	for hour := int64(1); hour <= 24; hour++ {
		eventually(t, "the keep-alive to wait", func() bool {
			clock.mu.Lock()
			defer clock.mu.Unlock()
			return len(clock.waits) > 0
		})
		clock.advance(time.Hour)
		eventually(t, "the claim to be written", func() bool { return l.Stats().Claims == 1+hour })
	}
	mustAppend(t, w, logtest.Put("a", 2))
	records := s.records(t, 0)
	for i, r := range records[:len(records)-2] {
		if r.ProducerEpoch != 0 {
			t.Fatalf("record %d of the first day has epoch %d, want 0", i, r.ProducerEpoch)
		}
	}
	for _, r := range records[len(records)-2:] {
		if r.ProducerEpoch != 1 {
			t.Fatalf("after the day the epoch is %d, want 1", r.ProducerEpoch)
		}
	}
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "a2")
}

// A paused owner that wakes up and finds its daily re-init due must not take
// the partition back: it has not read what the new owner wrote.
func TestAnOldOwnersReInitDoesNotTakeThePartitionBack(t *testing.T) {
	s, _ := kfakeStore(t)
	clock := newTestClock()
	l := s.open(t, func(o *Options) { o.Clock, o.ReInit = clock, time.Hour })
	old, _ := logtest.Claim(t, l, 0)
	mustAppend(t, old, logtest.Put("a", 1))
	next, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, next, logtest.Put("a", 2))
	claims := l.Stats().Claims
	eventually(t, "the keep-alive to wait", func() bool {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		return len(clock.waits) > 0
	})
	clock.advance(time.Hour)
	// kfake, unlike Kafka, gives an epoch to a caller whose own is stale.
	eventually(t, "the old owner to die", func() bool {
		old.(*writer).mu.Lock()
		defer old.(*writer).mu.Unlock()
		return old.(*writer).err != nil
	})
	if err := logtest.Append(t, old, logtest.Put("a", 99)); err == nil {
		t.Fatal("the old owner can write again")
	}
	if l.Stats().Claims != claims {
		t.Fatal("the old owner has claimed the partition without reading it")
	}
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "a2")
}

func TestAWriterThatWasAsleepTooLongDoesNotWrite(t *testing.T) {
	s, _ := kfakeStore(t)
	clock := newTestClock()
	l := s.open(t, func(o *Options) { o.Clock, o.KeepAlive = clock, 1000*time.Hour })
	w, _ := logtest.Claim(t, l, 0)
	clock.advance(13 * time.Hour)
	if err := logtest.Append(t, w, logtest.Put("a", 1)); !errors.Is(err, txnlog.ErrUnknownFate) {
		t.Fatalf("append after 13 hours of silence gives %v, want ErrUnknownFate", err)
	}
	if n := len(values(t, s, 0)); n != 0 {
		t.Fatalf("%d records were written", n)
	}
}

// The machine was suspended, during which the monotonic clock stood still.
func TestAWriterWhoseMachineWasSuspendedTooLongDoesNotWrite(t *testing.T) {
	s, _ := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	at := &w.(*writer).ackAt // nothing is in flight
	at.wall = at.wall.Add(-13 * time.Hour)
	if err := logtest.Append(t, w, logtest.Put("a", 1)); !errors.Is(err, txnlog.ErrUnknownFate) {
		t.Fatalf("append after 13 hours of suspension gives %v, want ErrUnknownFate", err)
	}
	if n := len(values(t, s, 0)); n != 0 {
		t.Fatalf("%d records were written", n)
	}
}

func TestTimeBetweenIsThatOfTheClockThatShowsMore(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct{ mono, wall, want time.Duration }{
		"both":        {time.Hour, time.Hour, time.Hour},
		"suspended":   {time.Minute, time.Hour, time.Hour},
		"set back":    {time.Hour, -time.Hour, time.Hour},
		"set forward": {0, time.Hour, time.Hour},
	} {
		s := stamp{mono: now.Add(-c.mono), wall: now.Round(0).Add(-c.wall)}
		if got := s.elapsed(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSequencesBeginAnewBeforeTheyEnd(t *testing.T) {
	s, _ := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	w.(*writer).sequence = maxSequence // nothing is in flight
	mustAppend(t, w, logtest.Put("a", 1))
	mustAppend(t, w, logtest.Put("a", 2))
	if r := values(t, s, 0); r[1].ProducerEpoch != 1 {
		t.Fatalf("epoch %d, want 1", r[1].ProducerEpoch)
	}
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "a2")
}

// testSeal: the owner has another producer id than the next claim gets.
func testSeal(t *testing.T, s *store) {
	t.Helper()
	s.open(t).Close()        // the topic is there
	old := producer{4711, 3} // no id that a broker has given out
	claim := claimBatch(txnlog.Claim{ProducerID: old.id, ProducerEpoch: old.epoch})
	value := func(id string) *batch {
		b := new(batch)
		if err := b.addAll([]txnlog.Record{logtest.Put(id, 1)}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	now := time.Now().UnixMilli()
	if err := s.send(t.Context(), 0, claim.encode(old, 0, now)); err != nil {
		t.Fatal(err)
	}
	if err := s.send(t.Context(), 0, value("a").encode(old, 1, now)); err != nil {
		t.Fatal(err)
	}
	l := s.open(t)
	w, got := logtest.Claim(t, l, 0)
	logtest.Want(t, got, "a1")
	if err := s.send(t.Context(), 0, value("torn").encode(old, 2, now)); !errors.Is(err, txnlog.ErrFenced) {
		t.Fatalf("the old producer id gets %v, want the broker to fence it", err)
	}
	mustAppend(t, w, logtest.Put("b", 1))
	next := s.open(t)
	_, got = logtest.Claim(t, next, 0)
	logtest.Want(t, got, "a1", "b1")
	if n := next.Stats().Foreign; n != 0 {
		t.Fatalf("%d records were left out, want none", n)
	}
}

func TestAnotherProducerIDEndsThatOfTheOldOwner(t *testing.T) {
	s, _ := kfakeStore(t)
	testSeal(t, s)
}

// The real thing: the epochs of the transactional id run out.
func TestTheOldOwnerIsFencedWhenEpochsRunOut(t *testing.T) {
	s, _ := kfakeStore(t)
	l := s.open(t)
	o := s.options()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	bump := func() int16 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = kmsg.StringPtr(o.transactionalID(0))
		req.TransactionTimeoutMillis = initTimeout
		resp, err := req.RequestWith(t.Context(), client)
		if err != nil || resp.ErrorCode != 0 {
			t.Fatalf("%v, %+v", err, resp)
		}
		return resp.ProducerEpoch
	}
	for bump() < 32765 {
	}
	old, _ := logtest.Claim(t, l, 0)
	mustAppend(t, old, logtest.Put("a", 1))
	if e := values(t, s, 0)[0].ProducerEpoch; e != 32766 {
		t.Fatalf("the old owner has epoch %d, want the last, 32766", e)
	}
	next, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1")
	if err := logtest.Append(t, old, logtest.Put("a", 99)); !errors.Is(err, txnlog.ErrFenced) {
		t.Fatalf("the old owner's append gives %v, want ErrFenced", err)
	}
	mustAppend(t, next, logtest.Put("a", 2))
	_, got = logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "a2")
}

func TestAReInitThatCannotBeDoneNowIsDoneLater(t *testing.T) {
	s, c := kfakeStore(t)
	clock := newTestClock()
	l := s.open(t, func(o *Options) { o.Clock, o.ReInit = clock, time.Hour })
	w, _ := logtest.Claim(t, l, 0)
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: 1})
	for hour := int64(1); hour <= 2; hour++ {
		eventually(t, "the keep-alive to wait", func() bool {
			clock.mu.Lock()
			defer clock.mu.Unlock()
			return len(clock.waits) > 0
		})
		clock.advance(time.Hour)
		eventually(t, "the claim to be written", func() bool { return l.Stats().Claims == 1+hour })
		mustAppend(t, w, logtest.Put("a", hour))
	}
	if fault.Hits() != 1 {
		t.Fatal("the first re-init did not fail")
	}
	got := values(t, s, 0)
	if got[0].ProducerEpoch != 0 || got[1].ProducerEpoch != 1 {
		t.Fatalf("epochs %d and %d, want 0 while the coordinator was away and 1 after", got[0].ProducerEpoch, got[1].ProducerEpoch)
	}
}

package service_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// stepping is the system's clock with a wall clock that a test can step.
type stepping struct {
	service.Clock
	step atomic.Int64 // milliseconds
}

func (c *stepping) Now() gtc.Time {
	now := c.Clock.Now()
	now.Wall += c.step.Load()
	return now
}

const hour = int64(3600 * 1000)

// Case 24: the wall clock steps back by an hour, and forward by a year, between
// InitGlobalTxn and the end, and between transactions. Nothing is refused,
// expires, or is aborted for its age.
func TestAWallClockThatStepsEndsNothing(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	clock := &stepping{Clock: service.SystemClock()}
	c.open["a"], c.open["b"] = nil, nil
	st := play(t, store, c, func(o *service.Options) { o.Clock = clock }).active()
	s := st.open("pay", "a", "b")
	st.open("idle", "a", "b")
	for i, step := range []int64{-hour, 365 * 24 * hour, 0} {
		c.set(func() {
			c.open["a"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: int16(3 + i), EndTxnVersion: 5, StartMillis: clock.Now().Wall}}
		})
		for j := range s.refs {
			s.refs[j].ProducerEpoch = int16(3 + i)
		}
		eventually(t, func() error {
			if d := st.describe("pay"); d.State != "Ongoing" {
				return fmt.Errorf("state %s", d.State)
			}
			return nil
		})
		clock.step.Store(step)
		st.barrier()
		if d := st.describe("pay"); d.State != "Ongoing" || d.Participants[0].OpenSinceMillis >= hour {
			t.Fatalf("after a step of %d ms: %+v", step, d)
		}
		c.set(func() { c.open["a"] = nil })
		decided(t, s.end(true, patience), wire.OutcomeCommitted)
		s.sequence++
	}
	if d := st.describe("idle"); d.ErrorCode != 0 || d.State != "Empty" {
		t.Errorf("the idle id: %+v", d)
	}
}

// Case 24: a record stamped ten years ahead is used like any other, and expires
// in its time and not ten years later.
func TestARecordFromTheFutureExpiresAllTheSame(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	v := value(txnlog.StateCompleteCommit, "a")
	v.Participants[0].State = txnlog.ParticipantComplete
	v.DecidedMillis, v.UpdatedMillis = time.Now().UnixMilli()+87600*hour, time.Now().UnixMilli()+87600*hour
	put(t, store, "ahead", v)
	v = value(txnlog.StatePrepareCommit, "a")
	v.DecidedMillis, v.UpdatedMillis = time.Now().UnixMilli()+87600*hour, time.Now().UnixMilli()+87600*hour
	put(t, store, "decided", v)
	c.open["a"] = nil
	st := play(t, store, c, func(o *service.Options) { o.Config.ExpirationMillis = 500 }).active()
	if d := st.describe("ahead"); d.State != "CompleteCommit" {
		t.Errorf("%+v", d)
	}
	eventually(t, func() error {
		if d := st.describe("decided"); d.ErrorCode == 0 && d.State != "CompleteCommit" {
			return fmt.Errorf("state %s", d.State)
		}
		return nil
	})
	eventually(t, func() error {
		if d := st.describe("ahead"); d.ErrorCode != kerr.TransactionalIDNotFound.Code {
			return fmt.Errorf("it is still there: %s", d.State)
		}
		return nil
	})
}

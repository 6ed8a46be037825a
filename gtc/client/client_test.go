package client

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

func TestCommitIsVisibleOnBothClusters(t *testing.T) {
	e := newEnv(t)
	txn := begin(t, e.open(t))
	produce(t, txn, "us", "a", "b")
	produce(t, txn, "eu", "c")
	commit(t, txn)
	if got, want := readIndependently(t, e.us.addr, topic, 2), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("kafka-go reads %q on us, want %q", got, want)
	}
	if got, want := readIndependently(t, e.eu.addr, topic, 1), []string{"c"}; !slices.Equal(got, want) {
		t.Errorf("kafka-go reads %q on eu, want %q", got, want)
	}
	if got, want := visible(t, e.us.addr), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("kgo reads %q on us, want %q", got, want)
	}
}

// Case 14, and the adoption: the client's EndTxn is answered from the reply and
// does not leave, transaction after transaction on one id.
func TestThreeTransactionsWithoutAnEndTxnOfTheClient(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var want []string
	for i := range 3 {
		txn := begin(t, cl)
		v := fmt.Sprint(i)
		want = append(want, v)
		produce(t, txn, "us", v)
		produce(t, txn, "eu", v)
		commit(t, txn)
	}
	begin(t, cl) // the last one has been adopted too
	for _, c := range []participantCluster{e.us, e.eu} {
		if got := c.endTxns.Load(); got != 3 {
			t.Errorf("%s got %d EndTxn, want 3, all from the coordinator", c.name, got)
		}
		if got := c.inits.Load(); got != 1 {
			t.Errorf("%s got %d InitProducerId, want 1", c.name, got)
		}
		if got := visible(t, c.addr); !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
	if got := e.ends; got != 6 {
		t.Errorf("the coordinator sent %d EndTxn, want 6", got)
	}
	if got := e.count(wire.KeyEndGlobalTxn); got != 3 {
		t.Errorf("the coordinator got %d EndGlobalTxn, want 3", got)
	}
}

func TestAbortBeforeCommitAsksNobody(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	before := len(e.keys())
	txn := begin(t, cl)
	produce(t, txn, "us", "x")
	produce(t, txn, "eu", "y")
	r, err := txn.Abort(t.Context())
	if err != nil || r.Outcome != OutcomeAborted || !r.Complete() {
		t.Fatalf("Abort = %+v, %v, want aborted and complete", r, err)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "a")
	if got := e.keys()[before:]; len(got) != 0 {
		t.Errorf("the coordinator got requests of keys %v for an abort, want none", got)
	}
	commit(t, txn)
	if got, want := visible(t, e.us.addr), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
	if got := visible(t, e.eu.addr); len(got) != 0 {
		t.Errorf("eu shows %q, want nothing", got)
	}
}

// R3: no InitProducerId before InitGlobalTxn has answered.
func TestProducersAreInitialisedAfterInitGlobalTxn(t *testing.T) {
	e := newEnv(t)
	for _, c := range []participantCluster{e.us, e.eu} {
		c.fake.ControlKey(keyInitProducerID, func(kmsg.Request) (kmsg.Response, error, bool) {
			c.fake.KeepControl()
			e.note("InitProducerId")
			return nil, nil, false
		})
	}
	e.open(t)
	if got, want := e.noted(), []string{"InitGlobalTxn", "InitProducerId", "InitProducerId"}; !slices.Equal(got, want) {
		t.Errorf("order on the wire: %q, want %q", got, want)
	}
}

func TestTransactionWithoutRecordsAsksNobody(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	before := len(e.keys())
	for range 2 {
		r := commit(t, begin(t, cl))
		if len(r.Participants) != 0 {
			t.Errorf("participants %+v, want none", r.Participants)
		}
	}
	if got := e.keys()[before:]; len(got) != 0 {
		t.Errorf("the coordinator got requests of keys %v, want none", got)
	}
}

// Case 5: a cluster that was not written to is no participant.
func TestUntouchedClusterIsLeftOut(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	for range 2 {
		txn := begin(t, cl)
		produce(t, txn, "us", "a")
		r := commit(t, txn)
		if len(r.Participants) != 1 || r.Participants[0].Cluster != "us" {
			t.Errorf("participants %+v, want us alone", r.Participants)
		}
	}
	if got := e.eu.endTxns.Load(); got != 0 {
		t.Errorf("eu got %d EndTxn, want none", got)
	}
}

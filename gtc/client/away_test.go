package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// door is the way to a cluster, which can be shut: what is connected breaks, and
// a new connection is refused, or (silent) opens to nobody.
type door struct {
	mu     sync.Mutex
	shut   bool
	silent bool
	conns  []net.Conn
}

func (d *door) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	shut, silent := d.shut, d.silent
	d.mu.Unlock()
	switch {
	case shut && silent:
		c, _ := net.Pipe()
		return c, nil
	case shut:
		return nil, errors.New("refused")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		d.mu.Lock()
		d.conns = append(d.conns, c)
		d.mu.Unlock()
	}
	return c, err
}

func (d *door) set(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = shut
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

// abortedWithEUAway is a session over both whose last transaction was aborted,
// which eu has not heard and cannot be asked about.
func abortedWithEUAway(t *testing.T, silent bool) (env, *Client, *door) {
	t.Helper()
	e, d := newEnv(t), &door{silent: silent}
	e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if n > 1 {
			return nil, false
		}
		// us is told, eu is not.
		told := *req
		told.Committed = false
		told.Participants = slices.DeleteFunc(slices.Clone(req.Participants), func(p wire.EndGlobalTxnRequestParticipant) bool {
			return p.ClusterID == e.eu.id
		})
		resp := e.endGlobalTxn(t.Context(), &told)
		resp.Participants = append(resp.Participants, wire.EndGlobalTxnResponseParticipant{
			ClusterID: e.eu.id, State: wire.ParticipantPending, ProducerID: -1, ProducerEpoch: -1,
		})
		return resp, true
	}
	o := e.options()
	eu := o.Clusters["eu"]
	eu.Dialer = d.dial
	o.Clusters["eu"] = eu
	cl := open(t, o)
	txn := begin(t, cl)
	for _, c := range []string{"us", "eu"} {
		if err := txn.ProduceSync(t.Context(), c, &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	d.set(true)
	r, err := txn.Commit(deadline(t, patience))
	if !errors.As(err, new(*AbortedError)) || !slices.Equal(r.Pending(), []string{"eu"}) {
		t.Fatalf("Commit = %+v, %v, want aborted, and eu pending", r, err)
	}
	return e, cl, d
}

// A cluster that is away holds up the transactions that write to it and no
// others: after an abort that it has not heard the session goes on without it,
// also with one that swallows what is sent, and with it when it is back.
func TestAClusterThatIsAwayHoldsUpNoOther(t *testing.T) {
	for name, silent := range map[string]bool{"refuses": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			e, cl, d := abortedWithEUAway(t, silent)
			asked := e.count(wire.KeyInitGlobalTxn)
			for _, v := range []string{"b", "c"} {
				txn := begin(t, cl)
				produce(t, txn, "us", v)
				if r := commit(t, txn); len(r.Participants) != 1 {
					t.Errorf("participants %+v, want us alone", r.Participants)
				}
			}
			if n := e.count(wire.KeyInitGlobalTxn) - asked; n != 1 {
				t.Errorf("%d InitGlobalTxn, want one for both", n)
			}
			if n := e.us.inits.Load(); n != 1 {
				t.Errorf("us got %d InitProducerId, want the first one alone", n)
			}
			d.set(false)
			inits := e.eu.inits.Load()
			txn := begin(t, cl)
			if n := e.eu.inits.Load() - inits; n != 0 {
				t.Errorf("eu got %d InitProducerId from Begin", n)
			}
			produce(t, txn, "us", "d")
			produce(t, txn, "eu", "d")
			commit(t, txn)
			if n := e.eu.inits.Load() - inits; n != 1 {
				t.Errorf("eu got %d InitProducerId, want 1", n)
			}
			for c, want := range map[participantCluster][]string{e.us: {"b", "c", "d"}, e.eu: {"d"}} {
				if got := visible(t, c.addr); !slices.Equal(got, want) {
					t.Errorf("%s shows %q, want %q", c.name, got, want)
				}
			}
		})
	}
}

// What is written to the cluster that is away fails with its context, and the
// transaction is aborted without another word to it. Abort does not wait for a
// record that still waits for it.
func TestAnAbortDoesNotWaitForAClusterThatWasNeverReady(t *testing.T) {
	for name, silent := range map[string]bool{"refuses": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			e, cl, d := abortedWithEUAway(t, silent)
			txn := begin(t, cl)
			produce(t, txn, "us", "b")
			failed := make(chan error, 1)
			go txn.Produce(context.Background(), "eu", &kgo.Record{Topic: topic, Value: []byte("b")}, func(_ *kgo.Record, err error) { failed <- err })
			for len(txn.parts()) < 2 {
				time.Sleep(time.Millisecond)
			}
			if r, err := txn.Abort(deadline(t, patience)); err != nil || !r.Complete() {
				t.Fatalf("Abort = %+v, %v, want aborted and complete: nothing of it is on eu", r, err)
			}
			if err := <-failed; err == nil {
				t.Error("the record was written")
			}
			txn = begin(t, cl)
			produce(t, txn, "us", "c")
			txn.Produce(deadline(t, 50*time.Millisecond), "eu", &kgo.Record{Topic: topic, Value: []byte("c")}, nil)
			if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.As(err, new(*RecordError)) {
				t.Fatalf("Commit = %v, want an AbortedError because of the record", err)
			}
			d.set(false)
			txn = begin(t, cl)
			produce(t, txn, "us", "d")
			produce(t, txn, "eu", "d")
			commit(t, txn)
			for _, c := range []participantCluster{e.us, e.eu} {
				if got, want := visible(t, c.addr), []string{"d"}; !slices.Equal(got, want) {
					t.Errorf("%s shows %q, want %q", c.name, got, want)
				}
			}
		})
	}
}

// An application that has lost its session learns it when it next uses a cluster
// that has to be initialised again, and its late InitProducerId does not leave.
func TestAFencedClientInitialisesNothing(t *testing.T) {
	e, cl, d := abortedWithEUAway(t, false)
	txn := begin(t, cl)
	d.set(false)
	e.takeOver()
	s := cl.slots[0].session
	s.granted.mono = s.granted.mono.Add(-2 * sharedFor) // the permission of Begin is too old
	inits := e.eu.inits.Load()
	produce(t, txn, "eu", "b")
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.As(err, new(*FencedError)) {
		t.Errorf("Commit = %v, want an AbortedError because of a FencedError", err)
	}
	if n := e.eu.inits.Load() - inits; n != 0 {
		t.Errorf("eu got %d InitProducerId of a fenced client", n)
	}
	if _, err := cl.Begin(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
		t.Errorf("Begin = %v, want a FencedError", err)
	}
}

package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// newKeeping starts a mini-broker, which keeps prepared transactions where it is
// allowed to (KIP-939).
func newKeeping(t *testing.T, name string, overrides ...string) participantCluster {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load("", append([]string{
		"listeners=PLAINTEXT://" + ln.Addr().String(), "log.dirs=", "cluster.id=cluster-" + name,
		"transaction.max.timeout.ms=2147483647", "unstable.api.versions.enable=true",
	}, overrides...))
	if err != nil {
		t.Fatal(err)
	}
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	node := broker.Node{ID: cfg.NodeID, Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)}
	embedded, err := broker.OpenEmbedded(cfg, node, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	front, err := broker.NewFront(t.Context(), broker.Options{
		Config: cfg, Node: node, Embedded: embedded, Now: time.Now, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- front.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := front.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		embedded.Close()
	})
	p := participantCluster{name: name, addr: ln.Addr().String(), id: "cluster-" + name, endTxns: new(atomic.Int64), inits: new(atomic.Int64)}
	if _, err := kadm.NewClient(plain(t, p.addr)).CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return p
}

const allows2PC = "transaction.two.phase.commit.enable=true"

// keepingEnv has us keep prepared transactions and eu not.
func keepingEnv(t *testing.T) env {
	t.Helper()
	e := env{us: newKeeping(t, "us", allows2PC), eu: newKfake(t, "eu")}
	e.fakeCoordinator = newFakeCoordinator(t, e.us, e.eu)
	return e
}

// instance is the producer of another client of the id.
func instance(t *testing.T, at participantCluster, mode TwoPhaseCommit) *participant {
	t.Helper()
	p, err := newParticipant(at.name, globalID, Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(at.addr)}, TwoPhaseCommit: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// openAt is what is open on a cluster under the id.
func openAt(t *testing.T, at participantCluster) (string, pair) {
	t.Helper()
	resp, err := instance(t, at, TwoPhaseCommitAuto).describe(deadline(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	s := resp.TransactionStates[0]
	return s.State, pair{s.ProducerID, s.ProducerEpoch}
}

// A client was granted the id, and stopped. Another one took the id over, wrote,
// and its commit is decided, when the first one's InitProducerId arrives. Kept,
// the transaction ends as decided; without, it is aborted.
func TestALateInitProducerIDAbortsNothing(t *testing.T) {
	for name, mode := range map[string]TwoPhaseCommit{"kept": TwoPhaseCommitAuto, "aborted": TwoPhaseCommitOff} {
		t.Run(name, func(t *testing.T) {
			e := keepingEnv(t)
			cl := e.open(t)
			txn := begin(t, cl)
			if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			_, was := openAt(t, e.us)
			fenced := &FencedError{Err: kerr.ProducerFenced}
			late := instance(t, e.us, mode)
			err := late.initialise(deadline(t, patience), func(context.Context) error { return fenced })
			state, now := openAt(t, e.us)
			if mode == TwoPhaseCommitOff {
				if err != nil || state == "Ongoing" {
					t.Errorf("initialise = %v, and the transaction is %s, want it aborted", err, state)
				}
				return
			}
			if !errors.Is(err, fenced) {
				t.Errorf("initialise = %v, want the refusal of InitGlobalTxn", err)
			}
			if state != "Ongoing" || now != was {
				t.Fatalf("the transaction is %s of %v, want Ongoing of %v", state, now, was)
			}
			commitKept(t, e.us)
			if got, want := visible(t, e.us.addr), []string{"a"}; !slices.Equal(got, want) {
				t.Errorf("us shows %q, want %q", got, want)
			}
		})
	}
}

// commitKept is how a coordinator that was refused tells a kept transaction its
// decision.
func commitKept(t *testing.T, at participantCluster) {
	t.Helper()
	p := instance(t, at, TwoPhaseCommitAuto)
	if err := p.openRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	by, ongoing, err := p.takeOver(t.Context())
	if err == nil && ongoing {
		_, err = p.endKept(t.Context(), by, true)
	}
	if err != nil || !ongoing {
		t.Fatalf("ongoing %v, %v", ongoing, err)
	}
}

// What an earlier client has left open is aborted after the coordinator has said
// twice that the id is ours, and the client goes on from there.
func TestWhatWasKeptIsAbortedByItsSuccessor(t *testing.T) {
	e := keepingEnv(t)
	earlier := begin(t, e.open(t))
	for _, c := range []string{"us", "eu"} {
		if err := earlier.ProduceSync(t.Context(), c, &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	before := e.count(wire.KeyInitGlobalTxn)
	cl := e.open(t)
	if n := e.count(wire.KeyInitGlobalTxn) - before; n != 2 {
		t.Errorf("%d InitGlobalTxn, want another one before what is open is ended", n)
	}
	var want []string
	for _, v := range []string{"b", "c", "d"} {
		txn := begin(t, cl)
		produce(t, txn, "us", v)
		produce(t, txn, "eu", v)
		commit(t, txn)
		want = append(want, v)
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "x")
	if _, err := txn.Abort(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "e")
	produce(t, txn, "eu", "e")
	commit(t, txn)
	want = append(want, "e")
	for _, c := range []participantCluster{e.us, e.eu} {
		if got := visible(t, c.addr); !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
	if n := e.count(wire.KeyInitGlobalTxn) - before; n != 2 {
		t.Errorf("%d InitGlobalTxn in all, want no more", n)
	}
}

// Another client takes the id over between the two questions: the first one ends
// nothing.
func TestAClientThatLostTheIDEndsNothing(t *testing.T) {
	e := keepingEnv(t)
	txn := begin(t, e.open(t))
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	before := e.count(wire.KeyInitGlobalTxn)
	e.initHook = func(n int, _ *wire.InitGlobalTxnRequest) (*wire.InitGlobalTxnResponse, bool) {
		resp := wire.NewPtrInitGlobalTxnResponse()
		resp.ErrorCode = kerr.ProducerFenced.Code
		return resp, n > before+1
	}
	if _, err := Open(deadline(t, patience), e.options()); !errors.As(err, new(*FencedError)) {
		t.Fatalf("Open = %v, want a FencedError", err)
	}
	if state, _ := openAt(t, e.us); state != "Ongoing" {
		t.Errorf("the transaction is %s, want Ongoing", state)
	}
}

// A pair that is refused was taken over in between: by the coordinator, which
// had a decision to tell, and then the client goes on.
func TestARefusedPairIsAskedForAgain(t *testing.T) {
	e := keepingEnv(t)
	txn := begin(t, e.open(t))
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	p := instance(t, e.us, TwoPhaseCommitAuto)
	err := p.initialise(deadline(t, patience), func(context.Context) error {
		if asked++; asked == 1 {
			commitKept(t, e.us)
		}
		return nil
	})
	if err != nil || asked != 2 {
		t.Errorf("initialise = %v, the coordinator was asked %d times, want twice", err, asked)
	}
	if got, want := visible(t, e.us.addr), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// Clusters that do not keep, in the ways that there are, are initialised as ever.
func TestAClusterThatDoesNotKeepIsInitialisedAsEver(t *testing.T) {
	for name, overrides := range map[string][]string{
		"not offered": {"unstable.api.versions.enable=false"}, "not allowed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			e := env{us: newKeeping(t, "us", overrides...), eu: newKfake(t, "eu")}
			e.fakeCoordinator = newFakeCoordinator(t, e.us, e.eu)
			earlier := begin(t, e.open(t))
			if err := earlier.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			p := instance(t, e.us, TwoPhaseCommitAuto)
			if err := p.openRaw(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.initialiseKeeping(t.Context(), nil); !errors.Is(err, errNotKept) {
				t.Errorf("initialiseKeeping = %v, want errNotKept", err)
			}
			if state, _ := openAt(t, e.us); state != "Ongoing" {
				t.Errorf("the transaction is %s, want Ongoing", state)
			}
			before := e.count(wire.KeyInitGlobalTxn)
			txn := begin(t, e.open(t))
			if n := e.count(wire.KeyInitGlobalTxn) - before; n != 1 {
				t.Errorf("%d InitGlobalTxn, want 1", n)
			}
			produce(t, txn, "us", "b")
			commit(t, txn)
			if got, want := visible(t, e.us.addr), []string{"b"}; !slices.Equal(got, want) {
				t.Errorf("us shows %q, want %q", got, want)
			}
		})
	}
}

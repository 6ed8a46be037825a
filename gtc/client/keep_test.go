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
	"github.com/twmb/franz-go/pkg/kmsg"

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

// asked stands in for the coordinator where a producer asks for its permission.
type asked struct{ renewed, confirmed func() error }

func (a asked) renew(context.Context) error   { return a.renewed() }
func (a asked) confirm(context.Context) error { return a.confirmed() }

func granted() error { return nil }

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
			err := late.initialise(deadline(t, patience), asked{func() error { return fenced }, granted})
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
	times := 0
	p := instance(t, e.us, TwoPhaseCommitAuto)
	err := p.initialise(deadline(t, patience), asked{func() error {
		if times++; times == 1 {
			commitKept(t, e.us)
		}
		return nil
	}, granted})
	if err != nil || times != 2 {
		t.Errorf("initialise = %v, the coordinator was asked %d times, want twice", err, times)
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
			if err := p.initialiseKeeping(t.Context(), asked{granted, granted}); !errors.Is(err, errNotKept) {
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

// A client asks a cluster whose brokers are being upgraded for its producer id, for
// longer than it takes another client to get the id and to have a commit decided:
// an InitProducerId that aborts leaves by the permission of now.
func TestInitProducerIDLeavesByAPermissionThatCounts(t *testing.T) {
	concurrent := func(e env) {
		var once atomic.Bool
		e.eu.fake.ControlKey(keyInitProducerID, func(req kmsg.Request) (kmsg.Response, error, bool) {
			resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = kerr.ConcurrentTransactions.Code
			return resp, nil, once.CompareAndSwap(false, true)
		})
	}
	for name, tc := range map[string]struct {
		at    func(env) participantCluster
		fault func(env)
		cut   bool // the connection, around the first question for a producer that is kept
		count int  // of the permissions that are asked for until one is refused
		asked func(func() error) asked
	}{
		"kept by the first broker, not by the next": {at: func(e env) participantCluster { return e.us }, cut: true, count: 1, asked: func(ask func() error) asked { return asked{ask, granted} }},
		"kgo repeats by itself":                     {at: func(e env) participantCluster { return e.eu }, fault: concurrent, count: 2, asked: func(ask func() error) asked { return asked{granted, ask} }},
	} {
		t.Run(name, func(t *testing.T) {
			e := env{us: newKeeping(t, "us"), eu: newKfake(t, "eu")}
			e.fakeCoordinator = newFakeCoordinator(t, e.us, e.eu)
			at := tc.at(e)
			other := begin(t, e.open(t))
			if err := other.ProduceSync(t.Context(), at.name, &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if tc.fault != nil {
				tc.fault(e)
			}
			late := instance(t, at, TwoPhaseCommitAuto)
			if tc.cut {
				late.conf.Dialer = cutFirstKeep()
			}
			fenced, times := &FencedError{Err: kerr.ProducerFenced}, 0
			ask := func() error {
				if times++; times == tc.count {
					return fenced
				}
				return nil
			}
			if err := late.initialise(deadline(t, patience), tc.asked(ask)); !errors.Is(err, fenced) {
				t.Errorf("initialise = %v, want the refusal of InitGlobalTxn", err)
			}
			if times != tc.count {
				t.Errorf("the coordinator was asked %d times, want %d", times, tc.count)
			}
			if state, _ := openAt(t, at); state != "Ongoing" {
				t.Errorf("the other client's transaction is %s, want Ongoing", state)
			}
		})
	}
}

// cutFirstKeep breaks the connection when the first InitProducerId of version 6 has
// left. (What has not left kgo sends again by itself.)
func cutFirstKeep() dialFunc {
	var once atomic.Bool
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return cutter{c, &once}, err
	}
}

type cutter struct {
	net.Conn
	done *atomic.Bool
}

func (c cutter) Write(b []byte) (int, error) {
	key, version, _, err := peekRequest(b[sizeBytes:])
	if err == nil && key == keyInitProducerID && version == initProducerID2PC && c.done.CompareAndSwap(false, true) {
		n, err := c.Conn.Write(b)
		return n, errors.Join(err, c.Close())
	}
	return c.Conn.Write(b)
}

// The permission that Open has is good for a while; an old one is asked for again,
// before the InitProducerId leaves.
func TestAnOldPermissionIsAskedForAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		want int
	}{"young": {0, 0}, "old": {initWithin + time.Second, 1}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.open(t).slots[0].session
			s.granted = momentOf(time.Now().Add(-tc.age))
			before := e.count(wire.KeyInitGlobalTxn)
			if err := s.participant("us").initialise(deadline(t, patience), s); err != nil {
				t.Fatal(err)
			}
			if got := e.count(wire.KeyInitGlobalTxn) - before; got != tc.want {
				t.Errorf("%d InitGlobalTxn, want %d", got, tc.want)
			}
			e.takeOver()
			s.granted = momentOf(time.Now().Add(-tc.age))
			inits := e.us.inits.Load()
			err := s.participant("us").initialise(deadline(t, patience), s)
			if refused := errors.As(err, new(*FencedError)); refused != (tc.want > 0) || e.us.inits.Load() == inits == (tc.want == 0) {
				t.Errorf("after another client has the id: initialise = %v, and %d InitProducerId", err, e.us.inits.Load()-inits)
			}
		})
	}
}

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

func openFails(t *testing.T, o Options) error {
	t.Helper()
	cl, err := Open(deadline(t, patience), o)
	if err == nil {
		_ = cl.Close(t.Context())
		t.Fatal("Open succeeded")
	}
	return err
}

// Case 32: the refusal names the cluster and the setting, and leaves nothing
// open on the other one.
func TestOpenOnAClusterThatHasNotOptedIn(t *testing.T) {
	e := newEnv(t)
	e.eu = newKfake(t, "eu", kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "900000"}))
	var not *NotEnabledError
	if err := openFails(t, e.options()); !errors.As(err, &not) || not.Cluster != "eu" || !errors.Is(err, kerr.InvalidTransactionTimeout) {
		t.Fatalf("Open = %v, want a NotEnabledError for eu", err)
	}
	if !strings.Contains(not.Setting, "transaction.max.timeout.ms=2147483647") {
		t.Errorf("setting %q", not.Setting)
	}
}

func TestOpenWithTwoPhaseCommitOnAnOldCluster(t *testing.T) {
	e := newEnv(t)
	o := e.options()
	us := o.Clusters["us"]
	us.TwoPhaseCommit = TwoPhaseCommitOn
	o.Clusters["us"] = us
	var not *NotEnabledError
	if err := openFails(t, o); !errors.As(err, &not) || not.Cluster != "us" || !strings.Contains(not.Setting, "transaction.two.phase.commit.enable") {
		t.Fatalf("Open = %v, want a NotEnabledError for us", err)
	}
	if got := e.us.inits.Load(); got != 0 {
		t.Errorf("us got %d InitProducerId, want none", got)
	}
}

func TestOpenWithTheWrongClusterID(t *testing.T) {
	e := newEnv(t)
	o := e.options()
	us := o.Clusters["us"]
	us.ID = "another"
	o.Clusters["us"] = us
	var mismatch *ClusterIDMismatchError
	if err := openFails(t, o); !errors.As(err, &mismatch) || mismatch.Got != "cluster-us" || mismatch.Want != "another" {
		t.Fatalf("Open = %v, want a ClusterIDMismatchError", err)
	}
	o.Clusters["us"] = o.Clusters["eu"]
	if err := openFails(t, o); !errors.As(err, new(*ParticipantError)) || !strings.Contains(err.Error(), "same cluster") {
		t.Fatalf("Open with one cluster twice = %v, want a ParticipantError", err)
	}
	if n := e.count(wire.KeyInitGlobalTxn); n != 0 {
		t.Errorf("%d InitGlobalTxn, want none", n)
	}
}

func TestOpenAtANodeWithoutTheRole(t *testing.T) {
	e := newEnv(t)
	o := e.options()
	o.Coordinator = []string{e.us.addr}
	var none *NoCoordinatorError
	if err := openFails(t, o); !errors.As(err, &none) || !slices.Equal(none.Addresses, o.Coordinator) {
		t.Fatalf("Open = %v, want a NoCoordinatorError", err)
	}
	o.Coordinator = append(o.Coordinator, e.addr)
	open(t, o)
}

// A node that accepts connections and never answers holds nobody up.
func TestOpenBesideAFrozenBootstrapAddress(t *testing.T) {
	e := newEnv(t)
	frozen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frozen.Close() })
	o := e.options()
	o.Coordinator = []string{frozen.Addr().String(), e.addr}
	o.AskTimeout = time.Hour // longer than the test may take
	cl := open(t, o)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	commit(t, txn)
}

// What the coordinator finds at InitGlobalTxn: what may pass is asked again,
// and what needs somebody's hand is returned at once.
func TestOpenTellsWhatTheCoordinatorFound(t *testing.T) {
	found := func(code int16, clusters ...int16) *wire.InitGlobalTxnResponse {
		resp := wire.NewPtrInitGlobalTxnResponse()
		resp.ErrorCode = code
		for i, c := range clusters {
			resp.ClusterErrors = append(resp.ClusterErrors, wire.InitGlobalTxnResponseClusterError{
				ClusterID: []string{"cluster-eu", "cluster-us"}[i], ErrorCode: c, ErrorMessage: kmsg.StringPtr("look here"),
			})
		}
		return resp
	}
	away, notEnabled := wire.ParticipantNotAvailable.Code, wire.ParticipantNotEnabled.Code
	mismatch, denied := wire.ParticipantClusterIDMismatch.Code, kerr.TransactionalIDAuthorizationFailed.Code
	for name, c := range map[string]struct {
		resp *wire.InitGlobalTxnResponse
		ok   func(error) bool
	}{
		"not enabled": {found(notEnabled, away, notEnabled), func(err error) bool {
			var e *NotEnabledError
			return errors.As(err, &e) && e.Cluster == "us"
		}},
		"mismatch": {found(mismatch, mismatch), func(err error) bool {
			var e *ClusterIDMismatchError
			return errors.As(err, &e) && e.Cluster == "eu" && errors.Is(err, wire.ParticipantClusterIDMismatch)
		}},
		"unknown": {found(wire.UnknownParticipant.Code, wire.UnknownParticipant.Code), func(err error) bool {
			return errors.As(err, new(*ParticipantError)) && errors.Is(err, wire.UnknownParticipant)
		}},
		"denied": {found(denied), func(err error) bool { return errors.Is(err, kerr.TransactionalIDAuthorizationFailed) }},
		"fenced": {found(kerr.ProducerFenced.Code), func(err error) bool { return errors.As(err, new(*FencedError)) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.initHook = func(n int, _ *wire.InitGlobalTxnRequest) (*wire.InitGlobalTxnResponse, bool) {
				switch n {
				case 1:
					return found(away, away), true
				case 2:
					return found(kerr.ConcurrentTransactions.Code), true
				case 3:
					return nil, true // the connection breaks
				}
				return c.resp, true
			}
			if err := openFails(t, e.options()); !c.ok(err) {
				t.Errorf("Open = %v", err)
			}
			if got := e.us.inits.Load() + e.eu.inits.Load(); got != 0 {
				t.Errorf("%d InitProducerId, want none", got)
			}
		})
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e.initHook = func(n int, _ *wire.InitGlobalTxnRequest) (*wire.InitGlobalTxnResponse, bool) {
		if n == 2 {
			cancel()
		}
		resp := wire.NewPtrInitGlobalTxnResponse()
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, true
	}
	_, err := Open(ctx, e.options())
	if !errors.Is(err, context.Canceled) || !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Fatalf("Open = %v, want its context's end and the last answer", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	dial := (&net.Dialer{}).DialContext
	for want, change := range map[string]func(*Options){
		"GlobalTransactionalID is empty":         func(o *Options) { o.GlobalTransactionalID = "" },
		"Coordinator is empty":                   func(o *Options) { o.Coordinator = nil },
		"Clusters is empty":                      func(o *Options) { o.Clusters = nil },
		"TransactionTimeout -1s":                 func(o *Options) { o.TransactionTimeout = -time.Second },
		"TransactionTimeout 1000h0m0s is longer": func(o *Options) { o.TransactionTimeout = 1000 * time.Hour },
		"BackoffMax 1ms is below":                func(o *Options) { o.BackoffMin, o.BackoffMax = time.Second, time.Millisecond },
		`cluster "us": kgo.Dialer among`:         func(o *Options) { o.Clusters["us"] = Cluster{ClientOpts: []kgo.Opt{kgo.Dialer(dial)}} },
		`cluster "us": kgo.DialTLSConfig among`: func(o *Options) {
			o.Clusters["us"] = Cluster{ClientOpts: []kgo.Opt{kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12})}}
		},
	} {
		o := Options{
			GlobalTransactionalID: "id", Coordinator: []string{"localhost:1"},
			Clusters: map[string]Cluster{"us": {}},
		}
		change(&o)
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want an error with %q", err, want)
		}
	}
}

// With kgo's own 5 s a first batch that comes while the cluster still writes the
// markers of the transaction before waits as long.
func TestARefusedBatchIsSoonRepeated(t *testing.T) {
	for want, opts := range map[time.Duration][]kgo.Opt{
		metadataPause: nil,
		time.Second:   {kgo.MetadataMinAge(time.Second)},
	} {
		p, err := newParticipant("us", "id", Cluster{ClientOpts: append(opts, kgo.SeedBrokers("127.0.0.1:1"))})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.kgo.OptValue(kgo.MetadataMinAge); got != want {
			t.Errorf("kgo waits %v before it looks again, want %v", got, want)
		}
		p.close()
	}
}

func TestOwnDialerIsUsed(t *testing.T) {
	e := newEnv(t)
	o := e.options()
	var mu sync.Mutex
	dialed := map[string]int{}
	us := o.Clusters["us"]
	us.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dialed[address]++
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	o.Clusters["us"] = us
	open(t, o)
	if dialed[e.us.addr] == 0 {
		t.Errorf("dialed %v, want %s", dialed, e.us.addr)
	}
}

func TestProduceToAnUnknownCluster(t *testing.T) {
	e := newEnv(t)
	txn := begin(t, e.open(t))
	var unknown *UnknownClusterError
	if err := txn.ProduceSync(t.Context(), "mars", &kgo.Record{Topic: topic}).FirstErr(); !errors.As(err, &unknown) || unknown.Cluster != "mars" {
		t.Errorf("Produce = %v, want an UnknownClusterError", err)
	}
	produce(t, txn, "us", "a")
	if _, err := txn.Commit(t.Context()); !errors.As(err, new(*AbortedError)) || !errors.As(err, &unknown) {
		t.Errorf("Commit = %v, want an AbortedError because of it", err)
	}
}

func TestOrderOfCalls(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	if _, err := cl.Begin(t.Context()); !errors.Is(err, ErrTxnOpen) {
		t.Errorf("second Begin = %v, want ErrTxnOpen", err)
	}
	if _, err := txn.Wait(t.Context()); !errors.As(err, new(*UnknownOutcomeError)) {
		t.Errorf("Wait before Commit = %v, want an UnknownOutcomeError", err)
	}
	produce(t, txn, "us", "a")
	commit(t, txn)
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic}).FirstErr(); !errors.Is(err, ErrTxnEnded) {
		t.Errorf("Produce after Commit = %v, want ErrTxnEnded", err)
	}
	if _, err := txn.Abort(t.Context()); !errors.Is(err, ErrCommitted) {
		t.Errorf("Abort after Commit = %v, want ErrCommitted", err)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "b")
	if _, err := txn.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(t.Context()); !errors.Is(err, ErrAborted) || !errors.As(err, new(*AbortedError)) {
		t.Errorf("Commit after Abort = %v, want an AbortedError because of ErrAborted", err)
	}
}

// Close ends what only this client can end.
func TestCloseAbortsAnOpenTransaction(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cl.Close(t.Context()); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
	if got := visible(t, e.us.addr); len(got) != 0 {
		t.Errorf("us shows %q, want nothing", got)
	}
	if _, err := cl.Begin(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Begin = %v, want ErrClosed", err)
	}
	if _, err := txn.Commit(t.Context()); !errors.As(err, new(*AbortedError)) {
		t.Errorf("Commit = %v, want an AbortedError", err)
	}
}

// The flush did not end in time: nothing was asked, the client may still choose.
func TestCommitThatWasNotAskedForLeavesTheTransactionOpen(t *testing.T) {
	for _, again := range []string{"commit", "abort"} {
		t.Run(again, func(t *testing.T) {
			e := newEnv(t)
			cl := e.open(t)
			release := make(chan struct{})
			e.us.fake.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
				e.us.fake.SleepControl(func() { <-release })
				return nil, nil, false
			})
			txn := begin(t, cl)
			produce(t, txn, "us", "a")
			produce(t, txn, "eu", "a")
			var unknown *UnknownOutcomeError
			if _, err := txn.Commit(deadline(t, 200*time.Millisecond)); !errors.As(err, &unknown) || unknown.Asked {
				t.Fatalf("Commit = %v, want an UnknownOutcomeError that was not asked", err)
			}
			close(release)
			var want []string
			if again == "commit" {
				want = []string{"a"}
				commit(t, txn)
			} else if r, err := txn.Abort(deadline(t, patience)); err != nil || !r.Complete() {
				t.Fatalf("Abort = %+v, %v", r, err)
			}
			for _, c := range []participantCluster{e.us, e.eu} {
				if got := visible(t, c.addr); !slices.Equal(got, want) {
					t.Errorf("%s shows %q, want %q", c.name, got, want)
				}
			}
		})
	}
}

// Many goroutines produce while one ends the transaction: what Produce accepted
// is in the transaction, what it refused is not.
func TestManyGoroutines(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var mu sync.Mutex
	want := map[string]bool{}
	for round := range 3 {
		txn := begin(t, cl)
		var wg sync.WaitGroup
		started := make(chan struct{}, 8)
		for g := range 8 {
			wg.Go(func() {
				for i := range 50 {
					v := fmt.Sprintf("%d/%d/%d", round, g, i)
					txn.Produce(context.Background(), []string{"us", "eu"}[g%2], &kgo.Record{Topic: topic, Value: []byte(v)}, func(_ *kgo.Record, err error) {
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil:
							want[v] = true
						case !errors.Is(err, ErrTxnEnded):
							t.Errorf("record %s: %v", v, err)
						}
					})
					if i == 0 {
						started <- struct{}{}
					}
				}
			})
		}
		<-started
		if round == 1 {
			wg.Wait()
		}
		commit(t, txn)
		wg.Wait()
	}
	got := append(visible(t, e.us.addr), visible(t, e.eu.addr)...)
	mu.Lock()
	defer mu.Unlock()
	if len(got) != len(want) {
		t.Errorf("%d records visible, want %d", len(got), len(want))
	}
	for _, v := range got {
		if !want[v] {
			t.Errorf("%s is visible and should not be", v)
		}
	}
}

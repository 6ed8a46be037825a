package client

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

func (e env) ring(n int) Options {
	o := e.options()
	o.Ring = n
	return o
}

// asked notes the ids of all EndGlobalTxn in their order.
func (e env) asked() func() []string {
	var mu sync.Mutex
	var ids []string
	e.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, req.GlobalTransactionalID)
		return nil, false
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ids)
	}
}

func TestRingTakesItsIDsInTurn(t *testing.T) {
	e := newEnv(t)
	asked := e.asked()
	cl := open(t, e.ring(3))
	var want []string
	for i := range 7 {
		txn := begin(t, cl)
		want = append(want, fmt.Sprint(i))
		produce(t, txn, "us", want[i])
		produce(t, txn, "eu", want[i])
		commit(t, txn)
	}
	turns := []string{"payments-7", "payments-7.ring-1", "payments-7.ring-2", "payments-7", "payments-7.ring-1", "payments-7.ring-2", "payments-7"}
	if got := asked(); !slices.Equal(got, turns) {
		t.Errorf("asked about %q, want %q", got, turns)
	}
	for _, c := range []participantCluster{e.us, e.eu} {
		if got := c.inits.Load(); got != 3 {
			t.Errorf("%s got %d InitProducerId, want 3", c.name, got)
		}
		if got := visible(t, c.addr); !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
}

func TestRingThatIsTooLarge(t *testing.T) {
	e := newEnv(t)
	for _, n := range []int{-1, 17} {
		if err := openFails(t, e.ring(n)); err == nil {
			t.Error(n)
		}
	}
}

// Many open at once, Commit called in the wrong order: the coordinator is asked
// in the order of Begin.
func TestRingKeepsTheOrderOfDecisions(t *testing.T) {
	e := newEnv(t)
	asked := e.asked()
	cl := open(t, e.ring(4))
	var txns []*Txn
	for i := range 4 {
		txn := begin(t, cl)
		produce(t, txn, "us", fmt.Sprint(i))
		produce(t, txn, "eu", fmt.Sprint(i))
		txns = append(txns, txn)
	}
	if _, err := cl.Begin(t.Context()); !errors.Is(err, ErrTxnOpen) {
		t.Errorf("a fifth Begin = %v, want ErrTxnOpen", err)
	}
	var wg sync.WaitGroup
	for _, i := range []int{3, 1, 2, 0} {
		wg.Go(func() {
			if _, err := txns[i].Commit(deadline(t, patience)); err != nil {
				t.Errorf("commit of %d: %v", i, err)
			}
		})
		time.Sleep(time.Millisecond) // let it wait; without, the test is only weaker
	}
	wg.Wait()
	want := []string{"payments-7", "payments-7.ring-1", "payments-7.ring-2", "payments-7.ring-3"}
	if got := asked(); !slices.Equal(got, want) {
		t.Errorf("asked about %q, want %q", got, want)
	}
}

// What was begun while the outcome before was open commits only if that one
// does; what is begun after it does not care.
func TestRingAbortsWhatCameBehindAnAbort(t *testing.T) {
	e := newEnv(t)
	cl := open(t, e.ring(3))
	first, second, third := begin(t, cl), begin(t, cl), begin(t, cl)
	for i, txn := range []*Txn{first, second, third} {
		produce(t, txn, "us", fmt.Sprint(i))
		produce(t, txn, "eu", fmt.Sprint(i))
	}
	commit(t, first)
	if _, err := second.Abort(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := third.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.Is(err, ErrBefore) {
		t.Errorf("third: %v, want an AbortedError because of ErrBefore", err)
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "3")
	commit(t, txn)
	if got, want := visible(t, e.us.addr), []string{"0", "3"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// An outcome that is not known holds those behind it back, one without records
// included; they go on when it is.
func TestRingWaitsForAnUnknownOutcome(t *testing.T) {
	e := newEnv(t)
	var mu sync.Mutex
	silent := true
	var asked []string
	e.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, req.GlobalTransactionalID)
		return refusal(0), silent // not decided
	}
	cl := open(t, e.ring(3))
	first, empty, third := begin(t, cl), begin(t, cl), begin(t, cl)
	produce(t, first, "us", "a")
	produce(t, third, "us", "c")
	var unknown *UnknownOutcomeError
	if _, err := first.Commit(expiresWhen(t, func() bool { return e.count(wire.KeyEndGlobalTxn) > 1 })); !errors.As(err, &unknown) || !unknown.Asked {
		t.Fatalf("first: %v, want an UnknownOutcomeError that was asked", err)
	}
	for name, txn := range map[string]*Txn{"empty": empty, "third": third} {
		if _, err := txn.Commit(deadline(t, 50*time.Millisecond)); !errors.As(err, &unknown) || unknown.Asked {
			t.Errorf("%s: %v, want an UnknownOutcomeError that was not asked", name, err)
		}
	}
	mu.Lock()
	if slices.Contains(asked, "payments-7.ring-2") {
		t.Error("the third was asked for")
	}
	silent = false
	mu.Unlock()
	for _, txn := range []*Txn{first, empty, third} {
		if _, err := txn.Commit(deadline(t, patience)); err != nil {
			t.Error(err)
		}
	}
	// In either order: they were written by two producers at once.
	if got, want := slices.Sorted(slices.Values(visible(t, e.us.addr))), []string{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// Opening takes over all ids of an earlier life, whatever its ring was: nothing
// of it commits any more, and what it left open is aborted at once.
func TestOpeningFencesEveryIDOfAnotherRing(t *testing.T) {
	for _, c := range []struct{ before, after int }{{4, 1}, {1, 4}, {4, 2}, {2, 4}, {16, 16}} {
		t.Run(fmt.Sprintf("%d then %d", c.before, c.after), func(t *testing.T) {
			e := newEnv(t)
			old := open(t, e.ring(c.before))
			var txns []*Txn
			for i := range c.before {
				txn := begin(t, old)
				if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint("old ", i))}).FirstErr(); err != nil {
					t.Fatal(err)
				}
				txns = append(txns, txn)
			}
			cl := open(t, e.ring(c.after))
			txn := begin(t, cl)
			produce(t, txn, "us", "new")
			commit(t, txn)
			if got, want := visible(t, e.us.addr), []string{"new"}; !slices.Equal(got, want) {
				t.Errorf("us shows %q, want %q", got, want)
			}
			for i, txn := range txns {
				txn.before = nil // each by itself, as if the others had committed
				if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
					t.Errorf("old %d: %v, want a FencedError", i, err)
				}
			}
		})
	}
}

// Two clients open at once with rings of different length. The shorter one
// looks beyond its own ids before the longer one has taken them, which then has
// to notice that the first id is no longer its own.
func TestTwoRingsThatOpenAtOnce(t *testing.T) {
	e := newEnv(t)
	e.initHook = func(_ int, req *wire.InitGlobalTxnRequest) (*wire.InitGlobalTxnResponse, bool) {
		if req.GlobalTransactionalID == "payments-7.ring-3" {
			e.takeOver() // of the first id
		}
		return nil, false
	}
	if err := openFails(t, e.ring(4)); !errors.As(err, new(*FencedError)) {
		t.Errorf("Open = %v, want a FencedError", err)
	}
}

package client

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const keyDescribeTransactions = 65

// Case 35: complete is not yet visible. us holds its markers back: EndTxn was
// answered without error, and DescribeTransactions says PrepareCommit.
func TestWaitVisibleWaitsForTheMarkers(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var written atomic.Bool
	e.us.fake.ControlKey(keyDescribeTransactions, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		e.us.fake.KeepControl()
		if written.Load() {
			return nil, nil, false
		}
		req := kreq.(*kmsg.DescribeTransactionsRequest)
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range req.TransactionalIDs {
			resp.TransactionStates = append(resp.TransactionStates, kmsg.DescribeTransactionsResponseTransactionState{
				TransactionalID: id, State: "PrepareCommit",
			})
		}
		return resp, nil, true
	})
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "b")
	commit(t, txn) // complete
	var pending *PendingError
	for limit := 200 * time.Millisecond; ; limit *= 2 { // in which eu answers
		_, err := txn.WaitVisible(deadline(t, limit))
		if errors.As(err, &pending) && slices.Equal(pending.Clusters, []string{"us"}) && pending.Outcome == OutcomeCommitted {
			break
		}
		if err == nil || limit > patience {
			t.Fatalf("WaitVisible = %v, want a PendingError for us alone", err)
		}
	}
	written.Store(true)
	if r, err := txn.WaitVisible(deadline(t, patience)); err != nil || r.Outcome != OutcomeCommitted {
		t.Fatalf("WaitVisible = %+v, %v", r, err)
	}
	if got, want := visible(t, e.us.addr), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// It waits for the end of this client's own abort as well, and says which call
// is missing.
func TestWaitVisibleOfAnAbortAndOfAnOpenTransaction(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	var unknown *UnknownOutcomeError
	if _, err := txn.WaitVisible(deadline(t, patience)); !errors.As(err, &unknown) || unknown.Asked {
		t.Errorf("of an open transaction: %v, want an UnknownOutcomeError, not asked", err)
	}
	if _, err := txn.Abort(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	if r, err := txn.WaitVisible(deadline(t, patience)); err != nil || r.Outcome != OutcomeAborted {
		t.Errorf("of an abort: %+v, %v", r, err)
	}
	if got := visible(t, e.us.addr); len(got) != 0 {
		t.Errorf("us shows %q", got)
	}
}

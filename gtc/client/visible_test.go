package client

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

// outsiders are what people and retention do to a transaction's records behind
// the back of its transaction coordinator, and what is then seen.
var outsiders = map[string]struct {
	do   func(*testing.T, *kadm.Client, *Txn)
	seen string
}{
	"abort marker": {func(t *testing.T, adm *kadm.Client, txn *Txn) {
		p := txn.session.participant("us")
		markers, err := adm.WriteTxnMarkers(t.Context(), kadm.TxnMarkers{
			ProducerID: p.producerID, ProducerEpoch: p.producerEpoch, Topics: kadm.TopicsSet{topic: {0: {}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		markers.Each(func(m kadm.TxnMarkersResponse) {
			m.Topics.EachPartition(func(p kadm.TxnMarkersPartitionResponse) { mustNot(t, p.Err) })
		})
	}, "an abort marker at offset 3 ends 3 of 3 records"},
	"DeleteRecords": {func(t *testing.T, adm *kadm.Client, _ *Txn) {
		_, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 2}}})
		mustNot(t, err)
	}, "1 of 3 records are there: they began at offset 0, and the log begins at 2"},
	"topic created anew": {func(t *testing.T, adm *kadm.Client, _ *Txn) {
		_, err := adm.DeleteTopic(t.Context(), topic)
		mustNot(t, err)
		_, err = adm.CreateTopic(t.Context(), 1, 1, nil, topic)
		mustNot(t, err)
	}, "0 of 3 records are there, which were written from offset 0 on: the topic was created anew, or lost them"},
	"topic gone": {func(t *testing.T, adm *kadm.Client, _ *Txn) {
		_, err := adm.DeleteTopic(t.Context(), topic)
		mustNot(t, err)
	}, "it is gone, with 3 records"},
}

func mustNot(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Committed, and nothing is there: code 0, every participant complete, and what
// somebody did in a partition before the vote is seen by nobody but who looks.
func TestACommitThatIsNotThereIsTold(t *testing.T) {
	for name, outsider := range outsiders {
		for _, verify := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/verify=%v", name, verify), func(t *testing.T) {
				e := newEnv(t)
				o := e.options()
				o.VerifyCommits = verify
				cl := open(t, o)
				txn := begin(t, cl)
				for range 3 {
					mustNot(t, txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr())
				}
				mustNot(t, txn.ProduceSync(t.Context(), "eu", &kgo.Record{Topic: topic, Value: []byte("b")}).FirstErr())
				outsider.do(t, kadm.NewClient(plain(t, e.us.addr)), txn)
				r, err := txn.Commit(deadline(t, patience))
				if !verify {
					if err != nil || !r.Complete() {
						t.Fatalf("Commit = %+v, %v, want committed and complete", r, err)
					}
					r, err = txn.WaitVisible(deadline(t, patience))
				}
				want := []Contradiction{{Cluster: "us", Topic: topic, Partition: 0, Seen: outsider.seen}}
				for range 2 {
					var is *ContradictionError
					if !errors.As(err, &is) || !slices.Equal(is.Found, want) || r.Outcome != OutcomeCommitted {
						t.Fatalf("%+v, %v, want committed, and %+v", r, err, want)
					}
					r, err = txn.WaitVisible(deadline(t, patience))
				}
				if r, err := txn.Commit(deadline(t, patience)); r.Outcome != OutcomeCommitted || verify != errors.As(err, new(*ContradictionError)) {
					t.Errorf("Commit again = %+v, %v", r, err)
				}
				if got, want := visible(t, e.eu.addr), []string{"b"}; !slices.Equal(got, want) {
					t.Errorf("eu shows %q, want %q", got, want)
				}
			})
		}
	}
}

// Records of others around it, transactions before and after, and a group's
// offsets: what is as decided is found so.
func TestWhatIsThereIsFoundSo(t *testing.T) {
	e := newEnv(t)
	o := e.options()
	o.VerifyCommits = true
	cl := open(t, o)
	g := standalone(t, e.us.addr)
	for i := range 4 {
		visible(t, e.us.addr) // writes a record of its own
		txn := begin(t, cl)
		produce(t, txn, "us", "a", "b")
		visible(t, e.eu.addr)
		produce(t, txn, "eu", "c")
		commitOffsets(t, txn, g, int64(i+1))
		if i == 2 {
			if _, err := txn.Abort(deadline(t, patience)); err != nil {
				t.Fatal(err)
			}
		} else if r, err := txn.Commit(deadline(t, patience)); err != nil {
			t.Fatalf("Commit = %+v, %v", r, err)
		}
		if _, err := txn.WaitVisible(deadline(t, patience)); err != nil {
			t.Errorf("WaitVisible = %v", err)
		}
	}
	txn := begin(t, cl)
	commitOffsets(t, txn, g, 9)
	commit(t, txn)
	txn = begin(t, cl)
	commitOffsets(t, txn, g, 7)
	if _, err := txn.Commit(deadline(t, patience)); err != nil {
		t.Errorf("offsets that went back: %v", err)
	}
}

// An offset that the group has lost is found.
func TestOffsetsThatAreNotThereAreTold(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	g := standalone(t, e.us.addr)
	txn := begin(t, cl)
	commitOffsets(t, txn, g, 7)
	commit(t, txn)
	if _, err := kadm.NewClient(plain(t, e.us.addr)).DeleteGroups(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	var is *ContradictionError
	if _, err := txn.WaitVisible(deadline(t, patience)); !errors.As(err, &is) || is.Found[0].Seen != `group "`+group+`" has no offset, and 7 was committed` {
		t.Errorf("WaitVisible = %v, want a ContradictionError", err)
	}
}

// Somebody commits what was decided to be aborted.
func TestAnAbortThatWasCommittedByHandIsTold(t *testing.T) {
	e := newEnv(t)
	txn := begin(t, e.open(t))
	mustNot(t, txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr())
	p := txn.session.participant("us")
	_, err := kadm.NewClient(plain(t, e.us.addr)).WriteTxnMarkers(t.Context(), kadm.TxnMarkers{
		ProducerID: p.producerID, ProducerEpoch: p.producerEpoch, Commit: true, Topics: kadm.TopicsSet{topic: {0: {}}},
	})
	mustNot(t, err)
	if _, err := txn.Abort(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	var is *ContradictionError
	if _, err := txn.WaitVisible(deadline(t, patience)); !errors.As(err, &is) || is.Found[0].Seen != "a commit marker at offset 1 ends 1 of 1 records" {
		t.Errorf("WaitVisible = %v, want a ContradictionError", err)
	}
}

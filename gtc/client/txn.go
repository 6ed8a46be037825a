package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Txn is one global transaction. Any number of goroutines may produce to it;
// Commit and Abort take turns.
type Txn struct {
	session *session
	granted moment        // of the session, when this was begun
	touched []atomic.Bool // by index into session.participants
	written []written     // the same

	mu      sync.Mutex
	ended   bool  // takes no more records
	began   bool  // a record or an offset was admitted
	failure error // of the first record or offset that was not written
	// Written under lock as well, so that its holder reads them without mu.
	// result is what became of it, once known; cause is why this client
	// itself aborted.
	known  bool
	result Result
	cause  error
	// lost: what is not known will not become known here.
	lost error

	calls sync.WaitGroup // Produce and CommitOffsets calls under way
	// over ends with giveUp, when this client aborts.
	over   context.Context
	giveUp context.CancelFunc

	before  *Txn          // begun before, with an outcome that was open then
	decided chan struct{} // closed when the outcome is known, or will not be
	outcome atomic.Int32  // once decided; unknown also when heuristic or lost

	lock lock // of all below
	// shown: the partitions were found to show the outcome, or contradicted
	// says which do not.
	shown        bool
	contradicted error
	// asked is what the coordinator is asked; nil as long as this client alone
	// may end the transaction (R4).
	asked atomic.Pointer[question]
	next  []*wire.EndGlobalTxnResponseParticipant // by index, of the last answer
}

func newTxn(s *session, before *Txn) *Txn {
	if before != nil && before.isDecided() {
		before = nil // and garbage, with all before it
	}
	over, giveUp := context.WithCancel(context.Background())
	return &Txn{
		over: over, giveUp: giveUp,
		session: s,
		granted: s.granted,
		before:  before,
		decided: make(chan struct{}),
		touched: make([]atomic.Bool, len(s.participants)),
		written: make([]written, len(s.participants)),
		lock:    newLock(),
		next:    make([]*wire.EndGlobalTxnResponseParticipant, len(s.participants)),
	}
}

func (t *Txn) isDecided() bool {
	select {
	case <-t.decided:
		return true
	default:
		return false
	}
}

// know keeps the outcome. The transactions behind wait for it.
func (t *Txn) know(r Result) {
	t.mu.Lock()
	t.result, t.known = r, true
	t.mu.Unlock()
	if !r.heuristic() {
		t.outcome.Store(int32(r.Outcome))
	}
	t.decide()
}

// lose keeps why what is not known will not become known here.
func (t *Txn) lose(err error) error {
	t.mu.Lock()
	t.lost = err
	t.mu.Unlock()
	t.decide()
	return err
}

func (t *Txn) decide() {
	t.before = nil
	t.giveUp() // no call needs it any more
	if !t.isDecided() {
		close(t.decided)
	}
}

// Produce hands a record to the producer on a cluster. It is kgo's Produce:
// it returns when the record is buffered, and promise, which may be nil, is
// called when the record is written or has failed. The first record for a
// cluster whose producer cannot go on from the transaction before waits until
// that is initialised again, for no longer than the transaction timeout. One record that failed, for
// whatever reason, makes Commit abort the transaction on every cluster; a record
// that comes after Commit or Abort was called is refused with ErrTxnEnded and
// is no part of the transaction.
func (t *Txn) Produce(ctx context.Context, cluster string, r *kgo.Record, promise func(*kgo.Record, error)) {
	if promise == nil {
		promise = func(*kgo.Record, error) {}
	}
	if r == nil {
		t.fail(&RecordError{Cluster: cluster, Err: errNilRecord})
		promise(nil, errNilRecord)
		return
	}
	fail := func(err error) {
		t.fail(&RecordError{Cluster: cluster, Topic: r.Topic, Err: err})
		promise(r, err)
	}
	i, err := t.enter(cluster)
	switch {
	case errors.Is(err, ErrTxnEnded): // it came after Commit, which is not about it
		promise(r, err)
		return
	case err != nil:
		fail(err)
		return
	}
	defer t.calls.Done()
	p := t.session.participants[i]
	producer, err := t.producer(ctx, p)
	if err != nil {
		fail(err)
		return
	}
	producer.Produce(ctx, r, func(r *kgo.Record, err error) {
		if err != nil {
			fail(err)
			return
		}
		if p.trace.Load() == nil {
			p.trace.Store(&trace{r.Topic, r.Partition, r.Offset})
		}
		t.written[i].record(r)
		promise(r, nil)
	})
}

// ProduceSync produces the records and waits for them. The results are in the
// order in which the records were written or failed.
func (t *Txn) ProduceSync(ctx context.Context, cluster string, rs ...*kgo.Record) kgo.ProduceResults {
	var (
		mu      sync.Mutex
		results = make(kgo.ProduceResults, 0, len(rs))
		wg      sync.WaitGroup
	)
	wg.Add(len(rs))
	for _, r := range rs {
		t.Produce(ctx, cluster, r, func(r *kgo.Record, err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			results = append(results, kgo.ProduceResult{Record: r, Err: err})
		})
	}
	wg.Wait()
	return results
}

// enter admits one Produce call. The call is counted, so that what it still
// hands to kgo is neither missed by Commit's flush nor taken into the next
// transaction.
func (t *Txn) enter(cluster string) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(); err != nil {
		return 0, err
	}
	for i, p := range t.session.participants {
		if p.name == cluster {
			t.admit(i)
			return i, nil
		}
	}
	return 0, &UnknownClusterError{Cluster: cluster}
}

// producer is that of a cluster, in the transaction.
func (t *Txn) producer(ctx context.Context, p *participant) (*kgo.Client, error) {
	if p.begun.Load() {
		return p.kgo, nil
	}
	err := t.prepared(ctx, p, p.join)
	return p.kgo, err
}

// prepared makes a producer ready, and calls then. Calls that need that take
// turns. It waits no longer than the transaction timeout, and not for a cluster
// that is away when the transaction is given up.
func (t *Txn) prepared(ctx context.Context, p *participant, then func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.session.timeoutMillis)*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(t.over, cancel)()
	if err := t.session.preparing.acquire(ctx); err != nil {
		return err
	}
	defer t.session.preparing.release()
	if t.over.Err() != nil {
		return ErrTxnEnded
	}
	if err := t.session.ready(ctx, p); err != nil {
		return err
	}
	return then(ctx)
}

// open reports whether a record or an offset may come; t.mu is held. To the
// clusters a transaction begins with the first, so that is what must not come
// after the coordinator may have forgotten the id.
func (t *Txn) open() error {
	switch {
	case t.ended:
		return ErrTxnEnded
	case !t.began && t.granted.age() > grantedFor:
		return ErrTxnOld
	}
	return nil
}

// admit takes note of a call about the participant i; t.mu is held.
func (t *Txn) admit(i int) {
	t.began = true
	t.touched[i].Store(true)
	t.calls.Add(1)
}

func (t *Txn) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		t.failure = err
	}
}

// seal ends the taking of records.
func (t *Txn) seal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

func (t *Txn) firstFailure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// parts are the participants that were written to. Those left out are no part
// of the transaction: an empty one cannot be committed.
func (t *Txn) parts() []*participant {
	var parts []*participant
	for i, p := range t.session.participants {
		if t.touched[i].Load() {
			parts = append(parts, p)
		}
	}
	return parts
}

// flush waits until no record is buffered and no Produce call under way.
func (t *Txn) flush(ctx context.Context, flush func(*kgo.Client) error) error {
	all := func() error {
		return inParallel(t.parts(), func(p *participant) error {
			if !p.begun.Load() {
				return nil // it has nothing, and may be being prepared
			}
			return flush(p.kgo)
		})
	}
	// A call may wait for a full buffer, which the first flush empties, and
	// then buffer a record that only the second one sees.
	if err := all(); err != nil {
		return err
	}
	if err := waitFor(ctx, &t.calls); err != nil {
		return err
	}
	return all()
}

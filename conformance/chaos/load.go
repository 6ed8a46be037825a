package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// What the load writes to, on both clusters.
var topics = []string{"chaos-a", "chaos-b"}

const partitions = 2

// Times of the load. They are short, so that what a dead client leaves open is
// over within the round.
const (
	txnTimeout = 3 * time.Second
	askTimeout = time.Second
	// callTimeout bounds one call of the application; most faults last longer.
	callTimeout = 2 * time.Second
)

// LoadOptions are one client of the load. Two processes with one ID fence each
// other, as two instances of an application would.
type LoadOptions struct {
	ID string
	// Incarnation is new with every process, to keep values unique.
	Incarnation int
	Seed        uint64
	Coordinator []string
	Clusters    map[string]string // name to bootstrap address
}

// Load is the life of a client process: it runs transactions while its input
// says "run", and puts down what it does in the history. It ends with its input.
func Load(ctx context.Context, args string, in io.Reader, out io.Writer) error {
	var o LoadOptions
	if err := json.Unmarshal([]byte(args), &o); err != nil {
		return fmt.Errorf("chaos: options of the load: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &load{
		o: o, rec: history.NewRecorder(out, fmt.Sprintf("%s.%d", o.ID, o.Incarnation)),
		rng: rand.New(rand.NewPCG(o.Seed, uint64(o.Incarnation))), commands: make(chan string, 16),
	}
	go func() {
		defer cancel()
		defer close(l.commands)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			l.running.Store(lines.Text() == "run")
			l.commands <- lines.Text()
		}
	}()
	return l.live(ctx)
}

type load struct {
	o        LoadOptions
	rec      *history.Recorder
	rng      *rand.Rand
	running  atomic.Bool
	commands chan string

	cl   *client.Client
	last *client.Txn // the one before, if it was committed
	n    int
}

func (l *load) live(ctx context.Context) error {
	for command := range l.commands {
		if command != "run" {
			continue
		}
		for l.running.Load() && ctx.Err() == nil && l.rec.Err() == nil {
			l.transaction(ctx)
			sleep(ctx, time.Duration(l.rng.IntN(20))*time.Millisecond)
		}
		l.settle(ctx)
		l.rec.Record(history.Event{Kind: history.Rest})
	}
	if l.cl != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = l.cl.Close(closing)
	}
	return l.rec.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (l *load) note(format string, args ...any) {
	l.rec.Record(history.Event{Kind: history.Note, Detail: fmt.Sprintf(format, args...)})
}

// opened returns the client, after it has taken the id over, however long that
// takes; nil when the load is to rest or to end.
func (l *load) opened(ctx context.Context) *client.Client {
	for l.cl == nil && ctx.Err() == nil && l.running.Load() {
		opening, cancel := context.WithTimeout(ctx, 2*callTimeout)
		cl, err := client.Open(opening, l.options())
		cancel()
		if err != nil {
			l.note("open: %v", err)
			sleep(ctx, 50*time.Millisecond)
			continue
		}
		l.rec.Record(history.Event{Kind: history.Open})
		l.cl = cl
	}
	return l.cl
}

func (l *load) options() client.Options {
	o := client.Options{
		GlobalTransactionalID: l.o.ID, Coordinator: l.o.Coordinator, Clusters: map[string]client.Cluster{},
		TransactionTimeout: txnTimeout, AskTimeout: askTimeout, BackoffMax: 200 * time.Millisecond,
	}
	for name, addr := range l.o.Clusters {
		o.Clusters[name] = client.Cluster{ClientOpts: []kgo.Opt{
			kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProduceRequestTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(time.Second),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		}}
	}
	return o
}

// discard gives the client up; the next transaction opens another.
func (l *load) discard(ctx context.Context) {
	closing, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.cl.Close(closing); err != nil {
		l.note("close: %v", err)
	}
	l.cl, l.last = nil, nil
}

// plan is what one transaction does.
type plan int

const (
	commits           plan = iota
	aborts                 // before commit was asked for
	commitsThenAborts      // gives the commit a moment only
	oneCluster
	recordFails
)

func (l *load) plan() plan {
	switch n := l.rng.IntN(100); {
	case n < 10:
		return aborts
	case n < 25:
		return commitsThenAborts
	case n < 35:
		return oneCluster
	case n < 40:
		return recordFails
	}
	return commits
}

func (l *load) transaction(ctx context.Context) {
	cl := l.opened(ctx)
	if cl == nil {
		return
	}
	begin, cancel := context.WithTimeout(ctx, callTimeout)
	t, err := cl.Begin(begin)
	cancel()
	switch {
	case err == nil:
	case errors.As(err, new(*client.FencedError)), errors.As(err, new(*client.HeuristicError)):
		l.note("begin: %v", err)
		l.discard(ctx)
		return
	default: // a cluster is away
		l.note("begin: %v", err)
		sleep(ctx, 20*time.Millisecond)
		return
	}
	l.n++
	run := &run{load: l, t: t, id: fmt.Sprintf("%s.%d.%d", l.o.ID, l.o.Incarnation, l.n)}
	l.last = nil
	run.record(history.Event{Kind: history.Begin, ID: l.o.ID})
	p := l.plan()
	run.produce(ctx, p)
	if p == aborts {
		run.end(ctx, history.OpAbort, callTimeout)
	} else if p == commitsThenAborts && !run.end(ctx, history.OpCommit, time.Duration(1+l.rng.IntN(40))*time.Millisecond) {
		run.end(ctx, history.OpAbort, callTimeout)
	}
	for ctx.Err() == nil && !run.over && !run.end(ctx, history.OpCommit, callTimeout) {
	}
}

// settle waits until the last transaction is committed on all clusters. An abort
// is not waited for, as by the library itself: when the session has ended by its
// timeout, the answer is "aborted, pending" until it is initialised again. That
// nothing stays open is for the auditor to see.
func (l *load) settle(ctx context.Context) {
	for ctx.Err() == nil && l.last != nil {
		waiting, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := l.last.Wait(waiting)
		cancel()
		if err == nil || !errors.As(err, new(*client.PendingError)) {
			return
		}
		l.note("wait: %v", err)
	}
}

// run is one transaction under way.
type run struct {
	*load
	t    *client.Txn
	id   string
	over bool
}

func (r *run) record(e history.Event) {
	e.Txn = r.id
	r.rec.Record(e)
}

// produce writes to both clusters, or to one.
func (r *run) produce(ctx context.Context, p plan) {
	names := []string{"us", "eu"}
	if p == oneCluster {
		i := r.rng.IntN(len(names))
		names = names[i : i+1]
	}
	bad := -1
	if p == recordFails {
		bad = r.rng.IntN(len(names))
	}
	for i, name := range names {
		for k := range 1 + r.rng.IntN(3) {
			padding := ""
			if i == bad && k == 0 {
				padding = strings.Repeat("x", 3<<20) // above message.max.bytes
			}
			r.write(ctx, history.Place{Cluster: name, Topic: topics[r.rng.IntN(len(topics))], Partition: int32(r.rng.IntN(partitions))},
				fmt.Sprintf("%s-%s-%d", r.id, name, k), padding)
		}
	}
}

func (r *run) write(ctx context.Context, p history.Place, value, padding string) {
	r.record(history.Event{Kind: history.Write, Place: p, Value: value})
	record := &kgo.Record{Topic: p.Topic, Partition: p.Partition, Value: []byte(value + padding)}
	r.t.Produce(ctx, p.Cluster, record, func(rec *kgo.Record, err error) {
		if err != nil {
			r.record(history.Event{Kind: history.Note, Place: p, Value: value, Detail: err.Error()})
			return
		}
		r.record(history.Event{
			Kind: history.Wrote, Place: p, Value: value, Offset: rec.Offset,
			Producer: history.Producer{ID: rec.ProducerID, Epoch: rec.ProducerEpoch},
		})
	})
}

// end asks for the end of the transaction once and reports whether it is over.
func (r *run) end(ctx context.Context, op string, within time.Duration) bool {
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	call := r.t.Commit
	if op == history.OpAbort {
		call = r.t.Abort
	}
	r.record(history.Event{Kind: history.Ask, Op: op})
	result, err := call(asking)
	outcome, over := judge(op, err)
	detail := fmt.Sprintf("pending %v", result.Pending())
	if err != nil {
		detail = err.Error()
	}
	r.record(history.Event{Kind: history.Answer, Op: op, Result: outcome, Ended: complete(result), Detail: detail})
	unknown := new(client.UnknownOutcomeError)
	switch {
	case errors.As(err, &unknown) && !unknown.Asked && op == history.OpCommit && within == callTimeout:
		// A record does not get through: the application gives up.
		return r.end(ctx, history.OpAbort, callTimeout)
	case errors.As(err, new(*client.FencedError)), errors.As(err, new(*client.HeuristicError)), errors.As(err, &unknown) && unknown.Final:
		r.discard(ctx)
	}
	if outcome == history.Committed {
		r.last = r.t
	}
	r.over = over
	return over
}

// complete names the clusters that an answer calls complete.
func complete(r client.Result) []string {
	var names []string
	for _, p := range r.Participants {
		if p.State == client.ParticipantComplete {
			names = append(names, p.Cluster)
		}
	}
	return names
}

// judge says what an error of Commit or Abort tells of the outcome, and whether
// asking again could tell more.
func judge(op string, err error) (outcome history.Outcome, over bool) {
	unknown := new(client.UnknownOutcomeError)
	switch {
	case err == nil && op == history.OpCommit, errors.Is(err, client.ErrCommitted):
		return history.Committed, true
	case err == nil, errors.As(err, new(*client.AbortedError)):
		return history.Aborted, true
	case errors.As(err, new(*client.HeuristicError)):
		return history.Heuristic, true
	case errors.As(err, &unknown):
		return history.Unknown, unknown.Final
	}
	return history.Unknown, errors.As(err, new(*client.FencedError))
}

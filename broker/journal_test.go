package broker_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// journal notes what it sees and fails when told to.
type journal struct {
	mu                        sync.Mutex
	seen                      []string
	failRequest, failResponse error
	fatal                     []error
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, fmt.Sprintf(format, args...))
}

func (j *journal) Request(req kmsg.Request) error {
	j.note("%s v%d", kmsg.NameForKey(req.Key()), req.GetVersion())
	return j.failRequest
}

func (j *journal) Response(req kmsg.Request, resp kmsg.Response) error {
	switch r := resp.(type) {
	case nil:
		j.note("no answer to %s", kmsg.NameForKey(req.Key()))
	case *kmsg.InitProducerIDResponse:
		j.note("error %d", r.ErrorCode)
	case *kmsg.EndTxnResponse:
		j.note("error %d", r.ErrorCode)
	}
	return j.failResponse
}

func withJournal(j *journal) nodeOption {
	return func(o *broker.Options) {
		o.Journal = j
		o.Fatal = func(err error) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.fatal = append(j.fatal, err)
		}
	}
}

func TestTheJournalSeesTransactionsAsKfakeDoes(t *testing.T) {
	j := &journal{}
	n := startNode(t, []string{"unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"}, withJournal(j))
	cl := n.client(t, kgo.TransactionalID("tid"), kgo.AllowAutoTopicCreation(), kgo.RequestRetries(5))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, "t", "a")
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := initV6(t, n.dial(t), func(r *wire.InitProducerIDRequestV6) { r.TransactionalID, r.Enable2PC = kmsg.StringPtr("two"), true }); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	want := []string{"InitProducerID v5", "error 0", "EndTxn v5", "error 0", "InitProducerID v5", "error 0"}
	if !slices.Equal(j.seen, want) {
		t.Errorf("saw %q, want %q", j.seen, want)
	}
}

func TestWhatTheJournalCannotKeepIsNotAnswered(t *testing.T) {
	failure := errors.New("no space left on device")
	for name, j := range map[string]*journal{"request": {failRequest: failure}, "response": {failResponse: failure}} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nil, withJournal(j))
			c := n.dial(t)
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 5, kmsg.StringPtr("tid"), 1000
			c.send(frameOf(req, 1))
			if _, _, err := c.receive(); err == nil || isTimeout(err) {
				t.Errorf("answered, or left open: %v", err)
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			if len(j.fatal) != 1 || !errors.Is(j.fatal[0], failure) {
				t.Errorf("told the node %v", j.fatal)
			}
		})
	}
}

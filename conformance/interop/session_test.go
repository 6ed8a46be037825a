//go:build kafka

package interop

import (
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// session speaks the protocol of the coordinator for one global transactional
// id, as an application without a library of ours would.
type session struct {
	gtc      *kgo.Client
	id       string
	epoch    int32
	sequence int64
}

// newSession begins a session over both clusters. Producers are to be
// initialised after it (C-CLI-3).
func (r *rig) newSession(t *testing.T, id string) *session {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.gtc.Addr), kgo.MaxVersions(wire.Versions()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs = id, 600_000, []string{r.us.id, r.eu.id}
	_, _ = rand.Read(req.InstanceID[:])
	for ctx := deadline(t); ; time.Sleep(10 * time.Millisecond) {
		resp, err := req.RequestWith(ctx, cl.SeedBrokers()[0])
		answered := err == nil
		if answered {
			err = wire.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err == nil:
			return &session{cl, id, resp.GlobalEpoch, resp.Sequence}
		case answered && !wire.IsRetriable(err), ctx.Err() != nil:
			t.Fatalf("InitGlobalTxn: %v", err)
		}
	}
}

// prepared names the open transaction of a participant.
type prepared struct {
	site
	producerID    int64
	producerEpoch int16
}

// ask asks to end the session's next transaction, with the same request until
// there is an answer.
func (s *session) ask(t *testing.T, commit bool, participants ...prepared) *wire.EndGlobalTxnResponse {
	t.Helper()
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence = s.id, s.epoch, s.sequence
	req.Committed, req.TimeoutMillis = commit, int32(patience.Milliseconds())
	for _, p := range participants {
		req.Participants = append(req.Participants, wire.EndGlobalTxnRequestParticipant{
			ClusterID: p.id, ProducerID: p.producerID, ProducerEpoch: p.producerEpoch,
		})
	}
	s.sequence++
	for ctx := deadline(t); ; time.Sleep(10 * time.Millisecond) {
		resp, err := req.RequestWith(ctx, s.gtc.SeedBrokers()[0])
		if err == nil {
			err = wire.ErrorForCode(resp.ErrorCode)
			if unknown := err == nil && resp.Outcome == wire.OutcomeUnknown; !unknown && !wire.IsRetriable(err) {
				return resp
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("EndGlobalTxn: %+v, %v", resp, err)
		}
	}
}

// end is ask, and fails the test unless all participants have ended so. It
// returns by cluster id what they go on with.
func (s *session) end(t *testing.T, commit bool, participants ...prepared) map[string]wire.EndGlobalTxnResponseParticipant {
	t.Helper()
	resp := s.ask(t, commit, participants...)
	want := wire.OutcomeAborted
	if commit {
		want = wire.OutcomeCommitted
	}
	if resp.ErrorCode != 0 || resp.Outcome != want {
		t.Fatalf("EndGlobalTxn: %v, outcome %d (%s), want %d", wire.ErrorForCode(resp.ErrorCode), resp.Outcome, text(resp.ErrorMessage), want)
	}
	next := map[string]wire.EndGlobalTxnResponseParticipant{}
	for _, p := range resp.Participants {
		if p.State != wire.ParticipantComplete {
			t.Fatalf("EndGlobalTxn: %+v, want complete", p)
		}
		next[p.ClusterID] = p
	}
	return next
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// producer writes the transactions of one participant.
type producer interface {
	begin(t *testing.T)
	send(t *testing.T, topic, value string)
	// prepare flushes, fails when a record was not written, and names the
	// transaction.
	prepare(t *testing.T) prepared
	// adopt goes on after the coordinator has ended the transaction.
	adopt(t *testing.T, commit bool)
}

// javaProducer is one of an agent's producers.
type javaProducer struct {
	*agent
	site
}

// How Java's producer tells the cluster never to end a transaction by itself.
const (
	optInTimeout = "TIMEOUT" // the longest timeout, public API only
	optInSetting = "SETTING" // KIP-939's setting, and what the client makes of it
	optInRequest = "REQUEST" // KIP-939's setting, and the request that it stands for
)

func openJava(t *testing.T, a *agent, s site, id, optIn string) javaProducer {
	t.Helper()
	a.must(t, "open", s.name, s.addr, id, optIn)
	return javaProducer{a, s}
}

func (p javaProducer) begin(t *testing.T) { p.must(t, "begin", p.name) }

func (p javaProducer) send(t *testing.T, topic, value string) {
	p.must(t, "send", p.name, topic, value)
}

func (p javaProducer) prepare(t *testing.T) prepared {
	ans := p.must(t, "prepare", p.name)
	return prepared{p.site, ans.ProducerID, ans.ProducerEpoch}
}

func (p javaProducer) adopt(t *testing.T, commit bool) { p.must(t, "end", p.name, verb(commit)) }

func verb(commit bool) string {
	if commit {
		return "commit"
	}
	return "abort"
}

// goProducer is franz-go's, with stable APIs: the longest timeout instead of
// KIP-939's flag.
type goProducer struct {
	*kgo.Client
	site
}

func openGo(t *testing.T, s site, id string) goProducer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.TransactionalID(id), kgo.TransactionTimeout(math.MaxInt32*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return goProducer{cl, s}
}

func (p goProducer) begin(t *testing.T) {
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
}

func (p goProducer) send(t *testing.T, topic, value string) {
	if err := p.ProduceSync(deadline(t), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (p goProducer) prepare(t *testing.T) prepared {
	id, epoch, err := p.ProducerID(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return prepared{p.site, id, epoch}
}

func (p goProducer) adopt(t *testing.T, commit bool) {
	if err := p.EndTransaction(deadline(t), kgo.TransactionEndTry(commit)); err != nil {
		t.Fatal(err)
	}
}

//go:build kafka

package participant

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	clusters "github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

// The real clusters, and the EndTxn version that their feature asks for.
var real = []struct {
	name    string
	profile clusters.Profile
	version int16
}{
	{"v44", clusters.V44, verdict.EndTxnBumps},
	{"v44tv1", clusters.V44TV1, verdict.EndTxnKeeps},
	{"v391", clusters.V391, verdict.EndTxnKeeps},
}

func forEachKafka(t *testing.T, f func(t *testing.T, k *kafka)) {
	t.Helper()
	for _, r := range real {
		t.Run(r.name, func(t *testing.T) { f(t, up(t, r.name, r.profile, r.version)) })
	}
}

// kafka is a running cluster, a topic of the test's own, a raw client, and the
// driver.
type kafka struct {
	t       *testing.T
	c       *clusters.Cluster
	drive   *Clusters
	raw     *kgo.Client
	node    int // the broker's id
	topic   string
	version int16
}

func up(t *testing.T, name string, p clusters.Profile, version int16) *kafka {
	t.Helper()
	c := clusters.Up(t, name, p)
	raw, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	k := (&kafka{c: c, raw: raw, version: version}).newTopic(t)
	eventually(t, func() bool {
		md, err := kadm.NewClient(raw).BrokerMetadata(t.Context())
		if err != nil || len(md.Brokers) != 1 {
			return false
		}
		k.node = int(md.Brokers[0].NodeID)
		return true
	})
	k.drive = drive(t, at(name, c.Bootstrap))
	return k
}

// newTopic is the same cluster with another topic.
func (k *kafka) newTopic(t *testing.T) *kafka {
	t.Helper()
	other := *k
	other.t, other.topic = t, unique(t, "topic")
	if _, err := kadm.NewClient(k.raw).CreateTopic(t.Context(), 1, 1, nil, other.topic); err != nil {
		t.Fatal(err)
	}
	return &other
}

// unique is a name that no other run has used.
func unique(t *testing.T, what string) string {
	t.Helper()
	return fmt.Sprintf("participant-%s-%d", what, time.Now().UnixNano())
}

func (k *kafka) producer(id string, timeout time.Duration) *producer {
	k.t.Helper()
	return newProducer(k.t, id, timeout, k.c.Bootstrap)
}

// ask sends one request to the broker, and again when it was not answered: a
// broker that was just started closes connections once more while its listeners
// come up.
func (k *kafka) ask(req kmsg.Request) (resp kmsg.Response) {
	k.t.Helper()
	eventually(k.t, func() (answered bool) {
		var err error
		resp, err = k.raw.Broker(k.node).Request(k.t.Context(), req)
		return err == nil
	})
	return resp
}

// end sends one raw EndTxn, again while an end is being carried out. It returns
// the code's name, and how far the answered epoch is from E.
func (k *kafka) end(version int16, id string, ref gtc.ParticipantRef, commit bool) string {
	k.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.Commit = id, commit
	req.ProducerID, req.ProducerEpoch = ref.ProducerID, ref.ProducerEpoch
	for {
		got := k.ask(pin(req, version)).(*kmsg.EndTxnResponse)
		var code *kerr.Error
		switch err := kerr.ErrorForCode(got.ErrorCode); {
		case err == nil && version == verdict.EndTxnKeeps:
			return "ok"
		case err == nil && got.ProducerID != ref.ProducerID:
			return fmt.Sprintf("ok, new producer id, epoch %d", got.ProducerEpoch)
		case err == nil:
			return fmt.Sprintf("ok, E+%d", got.ProducerEpoch-ref.ProducerEpoch)
		case errors.Is(err, kerr.ConcurrentTransactions):
			time.Sleep(2 * time.Millisecond)
		case errors.As(err, &code):
			return code.Message
		}
	}
}

// init is a raw InitProducerId, with the expected producer id and epoch or,
// with -1, without.
func (k *kafka) init(id string, pid int64, epoch int16) (int64, int16, error) {
	k.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, verdict.Unlimited
	req.ProducerID, req.ProducerEpoch = pid, epoch
	for {
		got := k.ask(req).(*kmsg.InitProducerIDResponse)
		err := kerr.ErrorForCode(got.ErrorCode)
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return got.ProducerID, got.ProducerEpoch, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (k *kafka) describe(id string) (verdict.View, error) {
	s, err := k.drive.all[0].session(k.t.Context())
	if err != nil {
		return verdict.View{}, err
	}
	v, _, err := s.describe(k.t.Context(), id)
	return v, err
}

// until looks again after an error too: a broker that was just started closes
// connections once more while its listeners come up.
func (k *kafka) until(id string, state verdict.State) verdict.View {
	k.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		v, err := k.describe(id)
		if err == nil && v.State == state {
			return v
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("%v, %v, want %s", v, err, state)
		}
	}
}

// Row by row, what Kafka answers to EndTxn.
func TestKafkaAnswers(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		for _, row := range answerRows {
			t.Run(row.name, func(t *testing.T) {
				k.t = t
				id := unique(t, "id")
				p := k.producer(id, row.timeout())
				got := row.run(k, p, p.ref(k.c.ID))
				want := row.v5
				if k.version == verdict.EndTxnKeeps {
					want = row.v4
				}
				if got != want {
					t.Errorf("%q, want %q", got, want)
				}
			})
		}
	})
}

type answerRow struct {
	name   string
	v5, v4 string
	run    func(k *kafka, p *producer, ref gtc.ParticipantRef) string
	aged   bool // the cluster may abort it by itself
}

func (r answerRow) timeout() time.Duration {
	if r.aged {
		return 3 * time.Second // in which even a busy machine writes a record
	}
	return noTimeoutDuration
}

var answerRows = []answerRow{
	{"commit E, Ongoing", "ok, E+1", "ok", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		return k.end(k.version, p.id, ref, true)
	}, false},
	{"commit E again", "ok, E+1", "ok", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		k.end(k.version, p.id, ref, true)
		return k.end(k.version, p.id, ref, true)
	}, false},
	{"abort E after its commit", "INVALID_TXN_STATE", "INVALID_TXN_STATE", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		k.end(k.version, p.id, ref, true)
		return k.end(k.version, p.id, ref, false)
	}, false},
	{"commit E after its abort", "INVALID_TXN_STATE", "INVALID_TXN_STATE", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		k.end(k.version, p.id, ref, false)
		return k.end(k.version, p.id, ref, true)
	}, false},
	{"commit E while the next is open", "PRODUCER_FENCED, next Ongoing", "ok, next CompleteCommit", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		if err := p.cl.EndTransaction(k.t.Context(), kgo.TryCommit); err != nil {
			k.t.Fatal(err)
		}
		k.until(p.id, verdict.CompleteCommit)
		p.write(k.topic)
		code := k.end(k.version, p.id, ref, true)
		next := verdict.Ongoing
		if code == "ok" {
			next = verdict.CompleteCommit
		}
		return code + ", next " + string(k.until(p.id, next).State)
	}, false},
	{"commit E, nothing added", "INVALID_TXN_STATE", "INVALID_TXN_STATE", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		return k.end(k.version, p.id, ref, true)
	}, false},
	{"abort E, nothing added", "ok, E+1", "INVALID_TXN_STATE", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		return k.end(k.version, p.id, ref, false)
	}, false},
	{"commit E after the cluster aborted it", "INVALID_TXN_STATE", "PRODUCER_FENCED", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		k.until(p.id, verdict.CompleteAbort)
		return k.end(k.version, p.id, ref, true)
	}, true},
	{"abort E after the cluster aborted it", "ok, E+1", "PRODUCER_FENCED", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		k.until(p.id, verdict.CompleteAbort)
		return k.end(k.version, p.id, ref, false)
	}, true},
	{"commit E after a re-init", "PRODUCER_FENCED", "PRODUCER_FENCED", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		p.write(k.topic)
		if _, _, err := k.init(p.id, -1, -1); err != nil {
			k.t.Fatal(err)
		}
		return k.end(k.version, p.id, ref, true)
	}, false},
	{"unknown id", "INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		return k.end(k.version, p.id+"-unknown", ref, true)
	}, false},
	{"wrong producer id", "INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING", func(k *kafka, p *producer, ref gtc.ParticipantRef) string {
		ref.ProducerID += 1_000_000
		return k.end(k.version, p.id, ref, true)
	}, false},
}

// InitProducerId with an expected producer id and epoch would fence as well as
// abort, and is not used: Kafka compares the expected epoch only when nothing
// is open, so one that arrives late aborts the next session's transaction.
func TestKafkaLateInitProducerIDAbortsALaterTransaction(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		id := unique(t, "id")
		old := k.producer(id, noTimeoutDuration).ref(k.c.ID)
		k.producer(id, noTimeoutDuration).ref(k.c.ID)
		p := k.producer(id, noTimeoutDuration)
		p.write(k.topic)
		if ref := p.ref(k.c.ID); ref.ProducerID != old.ProducerID || ref.ProducerEpoch != old.ProducerEpoch+2 {
			t.Fatalf("%+v after %+v, want two epochs on", ref, old)
		}
		_, _, err := k.init(id, old.ProducerID, old.ProducerEpoch)
		if !errors.Is(err, kerr.ProducerFenced) {
			t.Errorf("%v, want PRODUCER_FENCED", err)
		}
		k.until(id, verdict.CompleteAbort) // and yet
	})
}

// The end of epoch 32766 hands out another producer id; a repeat is recognised,
// and the audit's start time ties the two together.
func TestKafkaEpochCeiling(t *testing.T) {
	k := up(t, "v44", clusters.V44, verdict.EndTxnBumps)
	id := unique(t, "id")
	first := k.producer(id, noTimeoutDuration).ref(k.c.ID)
	ref := first
	for ref.ProducerEpoch < verdict.LastEpoch {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, ref.ProducerID, ref.ProducerEpoch
		switch got := k.ask(req).(*kmsg.EndTxnResponse); got.ErrorCode {
		case 0:
			ref.ProducerEpoch = got.ProducerEpoch
		case kerr.ConcurrentTransactions.Code:
		default:
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
	}
	k.add(id, ref)
	rec := prepared(t, k.drive, id, ref)
	ans := settle(t, k.drive, id, rec, true)
	if ans.Outcome != gtc.EndDone || ans.NextProducerID == ref.ProducerID || ans.NextProducerEpoch != 0 {
		t.Fatalf("%+v, want done and (another producer id, 0)", ans)
	}
	k.until(id, verdict.CompleteCommit)
	if again := settle(t, k.drive, id, rec, true); again != ans {
		t.Errorf("repeated: %+v, want %+v", again, ans)
	}
	if other := settle(t, k.drive, id, rec, false); other.Outcome != gtc.EndCommitted {
		t.Errorf("abort asked: %+v, want the state to prove that it is committed", other)
	}
	next := gtc.ParticipantRef{ClusterID: k.c.ID, ProducerID: ans.NextProducerID, ProducerEpoch: 0}
	k.add(id, next)
	if ans := settle(t, k.drive, id, prepared(t, k.drive, id, next), true); ans.Outcome != gtc.EndDone {
		t.Errorf("the next transaction: %+v, want done", ans)
	}
}

// add begins a transaction without a client: the topic's partition is added.
func (k *kafka) add(id string, ref gtc.ParticipantRef) {
	k.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, ref.ProducerID, ref.ProducerEpoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = k.topic, []int32{0}
	req.Topics = append(req.Topics, topic)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		switch code := k.ask(pin(req, 3)).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode; code {
		case 0:
			return
		case kerr.ConcurrentTransactions.Code:
		default:
			k.t.Fatal(kerr.ErrorForCode(code))
		}
	}
	k.t.Fatal("the end before is not carried out")
}

package broker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// A producer id is seen by whoever reads the topic. It must be good for nothing
// without its transactional id.
func TestAnotherTransactionalIDCannotUseAProducer(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir, twoPhase...))
	createTopic(t, n.client(t), "t")
	victim, _ := n.initialise(t, "victim", false)
	n.initialise(t, "thief", false)
	if err := victim.write(t, 0); err != nil {
		t.Fatal(err)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			n.stop()
			n = startConfigured(t, onDisk(t, dir, twoPhase...))
			victim.raw = n.dial(t)
		}
		for _, id := range []string{"thief", "nobody", "", "\x00kept\x00victim"} {
			thief := &producer{n.dial(t), id, victim.pid, victim.epoch}
			for _, commit := range []bool{true, false} {
				for version := range int16(6) {
					if _, err := thief.end(t, version, commit); err != kerr.InvalidProducerIDMapping { //nolint:errorlint // the very value
						t.Errorf("%q ends it: version %d, %v", id, version, err)
					}
				}
			}
			thief.refusedEverywhere(t, "the thief", kerr.InvalidProducerIDMapping, kerr.InvalidProducerIDMapping)
			init := kmsg.NewPtrInitProducerIDRequest()
			init.Version, init.TransactionalID, init.TransactionTimeoutMillis = 5, &id, 1000
			init.ProducerID, init.ProducerEpoch = victim.pid, victim.epoch
			if r := ask[*kmsg.InitProducerIDResponse](t, n.dial(t), init); r.ProducerID == victim.pid {
				t.Errorf("%q takes the producer id over: %+v", id, r)
			}
		}
	}
	if err := victim.write(t, 1); err != nil {
		t.Errorf("the victim: %v", err)
	}
	if _, err := victim.end(t, 5, true); err != nil {
		t.Errorf("the victim: %v", err)
	}
	n.committedValues(t, 2)
}

// kfake takes the epoch of any batch for the producer's.
func TestAHigherEpochInABatchFencesNobody(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	p, _ := n.initialise(t, "tid", false)
	if err := p.write(t, 0); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*kmsg.RecordBatch){
		"transactional":     func(b *kmsg.RecordBatch) { b.ProducerEpoch += 5 },
		"not transactional": func(b *kmsg.RecordBatch) { b.ProducerEpoch += 5; b.Attributes = 0 },
	} {
		if err := p.produce(t, change); err != kerr.InvalidProducerEpoch { //nolint:errorlint // the very value
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.write(t, 1); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := p.end(t, 5, true); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestTransactionalRecordsNeedATransactionalID(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	p, _ := n.initialise(t, "tid", false)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 12, -1
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch(func(b *kmsg.RecordBatch) {
		b.ProducerID, b.ProducerEpoch, b.Attributes = p.pid, p.epoch, 0x10
	})}}}}
	if r := ask[*kmsg.ProduceResponse](t, n.dial(t), req); r.Topics[0].Partitions[0].ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("%+v", r)
	}
	req.Acks = 0
	c := n.dial(t)
	c.send(frameOf(req, 1))
	if _, _, err := c.receive(); err == nil || isTimeout(err) {
		t.Errorf("acks=0: %v, want the end of the connection", err)
	}
}

// kfake keeps the timeout that an id came with first. What it cannot promise is
// refused.
func TestAnIDWithATimeoutCannotLoseIt(t *testing.T) {
	n := startNode(t, append([]string{"transaction.max.timeout.ms=2147483647"}, twoPhase...))
	id := func(r *kmsg.InitProducerIDRequest) {}
	if r := initOld(t, n.dial(t), 5, id); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := initOld(t, n.dial(t), 5, func(r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 1<<31 - 1 }); r.code != kerr.InvalidTransactionTimeout.Code {
		t.Errorf("version 5: %+v", r)
	}
	if r := initV6(t, n.dial(t), func(r *wire.InitProducerIDRequestV6) { r.Enable2PC = true }); r.code != kerr.InvalidTransactionTimeout.Code {
		t.Errorf("version 6: %+v", r)
	}
	if r := initOld(t, n.dial(t), 5, id); r.code != 0 {
		t.Errorf("the id goes on: %+v", r)
	}
}

func TestAStaleEpochCannotInitialise(t *testing.T) {
	n := startNode(t, nil)
	first := initOld(t, n.dial(t), 5, func(*kmsg.InitProducerIDRequest) {})
	as := func(epoch int16) initResult {
		return initOld(t, n.dial(t), 5, func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = first.id, epoch })
	}
	if r := as(0); r.code != 0 || r.epoch != 1 {
		t.Errorf("the present epoch: %+v", r)
	}
	if r := as(0); r.code != 0 || r.epoch != 2 {
		t.Errorf("the last but one, as after a lost answer: %+v", r)
	}
	for _, stale := range []int16{0, 3} {
		if r := as(stale); r.code != kerr.ProducerFenced.Code {
			t.Errorf("epoch %d: %+v", stale, r)
		}
	}
}

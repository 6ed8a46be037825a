package broker_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var twoPhase = []string{"unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"}

// producer speaks for one instance of a transactional producer, by hand.
type producer struct {
	*raw
	id    string
	pid   int64
	epoch int16
}

// initialise is InitProducerId v6; keep is KeepPreparedTxn.
func (n *node) initialise(t *testing.T, id string, keep bool) (*producer, *wire.InitProducerIDResponseV6) {
	t.Helper()
	req := wire.NewPtrInitProducerIDRequestV6()
	req.TransactionalID, req.Enable2PC, req.KeepPreparedTxn = &id, true, keep
	c := n.dial(t)
	r := ask[*wire.InitProducerIDResponseV6](t, c, req)
	if r.ErrorCode != 0 {
		t.Fatalf("InitProducerId: %v", kerr.ErrorForCode(r.ErrorCode))
	}
	return &producer{c, id, r.ProducerID, r.ProducerEpoch}, r
}

// write produces one record at a sequence to partition 0 of topic t.
func (p *producer) write(t *testing.T, sequence int32) error {
	t.Helper()
	return p.produce(t, func(b *kmsg.RecordBatch) { b.FirstSequence = sequence })
}

func (p *producer) produce(t *testing.T, change func(*kmsg.RecordBatch)) error {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = 12, -1, 1000, &p.id
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = batch(func(b *kmsg.RecordBatch) {
		b.ProducerID, b.ProducerEpoch, b.Attributes = p.pid, p.epoch, 0x10
		change(b)
	})
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	r := ask[*kmsg.ProduceResponse](t, p.raw, req)
	return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
}

func (p *producer) end(t *testing.T, version int16, commit bool) (*kmsg.EndTxnResponse, error) {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, p.id, p.pid, p.epoch, commit
	r := ask[*kmsg.EndTxnResponse](t, p.raw, req)
	return r, kerr.ErrorForCode(r.ErrorCode)
}

// others sends what a producer does besides writing and ending, and gives the
// errors.
func (p *producer) others(t *testing.T) []error {
	t.Helper()
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, p.id, p.pid, p.epoch
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	offsets := kmsg.NewPtrAddOffsetsToTxnRequest()
	offsets.Version, offsets.TransactionalID, offsets.ProducerID, offsets.ProducerEpoch, offsets.Group = 3, p.id, p.pid, p.epoch, "g"
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.Version, commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group, commit.Generation = 5, p.id, p.pid, p.epoch, "g", -1
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 1}}}}
	a := ask[*kmsg.AddPartitionsToTxnResponse](t, p.raw, add).Topics[0].Partitions[0].ErrorCode
	o := ask[*kmsg.AddOffsetsToTxnResponse](t, p.raw, offsets).ErrorCode
	c := ask[*kmsg.TxnOffsetCommitResponse](t, p.raw, commit).Topics[0].Partitions[0].ErrorCode
	return []error{kerr.ErrorForCode(a), kerr.ErrorForCode(o), kerr.ErrorForCode(c)}
}

func (p *producer) refusedEverywhere(t *testing.T, who string, write, other error) {
	t.Helper()
	if err := p.write(t, 7); err != write { //nolint:errorlint // the very value
		t.Errorf("%s: Produce: %v, want %v", who, err, write)
	}
	for i, err := range p.others(t) {
		if err != other { //nolint:errorlint // the very value
			t.Errorf("%s: request %d: %v, want %v", who, i, err, other)
		}
	}
}

// committedValues reads topic t to its end with read_committed.
func (n *node) committedValues(t *testing.T, want int) []string {
	t.Helper()
	cl := n.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	adm := kadm.NewClient(n.client(t))
	stable, err := adm.ListCommittedOffsets(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	end, err := adm.ListEndOffsets(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := stable.Lookup("t", 0)
	e, _ := end.Lookup("t", 0)
	if s.Offset != e.Offset {
		t.Errorf("the last stable offset is %d of %d: something is open", s.Offset, e.Offset)
	}
	if want == 0 {
		return nil
	}
	return consume(t, cl, want)
}

// A whole round: prepare, crash of the client, keep, complete. The node is
// stopped and started between the steps too.
func TestKeepPreparedTxnRound(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit=%t", commit), func(t *testing.T) {
			dir := t.TempDir()
			n := startConfigured(t, onDisk(t, dir, twoPhase...))
			createTopic(t, n.client(t), "t")
			old, first := n.initialise(t, "tid", false)
			if first.OngoingTxnProducerID != -1 || first.OngoingTxnProducerEpoch != -1 {
				t.Fatalf("a fresh id has a transaction: %+v", first)
			}
			if err := old.write(t, 0); err != nil {
				t.Fatal(err)
			}
			// The client has prepared, stored (pid, epoch), and died.
			back, kept := n.initialise(t, "tid", true)
			if kept.OngoingTxnProducerID != old.pid || kept.OngoingTxnProducerEpoch != old.epoch {
				t.Fatalf("ongoing %d/%d, want %d/%d", kept.OngoingTxnProducerID, kept.OngoingTxnProducerEpoch, old.pid, old.epoch)
			}
			if back.pid == old.pid && back.epoch == old.epoch {
				t.Fatal("the new pair is the old one")
			}
			old.refusedEverywhere(t, "the old producer", kerr.InvalidProducerEpoch, kerr.ProducerFenced)
			if _, err := old.end(t, 5, !commit); err != kerr.ProducerFenced { //nolint:errorlint // the very value
				t.Errorf("the old producer ends it: %v", err)
			}
			back.refusedEverywhere(t, "the new producer", kerr.InvalidTxnState, kerr.InvalidTxnState)

			n.stop()
			n = startConfigured(t, onDisk(t, dir, twoPhase...))
			old.raw, back.raw = n.dial(t), n.dial(t)
			old.refusedEverywhere(t, "the old producer after a restart", kerr.InvalidProducerEpoch, kerr.ProducerFenced)

			done, err := back.end(t, 5, commit)
			if err != nil {
				t.Fatalf("EndTxn by the new pair: %v", err)
			}
			again, err := back.end(t, 5, commit)
			if err != nil || again.ProducerID != done.ProducerID || again.ProducerEpoch != done.ProducerEpoch {
				t.Errorf("the same EndTxn again: %+v %v, want %+v", again, err, done)
			}
			if _, err := back.end(t, 5, !commit); err != kerr.InvalidTxnState { //nolint:errorlint // the very value
				t.Errorf("the opposite EndTxn: %v", err)
			}
			if got, want := n.committedValues(t, len(valuesOf(commit))), valuesOf(commit); !slices.Equal(got, want) {
				t.Errorf("committed %q, want %q", got, want)
			}
			n.goesOn(t, old, back, done)
		})
	}
}

func valuesOf(commit bool) []string {
	if commit {
		return []string{"v"}
	}
	return nil
}

// goesOn writes the next transaction with the pair that EndTxn gave; no older
// one can touch it.
func (n *node) goesOn(t *testing.T, old, back *producer, done *kmsg.EndTxnResponse) {
	t.Helper()
	next := &producer{n.dial(t), "tid", done.ProducerID, done.ProducerEpoch}
	if err := next.write(t, 0); err != nil {
		t.Fatalf("the next transaction: %v", err)
	}
	for _, stale := range []*producer{old, back} {
		if _, err := stale.end(t, 5, true); err != kerr.ProducerFenced { //nolint:errorlint // the very value
			t.Errorf("a late EndTxn of %d/%d: %v", stale.pid, stale.epoch, err)
		}
	}
	if _, err := next.end(t, 5, true); err != nil {
		t.Errorf("ending the next transaction: %v", err)
	}
}

func TestKeepPreparedTxnSeveralTimesInARow(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	old, _ := n.initialise(t, "tid", false)
	if err := old.write(t, 0); err != nil {
		t.Fatal(err)
	}
	instances := []*producer{old}
	for range 4 {
		back, kept := n.initialise(t, "tid", true)
		if kept.OngoingTxnProducerID != old.pid || kept.OngoingTxnProducerEpoch != old.epoch {
			t.Fatalf("ongoing %+v, want %d/%d", kept, old.pid, old.epoch)
		}
		for _, before := range instances {
			if _, err := before.end(t, 5, true); err != kerr.ProducerFenced { //nolint:errorlint // the very value
				t.Errorf("an older instance ends it: %v", err)
			}
		}
		instances = append(instances, back)
	}
	if _, err := instances[4].end(t, 5, true); err != nil {
		t.Fatal(err)
	}
	if got := n.committedValues(t, 1); !slices.Equal(got, []string{"v"}) {
		t.Errorf("committed %q", got)
	}
}

func TestKeepPreparedTxnWhenTheEpochHasRunOut(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir, twoPhase...))
	createTopic(t, n.client(t), "t")
	old, _ := n.initialise(t, "tid", false)
	if err := old.write(t, 0); err != nil {
		t.Fatal(err)
	}
	back, _ := n.initialise(t, "tid", true)
	n.stop()
	// As if the client had come back 32766 times.
	k := durable.Kept{TransactionalID: "tid", ProducerID: old.pid, ProducerEpoch: old.epoch, NextProducerID: back.pid, NextProducerEpoch: math.MaxInt16 - 1}
	if err := durable.SaveKept(dir, []durable.Kept{k}); err != nil {
		t.Fatal(err)
	}
	n = startConfigured(t, onDisk(t, dir, twoPhase...))
	last := &producer{n.dial(t), "tid", back.pid, math.MaxInt16 - 1}
	fresh, kept := n.initialise(t, "tid", true)
	if fresh.pid == back.pid || fresh.epoch != 0 || kept.OngoingTxnProducerID != old.pid {
		t.Fatalf("after the last epoch: %+v", kept)
	}
	if _, err := last.end(t, 5, true); err != kerr.InvalidProducerIDMapping { //nolint:errorlint // the very value
		t.Errorf("the producer id that has run out ends it: %v", err)
	}
	if _, err := fresh.end(t, 5, true); err != nil {
		t.Error(err)
	}
	if got := n.committedValues(t, 1); !slices.Equal(got, []string{"v"}) {
		t.Errorf("committed %q", got)
	}
}

func TestKeepPreparedTxnWithoutATransaction(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	for name, prepare := range map[string]func(id string){
		"unknown id": func(string) {},
		"nothing written": func(id string) {
			n.initialise(t, id, false)
		},
		"committed": func(id string) {
			p, _ := n.initialise(t, id, false)
			if err := p.write(t, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := p.end(t, 5, true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		prepare(name)
		p, r := n.initialise(t, name, true)
		if r.OngoingTxnProducerID != -1 || r.OngoingTxnProducerEpoch != -1 {
			t.Errorf("%s: %+v", name, r)
		}
		if err := p.write(t, 0); err != nil {
			t.Errorf("%s: the producer cannot write: %v", name, err)
		}
	}
}

func TestInitProducerIDWithoutKeepAbortsAKeptTransaction(t *testing.T) {
	for _, named := range []bool{false, true} { // the request names the pair it has
		n := startNode(t, twoPhase)
		createTopic(t, n.client(t), "t")
		old, _ := n.initialise(t, "tid", false)
		if err := old.write(t, 0); err != nil {
			t.Fatal(err)
		}
		back, _ := n.initialise(t, "tid", true)
		req := wire.NewPtrInitProducerIDRequestV6()
		req.TransactionalID, req.Enable2PC = kmsg.StringPtr("tid"), true
		if named {
			req.ProducerID, req.ProducerEpoch = old.pid, old.epoch
			if r := ask[*wire.InitProducerIDResponseV6](t, n.dial(t), req); r.ErrorCode != kerr.ProducerFenced.Code {
				t.Errorf("the old pair initialises again: %+v", r)
			}
			req.ProducerID, req.ProducerEpoch = back.pid, back.epoch
		}
		r := ask[*wire.InitProducerIDResponseV6](t, n.dial(t), req)
		if r.ErrorCode != 0 {
			t.Fatalf("named %t: %v", named, kerr.ErrorForCode(r.ErrorCode))
		}
		if _, err := back.end(t, 5, true); err == nil {
			t.Error("the kept transaction was ended after it had been aborted")
		}
		next := &producer{n.dial(t), "tid", r.ProducerID, r.ProducerEpoch}
		if err := next.write(t, 0); err != nil {
			t.Error(err)
		}
		if _, err := next.end(t, 5, false); err != nil {
			t.Error(err)
		}
		n.committedValues(t, 0)
	}
}

func TestKeepPreparedTxnWithAnExpectedProducer(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	old, _ := n.initialise(t, "tid", false)
	if err := old.write(t, 0); err != nil {
		t.Fatal(err)
	}
	keepAs := func(pid int64, epoch int16) *wire.InitProducerIDResponseV6 {
		req := wire.NewPtrInitProducerIDRequestV6()
		req.TransactionalID, req.Enable2PC, req.KeepPreparedTxn = kmsg.StringPtr("tid"), true, true
		req.ProducerID, req.ProducerEpoch = pid, epoch
		return ask[*wire.InitProducerIDResponseV6](t, n.dial(t), req)
	}
	if r := keepAs(old.pid+1, 0); r.ErrorCode != kerr.ProducerFenced.Code {
		t.Errorf("a stranger keeps it: %+v", r)
	}
	if err := old.write(t, 1); err != nil {
		t.Errorf("a refused request has fenced the producer: %v", err)
	}
	first := keepAs(old.pid, old.epoch)
	if r := keepAs(old.pid, old.epoch); first.ErrorCode != 0 || r.ErrorCode != kerr.ProducerFenced.Code {
		t.Errorf("the old pair keeps it twice: %+v %+v", first, r)
	}
	if r := keepAs(first.ProducerID, first.ProducerEpoch); r.ErrorCode != 0 || r.OngoingTxnProducerID != old.pid {
		t.Errorf("the new pair keeps it: %+v", r)
	}
}

// The old client's transaction versions: the outcome is theirs, the pair is not
// good for more.
func TestEndTxnBelowVersion5EndsAKeptTransaction(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	for version := range int16(5) {
		id := fmt.Sprint("tid", version)
		old, _ := n.initialise(t, id, false)
		if err := old.write(t, 0); err != nil {
			t.Fatal(err)
		}
		back, _ := n.initialise(t, id, true)
		if _, err := back.end(t, version, true); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
		back.refusedEverywhere(t, "after the end", kerr.InvalidProducerEpoch, kerr.ProducerFenced)
	}
	if got := n.committedValues(t, 5); len(got) != 5 {
		t.Errorf("committed %q", got)
	}
}

// Group offsets are part of a kept transaction.
func TestKeptOffsetsAreCommittedWithTheTransaction(t *testing.T) {
	n := startNode(t, twoPhase)
	cl := n.client(t)
	createTopic(t, cl, "t")
	old, _ := n.initialise(t, "tid", false)
	for i, err := range old.others(t) {
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	back, kept := n.initialise(t, "tid", true)
	if kept.OngoingTxnProducerID != old.pid {
		t.Fatalf("%+v", kept)
	}
	if _, err := back.end(t, 5, true); err != nil {
		t.Fatal(err)
	}
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := offsets.Lookup("t", 0); !ok || o.At != 1 {
		t.Errorf("the group is at %+v", offsets)
	}
}

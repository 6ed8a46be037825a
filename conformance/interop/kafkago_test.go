package interop

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/addpartitionstotxn"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// TestKafkaGo drives the protocol from kafka-go's messages, as KIP.md has it.
func TestKafkaGo(t *testing.T) {
	dir := t.TempDir()
	binary := buildMinibroker(t, dir)
	const optIn = "transaction.max.timeout.ms=2147483647"
	us := minibroker(t, binary, dir, "us", "process.roles=broker", optIn)
	eu := minibroker(t, binary, dir, "eu", "process.roles=broker", optIn)
	gtc := minibroker(t, binary, dir, "gtc", "process.roles=broker,gtc", "gtc.clusters=us,eu",
		"gtc.cluster.us.bootstrap.servers="+us.Addr, "gtc.cluster.eu.bootstrap.servers="+eu.Addr,
		"global.transaction.state.log.num.partitions=2", "global.transaction.scan.interval.ms=300")
	for name, run := range map[string]func(*testing.T, *kafkaGo){
		"outcomes":         outcomes,
		"fenced":           fenced,
		"abandoned":        abandoned,
		"read by operator": read,
		"refused":          refused,
	} {
		t.Run(name, func(t *testing.T) { run(t, newKafkaGo(t, name, gtc.Addr, us.Addr, eu.Addr)) })
	}
}

// kafkaGo is an application with one producer on each of two clusters.
type kafkaGo struct {
	id, seed  string
	gtc       *broker // that coordinates the id
	producers []*kafkaGoProducer
}

func newKafkaGo(t *testing.T, id, gtc string, clusters ...string) *kafkaGo {
	t.Helper()
	a := &kafkaGo{id: id, seed: gtc}
	const globalTransaction = 3
	found := ask[*findCoordinatorResponse](t, dial(t, gtc), &findCoordinatorRequest{KeyType: globalTransaction, CoordinatorKeys: []string{id}})
	if len(found.Coordinators) != 1 || found.Coordinators[0].ErrorCode != 0 || found.Coordinators[0].Key != id {
		t.Fatalf("FindCoordinator: %+v", found)
	}
	a.gtc = dial(t, net.JoinHostPort(found.Coordinators[0].Host, strconv.Itoa(int(found.Coordinators[0].Port))))
	for _, addr := range clusters {
		a.producers = append(a.producers, newKafkaGoProducer(t, addr, id))
	}
	return a
}

// again are the answers after which the same request is sent once more (KIP.md,
// InitGlobalTxn and EndGlobalTxn). The node does not change here.
var again = []int16{coordinatorLoadInProgress, concurrentTransactions, participantNotAvailable}

func (a *kafkaGo) init(t *testing.T, req *initGlobalTxnRequest) *initGlobalTxnResponse {
	t.Helper()
	for ctx := deadline(t); ; {
		resp := ask[*initGlobalTxnResponse](t, a.gtc, req)
		if !slices.Contains(again, resp.ErrorCode) || ctx.Err() != nil {
			return resp
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ask asks to end a transaction until there is an answer.
func (a *kafkaGo) ask(t *testing.T, req *endGlobalTxnRequest) *endGlobalTxnResponse {
	t.Helper()
	for ctx := deadline(t); ; {
		resp := ask[*endGlobalTxnResponse](t, a.gtc, req)
		if unknown := resp.ErrorCode == 0 && resp.Outcome == 0; !unknown && !slices.Contains(again, resp.ErrorCode) || ctx.Err() != nil {
			return resp
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *kafkaGo) describe(t *testing.T) describedTransaction {
	t.Helper()
	resp := ask[*describeGlobalTransactionsResponse](t, a.gtc, &describeGlobalTransactionsRequest{GlobalTransactionalIDs: []string{a.id}})
	if len(resp.GlobalTransactions) != 1 || resp.GlobalTransactions[0].ErrorCode != 0 {
		t.Fatalf("DescribeGlobalTransactions: %+v", resp)
	}
	return resp.GlobalTransactions[0]
}

func (a *kafkaGo) clusterIDs() []string {
	return []string{a.producers[0].clusterID, a.producers[1].clusterID}
}

// expect fails the test unless each cluster shows these values and has nothing
// open.
func (a *kafkaGo) expect(t *testing.T, want ...[]string) {
	t.Helper()
	for i, p := range a.producers {
		r := readback.NewReader(p.addr)
		defer r.Close()
		records, err := r.Topic(deadline(t), p.topic)
		if err != nil {
			t.Fatal(err)
		}
		if got := values(records); !slices.Equal(got, want[i]) {
			t.Errorf("cluster %d shows %v, want %v", i, got, want[i])
		}
	}
}

// kafkaGoProducer is what kafka-go has no producer for: one of transactions. The
// clusters are single nodes, so that any request goes to the one address.
type kafkaGoProducer struct {
	*broker
	addr, clusterID, transactionalID, topic string
	producerID                              int64
	producerEpoch                           int16
	sequence                                int32 // of the next record under this epoch
}

func newKafkaGoProducer(t *testing.T, addr, id string) *kafkaGoProducer {
	t.Helper()
	p := &kafkaGoProducer{broker: dial(t, addr), addr: addr, transactionalID: id, topic: strings.ReplaceAll(id, " ", "-")}
	cl := &kafka.Client{Addr: kafka.TCP(addr)}
	created, err := cl.CreateTopics(deadline(t), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: p.topic, NumPartitions: 1, ReplicationFactor: 1}}})
	if err == nil {
		err = created.Errors[p.topic]
	}
	if err != nil {
		t.Fatal(err)
	}
	p.clusterID = ask[*metadata.Response](t, p.broker, &metadata.Request{}).ClusterID
	return p
}

// open initialises the producer, and so fences its predecessor.
func (p *kafkaGoProducer) open(t *testing.T) {
	t.Helper()
	resp := ask[*initproducerid.Response](t, p.broker, &initproducerid.Request{
		TransactionalID: p.transactionalID, TransactionTimeoutMs: math.MaxInt32, ProducerID: -1, ProducerEpoch: -1,
	})
	if resp.ErrorCode != 0 {
		t.Fatalf("InitProducerId: %v", kafka.Error(resp.ErrorCode))
	}
	p.goOnWith(resp.ProducerID, resp.ProducerEpoch)
}

func (p *kafkaGoProducer) goOnWith(id int64, epoch int16) {
	if id != p.producerID || epoch != p.producerEpoch {
		p.producerID, p.producerEpoch, p.sequence = id, epoch, 0
	}
}

func (p *kafkaGoProducer) produce(t *testing.T, values ...string) {
	t.Helper()
	added := ask[*addpartitionstotxn.Response](t, p.broker, &addpartitionstotxn.Request{
		TransactionalID: p.transactionalID, ProducerID: p.producerID, ProducerEpoch: p.producerEpoch,
		Topics: []addpartitionstotxn.RequestTopic{{Name: p.topic, Partitions: []int32{0}}},
	})
	if code := added.Results[0].Results[0].ErrorCode; code != 0 {
		t.Fatalf("AddPartitionsToTxn: %v", kafka.Error(code))
	}
	raw, err := batch(p.producerID, p.producerEpoch, p.sequence, values...)
	if err != nil {
		t.Fatal(err)
	}
	produced := ask[*produce.Response](t, p.broker, &rawproduce.Request{
		TransactionalID: p.transactionalID, Acks: -1, Timeout: int32(patience.Milliseconds()),
		Topics: []rawproduce.RequestTopic{{Topic: p.topic, Partitions: []rawproduce.RequestPartition{{RecordSet: raw}}}},
	})
	if code := produced.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("Produce: %v", kafka.Error(code))
	}
	p.sequence += int32(len(values))
}

// abort ends the transaction without the coordinator.
func (p *kafkaGoProducer) abort(t *testing.T) {
	t.Helper()
	resp := ask[*endTxnResponse](t, p.broker, &endTxnRequest{TransactionalID: p.transactionalID, ProducerID: p.producerID, ProducerEpoch: p.producerEpoch})
	if resp.ErrorCode != 0 {
		t.Fatalf("EndTxn: %v", kafka.Error(resp.ErrorCode))
	}
	p.goOnWith(resp.ProducerID, resp.ProducerEpoch)
}

func (p *kafkaGoProducer) participant() endParticipant {
	return endParticipant{ClusterID: p.clusterID, ProducerID: p.producerID, ProducerEpoch: p.producerEpoch}
}

// kafkaGoSession is one of kafkaGo's.
type kafkaGoSession struct {
	*kafkaGo
	request  *initGlobalTxnRequest
	epoch    int32
	sequence int64 // of the next end
}

// session begins one and opens the producers after it (R3).
func (a *kafkaGo) session(t *testing.T, timeout time.Duration) *kafkaGoSession {
	t.Helper()
	var instance [16]byte
	_, _ = rand.Read(instance[:])
	s := &kafkaGoSession{kafkaGo: a, request: &initGlobalTxnRequest{
		GlobalTransactionalID: a.id, TimeoutMs: int32(timeout.Milliseconds()), ClusterIDs: a.clusterIDs(),
		InstanceIDHigh: int64(binary.BigEndian.Uint64(instance[:])), InstanceIDLow: int64(binary.BigEndian.Uint64(instance[8:])),
	}}
	resp := a.init(t, s.request)
	if resp.ErrorCode != 0 || len(resp.ClusterErrors) != 0 {
		t.Fatalf("InitGlobalTxn: %+v", resp)
	}
	s.epoch, s.sequence = resp.GlobalEpoch, resp.Sequence
	for _, p := range a.producers {
		p.open(t)
	}
	return s
}

func (s *kafkaGoSession) end(commit bool, producers ...*kafkaGoProducer) *endGlobalTxnRequest {
	req := &endGlobalTxnRequest{
		GlobalTransactionalID: s.id, GlobalEpoch: s.epoch, Sequence: s.sequence, Committed: commit, TimeoutMs: int32(patience.Milliseconds() / 2),
	}
	for _, p := range producers {
		req.Participants = append(req.Participants, p.participant())
	}
	return req
}

// must asks to end a transaction, fails the test unless it ended so everywhere,
// and goes on to the next.
func (s *kafkaGoSession) must(t *testing.T, outcome int8, req *endGlobalTxnRequest) {
	t.Helper()
	resp := s.ask(t, req)
	if resp.ErrorCode != 0 || resp.Outcome != outcome || len(resp.Participants) != len(req.Participants) {
		t.Fatalf("EndGlobalTxn: %+v, want outcome %d of %d", resp, outcome, len(req.Participants))
	}
	for _, ended := range resp.Participants {
		i := slices.IndexFunc(s.producers, func(p *kafkaGoProducer) bool { return p.clusterID == ended.ClusterID })
		if i < 0 || ended.State != complete || ended.ProducerID < 0 {
			t.Fatalf("EndGlobalTxn: %+v, want it complete, with a producer id", ended)
		}
		s.producers[i].goOnWith(ended.ProducerID, ended.ProducerEpoch)
	}
	s.sequence = req.Sequence + 1
}

// Numbers of KIP.md and of Kafka.
const (
	committed, aborted        = int8(1), int8(2)
	complete                  = int8(1)
	coordinatorLoadInProgress = int16(14)
	invalidRequest            = int16(42)
	invalidTxnState           = int16(48)
	concurrentTransactions    = int16(51)
	producerFenced            = int16(90)
	transactionalIDNotFound   = int16(105)
	participantNotAvailable   = int16(1000)
	unknownParticipant        = int16(1001)
	globalTransactionTooOld   = int16(1005)
	invalidTransactionTimeout = int16(50)
)

// outcomes: each transaction ends on both clusters as asked, and repeats of the
// question get the same answer (C-END-2, C-ATOM-4).
func outcomes(t *testing.T, a *kafkaGo) {
	us, eu := a.producers[0], a.producers[1]
	s := a.session(t, time.Minute)

	us.produce(t, "1", "2")
	eu.produce(t, "1")
	first := s.end(true, us, eu)
	s.must(t, committed, first)
	s.must(t, committed, first)
	asAbort := *first
	asAbort.Committed = false
	s.must(t, committed, &asAbort)
	reversed := *first
	reversed.Participants = []endParticipant{first.Participants[1], first.Participants[0]}
	s.must(t, committed, &reversed)

	us.produce(t, "aborted")
	eu.produce(t, "aborted")
	second := s.end(false, us, eu)
	s.must(t, aborted, second)
	asCommit := *second
	asCommit.Committed = true
	s.must(t, aborted, &asCommit)
	if resp := a.ask(t, first); resp.ErrorCode != globalTransactionTooOld || resp.Outcome != 0 {
		t.Errorf("the first one, after the second: %+v, want error %d", resp, globalTransactionTooOld)
	}

	// What the client ends by itself uses no sequence.
	us.produce(t, "aborted by the client")
	us.abort(t)
	eu.produce(t, "3")
	s.must(t, committed, s.end(true, eu))

	// Untouched participants are left out (C-CLI-2).
	us.produce(t, "4")
	s.must(t, committed, s.end(true, us))
	a.expect(t, []string{"1", "2", "4"}, []string{"1", "3"})
}

// fenced: a second session ends the first one, whose transaction is aborted by
// the second one's producers.
func fenced(t *testing.T, a *kafkaGo) {
	us, eu := a.producers[0], a.producers[1]
	old := a.session(t, time.Minute)
	us.produce(t, "old")
	eu.produce(t, "old")
	late := old.end(true, us, eu)

	s := a.session(t, time.Minute)
	if s.epoch != old.epoch+1 || s.sequence != old.sequence {
		t.Errorf("the second session has epoch %d and sequence %d, want %d and %d", s.epoch, s.sequence, old.epoch+1, old.sequence)
	}
	if resp := a.ask(t, late); resp.ErrorCode != producerFenced || resp.Outcome != 0 {
		t.Errorf("the old session's commit: %+v, want error %d", resp, producerFenced)
	}
	if resp := a.init(t, old.request); resp.ErrorCode != producerFenced || resp.GlobalEpoch != -1 || resp.Sequence != -1 {
		t.Errorf("a late copy of its InitGlobalTxn: %+v, want error %d and -1, -1", resp, producerFenced)
	}
	slices.Reverse(s.request.ClusterIDs)
	if resp := a.init(t, s.request); resp.ErrorCode != 0 || resp.GlobalEpoch != s.epoch || resp.Sequence != s.sequence {
		t.Errorf("a repeat of the present one: %+v, want epoch %d and sequence %d", resp, s.epoch, s.sequence)
	}
	if d := a.describe(t); d.GlobalEpoch != s.epoch || d.SessionEnded {
		t.Errorf("%+v, want the epoch of the client that has the id now, %d", d, s.epoch)
	}
	us.produce(t, "new")
	eu.produce(t, "new")
	s.must(t, committed, s.end(true, us, eu))
	a.expect(t, []string{"new"}, []string{"new"})
}

// abandoned: what a dead client has left open is aborted (C-LIVE-1), its late
// commit too, and a new session goes on.
func abandoned(t *testing.T, a *kafkaGo) {
	us, eu := a.producers[0], a.producers[1]
	dead := a.session(t, 200*time.Millisecond)
	us.produce(t, "dead")
	eu.produce(t, "dead")
	late := dead.end(true, us, eu)
	a.expect(t, nil, nil) // waits until nothing is open

	resp := a.ask(t, late)
	if resp.ErrorCode != 0 || resp.Outcome != aborted || resp.ErrorMessage == "" {
		t.Errorf("the commit after that: %+v, want aborted and why", resp)
	}
	// How the client tells that from another one that has the id.
	if resp := a.init(t, dead.request); resp.ErrorCode != producerFenced {
		t.Errorf("InitGlobalTxn of the ended session: %+v, want error %d", resp, producerFenced)
	}
	if d := a.describe(t); !d.SessionEnded || d.GlobalEpoch != dead.epoch || d.Reason == "" || d.TimeoutMs != 200 {
		t.Errorf("%+v, want the session with epoch %d, ended, and a reason", d, dead.epoch)
	}
	s := a.session(t, time.Minute)
	us.produce(t, "alive")
	eu.produce(t, "alive")
	s.must(t, committed, s.end(true, us, eu))
	a.expect(t, []string{"alive"}, []string{"alive"})
}

// read: the answers for operators.
func read(t *testing.T, a *kafkaGo) {
	us, eu := a.producers[0], a.producers[1]
	s := a.session(t, time.Minute)
	us.produce(t, "1")
	eu.produce(t, "1")
	req := s.end(true, us, eu)
	s.must(t, committed, req)

	described := ask[*describeGlobalTransactionsResponse](t, a.gtc, &describeGlobalTransactionsRequest{GlobalTransactionalIDs: []string{a.id, "nobody"}}).GlobalTransactions
	if len(described) != 2 || described[1].ErrorCode != transactionalIDNotFound || described[1].GlobalTransactionalID != "nobody" {
		t.Fatalf("described %+v, want two, the second not found", described)
	}
	d := described[0]
	if d.ErrorCode != 0 || d.State != "CompleteCommit" || d.GlobalEpoch != s.epoch || d.Sequence != req.Sequence || d.TimeoutMs != 60_000 ||
		d.SessionEnded || !slices.Equal(d.ClusterIDs, a.clusterIDs()) || d.Reason != "" || len(d.Participants) != 2 {
		t.Errorf("described %+v", d)
	}
	for i, p := range d.Participants {
		if want := req.Participants[i]; p.ClusterID != want.ClusterID || p.ProducerID != want.ProducerID || p.ProducerEpoch != want.ProducerEpoch ||
			p.State != complete || p.OpenSinceMs != -1 {
			t.Errorf("described %+v, want %+v complete", p, want)
		}
	}
	list := &listGlobalTransactionsRequest{StateFilters: []string{"CompleteCommit", "Nonsense"}, DurationFilterMs: -1, PatternFilter: a.id}
	listed := ask[*listGlobalTransactionsResponse](t, a.gtc, list)
	if listed.ErrorCode != 0 || !slices.Equal(listed.UnknownStateFilters, []string{"Nonsense"}) || len(listed.GlobalTransactions) != 1 {
		t.Fatalf("listed %+v", listed)
	}
	if l := listed.GlobalTransactions[0]; l.GlobalTransactionalID != a.id || l.State != "CompleteCommit" || l.Sequence != req.Sequence || l.AgeMs != -1 || l.Heuristic || len(l.PendingClusterIDs) != 0 {
		t.Errorf("listed %+v", l)
	}
	list.HeuristicOnly = true
	if listed := ask[*listGlobalTransactionsResponse](t, a.gtc, list); listed.ErrorCode != 0 || len(listed.GlobalTransactions) != 0 {
		t.Errorf("listed as heuristic: %+v", listed)
	}
	const forget = 2
	if resp := ask[*resolveGlobalTransactionResponse](t, a.gtc, &resolveGlobalTransactionRequest{GlobalTransactionalID: a.id, Action: forget}); resp.ErrorCode != invalidTxnState {
		t.Errorf("forget what is not torn: %+v, want error %d", resp, invalidTxnState)
	}
}

// refused: requests that are wrong are answered so, and the session goes on as
// if they had not been (C-INIT-8, C-INIT-9, C-END-7).
func refused(t *testing.T, a *kafkaGo) {
	us, eu := a.producers[0], a.producers[1]
	s := a.session(t, time.Minute)
	us.produce(t, "1")
	eu.produce(t, "1")
	for name, c := range map[string]struct {
		change func(*initGlobalTxnRequest)
		want   int16
	}{
		"no id":              {func(r *initGlobalTxnRequest) { r.GlobalTransactionalID = "" }, invalidRequest},
		"no cluster":         {func(r *initGlobalTxnRequest) { r.ClusterIDs = nil }, invalidRequest},
		"a cluster twice":    {func(r *initGlobalTxnRequest) { r.ClusterIDs = []string{us.clusterID, us.clusterID} }, invalidRequest},
		"no instance":        {func(r *initGlobalTxnRequest) { r.InstanceIDHigh, r.InstanceIDLow = 0, 0 }, invalidRequest},
		"no time":            {func(r *initGlobalTxnRequest) { r.TimeoutMs = 0 }, invalidTransactionTimeout},
		"too much time":      {func(r *initGlobalTxnRequest) { r.TimeoutMs = 900_001 }, invalidTransactionTimeout},
		"an unknown cluster": {func(r *initGlobalTxnRequest) { r.InstanceIDLow++; r.ClusterIDs = []string{"nowhere"} }, unknownParticipant},
		"another timeout":    {func(r *initGlobalTxnRequest) { r.TimeoutMs++ }, invalidRequest},
	} {
		req := *s.request
		c.change(&req)
		if resp := a.init(t, &req); resp.ErrorCode != c.want || resp.ErrorMessage == "" {
			t.Errorf("InitGlobalTxn with %s: %+v, want error %d and a message", name, resp, c.want)
		}
	}
	for name, c := range map[string]struct {
		change func(*endGlobalTxnRequest)
		want   int16
	}{
		"no participant":     {func(r *endGlobalTxnRequest) { r.Participants = nil }, invalidRequest},
		"a cluster twice":    {func(r *endGlobalTxnRequest) { r.Participants[1] = r.Participants[0] }, invalidRequest},
		"no producer id":     {func(r *endGlobalTxnRequest) { r.Participants[1].ProducerID = -1 }, invalidRequest},
		"an unknown cluster": {func(r *endGlobalTxnRequest) { r.Participants[1].ClusterID = "nowhere" }, unknownParticipant},
		"another epoch":      {func(r *endGlobalTxnRequest) { r.GlobalEpoch++ }, producerFenced},
		"an unknown id":      {func(r *endGlobalTxnRequest) { r.GlobalTransactionalID = "nobody" }, transactionalIDNotFound},
	} {
		req := s.end(true, us, eu)
		c.change(req)
		if resp := a.ask(t, req); resp.ErrorCode != c.want || resp.Outcome != 0 || resp.ErrorMessage == "" {
			t.Errorf("EndGlobalTxn with %s: %+v, want error %d and a message", name, resp, c.want)
		}
	}
	s.must(t, committed, s.end(true, us, eu))
	a.expect(t, []string{"1"}, []string{"1"})
}

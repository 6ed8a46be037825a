package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// The cases of real transaction coordinators that need a coordinator, its log
// and its participants together; gtc/CASES.md says where each case is tested.

// patience bounds what takes a second on an idle machine.
const patience = 3 * time.Minute

// until waits for what.
func until(t *testing.T, what func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = what(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func (r *coordinatorRig) admin(t *testing.T) *kgo.Client {
	t.Helper()
	return kgoClient(t, r.addr, kgo.MaxVersions(wire.Versions()))
}

// metric is the value of a counter or gauge, over all its labels.
func (r *coordinatorRig) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.requests.Coordinator.(*service.Service).Metrics())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// Case 1: us is aborted by somebody else between the decision and its EndTxn,
// and refuses the commit with one code or the other, on either EndTxn version.
// It is never plain success, and the verdict is the same four times.
func TestARefusedCommitIsHeuristic(t *testing.T) {
	for _, version := range []int16{2, 1} {
		for _, code := range []*kerr.Error{kerr.InvalidTxnState, kerr.ProducerFenced} {
			t.Run(fmt.Sprintf("transaction.version %d/%s", version, code.Message), func(t *testing.T) {
				refusedCommit(t, newScripted(t, "us", version), newScripted(t, "eu", version), code)
			})
		}
	}
}

func refusedCommit(t *testing.T, us, eu *scripted, code *kerr.Error) {
	t.Helper()
	clusters := asClusters(us, eu)
	rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
	cl := openClient(t, rig, id, clusters)
	us.endTxn.Store(int32(kerr.ConcurrentTransactions.Code))
	txn, before := write(t, cl, topic, "x", "us", "eu"), us.ends.Load() // Open probes with an EndTxn of nothing
	told := make(chan error, 1)
	go func() {
		_, err := txn.Commit(t.Context())
		told <- err
	}()
	until(t, func() error {
		if us.ends.Load() == before {
			return errors.New("commit is not decided")
		}
		return nil
	})
	us.outsider(t, id)
	us.endTxn.Store(int32(code.Code))

	var torn *client.HeuristicError
	if err := <-told; !errors.As(err, &torn) || torn.Result.Outcome != client.OutcomeCommitted {
		t.Fatalf("Commit = %v, want a HeuristicError of a commit", err)
	}
	states := map[string]client.ParticipantState{}
	for _, p := range torn.Result.Participants {
		states[p.Cluster] = p.State
	}
	if states["us"] != client.ParticipantHeuristicAbort || states["eu"] != client.ParticipantComplete {
		t.Errorf("participants %v, want us heuristic abort and eu complete", states)
	}
	d, err := described(t.Context(), rig.admin(t), id)
	if err != nil || d.State != "CompleteCommit" {
		t.Errorf("described as %+v, %v", d, err)
	}
	for _, p := range d.Participants {
		want := map[string]int8{us.id: wire.ParticipantHeuristicAbort, eu.id: wire.ParticipantComplete}[p.ClusterID]
		if p.State != want {
			t.Errorf("described: %s is %d, want %d", p.ClusterID, p.State, want)
		}
	}
	if l, found, err := listed(t.Context(), rig.admin(t), id); err != nil || !found || !l.Heuristic {
		t.Errorf("listed as %+v, %v, %v, want heuristic", l, found, err)
	}
	if n := rig.metric(t, "gtc_heuristic_outcomes_total"); n != 1 {
		t.Errorf("gtc_heuristic_outcomes_total is %v, want 1", n)
	}
	shows(t, clusters, topic, map[string][]string{"eu": {"x"}})

	// It stands still until an operator has looked.
	if _, err := cl.Begin(t.Context()); !errors.As(err, &torn) {
		t.Errorf("Begin = %v, want the HeuristicError again", err)
	}
	us.endTxn.Store(notScripted)
	forget := wire.NewPtrResolveGlobalTransactionRequest()
	forget.GlobalTransactionalID, forget.Action = id, 2
	if resp, err := forget.RequestWith(t.Context(), rig.admin(t)); err != nil || resp.ErrorCode != 0 {
		t.Fatalf("forget: %+v, %v", resp, err)
	}
	if _, err := write(t, cl, topic, "y", "us", "eu").Commit(t.Context()); err != nil {
		t.Errorf("after it was forgotten: %v", err)
	}
	shows(t, clusters, topic, map[string][]string{"us": {"y"}, "eu": {"x", "y"}})
}

// Case 5: there is no read-only vote. A participant that was listed has been written
// to, so one that shows nothing open has lost it, or its broker was deposed.
func TestAParticipantWithNothingOpenMakesItAbort(t *testing.T) {
	clusters := twoEmbedded(t)
	rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
	raw, err := openRaw(t.Context(), rig.addr, id, clusters, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	if err = errors.Join(raw.write(t.Context(), topic, "v", "us"), raw.name(t.Context(), "eu")); err != nil {
		t.Fatal(err)
	}
	resp, err := raw.endUntilDecided(t.Context(), true)
	if err != nil || resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeAborted {
		t.Fatalf("%+v, %v, want aborted", resp, err)
	}
	if resp.ErrorMessage == nil || !strings.Contains(*resp.ErrorMessage, clusters["eu"].id) {
		t.Errorf("the message %v does not name eu", resp.ErrorMessage)
	}
	shows(t, clusters, topic, map[string][]string{})
}

// Case 5: group offsets alone are a part of the transaction.
func TestAParticipantWithNothingButGroupOffsetsIsCommitted(t *testing.T) {
	offsetsOnly(t, twoEmbedded(t))
}

func offsetsOnly(t *testing.T, clusters map[string]participantCluster) *verifier {
	t.Helper()
	rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
	raw, err := openRaw(t.Context(), rig.addr, id, clusters, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	if err = errors.Join(raw.write(t.Context(), topic, "v", "us"), raw.name(t.Context(), "eu")); err != nil {
		t.Fatal(err)
	}
	group := "readers-" + topic
	// Versions that name the topic, and not its id.
	byName := kgoClient(t, clusters["eu"].addr, kgo.MaxVersions(kversion.V3_7_0()))
	commitOffset(t, byName, id, raw.refs["eu"], group, topic, 42)
	if got := committedOffset(t, clusters["eu"], group, topic); got != -1 {
		t.Errorf("offset %d before the decision", got)
	}
	resp, err := raw.endUntilDecided(t.Context(), true)
	if err != nil || resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeCommitted {
		t.Fatalf("%+v, %v, want committed", resp, err)
	}
	until(t, func() error { // its marker is written after the reply
		if got := committedOffset(t, clusters["eu"], group, topic); got != 42 {
			return fmt.Errorf("offset %d after the commit, want 42", got)
		}
		return nil
	})
	return &verifier{bin: operatorsTool(t), addr: rig.addr, id: id, clusters: clusters}
}

// commitOffset adds a group offset to the transaction that p names.
func commitOffset(t *testing.T, cl *kgo.Client, id string, p wire.EndGlobalTxnRequestParticipant, group, topic string, offset int64) {
	t.Helper()
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, p.ProducerID, p.ProducerEpoch, group
	added, err := add.RequestWith(t.Context(), cl)
	if err != nil || added.ErrorCode != 0 {
		t.Fatalf("AddOffsetsToTxn: %+v, %v", added, err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = id, group, p.ProducerID, p.ProducerEpoch
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("TxnOffsetCommit: %+v, %v", resp, err)
	}
}

// committedOffset is the offset of partition 0, or -1.
func committedOffset(t *testing.T, c participantCluster, group, topic string) int64 {
	t.Helper()
	offsets, err := kadm.NewClient(kgoClient(t, c.addr)).FetchOffsets(t.Context(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	o, found := offsets.Lookup(topic, 0)
	if !found {
		return -1
	}
	return o.At
}

// Case 3: on transaction.version 1 the first EndTxn is held on its way, its
// repeat succeeds, and the client goes on. The held copy arrives while the next
// transaction is open, and does not end it: the client was told to take a new
// epoch first.
func TestALateEndTxnDoesNotEndTheNextTransaction(t *testing.T) {
	us, eu := newScripted(t, "us", 1), newScripted(t, "eu", 2)
	clusters := asClusters(us, eu)
	rig := newCoordinator(t, clusters, "global.transaction.participant.request.timeout.ms=1000")
	topic, id := newTopic(t, clusters), uniqueID(t)
	cl := openClient(t, rig, id, clusters)
	release := make(chan struct{})
	us.held.Store(&release)
	if r, err := write(t, cl, topic, "first", "us", "eu").Commit(t.Context()); err != nil || !r.Complete() {
		t.Fatalf("Commit = %+v, %v", r, err)
	}
	if us.held.Load() != nil {
		t.Fatal("no EndTxn was held")
	}
	txn := write(t, cl, topic, "x", "us", "eu")
	seen := us.ends.Load()
	close(release)
	for range 20 { // the held copy is carried out meanwhile
		if open := openTransactions(t, us.participantCluster, id); len(open) != 1 {
			t.Fatal("the late EndTxn ended the next transaction")
		}
	}
	if us.ends.Load() != seen {
		t.Errorf("%d more EndTxn", us.ends.Load()-seen)
	}
	if _, err := txn.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows(t, clusters, topic, map[string][]string{"us": {"first"}, "eu": {"first"}})
}

// Case 7: abort of a participant where nothing was begun.
func TestAnAbortOfWhatNeverWasIsPlain(t *testing.T) {
	for _, version := range []int16{2, 1} {
		t.Run(fmt.Sprint("transaction.version ", version), func(t *testing.T) {
			us, eu := newScripted(t, "us", version), newScripted(t, "eu", version)
			clusters := asClusters(us, eu)
			rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
			raw, err := openRaw(t.Context(), rig.addr, id, clusters, 60_000)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.close()
			if err = errors.Join(raw.write(t.Context(), topic, "v", "us"), raw.name(t.Context(), "eu")); err != nil {
				t.Fatal(err)
			}
			before := eu.ends.Load()
			resp, err := raw.endUntilDecided(t.Context(), false)
			if err != nil || resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeAborted {
				t.Fatalf("%+v, %v, want aborted", resp, err)
			}
			for _, p := range resp.Participants {
				if p.State != wire.ParticipantComplete {
					t.Errorf("%s is %d (%v), want complete", p.ClusterID, p.State, p.Message)
				}
			}
			// Below v5 a look settles it: EndTxn could end a next transaction.
			if n := eu.ends.Load() - before; n > 3 || version == 2 && n == 0 {
				t.Errorf("eu got %d EndTxn, want it told, and no loop", n)
			}
			shows(t, clusters, topic, nil)
			if err := (&crashWorld{clusters: clusters, id: id, topic: topic, addr: rig.addr}).onceMore(t.Context()); err != nil {
				t.Errorf("the id does not go on: %v", err)
			}
		})
	}
}

// onceMore opens the id anew and commits a transaction.
func (w *crashWorld) onceMore(ctx context.Context) error {
	cl, err := client.Open(ctx, w.options())
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close(ctx) }()
	return w.another(ctx, cl)
}

// Case 13: somebody else initialises the producer of one participant before the
// decision. Its cluster aborts there, so the outcome is abort everywhere, and it
// says why. (After the decision: case 1.)
func TestAnOutsidersInitBeforeTheDecisionIsAnAbort(t *testing.T) {
	us, eu := newScripted(t, "us", 2), newScripted(t, "eu", 2)
	clusters := asClusters(us, eu)
	rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
	cl := openClient(t, rig, id, clusters)
	txn := write(t, cl, topic, "x", "us", "eu")
	us.outsider(t, id)
	_, err := txn.Commit(t.Context())
	var aborted *client.AbortedError
	if !errors.As(err, &aborted) || !strings.Contains(err.Error(), us.id) {
		t.Fatalf("Commit = %v, want an AbortedError that names %s", err, us.id)
	}
	shows(t, clusters, topic, nil)
	if n := rig.metric(t, "gtc_heuristic_outcomes_total"); n != 0 {
		t.Errorf("%v heuristic outcomes", n)
	}
}

// Case 32: a participant's own timeout, shorter than the global one, would end
// it after the decision.
func TestAParticipantWithATimeoutOfItsOwnIsRefused(t *testing.T) {
	clusters := twoEmbedded(t)
	rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
	raw, err := openRaw(t.Context(), rig.addr, id, clusters, 60_000, map[string]time.Duration{"eu": 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	if err = raw.write(t.Context(), topic, "v", "us", "eu"); err != nil {
		t.Fatal(err)
	}
	resp, err := raw.endUntilDecided(t.Context(), true)
	if err != nil || resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeAborted || resp.ErrorMessage == nil ||
		!strings.Contains(*resp.ErrorMessage, clusters["eu"].id) || !strings.Contains(*resp.ErrorMessage, "timeout") {
		t.Fatalf("%+v, %v, want aborted for the timeout on %s", resp, err, clusters["eu"].id)
	}
	shows(t, clusters, topic, nil)
}

// Case 33: a client writes under one id and dies; its successor uses another.
// What it left is listed with its age, aborted by the session's timeout, and the
// readers go on. An id that is not ours is left alone.
func TestWhatADeadClientLeftIsListedAndAborted(t *testing.T) {
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters, "global.transaction.scan.interval.ms=50")
	topic, id, foreign := newTopic(t, clusters), uniqueID(t), uniqueID(t)+"-foreign"
	w := &crashWorld{clusters: clusters, addr: rig.addr, id: id, topic: topic}
	o := w.options()
	o.TransactionTimeout = 5 * time.Second // in which it has to be seen, too
	other := kgoClient(t, clusters["us"].addr, kgo.TransactionalID(foreign), kgo.TransactionTimeout(time.Minute))
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	elsewhere := newTopic(t, clusters)
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: elsewhere, Value: []byte("f")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	admin := rig.admin(t)
	_, _, left := w.begun(t.Context(), o, "us", "eu")
	if left.err != nil {
		t.Fatal(left.err)
	}
	defer left.close()
	until(t, func() error {
		if l, _, err := listed(t.Context(), admin, id); err != nil || l.State != "Ongoing" || l.AgeMillis <= 0 {
			return fmt.Errorf("listed as %+v, %w", l, err)
		}
		return nil
	})
	successor := &crashWorld{clusters: clusters, addr: rig.addr, id: uniqueID(t), topic: topic}
	if err := successor.onceMore(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows(t, clusters, topic, map[string][]string{"us": {"next"}, "eu": {"next"}}) // waits for the last stable offset
	if open := openTransactions(t, clusters["us"], foreign); len(open) != 1 {
		t.Error("the coordinator ended a transaction of an id that it does not know")
	}
	d, err := described(t.Context(), rig.admin(t), id)
	if err != nil || !d.SessionEnded || d.Reason == nil || !strings.Contains(*d.Reason, "timeout") {
		t.Errorf("%+v, %v, want the session ended by its timeout", d, err)
	}
}

// Case 34b: the coordinator's right is taken away after the decision. The
// participant stays pending for as long, and commits once it is granted.
func TestARightThatIsTakenAwayLeavesTheParticipantPending(t *testing.T) {
	us, eu := newScripted(t, "us", 2), newScripted(t, "eu", 2)
	clusters := asClusters(us, eu)
	rig, topic, id := newCoordinator(t, clusters, "global.transaction.retry.backoff.max.ms=50"), newTopic(t, clusters), uniqueID(t)
	cl := openClient(t, rig, id, clusters)
	txn := write(t, cl, topic, "x", "us", "eu")
	us.endTxn.Store(int32(kerr.TransactionalIDAuthorizationFailed.Code))
	var r client.Result
	for limit := time.Second; ; limit *= 2 { // in which eu commits
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		var err error
		r, err = txn.Commit(ctx)
		cancel()
		if err == nil && r.Outcome == client.OutcomeCommitted && fmt.Sprint(r.Pending()) == "[us]" {
			break
		}
		if limit > patience {
			t.Fatalf("Commit = %+v, %v, want committed, with us pending", r, err)
		}
	}
	l, _, err := listed(t.Context(), rig.admin(t), id)
	if err != nil || l.State != "PrepareCommit" || fmt.Sprint(l.PendingClusterIDs) != "["+us.id+"]" {
		t.Errorf("listed as %+v, %v", l, err)
	}
	d, err := described(t.Context(), rig.admin(t), id)
	if p := find(d, us.id); err != nil || p == nil || p.Message == nil || !strings.Contains(*p.Message, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED") {
		t.Errorf("described as %+v, %v, want the refusal named", d, err)
	}
	us.endTxn.Store(notScripted)
	if r, err = txn.WaitVisible(t.Context()); err != nil || !r.Complete() {
		t.Fatalf("WaitVisible = %+v, %v", r, err)
	}
	shows(t, clusters, topic, map[string][]string{"us": {"x"}, "eu": {"x"}})
}

func find(d wire.DescribeGlobalTransactionsResponseGlobalTransaction, clusterID string) *wire.DescribeGlobalTransactionsResponseGlobalTransactionParticipant {
	for i := range d.Participants {
		if d.Participants[i].ClusterID == clusterID {
			return &d.Participants[i]
		}
	}
	return nil
}

// Case 34a: the coordinator may not end the id's transactions on one of the
// clusters: refused before anything is begun, by name.
func TestAMissingRightIsRefusedEarly(t *testing.T) {
	us, eu := newScripted(t, "us", 2), newScripted(t, "eu", 2)
	clusters := asClusters(us, eu)
	rig := newCoordinator(t, clusters)
	us.endTxn.Store(int32(kerr.TransactionalIDAuthorizationFailed.Code))
	w := &crashWorld{clusters: clusters, addr: rig.addr, id: uniqueID(t)}
	_, err := client.Open(t.Context(), w.options())
	var p *client.ParticipantError
	if !errors.As(err, &p) || p.Cluster != "us" || !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Fatalf("Open = %v, want TRANSACTIONAL_ID_AUTHORIZATION_FAILED of us", err)
	}
	if n := us.inits.Load() + eu.inits.Load(); n != 0 {
		t.Errorf("%d producers were initialised", n)
	}
}

package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/participant"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// drive is the coordinator's side of the conversation with the node.
func (n *node) drive(t *testing.T) *participant.Clusters {
	t.Helper()
	began := time.Now()
	c, err := participant.New(participant.Options{
		Clusters: []participant.Config{{Alias: "a", ExpectedClusterID: n.embedded.ClusterID(), ClientOpts: []kgo.Opt{kgo.SeedBrokers(n.addr)}}},
		Clock:    func() gtc.Time { return gtc.Time{Mono: time.Since(began).Milliseconds()} },
		Logger:   zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Between decision and EndTxn an InitProducerId of an older client arrives late.
// With KeepPreparedTxn it ends nothing: the coordinator takes the transaction over
// and ends it as decided, also when it has forgotten that it did.
func TestALateInitProducerIDThatKeepsDoesNotTearADecision(t *testing.T) {
	for _, commit := range []bool{true, false} {
		for _, forgets := range []bool{false, true} {
			t.Run(fmt.Sprintf("commit=%t forgets=%t", commit, forgets), func(t *testing.T) {
				n := startNode(t, twoPhase)
				createTopic(t, n.client(t), "t")
				client, _ := n.initialise(t, "tid", true)
				if err := client.produce(t, func(b *kmsg.RecordBatch) { // an audit goes by the time
					b.FirstTimestamp = time.Now().UnixMilli()
					b.MaxTimestamp = b.FirstTimestamp
				}); err != nil {
					t.Fatal(err)
				}
				drive := n.drive(t)
				ref := gtc.ParticipantRef{ClusterID: n.embedded.ClusterID(), ProducerID: client.pid, ProducerEpoch: client.epoch}
				vote := drive.Vote(t.Context(), "tid", []gtc.ParticipantRef{ref})[0]
				if vote.Code != gtc.VotePrepared {
					t.Fatalf("%+v, want prepared", vote)
				}
				late, _ := n.initialise(t, "tid", true)
				order := gtc.EndTxn{ID: "tid", Sequence: 1, Commit: commit, Participant: txnlog.Participant{
					ClusterID: ref.ClusterID, ProducerID: ref.ProducerID, ProducerEpoch: ref.ProducerEpoch,
					EndTxnVersion: vote.EndTxnVersion, AuditTopic: vote.AuditTopic, AuditPartition: vote.AuditPartition, StartMillis: vote.StartMillis,
				}}
				for range 2 { // and asked once more
					ans := drive.End(t.Context(), order)
					if ans.Outcome != gtc.EndDone {
						t.Fatalf("%+v, want done", ans)
					}
					if forgets {
						drive = n.drive(t)
						continue
					}
				}
				if _, err := late.end(t, 5, !commit); err != kerr.ProducerFenced { //nolint:errorlint // the very value
					t.Errorf("the late client ends it: %v", err)
				}
				if got, want := n.committedValues(t, len(valuesOf(commit))), valuesOf(commit); !slices.Equal(got, want) {
					t.Errorf("committed %q, want %q", got, want)
				}
			})
		}
	}
}

// What is open when the coordinator takes over is another transaction: it is left.
func TestAnotherTransactionThatWasTakenOverIsLeft(t *testing.T) {
	n := startNode(t, twoPhase)
	createTopic(t, n.client(t), "t")
	first, _ := n.initialise(t, "tid", true)
	if err := first.write(t, 0); err != nil {
		t.Fatal(err)
	}
	done, err := first.end(t, 5, false)
	if err != nil {
		t.Fatal(err)
	}
	next := &producer{n.dial(t), "tid", done.ProducerID, done.ProducerEpoch}
	if err := next.write(t, 0); err != nil {
		t.Fatal(err)
	}
	kept, _ := n.initialise(t, "tid", true)
	for range 3 {
		ans := n.drive(t).End(t.Context(), gtc.EndTxn{ID: "tid", Sequence: 1, Participant: txnlog.Participant{
			ClusterID: n.embedded.ClusterID(), ProducerID: first.pid, ProducerEpoch: first.epoch, EndTxnVersion: 5,
		}})
		if ans.Outcome != gtc.EndDone {
			t.Errorf("%+v, want done: it was aborted before", ans)
		}
	}
	if _, err := kept.end(t, 5, true); err != nil {
		t.Errorf("the pair of the next transaction is not good any more: %v", err)
	}
	if got := n.committedValues(t, 1); len(got) != 1 {
		t.Errorf("committed %q, want the next transaction", got)
	}
}

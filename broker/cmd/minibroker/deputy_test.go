package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// A name that is free at home is an ordinary producer's on a participant. Whoever
// opens a session of that name reaches what is without timeout there, and nothing
// else, however short the session's own timeout is.
func TestAnOrdinaryTransactionOfASessionsNameIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		longest  time.Duration // an ordinary producer's
		settings []string
	}{
		"any timeout is allowed": {15 * time.Minute, []string{optedIn}},
		"a minute is the longest": {time.Minute, []string{
			"transaction.max.timeout.ms=60000", "transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eu := embeddedCluster(t, c.settings...)
			clusters := map[string]participantCluster{"eu": eu}
			rig := newCoordinator(t, clusters, "global.transaction.scan.interval.ms=20")
			topic, id := newTopic(t, clusters), uniqueID(t)
			victim := kgoClient(t, eu.addr, kgo.TransactionalID(id), kgo.TransactionTimeout(c.longest))
			if err := victim.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := victim.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			init := wire.NewPtrInitGlobalTxnRequest()
			init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs, init.InstanceID = id, 1, []string{eu.id}, [16]byte{1}
			until(t, func() error {
				resp, err := rig.admin(t).SeedBrokers()[0].Request(t.Context(), init)
				if err != nil {
					return err
				}
				return kerr.ErrorForCode(resp.(*wire.InitGlobalTxnResponse).ErrorCode)
			})
			// Two transactions that are a session's end, one after the other: so a
			// whole look lies between them.
			for range 2 {
				w := &crashWorld{clusters: clusters, addr: rig.addr, id: uniqueID(t), topic: topic}
				o := w.options()
				o.TransactionTimeout = 2 * time.Second // in which it writes
				_, _, left := w.begun(t.Context(), o, "eu")
				if left.err != nil {
					t.Fatal(left.err)
				}
				defer left.close()
				until(t, func() error {
					if open := openTransactions(t, eu, w.id); len(open) > 0 {
						return fmt.Errorf("open: %v", open)
					}
					return nil
				})
			}
			if d, err := described(t.Context(), rig.admin(t), id); err != nil || d.State != "Empty" || d.SessionEnded || len(d.Participants) > 0 {
				t.Errorf("the session shows %+v, %v", d, err)
			}
			if open := openTransactions(t, eu, id); len(open) != 1 {
				t.Error("the coordinator has ended somebody else's transaction")
			}
			if err := victim.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Error(err)
			}
			if got := visibleOn(t, eu, topic); !slices.Equal(got, []string{"v"}) {
				t.Errorf("visible: %q", got)
			}
		})
	}
}

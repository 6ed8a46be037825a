//go:build kafka

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// Group offsets on Apache Kafka, on each kind of transactions: alone, with
// records, aborted; the coordinator's look sees them; and no participant is
// initialised again where the producer epoch names the transaction.
func TestKafkaOffsets(t *testing.T) {
	for _, c := range []struct {
		name          string
		profile       cluster.Profile
		transactionV1 bool
	}{
		{"v44", cluster.V44, false}, {"v44-tv1", cluster.V44TV1, true}, {"v391", cluster.V391, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			us, usTopic := realCluster(t, "us", "client-"+c.name, c.profile, c.transactionV1)
			eu := newKfake(t, "eu")
			k := kafkaEnv{newFakeCoordinator(t, us, eu), us, eu, usTopic, TwoPhaseCommitAuto}
			k.offsets(t)
		})
	}
}

func (k kafkaEnv) offsets(t *testing.T) {
	t.Helper()
	cl := open(t, k.options(k.usTopic))
	name := "group-" + k.usTopic
	g, err := StandaloneGroup(deadline(t, patience), plain(t, k.us.addr), name)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	stands := int64(-1)
	for i, step := range []struct{ record, commit bool }{{false, true}, {false, true}, {true, true}, {false, false}, {true, false}, {false, true}, {true, true}} {
		txn := begin(t, cl)
		if err := txn.CommitOffsets(deadline(t, patience), g, map[string]map[int32]kgo.EpochOffset{k.usTopic: {0: {Epoch: -1, Offset: int64(i)}}}); err != nil {
			t.Fatal(err)
		}
		v := fmt.Sprint(i)
		if step.record {
			txn.Produce(t.Context(), "us", &kgo.Record{Topic: k.usTopic, Value: []byte(v)}, nil)
			flush(t, txn)
		}
		k.looksOpen(t, step.record)
		if step.commit {
			stands = int64(i)
			if step.record {
				want = append(want, v)
			}
			commit(t, txn)
		} else if r, err := txn.Abort(deadline(t, patience)); err != nil || !r.Complete() {
			t.Fatalf("Abort = %+v, %v", r, err)
		}
		if got := k.stands(t, name); got != stands {
			t.Errorf("after step %d the group stands at %d, want %d", i, got, stands)
		}
	}
	if got := visibleIn(t, k.us.addr, k.usTopic); !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// looksOpen is the coordinator's look: Ongoing, with something in it.
func (k kafkaEnv) looksOpen(t *testing.T, record bool) {
	t.Helper()
	described, err := kadm.NewClient(plain(t, k.us.addr)).DescribeTransactions(deadline(t, patience), k.usTopic)
	if err != nil {
		t.Fatal(err)
	}
	d := described[k.usTopic]
	if _, ok := d.Topics["__consumer_offsets"]; d.State != "Ongoing" || !ok || len(d.Topics[k.usTopic]) > 0 != record {
		t.Errorf("the cluster describes %+v", d)
	}
}

// stands asks for the stable offset.
func (k kafkaEnv) stands(t *testing.T, group string) int64 {
	t.Helper()
	p := &participant{name: "us", raw: plain(t, k.us.addr)}
	got, err := p.committed(deadline(t, patience), group, offsetMap{k.usTopic: {0: {}}})
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got[k.usTopic][0]; ok {
		return o.Offset
	}
	return -1
}

// The fence of KIP-447 in both group protocols: sessions of three instances, of
// which one is frozen out by a rebalance.
func TestKafkaGroupSessions(t *testing.T) {
	for name, protocol := range map[string][]kgo.Opt{
		"classic":  nil,
		"consumer": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}, // KIP-848
	} {
		t.Run(name, func(t *testing.T) {
			us, _ := realCluster(t, "us", "client-v44", cluster.V44, false)
			eu := newKfake(t, "eu")
			p := pipeline{env: env{newFakeCoordinator(t, us, eu), us, eu}}
			in, out, groupName := fmt.Sprintf("in-%d", time.Now().UnixNano()), output, fmt.Sprintf("g-%d", time.Now().UnixNano())
			const records = 300
			p.fillKafka(t, in, records)
			if _, err := kadm.NewClient(plain(t, eu.addr)).CreateTopic(t.Context(), partitions, 1, nil, out); err != nil {
				t.Fatal(err)
			}
			var done atomic.Int64
			all, stop := context.WithCancel(deadline(t, 5*time.Minute))
			defer stop()
			work := func(id string) error {
				o := p.options()
				o.GlobalTransactionalID = id + groupName
				s, err := NewGroupSession(all, GroupSessionOptions{Client: o, Cluster: "us", ConsumerOpts: append(slices.Clone(protocol),
					kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(in), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))})
				if err != nil {
					return err
				}
				defer func() { _ = s.Close(context.Background()) }()
				for all.Err() == nil {
					fetches := s.Poll(all, 7)
					if fetches.NumRecords() == 0 {
						continue
					}
					txn, err := s.Begin(all)
					if err != nil {
						return err
					}
					fetches.EachRecord(func(r *kgo.Record) { txn.Produce(all, "eu", &kgo.Record{Topic: out, Value: r.Value}, nil) })
					_, committed, err := s.End(all, true)
					if err != nil && !errors.As(err, new(*AbortedError)) && all.Err() == nil {
						return err
					}
					if committed && done.Add(int64(fetches.NumRecords())) >= records {
						stop()
					}
				}
				return nil
			}
			ended := make(chan error, 3)
			for i := range 3 {
				go func() {
					ended <- work(fmt.Sprintf("instance-%d-", i))
				}()
				_ = pause(all, time.Second) // so that they rebalance while there is work
			}
			for range 3 {
				if err := <-ended; err != nil && all.Err() == nil {
					t.Error(err)
				}
			}
			if n := done.Load(); n != records {
				t.Errorf("%d records were told to be committed, want %d", n, records)
			}
			described, err := kadm.NewClient(plain(t, us.addr)).DescribeConsumerGroups(deadline(t, patience), groupName)
			if _, ok := described[groupName]; err != nil || !ok || (described[groupName].Err == nil) != (name == "consumer") {
				t.Errorf("as a group of the consumer protocol it is described as %+v, %v", described[groupName], err)
			}
			seen := map[string]int{}
			for _, v := range readAll(t, eu.addr, out) {
				seen[v]++
			}
			for i := range records {
				if n := seen[fmt.Sprintf("%05d", i)]; n != 1 {
					t.Errorf("record %d is there %d times", i, n)
				}
			}
		})
	}
}

func (p pipeline) fillKafka(t *testing.T, in string, records int) {
	t.Helper()
	cl := plain(t, p.us.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, nil, in); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		r := &kgo.Record{Topic: in, Partition: int32(i % partitions), Value: []byte(fmt.Sprintf("%05d", i))}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

package topiclog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func faultProduce(err *kerr.Error, count int) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: count}
}

// values counts the records of the partition that are not claims.
func values(t *testing.T, s *store, partition int32) []txnlog.RawRecord {
	t.Helper()
	return slices.DeleteFunc(s.records(t, partition), func(r txnlog.RawRecord) bool {
		k, err := txnlog.DecodeKey(r.Key)
		return err == nil && k.Type == txnlog.TypeClaim
	})
}

func mustAppend(t *testing.T, w txnlog.Writer, records ...txnlog.Record) {
	t.Helper()
	if err := logtest.Append(t, w, records...); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func testLostAck(t *testing.T, s *store) {
	t.Helper()
	l := s.open(t)
	w, _ := logtest.Claim(t, l, 0)
	mustAppend(t, w, logtest.Put("a", 1))
	before := l.Stats()
	s.gate(l).loseNext(2)
	mustAppend(t, w, logtest.Put("a", 2))
	if n := s.gate(l).losses(); n != 2 {
		t.Fatalf("%d acknowledgements were lost, want 2: the test did not do what it says", n)
	}
	mustAppend(t, w, logtest.Put("a", 3))
	after := l.Stats()
	if n := after.Retries - before.Retries; n != 2 {
		t.Errorf("%d retries, want 2", n)
	}
	if n := after.Batches - before.Batches; n != 2 {
		t.Errorf("%d batches acknowledged, want 2", n)
	}
	if got := values(t, s, 0); len(got) != 3 {
		t.Fatalf("%d records are in the log, want each of 3 once", len(got))
	}
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "a2", "a3")
}

func TestALostAckIsAskedForAgainAndWritesOnce(t *testing.T) {
	s, _ := kfakeStore(t)
	testLostAck(t, s)
}

// The claim record itself is written by the same rule.
func TestALostAckOfTheClaimWritesOneClaim(t *testing.T) {
	s, _ := kfakeStore(t)
	l := s.open(t)
	s.gate(l).loseNext(1)
	w, _ := logtest.Claim(t, l, 0)
	mustAppend(t, w, logtest.Put("a", 1))
	if got := s.records(t, 0); len(got) != 2 {
		t.Fatalf("%d records, want the claim and one value", len(got))
	}
}

func testUnknownFate(t *testing.T, s *store) {
	t.Helper()
	l := s.open(t, func(o *Options) { o.AppendTimeout = 3 * time.Second })
	w, _ := logtest.Claim(t, l, 0)
	s.gate(l).loseNext(1 << 30)
	errs := make(chan error, 3)
	for i := range 3 {
		w.Append([]txnlog.Record{logtest.Put("a", int64(i))}, func(err error) { errs <- fmt.Errorf("%d: %w", i, err) })
	}
	for i := range 3 {
		err := <-errs
		if !errors.Is(err, txnlog.ErrUnknownFate) || !strings.HasPrefix(err.Error(), fmt.Sprintf("%d: ", i)) {
			t.Fatalf("answer %d is %v, want ErrUnknownFate of append %d", i, err, i)
		}
	}
	if err := logtest.Append(t, w, logtest.Put("a", 9)); !errors.Is(err, txnlog.ErrUnknownFate) {
		t.Fatalf("an append to the dead writer gives %v, want ErrUnknownFate", err)
	}
	// The next claim finds out: the batch in flight is there once.
	_, got := logtest.Claim(t, s.open(t), 0)
	if len(got) == 0 || got[0] != "a0" || slices.Contains(got, "a9") {
		t.Fatalf("replayed %q, want the append in flight and nothing from after the death", got)
	}
	if len(values(t, s, 0)) != len(got) {
		t.Fatal("a record is in the log twice")
	}
}

func TestAcksLostForTooLongEndTheWriterWithAnUnknownFate(t *testing.T) {
	s, _ := kfakeStore(t)
	testUnknownFate(t, s)
}

func TestPassingTroubleOfTheBrokerIsWaitedOut(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut,
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError,
	} {
		t.Run(e.Message, func(t *testing.T) {
			s, c := kfakeStore(t)
			l := s.open(t)
			w, _ := logtest.Claim(t, l, 0)
			fault := c.Fault(faultProduce(e, 3))
			mustAppend(t, w, logtest.Put("a", 1))
			if fault.Hits() != 3 {
				t.Fatalf("the broker was asked %d times in vain, want 3", fault.Hits())
			}
			if got := values(t, s, 0); len(got) != 1 || got[0].ProducerEpoch != 0 {
				t.Fatalf("%d records, want 1, under the epoch of the first claim", len(got))
			}
			if st := l.Stats(); st.Claims != 1 || st.Batches != 1 || st.ForcedWrites != 2 {
				t.Fatalf("%+v, want one claim and one batch", st)
			}
		})
	}
}

func TestRefusalsEndTheWriter(t *testing.T) {
	for _, c := range []struct {
		err  *kerr.Error
		want error
	}{
		{kerr.InvalidProducerEpoch, txnlog.ErrFenced},
		{kerr.ProducerFenced, txnlog.ErrFenced},
		{kerr.OutOfOrderSequenceNumber, txnlog.ErrUnknownFate},
		{kerr.UnknownProducerID, txnlog.ErrUnknownFate},
		{kerr.DuplicateSequenceNumber, txnlog.ErrUnknownFate},
		{kerr.TopicAuthorizationFailed, kerr.TopicAuthorizationFailed},
		{kerr.MessageTooLarge, kerr.MessageTooLarge},
		{kerr.InvalidTimestamp, kerr.InvalidTimestamp},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			s, cluster := kfakeStore(t)
			w, _ := logtest.Claim(t, s.open(t), 0)
			fault := cluster.Fault(faultProduce(c.err, 1))
			for range 3 {
				if err := logtest.Append(t, w, logtest.Put("a", 1)); !errors.Is(err, c.want) {
					t.Fatalf("append gives %v, want %v", err, c.want)
				}
			}
			if fault.Hits() != 1 || len(values(t, s, 0)) != 0 {
				t.Fatal("the dead writer has written")
			}
		})
	}
}

func TestABatchIsBounded(t *testing.T) {
	for name, bound := range map[string]func(*Options){
		"records": func(o *Options) { o.BatchRecords = 10 },
		"bytes":   func(o *Options) { o.BatchBytes = 10 * 101 },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := kfakeStore(t)
			l := s.open(t, bound)
			w, _ := logtest.Claim(t, l, 0)
			release := s.gate(l).hold()
			errs := make(chan error, 26)
			for i := range 26 {
				w.Append([]txnlog.Record{logtest.Put("a", int64(i))}, func(err error) { errs <- err })
				if i == 0 {
					eventually(t, "the first append to be in flight", func() bool { return len(values(t, s, 0)) == 1 })
				}
			}
			release()
			for range 26 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			// 1 in flight, then 25 at ten a batch.
			if n := l.Stats().Batches; n != 4 {
				t.Fatalf("%d batches, want 4", n)
			}
		})
	}
}

func TestOneAppendIsOneBatchHoweverLarge(t *testing.T) {
	s, _ := kfakeStore(t)
	l := s.open(t, func(o *Options) { o.BatchRecords = 10 })
	w, _ := logtest.Claim(t, l, 0)
	var records []txnlog.Record
	for i := range int64(100) {
		records = append(records, logtest.Put("a", i))
	}
	mustAppend(t, w, records...)
	mustAppend(t, w)
	if st := l.Stats(); st.Batches != 1 || st.Appends != 2 || st.Records != 100 {
		t.Fatalf("%+v, want 100 records in 1 batch, and none for an empty append", st)
	}
}

func TestAPartitionThatCannotBeReadForAWhileIsNotEmpty(t *testing.T) {
	s, c := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, w, logtest.Put("a", 1))
	c.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError, Count: 5},
		kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition, Count: 2},
		kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: 3},
	)
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1")

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError, Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.open(t).Claim(ctx, 0, func(txnlog.Entry) error { return nil }); err == nil {
		t.Fatal("a partition that cannot be read was claimed")
	}
}

func TestABrokenBatchRefusesThePartition(t *testing.T) {
	s, c := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, w, logtest.Put("a", 1))
	for name, damage := range map[string]func([]byte){
		"a flipped bit": func(b []byte) { b[len(b)-1] ^= 1 },
		"a wrong magic": func(b []byte) { b[16] = 9 },
	} {
		t.Run(name, func(t *testing.T) {
			c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				req := kreq.(*kmsg.FetchRequest)
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				b := new(batch)
				b.add([]byte("k"), []byte("v"))
				bytes := b.encode(producer{1, 0}, 0, 0)
				damage(bytes)
				topic := kmsg.NewFetchResponseTopic()
				topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
				p := kmsg.NewFetchResponseTopicPartition()
				p.HighWatermark, p.RecordBatches = 2, bytes
				topic.Partitions = append(topic.Partitions, p)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			_, err := s.open(t).Claim(t.Context(), 0, func(txnlog.Entry) error { return nil })
			if lost, ok := errors.AsType[*txnlog.LostError](err); !ok || lost.First != 0 || lost.Last != 0 {
				t.Fatalf("got %v, want the batch at offset 0 named", err)
			}
		})
	}
}

func TestALeaderThatMovesIsFollowed(t *testing.T) {
	s, c := kfakeStore(t, kfake.NumBrokers(3))
	l := s.open(t)
	w, _ := logtest.Claim(t, l, 0)
	for node := range int32(3) {
		if err := c.MoveTopicPartition(s.topic, 0, node); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, w, logtest.Put("a", int64(node)))
	}
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a0", "a1", "a2")
}

func TestATopicCreatedAnewIsNotTheSameLog(t *testing.T) {
	s, _ := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, w, logtest.Put("a", 1))
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).DeleteTopics(t.Context(), s.topic); err != nil {
		t.Fatal(err)
	}
	s.open(t)
	if err := logtest.Append(t, w, logtest.Put("a", 2)); !errors.Is(err, errRecreated) {
		t.Fatalf("append gives %v, want %v", err, errRecreated)
	}
	if n := len(s.records(t, 0)); n != 0 {
		t.Fatalf("%d records were written into the new topic", n)
	}
}

// Somebody's transactional, compressed records with their control markers: all
// of it is strange, none of it stops us.
func testStrangers(t *testing.T, s *store) {
	t.Helper()
	w, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, w, logtest.Put("a", 1))
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.TransactionalID("stranger-"+s.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r := &kgo.Record{Topic: s.topic, Partition: 0, Key: []byte("k"), Value: []byte(strings.Repeat("v", 1000))}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, w, logtest.Put("a", 2))
	l := s.open(t)
	_, got := logtest.Claim(t, l, 0)
	logtest.Want(t, got, "a1", "a2")
	if n := l.Stats().Foreign; n != 6 {
		t.Fatalf("%d foreign records, want 6", n)
	}
}

func TestStrangersTransactionsAreLeftOut(t *testing.T) {
	s, _ := kfakeStore(t)
	testStrangers(t, s)
}

func TestTheLogSurvivesARestartOfTheStore(t *testing.T) {
	dir := t.TempDir()
	start := func(opts ...kfake.Opt) *kfake.Cluster {
		c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.DataDir(dir), kfake.SyncWrites())...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := start()
	s := newStore(c.ListenAddrs(), txnlog.Topic)
	l := s.open(t)
	w, _ := logtest.Claim(t, l, 0)
	mustAppend(t, w, logtest.Put("a", 1), logtest.Put("b", 1))
	var port int
	if _, err := fmt.Sscanf(c.ListenAddrs()[0][strings.LastIndex(c.ListenAddrs()[0], ":"):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	c.Close()
	answer := make(chan error, 1)
	w.Append([]txnlog.Record{logtest.Put("a", 2)}, func(err error) { answer <- err })
	c = start(kfake.Ports(port))
	defer c.Close()
	if err := <-answer; err != nil {
		t.Fatalf("an append over the restart gives %v", err)
	}
	next, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "b1", "a2")
	if err := logtest.Append(t, w, logtest.Put("a", 99)); !errors.Is(err, txnlog.ErrFenced) {
		t.Fatalf("the owner from before the restart gets %v, want ErrFenced", err)
	}
	mustAppend(t, next, logtest.Put("a", 3))
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	s, _ := kfakeStore(t)
	l := s.open(t)
	w, _ := logtest.Claim(t, l, 0)
	release := s.gate(l).hold()
	defer release()
	answer := make(chan error, 1)
	w.Append([]txnlog.Record{logtest.Put("a", 1)}, func(err error) { answer <- err })
	eventually(t, "the append to be in flight", func() bool { return len(values(t, s, 0)) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close gives %v, want the deadline", err)
	}
	if err := <-answer; !errors.Is(err, txnlog.ErrUnknownFate) {
		t.Fatalf("the append in flight gets %v, want ErrUnknownFate", err)
	}
}

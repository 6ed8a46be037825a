package topiclog

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

// The log changed its producer id long ago. While it is replayed, and after the
// claim of the old id was read, compaction removes the seal of that id and every
// claim of the new one but the last. The decisions under the new id must not be
// left out, whatever the broker still knows of the old id.
func TestASealThatCompactionRemovedDuringTheReplayIsNotMissed(t *testing.T) {
	s, c := kfakeStore(t)
	s.open(t).Close() // the topic is there
	now := nextOwner(t, s)
	old := producer{now.id + 4711, 5} // no id that the broker has given out
	claimOf := func(p producer) *batch { return claimBatch(txnlog.Claim{ProducerID: p.id, ProducerEpoch: p.epoch}) }
	put := func(id string) *batch {
		b := new(batch)
		if err := b.addAll([]txnlog.Record{logtest.Put(id, 1)}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	var log [][]byte
	write := func(b *batch, p producer, sequence int32) {
		t.Helper()
		encoded := b.encode(p, sequence, 1)
		if err := s.send(t.Context(), 0, encoded); err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint64(encoded, uint64(len(log)))
		log = append(log, encoded)
	}
	write(claimOf(old), old, 0)                                          // 0
	write(put("a"), old, 1)                                              // 1
	write(claimOf(old), producer{old.id, txnlog.ProducerEpochSealed}, 0) // 2, the seal
	write(claimOf(now), now, 0)                                          // 3
	write(put("decided"), now, 1)                                        // 4
	later := nextOwner(t, s)
	write(claimOf(later), later, 0) // 5
	write(put("b"), later, 1)       // 6
	write(put("c"), later, 1+1)     // 7
	// When the replay has read 1, 2 and 3 go. Then it takes P for the owner, and all
	// behind for a stranger's. (That would refuse the partition.)
	served := serveOnce(c, map[int64][][]byte{0: {log[0], log[1], log[4], log[5], log[6]}})

	l := s.open(t)
	if _, err := l.Claim(t.Context(), 0, func(txnlog.Entry) error { return nil }); !errors.Is(err, errMisled) {
		t.Fatalf("the claim gives %v, want to be told to read again", err)
	}
	if served.Load() != 1 {
		t.Fatalf("%d answers were ours, want 1", served.Load())
	}
	_, got := logtest.Claim(t, l, 0)
	logtest.Want(t, got, "a1", "decided1", "b1", "c1")
}

// Records of a stranger stay what they are, and cost one more reading.
func TestRecordsOfAStrangerAreForeignInEveryReading(t *testing.T) {
	s, _ := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, w, logtest.Put("a", 1))
	key, err := txnlog.AppendKey(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	s.inject(t, 0, txnlog.RawRecord{ProducerID: -1, ProducerEpoch: -1, Key: key, Value: txnlog.AppendValue(nil, &txnlog.GlobalTransaction{Sequence: 99})})
	l := s.open(t)
	if _, err := l.Claim(t.Context(), 0, func(txnlog.Entry) error { return nil }); !errors.As(err, new(*txnlog.ForeignRecordError)) {
		t.Fatalf("got %v, want the foreign record refused", err)
	}
	if n := l.Stats().Foreign; n != 1 {
		t.Errorf("%d records were left out, want 1", n)
	}
}

// nextOwner takes the next producer epoch of partition 0, as a claim does.
func nextOwner(t *testing.T, s *store) producer {
	t.Helper()
	o, err := s.options().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPartition(&o, new(stats), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.client.Close()
	me, err := p.initProducer(t.Context(), producer{-1, -1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return me
}

// serveOnce answers the first fetch of each offset with the batches instead of
// those in the log.
func serveOnce(c *kfake.Cluster, answers map[int64][][]byte) *atomic.Int32 {
	served := new(atomic.Int32)
	c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		offset := req.Topics[0].Partitions[0].FetchOffset
		batches, ours := answers[offset]
		if !ours {
			return nil, nil, false
		}
		delete(answers, offset)
		served.Add(1)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		p := kmsg.NewFetchResponseTopicPartition()
		for _, b := range batches {
			p.RecordBatches = append(p.RecordBatches, b...)
		}
		// The high watermark is behind the last batch, each of one record.
		p.HighWatermark = int64(binary.BigEndian.Uint64(batches[len(batches)-1])) + 1
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	return served
}

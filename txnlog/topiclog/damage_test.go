package topiclog

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

// answerFetch gives fetches of one offset another answer: change gets the bytes from
// that offset on, as the log has them.
func answerFetch(t *testing.T, s *store, c *kfake.Cluster, offset int64, change func(raw []byte, p *kmsg.FetchResponseTopicPartition)) {
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
	real, err := p.fetch(t.Context(), offset, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		asked := &req.Topics[0].Partitions[0]
		if asked.FetchOffset != offset || asked.Partition != 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		answer := kmsg.NewFetchResponseTopicPartition()
		answer.HighWatermark = real.HighWatermark
		change(bytes.Clone(real.RecordBatches), &answer)
		topic.Partitions = append(topic.Partitions, answer)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
}

// damagedStore holds, on partition 0, a claim at offset 0, then a and b.
func damagedStore(t *testing.T) (*store, *kfake.Cluster) {
	t.Helper()
	s, c := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, w, logtest.Put("a", 1))
	mustAppend(t, w, logtest.Put("b", 1))
	return s, c
}

func wantRefused(t *testing.T, s *store, offset int64, reason string) {
	t.Helper()
	_, err := s.open(t).Claim(t.Context(), 0, func(txnlog.Entry) error { return nil })
	corrupt, ok := errors.AsType[*txnlog.CorruptError](err)
	if !ok || corrupt.Offset != offset || !strings.Contains(corrupt.Reason, reason) {
		t.Fatalf("got %v, want damage at offset %d: %s", err, offset, reason)
	}
}

// sizes are those of the batches at the front of raw.
func sizes(t *testing.T, raw []byte) (all []int) {
	t.Helper()
	for len(raw) > 0 {
		b, err := parseBatch(raw)
		if err != nil {
			t.Fatal(err)
		}
		all, raw = append(all, b.size), raw[b.size:]
	}
	return all
}

// The base offset of a, at offset 1, has become a lower one. The broker, asked for
// offset 1, goes on to b, as if compaction had removed a. In the middle of an answer
// the change would be seen.
func TestABatchThatTheBrokerDoesNotFindIsMissed(t *testing.T) {
	s, c := damagedStore(t)
	answerFetch(t, s, c, 0, func(raw []byte, p *kmsg.FetchResponseTopicPartition) {
		p.RecordBatches = raw[:sizes(t, raw)[0]]
	})
	answerFetch(t, s, c, 1, func(raw []byte, p *kmsg.FetchResponseTopicPartition) {
		p.RecordBatches = raw[sizes(t, raw)[0]:]
	})
	wantRefused(t, s, 4, "serves")
}

func TestALeaderThatServesNothingBelowTheEndIsRefused(t *testing.T) {
	s, c := damagedStore(t)
	answerFetch(t, s, c, 0, func(raw []byte, p *kmsg.FetchResponseTopicPartition) {
		p.RecordBatches = raw[:sizes(t, raw)[0]]
	})
	answerFetch(t, s, c, 1, func([]byte, *kmsg.FetchResponseTopicPartition) {})
	wantRefused(t, s, 1, "serves nothing")
}

func TestALeaderThatCannotReadWhatItHasIsRefused(t *testing.T) {
	for _, answer := range []*kerr.Error{kerr.CorruptMessage, kerr.InvalidRecord, kerr.UnknownServerError} {
		s, c := damagedStore(t)
		answerFetch(t, s, c, 0, func(_ []byte, p *kmsg.FetchResponseTopicPartition) { p.ErrorCode = answer.Code })
		wantRefused(t, s, 0, answer.Message)
	}
}

// With less than DESCRIBE on the cluster a partition is claimed all the same, and
// what could not be seen is said once.
func TestWhatCannotBeCountedIsSaidOnce(t *testing.T) {
	s, c := damagedStore(t)
	c.ControlKey(int16(kmsg.DescribeLogDirs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil, true
	})
	var out bytes.Buffer
	l := s.open(t, func(o *Options) { o.Logger = zerolog.New(&out).Level(zerolog.WarnLevel) })
	for range 2 {
		_, got := logtest.Claim(t, l, 0)
		logtest.Want(t, got, "a1", "b1")
	}
	if n := strings.Count(out.String(), "grant DESCRIBE on the cluster"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, out.String())
	}
}

// Compaction changes what the leader holds between the reading and the question.
func TestACountThatCompactionHasChangedIsMadeAnew(t *testing.T) {
	s, c := kfakeStore(t)
	w, _ := logtest.Claim(t, s.open(t), 0)
	for i := range 10 {
		mustAppend(t, w, logtest.Put("a", int64(i)))
	}
	asked := new(atomic.Int32)
	c.ControlKey(int16(kmsg.DescribeLogDirs), func(kmsg.Request) (kmsg.Response, error, bool) {
		if asked.Add(1) == 1 {
			c.SleepControl(c.Compact)
		}
		c.KeepControl()
		return nil, nil, false
	})
	_, got := logtest.Claim(t, s.open(t), 0)
	if asked.Load() < 2 || got[len(got)-1] != "a9" {
		t.Fatalf("asked %d times, got %v", asked.Load(), got)
	}
}

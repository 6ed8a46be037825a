//go:build kafka

package topiclog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

var profiles = map[string]cluster.Profile{"txnlog-44": cluster.V44, "txnlog-44-tv1": cluster.V44TV1, "txnlog-391": cluster.V391}

func onKafka(t *testing.T, test func(t *testing.T, c *cluster.Cluster)) {
	t.Helper()
	for name, profile := range profiles {
		t.Run(name, func(t *testing.T) { test(t, cluster.Up(t, name, profile)) })
	}
}

// kafkaStore is a topic of its own on a cluster that is shared.
func kafkaStore(t *testing.T, c *cluster.Cluster) *store {
	t.Helper()
	s := newStore([]string{c.Bootstrap}, fmt.Sprintf("gtc-log-%016x", rand.Uint64()))
	s.compact = func(t *testing.T, partition int32) { compactKafka(t, s, partition) }
	t.Cleanup(func() {
		client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // that of the test has ended
		defer cancel()
		if _, err := kadm.NewClient(client).DeleteTopics(ctx, s.topic); err != nil {
			t.Error(err)
		}
	})
	return s
}

// compactKafka makes the cleaner eager, lets one more record roll the segment
// and waits for the cleaner, which comes by every 15 seconds.
func compactKafka(t *testing.T, s *store, partition int32) {
	t.Helper()
	before := len(s.records(t, partition))
	alter(t, s, map[string]string{"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"})
	roll := func() {
		time.Sleep(200 * time.Millisecond) // the age that makes the segment roll
		s.inject(t, partition, txnlog.RawRecord{ProducerID: -1, ProducerEpoch: -1, Key: kbin.AppendInt16(nil, 99), Value: []byte("roll")})
	}
	roll()
	for began, rolled := time.Now(), time.Now(); len(s.records(t, partition)) >= before; time.Sleep(time.Second) {
		if time.Since(began) > patience {
			t.Fatalf("Kafka has not compacted the partition within %v", patience)
		}
		if time.Since(rolled) > 30*time.Second { // what is set is shown before every log obeys it
			roll()
			rolled = time.Now()
		}
	}
	alter(t, s, map[string]string{"segment.ms": "604800000"})
}

func TestLogOnKafka(t *testing.T) {
	onKafka(t, func(t *testing.T, c *cluster.Cluster) {
		logtest.Run(t, func(t *testing.T) logtest.Target { return kafkaStore(t, c).target() })
	})
}

func TestFaultsOnKafka(t *testing.T) {
	onKafka(t, func(t *testing.T, c *cluster.Cluster) {
		t.Run("a lost acknowledgement writes once", func(t *testing.T) { testLostAck(t, kafkaStore(t, c)) })
		t.Run("lost for too long is an unknown fate", func(t *testing.T) { testUnknownFate(t, kafkaStore(t, c)) })
		t.Run("another producer id ends that of the old owner", func(t *testing.T) { testSeal(t, kafkaStore(t, c)) })
		t.Run("strangers' transactions are left out", func(t *testing.T) { testStrangers(t, kafkaStore(t, c)) })
		t.Run("contradictions are refused", func(t *testing.T) {
			testContradictions(t, func(t *testing.T) *store { return kafkaStore(t, c) })
		})
		t.Run("an unclean leader election is refused", func(t *testing.T) { testUnclean(t, kafkaStore(t, c)) })
		t.Run("a broker that forgets the fence early is refused", func(t *testing.T) { testForgetful(t, kafkaStore(t, c)) })
		t.Run("an old owner's re-init is fenced and disturbs nobody", func(t *testing.T) { testZombieReInit(t, kafkaStore(t, c)) })
	})
}

func testUnclean(t *testing.T, s *store) {
	t.Helper()
	s.open(t).Close()
	alter(t, s, map[string]string{"unclean.leader.election.enable": "true"})
	_, err := Open(t.Context(), s.options())
	if setting, ok := errors.AsType[*SettingError](err); !ok || setting.Setting != "unclean.leader.election.enable" {
		t.Fatalf("got %v, want unclean.leader.election.enable refused", err)
	}
}

// testForgetful: the setting is dynamic, and by default a day.
func testForgetful(t *testing.T, s *store) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	change := func(ctx context.Context, change kadm.AlterConfig) {
		change.Name = producerExpiration
		resp, alterErr := admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{change})
		if alterErr != nil || resp[0].Err != nil {
			t.Errorf("%s: %v, %+v", producerExpiration, alterErr, resp)
		}
	}
	open := func() error {
		var out bytes.Buffer
		o := s.options()
		o.Logger, o.Private = zerolog.New(&out), true // who may write is not the question
		l, openErr := Open(t.Context(), o)
		if openErr == nil {
			l.Close()
		}
		if out.Len() > 0 {
			t.Errorf("warned of: %s", out.String())
		}
		return openErr
	}
	if err = open(); err != nil {
		t.Fatalf("with what Kafka has by default: %v", err)
	}
	short := "600000"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // that of the test has ended
		defer cancel()
		change(ctx, kadm.AlterConfig{Op: kadm.DeleteConfig})
	})
	change(t.Context(), kadm.AlterConfig{Op: kadm.SetConfig, Value: &short})
	eventually(t, "ten minutes to be refused", func() bool { // a broker hears of it a moment later
		setting, ok := errors.AsType[*BrokerSettingError](open())
		return ok && setting.Have == short
	})
}

func testZombieReInit(t *testing.T, s *store) {
	t.Helper()
	clock := newTestClock()
	l := s.open(t, func(o *Options) { o.Clock, o.ReInit = clock, time.Hour })
	old, _ := logtest.Claim(t, l, 0)
	mustAppend(t, old, logtest.Put("a", 1))
	next, _ := logtest.Claim(t, s.open(t), 0)
	mustAppend(t, next, logtest.Put("a", 2))
	eventually(t, "the keep-alive to wait", func() bool {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		return len(clock.waits) > 0
	})
	clock.advance(time.Hour)
	eventually(t, "the old owner to die", func() bool {
		old.(*writer).mu.Lock()
		defer old.(*writer).mu.Unlock()
		return old.(*writer).err != nil
	})
	if err := logtest.Append(t, old, logtest.Put("a", 99)); !errors.Is(err, txnlog.ErrFenced) {
		t.Fatalf("the old owner gets %v, want ErrFenced", err)
	}
	mustAppend(t, next, logtest.Put("a", 3))
	_, got := logtest.Claim(t, s.open(t), 0)
	logtest.Want(t, got, "a1", "a2", "a3")
}

// A live owner keeps its own epoch alive with the broker's own re-init.
func TestKeepAliveOnKafka(t *testing.T) {
	onKafka(t, func(t *testing.T, c *cluster.Cluster) {
		s := kafkaStore(t, c)
		clock := newTestClock()
		l := s.open(t, func(o *Options) { o.Clock, o.ReInit = clock, 2*time.Hour })
		w, _ := logtest.Claim(t, l, 0)
		for hour := int64(1); hour <= 4; hour++ {
			mustAppend(t, w, logtest.Put("a", hour))
			eventually(t, "the keep-alive to wait", func() bool {
				clock.mu.Lock()
				defer clock.mu.Unlock()
				return len(clock.waits) > 0
			})
			clock.advance(time.Hour)
			eventually(t, "the claim to be written", func() bool { return l.Stats().Claims == 1+hour })
		}
		mustAppend(t, w, logtest.Put("a", 5))
		records := s.records(t, 0)
		if first, last := records[0].ProducerEpoch, records[len(records)-1].ProducerEpoch; last != first+2 {
			t.Fatalf("epochs went from %d to %d in two re-inits", first, last)
		}
		_, got := logtest.Claim(t, s.open(t), 0)
		logtest.Want(t, got, "a1", "a2", "a3", "a4", "a5")
	})
}

// The broker is killed with an append on its way and comes back: the append is
// answered once, and the fence outlives the broker.
func TestAKilledBroker(t *testing.T) {
	c := cluster.Up(t, "txnlog-kill", cluster.V44)
	s := kafkaStore(t, c)
	patient := func(o *Options) { o.AppendTimeout = 5 * time.Minute }
	old, _ := logtest.Claim(t, s.open(t, patient), 0)
	mustAppend(t, old, logtest.Put("a", 1))
	w, _ := logtest.Claim(t, s.open(t, patient), 0)
	mustAppend(t, w, logtest.Put("a", 2))
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	w.Append([]txnlog.Record{logtest.Put("a", 3)}, func(err error) { answer <- err })
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatalf("the append over the kill gives %v", err)
	}
	if err := logtest.Append(t, old, logtest.Put("a", 99)); !errors.Is(err, txnlog.ErrFenced) {
		t.Fatalf("after the restart the old owner gets %v, want ErrFenced", err)
	}
	_, got := logtest.Claim(t, s.open(t, patient), 0)
	logtest.Want(t, got, "a1", "a2", "a3")
}

package broker

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// An fsync that failed is the disk's word that something acknowledged may be
// gone. kfake does not look at it.
func TestNoAnswerLeavesAfterTheDiskHasLostSomething(t *testing.T) {
	cfg, err := config.Load("", []string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	node := Node{Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)}
	embedded, err := OpenEmbedded(cfg, node, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // Close leaves kfake to the end of the process, after a failure
		embedded.Close()
		embedded.cluster.Close()
	}()
	if embedded.storage.sync == nil {
		t.Fatal("by default nobody looks at what fsync says")
	}
	disk := errors.New("input/output error")
	var broken atomic.Bool
	embedded.storage.sync = func() error {
		if broken.Load() {
			return disk
		}
		return nil
	}
	fatal := make(chan error, 1)
	front, err := NewFront(t.Context(), Options{
		Config: cfg, Node: node, Embedded: embedded, Now: time.Now, Log: zerolog.Nop(), Fatal: func(err error) { fatal <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(ln) })
	defer served.Wait()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = front.Shutdown(ctx) // its connections may stand
	}()
	cl, err := kgo.NewClient(kgo.SeedBrokers(ln.Addr().String()), kgo.AllowAutoTopicCreation(),
		kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	produce := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
	}
	for began := time.Now(); ; {
		if err = produce(); err == nil {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal(err) // the topic is not there yet
		}
	}
	broken.Store(true)
	if err := produce(); err == nil {
		t.Error("acknowledged, and the disk has lost it")
	}
	if err := <-fatal; !errors.Is(err, disk) {
		t.Errorf("the node ends for %v, want the disk's error", err)
	}
	broken.Store(false) // an error is told once
	if err := produce(); err == nil {
		t.Error("a later record was acknowledged")
	}
}

// The coordinator's log is written past the front. A decision that the disk has
// lost must not be carried out.
func TestTheNodesOwnClientsAreNotAnsweredEither(t *testing.T) {
	cfg, err := config.Load("", []string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := OpenEmbedded(cfg, Node{Host: "127.0.0.1", Port: 1}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		embedded.Close()
		embedded.cluster.Close()
	}()
	var looks atomic.Int32
	disk := errors.New("input/output error")
	var broken atomic.Bool
	embedded.storage.sync = func() error {
		looks.Add(1)
		if broken.Load() {
			return disk
		}
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.Dialer(embedded.Dial), kgo.RecordRetries(0), kgo.RequestRetries(0),
		kgo.DisableIdempotentWrite(), kgo.RetryTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 1
	create.Topics = append(create.Topics, topic)
	if _, err = embedded.ask(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	if looks.Load() != 1 {
		t.Errorf("%d looks at the disk for a topic", looks.Load())
	}
	produce := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
	}
	if err = produce(); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err = produce(); err == nil {
		t.Error("acknowledged, and the disk has lost it")
	}
	broken.Store(false) // an error is told once
	if err = produce(); err == nil {
		t.Error("a later record was acknowledged")
	}
	if _, err = embedded.ask(t.Context(), create); !errors.Is(err, disk) {
		t.Errorf("a request in the node's own name: %v", err)
	}
}

// One look at the disk serves all who wait, but none who had written before it
// began is served by an earlier one.
func TestLooksAtTheDiskAreShared(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	looks := 0
	s := newStorage(zerolog.Nop())
	s.sync = func() error { // one at a time
		if looks++; looks == 1 {
			close(began)
			<-release
		}
		return nil
	}
	var first, others sync.WaitGroup
	wait := func() {
		if err := s.settled(); err != nil {
			t.Error(err)
		}
	}
	first.Go(wait)
	<-began
	const n = 20
	for range n {
		others.Go(wait)
	}
	others.Go(func() { close(release) })
	others.Wait()
	first.Wait()
	if looks < 2 || looks > 1+n {
		t.Errorf("%d looks for a first caller and %d later ones", looks, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looking && s.next != nil {
		t.Error("somebody still waits")
	}
}

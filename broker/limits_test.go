package broker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Above max.connections.per.ip a connection is closed at once, and one that is
// closed makes room.
func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	n := startNode(t, []string{"max.connections.per.ip=2"})
	first, second := n.dial(t), n.dial(t)
	ask[*kmsg.MetadataResponse](t, first, kmsg.NewPtrMetadataRequest())
	ask[*kmsg.MetadataResponse](t, second, kmsg.NewPtrMetadataRequest())
	if _, _, err := n.dial(t).receive(); err == nil || isTimeout(err) {
		t.Fatalf("the third connection: %v, want its end", err)
	}
	ask[*kmsg.MetadataResponse](t, second, kmsg.NewPtrMetadataRequest())
	_ = first.Close()
	waitFor(t, "place", func() bool {
		c := n.dial(t)
		defer func() { _ = c.Close() }()
		if _, err := c.Write(frameOf(kmsg.NewPtrMetadataRequest(), 1)); err != nil {
			return false
		}
		_, _, err := c.receive()
		return err == nil
	})
}

func TestInFlightRequestsOfAConnectionAreLimited(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	release := make(chan struct{})
	n := startNode(t, append([]string{"max.in.flight.requests.per.connection=3"}, bothRoles...),
		withCoordinator(coordinator{handle: func(_ context.Context, req kmsg.Request) kmsg.Response {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-release
			mu.Lock()
			running--
			mu.Unlock()
			return req.ResponseKind()
		}}))
	c := n.dial(t)
	for i := range int32(50) {
		c.send(frameOf(wire.NewPtrEndGlobalTxnRequest(), i))
	}
	waitFor(t, "full pipeline", func() bool { mu.Lock(); defer mu.Unlock(); return running >= 3 })
	n.serves(t)
	close(release)
	for i := range int32(50) {
		if id, _, err := c.receive(); err != nil || id != i {
			t.Fatalf("answer %d: id %d, %v", i, id, err)
		}
	}
	// Three in the queue, one with the writer, one that waits for its place.
	if most > 5 {
		t.Errorf("%d requests were worked on at once", most)
	}
}

// Requests above a size share queued.max.request.bytes. While they wait, others
// are served, and the next one gets its turn when the first is answered.
func TestLargeRequestsWaitForRoomAndSmallOnesDoNot(t *testing.T) {
	entered, release := make(chan string, 10), make(chan struct{})
	n := startNode(t, append([]string{"queued.max.request.bytes=1048576"}, bothRoles...),
		withCoordinator(coordinator{handle: func(_ context.Context, req kmsg.Request) kmsg.Response {
			entered <- wire.NameForKey(req.Key())
			if req.Key() == wire.KeyDescribeGlobalTransactions {
				<-release
			}
			return req.ResponseKind()
		}}))
	large := wire.NewPtrDescribeGlobalTransactionsRequest()
	large.GlobalTransactionalIDs = slices.Repeat([]string{strings.Repeat("x", 1000)}, 300) // needs most of what there is
	first, second := n.dial(t), n.dial(t)
	first.send(frameOf(large, 1))
	<-entered
	second.send(frameOf(large, 2))
	for range 20 {
		n.serves(t)
	}
	select {
	case <-entered:
		t.Fatal("the second large request did not wait")
	default:
	}
	release <- struct{}{}
	if id, _, err := first.receive(); err != nil || id != 1 {
		t.Fatalf("the first: %d %v", id, err)
	}
	<-entered
	close(release)
	if id, _, err := second.receive(); err != nil || id != 2 {
		t.Fatalf("the second: %d %v", id, err)
	}
	// A client that goes away in the middle of one gives its room back.
	third := n.dial(t)
	frame := frameOf(large, 3)
	third.send(frame[:len(frame)-1])
	_ = third.Close()
	fourth := n.dial(t)
	fourth.send(frame)
	if id, _, err := fourth.receive(); err != nil || id != 3 {
		t.Fatalf("after one that was cut off: %d %v", id, err)
	}
}

// Whoever sends a large frame slowly does not hold its room for ever: the time
// for the whole is bounded too.
func TestALargeFrameHasAnEnd(t *testing.T) {
	clock := &testClock{}
	n := startNode(t, nil, func(o *broker.Options) { o.Now = clock.Now })
	c := n.dial(t)
	header := binary.BigEndian.AppendUint32(nil, 1_000_000)
	header = append(header, 0, 3, 0, 0, 0, 0, 0, 1)
	c.send(append(header, make([]byte, 70_000)...)) // more than one piece
	// Each further piece is in time, the frame is not.
	stop := make(chan struct{})
	var feeding sync.WaitGroup
	feeding.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				clock.add(100 * time.Millisecond)
				if _, err := c.Write(make([]byte, 100)); err != nil {
					return
				}
			}
		}
	})
	_, _, err := c.receive()
	close(stop)
	feeding.Wait()
	if err == nil || isTimeout(err) {
		t.Errorf("%v, want the end of the connection", err)
	}
}

// The limit of a frame is the last size that is read.
func TestTheLargestRequestIsServed(t *testing.T) {
	n := startNode(t, append([]string{"socket.request.max.bytes=100000"}, bothRoles...), withCoordinator(echo))
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	size := func(pad int) []byte {
		req.GlobalTransactionalIDs = slices.Repeat([]string{strings.Repeat("x", 1000)}, 95)
		req.GlobalTransactionalIDs = append(req.GlobalTransactionalIDs, strings.Repeat("x", pad))
		return frameOf(req, 1)
	}
	pad := 100_000 + 4 - len(size(4000)) + 4000
	c := n.dial(t)
	c.send(size(pad))
	if _, _, err := c.receive(); err != nil {
		t.Fatalf("%d bytes: %v", len(size(pad)), err)
	}
	c.send(size(pad + 1))
	if _, _, err := c.receive(); err == nil || !errors.Is(err, io.EOF) && isTimeout(err) {
		t.Errorf("one byte more: %v", err)
	}
}

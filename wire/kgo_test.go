package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

const (
	fakeNodeID    = 7
	fakeClusterID = "fake-cluster"
)

// frame is one request as it came over the socket.
type frame struct {
	key, version int16
	correlation  int32
	body         []byte
}

// fakeBroker answers ApiVersions and Metadata itself, and everything else with
// what answer makes of it. It is one TCP listener and knows no kgo.
type fakeBroker struct {
	addr string
	port int32
	// apis are the keys of ApiVersions with their highest versions, from 0.
	apis   map[int16]int16
	answer func(frame) (kmsg.Response, error)

	mu     sync.Mutex
	frames []frame
	errs   []error
}

func startFakeBroker(t *testing.T, apis map[int16]int16, answer func(frame) (kmsg.Response, error)) *fakeBroker {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{
		addr:   l.Addr().String(),
		port:   int32(l.Addr().(*net.TCPAddr).Port),
		apis:   apis,
		answer: answer,
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			serving.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait() // the client is closed first, and with it the connections
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, err := range b.errs {
			t.Error(err)
		}
	})
	return b
}

func (b *fakeBroker) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		f, err := readFrame(conn)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		var resp kmsg.Response
		if err == nil {
			resp, err = b.respond(f)
		}
		if err == nil {
			err = writeFrame(conn, f, resp)
		}
		if err != nil {
			b.mu.Lock()
			b.errs = append(b.errs, err)
			b.mu.Unlock()
			return
		}
	}
}

func (b *fakeBroker) respond(f frame) (kmsg.Response, error) {
	if f.key == int16(kmsg.ApiVersions) {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = f.version
		for key, highest := range b.apis {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: highest})
		}
		return resp, nil
	}
	if f.key == int16(kmsg.Metadata) {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = f.version
		resp.ClusterID = kmsg.StringPtr(fakeClusterID)
		resp.ControllerID = fakeNodeID
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: fakeNodeID, Host: "127.0.0.1", Port: b.port}}
		return resp, nil
	}
	b.mu.Lock()
	b.frames = append(b.frames, f)
	b.mu.Unlock()
	return b.answer(f)
}

// seen returns the requests so far that answer was asked about.
func (b *fakeBroker) seen() []frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]frame(nil), b.frames...)
}

func readFrame(conn net.Conn) (frame, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return frame{}, err
	}
	raw := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	if _, err := io.ReadFull(conn, raw); err != nil {
		return frame{}, err
	}
	r := kbin.Reader{Src: raw}
	f := frame{key: r.Int16(), version: r.Int16(), correlation: r.Int32()}
	r.NullableString() // client id
	flexible := true
	if req := kmsg.RequestForKey(f.key); req != nil {
		req.SetVersion(f.version)
		flexible = req.IsFlexible()
	}
	if flexible {
		kmsg.SkipTags(&r)
	}
	f.body = r.Src
	return f, r.Complete()
}

func writeFrame(conn net.Conn, f frame, resp kmsg.Response) error {
	out := kbin.AppendInt32(make([]byte, 4), f.correlation)
	if resp.IsFlexible() && kmsg.Key(f.key) != kmsg.ApiVersions {
		out = append(out, 0) // no tagged fields in the header
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	_, err := conn.Write(out)
	return err
}

// kafkaAPIs are some of what an Apache Kafka without a coordinator offers;
// withOurs adds the keys and versions of this package. Produce (0) is among them
// because kgo takes a broker without it for one that has no ApiVersions, and
// sends it any key.
func kafkaAPIs() map[int16]int16 {
	return map[int16]int16{0: 13, 3: 13, 10: 6, 18: 4, 22: 5}
}

func withOurs(apis map[int16]int16) map[int16]int16 {
	for _, api := range APIs() {
		apis[api.Key] = api.MaxVersion
	}
	return apis
}

func newClient(t *testing.T, b *fakeBroker) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.MaxVersions(Versions()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// typical returns a message with the values of its typical golden case.
func typical(t *testing.T, kind messageKind) message {
	t.Helper()
	m := kind.make()
	for _, golden := range readGolden(t, kind.name) {
		if golden.Case == "typical" {
			if err := m.ReadFrom(golden.bytes(t)); err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	t.Fatalf("%s has no typical golden case", kind.name)
	return nil
}

func TestEveryMessageTravelsThroughKgo(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("all", func(t *testing.T) {
		kinds := messageKinds()
		for i := 0; i < len(kinds); i += 2 {
			t.Run(kinds[i].name, func(t *testing.T) { testTravel(t, kinds[i], kinds[i+1]) })
		}
	})
}

func testTravel(t *testing.T, requestKind, responseKind messageKind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	want := typical(t, responseKind).(kmsg.Response)
	b := startFakeBroker(t, withOurs(kafkaAPIs()), func(frame) (kmsg.Response, error) { return want, nil })
	cl := newClient(t, b)
	for path, broker := range map[string]*kgo.Broker{
		"Broker(id)":     cl.Broker(fakeNodeID),
		"SeedBrokers[0]": cl.SeedBrokers()[0],
	} {
		before := len(b.seen())
		sent := typical(t, requestKind).(kmsg.Request)
		got, err := broker.Request(ctx, sent)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: answered\n%+v\nreceived\n%+v", path, want, got)
		}
		frames := b.seen()[before:]
		if len(frames) != 1 {
			t.Fatalf("%s: %d requests on the wire", path, len(frames))
		}
		received, ok := RequestForKey(frames[0].key, frames[0].version)
		if !ok {
			t.Fatalf("%s: key %d, version %d is none of ours", path, frames[0].key, frames[0].version)
		}
		if err := received.ReadFrom(frames[0].body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !reflect.DeepEqual(received, sent) {
			t.Errorf("%s: sent\n%+v\nreceived\n%+v", path, sent, received)
		}
	}
}

func TestRequestWithGivesTheTypedResponse(t *testing.T) {
	want := NewPtrEndGlobalTxnResponse()
	want.Outcome = OutcomeCommitted
	b := startFakeBroker(t, withOurs(kafkaAPIs()), func(frame) (kmsg.Response, error) { return want, nil })
	got, err := NewPtrEndGlobalTxnRequest().RequestWith(t.Context(), newClient(t, b).SeedBrokers()[0])
	if err != nil || got.Outcome != OutcomeCommitted {
		t.Errorf("got %+v, %v", got, err)
	}
}

// requestorFunc is a kmsg.Requestor for tests.
type requestorFunc func(context.Context, kmsg.Request) (kmsg.Response, error)

func (f requestorFunc) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return f(ctx, req)
}

func TestRequestWithRefusesAnotherType(t *testing.T) {
	wrong := requestorFunc(func(context.Context, kmsg.Request) (kmsg.Response, error) {
		return NewPtrInitGlobalTxnResponse(), nil
	})
	if got, err := NewPtrEndGlobalTxnRequest().RequestWith(t.Context(), wrong); err == nil || got != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// kgo's own requests must not be sent in the versions that only our types
// know, also when the broker offers them.
func TestKgoKeepsItsOwnVersions(t *testing.T) {
	b := startFakeBroker(t, withOurs(kafkaAPIs()), func(f frame) (kmsg.Response, error) {
		req := kmsg.RequestForKey(f.key)
		req.SetVersion(f.version)
		return req.ResponseKind(), req.ReadFrom(f.body)
	})
	broker := newClient(t, b).SeedBrokers()[0]
	for _, req := range []kmsg.Request{kmsg.NewPtrFindCoordinatorRequest(), kmsg.NewPtrInitProducerIDRequest()} {
		if _, err := broker.Request(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	var got [][2]int16
	for _, f := range b.seen() {
		got = append(got, [2]int16{f.key, f.version})
	}
	if want := [][2]int16{{KeyFindCoordinator, 6}, {KeyInitProducerID, 5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("sent (key, version) %v, want %v", got, want)
	}
}

func TestPlainKafkaIsNotSentOurKeys(t *testing.T) {
	b := startFakeBroker(t, kafkaAPIs(), func(frame) (kmsg.Response, error) {
		return nil, errors.New("a request that the broker does not offer was sent")
	})
	broker := newClient(t, b).SeedBrokers()[0]
	for _, api := range APIs() {
		if api.Key < 1000 {
			continue
		}
		req, _ := RequestForKey(api.Key, api.MaxVersion)
		if _, err := broker.Request(t.Context(), req); err == nil {
			t.Errorf("%s was answered by a broker that does not offer it", api.Name)
		}
	}
	if frames := b.seen(); len(frames) != 0 {
		t.Errorf("sent %+v", frames)
	}
}

// A broker without a coordinator is asked in the version that it has, and can
// so refuse the key type instead of breaking the connection.
func TestFindCoordinatorFallsBackToTheSameLayout(t *testing.T) {
	b := startFakeBroker(t, kafkaAPIs(), func(f frame) (kmsg.Response, error) {
		if f.version != 6 {
			return nil, errors.New("sent in another version than the broker's highest")
		}
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version = f.version
		if err := req.ReadFrom(f.body); err != nil {
			return nil, err
		}
		resp := kmsg.NewPtrFindCoordinatorResponse()
		resp.Version = f.version
		for _, key := range req.CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.NodeID, c.ErrorCode = key, int32(req.CoordinatorType), 42
			resp.Coordinators = append(resp.Coordinators, c)
		}
		return resp, nil
	})
	req := NewPtrFindCoordinatorRequest()
	req.CoordinatorType = CoordinatorTypeGlobalTransaction
	req.CoordinatorKeys = []string{"id"}
	got, err := req.RequestWith(t.Context(), newClient(t, b).SeedBrokers()[0])
	if err != nil {
		t.Fatal(err)
	}
	want := []FindCoordinatorResponseCoordinator{{Key: "id", NodeID: 3, ErrorCode: 42}}
	if !reflect.DeepEqual(got.Coordinators, want) {
		t.Errorf("got %+v, want %+v", got.Coordinators, want)
	}
}

// Version 5 has no room for Enable2PC: whoever sent it would open a transaction
// that the broker ends by its age, and believe the opposite.
func TestInitProducerIDV6IsNeverSentAsVersion5(t *testing.T) {
	b := startFakeBroker(t, kafkaAPIs(), func(frame) (kmsg.Response, error) {
		return NewPtrInitProducerIDResponseV6(), nil
	})
	req := NewPtrInitProducerIDRequestV6()
	req.Enable2PC = true
	if _, err := req.RequestWith(t.Context(), newClient(t, b).SeedBrokers()[0]); err != nil {
		t.Fatal(err)
	}
	if frames := b.seen(); len(frames) != 1 || frames[0].version != 6 {
		t.Errorf("sent %+v", frames)
	}
}

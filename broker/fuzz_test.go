package broker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// FuzzRequests sends requests that are well formed and say anything, of every
// key and version, to a node with kfake and a coordinator behind it. kfake runs
// in this process: a panic of it ends the test.
func FuzzRequests(f *testing.F) {
	for _, seed := range requestSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := fuzzNode(t)
		frames := requestFrames(&entropy{data: data}, n.apis)
		n.hurlAll(t, frames)
		n.stillServes(t)
		note(t, countFrames(frames))
	})
}

// FuzzBytes sends bytes that need not be requests at all.
func FuzzBytes(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := fuzzNode(t)
		n.hurlAll(t, data)
		n.stillServes(t)
		note(t, countFrames(data))
	})
}

// countFrames counts those that a length announces and that are there.
func countFrames(data []byte) (n int) {
	for len(data) >= 4 {
		size := 4 + int64(binary.BigEndian.Uint32(data))
		n++
		if size > int64(len(data)) {
			break
		}
		data = data[size:]
	}
	return n
}

var fuzzedFrames atomic.Int64

// note leaves what this process has done so far, and its peak of memory, where
// scripts/fuzz adds it up: a fuzzer's workers have no output of their own.
func note(t *testing.T, frames int) {
	t.Helper()
	total := fuzzedFrames.Add(int64(frames))
	dir := os.Getenv("FUZZ_COUNTS")
	if dir == "" {
		return
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	peak := strings.Fields(rest)
	if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), fmt.Appendf(nil, "%d %s\n", total, peak[0]), 0o600); err != nil {
		t.Fatal(err)
	}
}

const maxFuzzRequests = 24

// fuzzed is the node that a fuzz target talks to, and what it serves.
type fuzzed struct {
	*node
	apis []kmsg.ApiVersionsResponseApiKey
}

// fuzzNode starts a node that has something: a topic, records, a group, a
// transaction.
func fuzzNode(t *testing.T) *fuzzed {
	t.Helper()
	overrides := append([]string{"max.connections=10", "socket.request.max.bytes=1000000"}, append(bothRoles, twoPhase...)...)
	n := &fuzzed{node: startNode(t, overrides, withCoordinator(echo))}
	n.apis = n.inMemory(t, apiVersionsRequest(3)).(*kmsg.ApiVersionsResponse).ApiKeys
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 5
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 2, ReplicationFactor: 1}}
	n.inMemory(t, create)
	for _, req := range filledRequests() {
		if kmsg.Key(req.Key()) == kmsg.JoinGroup || kmsg.Key(req.Key()) == kmsg.Fetch {
			continue // these wait
		}
		n.inMemory(t, req)
	}
	return n
}

// inMemory asks over a connection without a socket.
func (n *fuzzed) inMemory(t *testing.T, req kmsg.Request) kmsg.Response {
	t.Helper()
	c, err := n.front.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err = c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Write(frameOf(req, 1)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err = io.ReadFull(c, size[:]); err != nil {
		t.Fatalf("no answer to %s: %v", wire.NameForKey(req.Key()), err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err = io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	resp := req.ResponseKind()
	at := 4
	if resp.IsFlexible() && kmsg.Key(resp.Key()) != kmsg.ApiVersions {
		at++
	}
	if err = resp.ReadFrom(body[at:]); err != nil {
		t.Fatalf("the answer to %s: %v", wire.NameForKey(req.Key()), err)
	}
	return resp
}

// hurlAll writes everything at once, and reads for a moment what comes.
func (n *fuzzed) hurlAll(t *testing.T, frames []byte) {
	t.Helper()
	c, err := n.front.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	go func() { _, _ = c.Write(frames) }()
	buf := make([]byte, 1<<16)
	for {
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
			return
		}
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

func (n *fuzzed) stillServes(t *testing.T) {
	t.Helper()
	if r := n.inMemory(t, kmsg.NewPtrMetadataRequest()).(*kmsg.MetadataResponse); len(r.Brokers) != 1 {
		t.Fatalf("%d brokers", len(r.Brokers))
	}
}

// entropy makes values out of the fuzzer's bytes, rather the ones that break
// things.
type entropy struct{ data []byte }

func (e *entropy) empty() bool { return len(e.data) == 0 }

func (e *entropy) byte() byte {
	if e.empty() {
		return 0
	}
	b := e.data[0]
	e.data = e.data[1:]
	return b
}

func (e *entropy) choose(n int) int { return int(e.byte()) % n }

// requestFrames are requests one after the other, half of the time of a few keys
// only: what one leaves behind, another stumbles over.
func requestFrames(e *entropy, apis []kmsg.ApiVersionsResponseApiKey) (frames []byte) {
	if e.choose(2) == 1 {
		all := apis
		apis = nil
		for range 4 {
			apis = append(apis, all[e.choose(len(all))])
		}
	}
	for i := int32(0); i < maxFuzzRequests && !e.empty(); i++ {
		frames = append(frames, frameOf(e.request(apis), i)...)
	}
	return frames
}

// request is one of those served.
func (e *entropy) request(apis []kmsg.ApiVersionsResponseApiKey) kmsg.Request {
	k := apis[e.choose(len(apis))]
	version := k.MinVersion + int16(e.choose(int(k.MaxVersion-k.MinVersion)+1))
	req := defaultRequest(k.ApiKey, version)
	e.fill(reflect.ValueOf(req).Elem(), 0)
	req.SetVersion(version)
	return req
}

var (
	fuzzStrings = []string{"t", "g", "tid", "", "m", "consumer", "range", "0", "cleanup.policy", "compact", "delete", "uniform", "__consumer_offsets", "*", "(", "a\x00b", "\xff", strings.Repeat("x", 300)}
	fuzzInts    = []int64{0, 1, -1, 2, 3, 5, 100, 6000, 30000, -2, math.MaxInt8, math.MaxInt16, math.MaxInt16 - 1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
)

// fill sets a value and what is below it.
func (e *entropy) fill(v reflect.Value, depth int) {
	switch v.Kind() { //nolint:exhaustive // the other kinds are not in messages
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				e.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(e.bytes())
			return
		}
		n := []int{1, 0, 2, 3}[e.choose(4)]
		if e.empty() {
			n = 0
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if d := v.Index(i).Addr().MethodByName("Default"); d.IsValid() {
				d.Call(nil)
			}
			e.fill(v.Index(i), depth+1)
		}
	case reflect.Pointer:
		if e.choose(4) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		e.fill(v.Elem(), depth+1)
	case reflect.Array:
		if e.choose(2) == 0 {
			for i := range v.Len() {
				v.Index(i).SetUint(uint64(e.byte()))
			}
		}
	case reflect.String:
		v.SetString(fuzzStrings[e.choose(len(fuzzStrings))])
	case reflect.Bool:
		v.SetBool(e.byte()&1 == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(fuzzInts[e.choose(len(fuzzInts))])
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, -1, math.NaN(), math.Inf(1)}[e.choose(5)])
	}
}

func (e *entropy) bytes() []byte {
	switch e.choose(4) {
	case 0:
		return nil
	case 1:
		return batchOf(fuzzInts[e.choose(len(fuzzInts))])
	case 2:
		b := batchOf(-1)
		b[e.choose(len(b))] = e.byte()
		return b
	}
	n := min(e.choose(64), len(e.data))
	b := slices.Clone(e.data[:n])
	e.data = e.data[n:]
	return b
}

// requestSeeds begin with each key in some version.
func requestSeeds() (seeds [][]byte) {
	for key := range byte(80) {
		seed := []byte{0, key, key * 7}
		for i := range byte(60) {
			seed = append(seed, i*7+key)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

func frameSeeds() (seeds [][]byte) {
	for _, req := range filledRequests() {
		seeds = append(seeds, frameOf(req, 1))
	}
	return append(seeds, []byte("GET / HTTP/1.1\r\n\r\n"), []byte{0xff, 0xff, 0xff, 0xff}, []byte{0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 0, 1})
}

package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// allAPIs serves every key and version that can be parsed.
func allAPIs() apiTable {
	t := make(apiTable)
	for key := range int16(100) {
		if r := kmsg.RequestForKey(key); r != nil {
			t[key] = versionRange{0, r.MaxVersion()}
		}
	}
	for _, api := range wire.APIs() {
		t[api.Key] = versionRange{t[api.Key].min, api.MaxVersion}
	}
	return t
}

func noDeadline() error { return nil }

func noReserve(int, int16) error { return nil }

// FuzzFrame feeds the whole way that bytes of a stranger take before anything
// serves them.
func FuzzFrame(f *testing.F) {
	apis := allAPIs()
	for key, r := range apis {
		for version := r.min; version <= r.max; version++ {
			req, ours := wire.RequestForKey(key, version)
			if !ours {
				req = kmsg.RequestForKey(key)
				req.SetVersion(version)
			}
			f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, 1))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, err := readFrame(bufio.NewReader(bytes.NewReader(in)), nil, 1<<20, noDeadline, noReserve)
		if err != nil {
			return
		}
		if !bytes.Equal(raw, in[:len(raw)]) || len(raw) != sizeBytes+int(binary.BigEndian.Uint32(raw)) {
			t.Fatalf("the frame is not what came: % x of % x", raw, in)
		}
		req, err := parseRequest(raw, apis)
		if err != nil {
			if _, ok := errors.AsType[*frameError](err); !ok {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if req.body == nil {
			if req.key != apiVersionsKey {
				t.Fatalf("no body of key %d", req.key)
			}
			return
		}
		if req.body.Key() != req.key || req.body.GetVersion() != req.version {
			t.Fatalf("key %d version %d parsed as %d version %d", req.key, req.version, req.body.Key(), req.body.GetVersion())
		}
		again, err := parseRequest(req.withBody(req.body), apis)
		if err != nil {
			t.Fatalf("what was parsed and written does not parse: %v", err)
		}
		if again.correlationID != req.correlationID {
			t.Fatalf("correlation id %d became %d", req.correlationID, again.correlationID)
		}
	})
}

func TestAFrameIsAllocatedAsItArrives(t *testing.T) {
	in := append([]byte{0x06, 0x40, 0, 0}, make([]byte, 100_000)...) // 100 MiB announced
	allocated := testing.AllocsPerRun(1, func() {
		raw, err := readFrame(bufio.NewReader(bytes.NewReader(in)), nil, 100<<20, noDeadline, noReserve)
		if !errors.Is(err, io.ErrUnexpectedEOF) || raw != nil {
			t.Errorf("%d bytes, %v", len(raw), err)
		}
	})
	if allocated > 50 {
		t.Errorf("%v allocations", allocated)
	}
	var largest int
	waits := 0
	_, err := readFrame(bufio.NewReader(bytes.NewReader(in)), nil, 100<<20, func() error { waits++; return nil }, noReserve)
	if largest = waits * chunkBytes; largest > 4*chunkBytes || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("room for %d bytes was made for 100000: %v", largest, err)
	}
}

func TestOnlyProduceMayBeLarge(t *testing.T) {
	for key, allowed := range map[int16]bool{int16(kmsg.Produce): true, int16(kmsg.Metadata): false, wire.KeyEndGlobalTxn: false} {
		in := binary.BigEndian.AppendUint32(nil, maxControlBytes+1)
		in = binary.BigEndian.AppendUint16(in, uint16(key))
		in = append(in, make([]byte, maxControlBytes-1)...)
		_, err := readFrame(bufio.NewReader(bytes.NewReader(in)), nil, 100<<20, noDeadline, noReserve)
		if (err == nil) != allowed {
			t.Errorf("key %d: %v", key, err)
		}
	}
}

// Six bytes name a partition; three million of them took nine seconds and two
// gigabytes.
func TestProduceOfVeryManyTopicsOrPartitionsIsRefused(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		for name, shape := range map[string]struct{ topics, each int }{
			"topics": {maxElements, 0}, "partitions": {1, maxElements - 1}, "both": {maxElements / 2, 1},
		} {
			req := kmsg.NewPtrProduceRequest()
			req.Version, req.TransactionID = version, kmsg.StringPtr("t")
			parses := func() error {
				_, err := parseRequest(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1), allAPIs())
				return err
			}
			for range shape.topics {
				topic := kmsg.NewProduceRequestTopic()
				topic.Topic = "t"
				topic.Partitions = make([]kmsg.ProduceRequestTopicPartition, shape.each)
				topic.UnknownTags.Set(7, []byte("tag"))
				req.Topics = append(req.Topics, topic)
			}
			if err := parses(); err != nil {
				t.Errorf("version %d, %s: %v", version, name, err)
			}
			last := &req.Topics[len(req.Topics)-1]
			last.Partitions = append(last.Partitions, kmsg.ProduceRequestTopicPartition{Records: []byte("r")})
			if err := parses(); err == nil {
				t.Errorf("version %d: one more than %d %s is accepted", version, maxElements, name)
			}
		}
	}
}

func TestARequestOfVeryManyElementsIsRefused(t *testing.T) {
	topics := func(n int) error {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = 9, make([]kmsg.MetadataRequestTopic, n)
		for i := range req.Topics {
			req.Topics[i].Topic = kmsg.StringPtr("t")
		}
		_, err := parseRequest(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1), allAPIs())
		return err
	}
	if err := topics(maxElements); err != nil {
		t.Errorf("%d: %v", maxElements, err)
	}
	if err := topics(maxElements + 1); err == nil {
		t.Errorf("%d: accepted", maxElements+1)
	}
	groups := kmsg.NewPtrOffsetFetchRequest()
	groups.Version = 8
	for range 300 {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: make([]int32, 100)}}
		groups.Groups = append(groups.Groups, g)
	}
	if _, err := parseRequest(kmsg.NewRequestFormatter().AppendRequest(nil, groups, 1), allAPIs()); err == nil {
		t.Error("30000 partitions in 300 groups: accepted")
	}
}

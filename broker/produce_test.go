package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/kafka-gtc/kafka-gtc/broker/internal/batchtest"
)

// to is the records for one partition of a Produce.
type to struct {
	topic     string
	partition int32
	records   []byte
}

func produceRequest(version, acks int16, all ...to) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 5000
	for _, one := range all {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = one.partition, one.records
		at := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == one.topic })
		if at < 0 {
			t := kmsg.NewProduceRequestTopic()
			t.Topic = one.topic
			req.Topics, at = append(req.Topics, t), len(req.Topics)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	return req
}

// put produces one batch and gives its answer.
func (r *raw) put(topic string, records []byte) kmsg.ProduceResponseTopicPartition {
	r.t.Helper()
	resp := ask[*kmsg.ProduceResponse](r.t, r, produceRequest(12, -1, to{topic, 0, records}))
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		r.t.Fatalf("the answer for one partition: %+v", resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// fetched is the partition as it is kept: its batches by their offsets.
func (r *raw) fetched(topic string) (batches map[int64][]byte, highWatermark int64) {
	r.t.Helper()
	return r.fetchedFrom(topic, 0)
}

func (r *raw) fetchedFrom(topic string, partition int32) (batches map[int64][]byte, highWatermark int64) {
	r.t.Helper()
	batches = make(map[int64][]byte)
	for at := int64(0); ; {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxBytes = 12, math.MaxInt32
		t := kmsg.NewFetchRequestTopic()
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, at, math.MaxInt32
		t.Topic, t.Partitions = topic, append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		got := ask[*kmsg.FetchResponse](r.t, r, req).Topics[0].Partitions[0]
		if got.ErrorCode != 0 {
			r.t.Fatalf("fetching %s at %d: %v", topic, at, kerr.ErrorForCode(got.ErrorCode))
		}
		for b := got.RecordBatches; len(b) > 0; {
			size := 12 + binary.BigEndian.Uint32(b[8:])
			batches[int64(binary.BigEndian.Uint64(b))] = b[:size]
			at = int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:])) + 1
			b = b[size:]
		}
		if at >= got.HighWatermark {
			return batches, got.HighWatermark
		}
	}
}

// killed starts a node on what one that is killed now would leave.
func killed(t *testing.T, dir string) *node {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return startNode(t, []string{"log.dirs=" + left})
}

// One Produce kept a node from starting again, and moved the high watermark back
// over acknowledged records of others.
func TestABatchThatCannotBeReadAgainIsRefused(t *testing.T) {
	num := func(n, last int32) []byte {
		return batchtest.Plain(1).With(func(f *batchtest.Form) { f.NumRecords, f.LastOffsetDelta, f.Records = n, last, nil }).Raw()
	}
	attributes := func(a int16) []byte {
		return batchtest.Plain(1).With(func(f *batchtest.Form) { f.Attributes = a }).Raw()
	}
	at := func(ts int64) []byte {
		return batchtest.Plain(1).With(func(f *batchtest.Form) { f.FirstTimestamp, f.MaxTimestamp = ts, ts }).Raw()
	}
	garbage := bytes.Repeat([]byte("garbage."), 12)
	dir := t.TempDir()
	n := startNode(t, []string{"log.dirs=" + dir})
	createTopic(t, n.client(t), "t")
	c, good, acknowledged := n.dial(t), batchtest.Plain(3).Raw(), int64(0)
	for _, bad := range []struct {
		name    string
		records []byte
		want    *kerr.Error
	}{
		{"LogAppendTime", attributes(0x08), kerr.InvalidTimestamp},
		{"control", attributes(0x20), kerr.InvalidRecord},
		{"delete horizon", attributes(0x40), kerr.InvalidRecord},
		{"delete horizon and LogAppendTime", attributes(0x48), kerr.InvalidTimestamp},
		{"minus five records", num(-5, -6), kerr.InvalidRecord},
		{"minus one record", num(-1, -2), kerr.InvalidRecord},
		{"no records", num(0, -1), kerr.InvalidRecord},
		{"as few as can be said", num(math.MinInt32, math.MaxInt32), kerr.InvalidRecord},
		{"two less than nothing", num(-math.MaxInt32, math.MinInt32), kerr.InvalidRecord},
		{"as many as can be said", num(math.MaxInt32, math.MaxInt32-1), kerr.InvalidRecord},
		{"a million of none", num(1e6, 1e6-1), kerr.InvalidRecord},
		{"the beginning of time", at(math.MinInt64), kerr.InvalidTimestamp},
		{"the end of time", at(math.MaxInt64), kerr.InvalidTimestamp},
		{"gzip", batchtest.Plain(1).Compressed(kgo.CodecGzip, garbage).Raw(), kerr.InvalidRecord},
		{"snappy", batchtest.Plain(1).Compressed(kgo.CodecSnappy, garbage).Raw(), kerr.InvalidRecord},
		{"lz4", batchtest.Plain(1).Compressed(kgo.CodecLz4, garbage).Raw(), kerr.InvalidRecord},
		{"zstd", batchtest.Plain(1).Compressed(kgo.CodecZstd, garbage).Raw(), kerr.InvalidRecord},
		{"a bomb", batchtest.Plain(1).Compressed(kgo.CodecGzip, batchtest.Compress(kgo.CodecGzip, make([]byte, 64<<20))).Raw(), kerr.InvalidRecord},
		{"a bomb of one record", batchtest.Plain(1).Compressed(kgo.CodecZstd, batchtest.Compress(kgo.CodecZstd,
			batchtest.Record(nil, kmsg.Record{Value: make([]byte, 20<<20)}))).Raw(), kerr.MessageTooLarge},
		{"two batches", append(batchtest.Plain(1).Raw(), batchtest.Plain(1).Raw()...), kerr.InvalidRecord},
		{"nothing", nil, kerr.InvalidRecord},
	} {
		got := c.put("t", bad.records)
		if got.ErrorCode != bad.want.Code || got.BaseOffset != -1 || got.ErrorMessage == nil {
			t.Errorf("%s: %v, offset %d; want %v and a reason", bad.name, kerr.ErrorForCode(got.ErrorCode), got.BaseOffset, bad.want)
		}
		if got = c.put("t", good); got.ErrorCode != 0 || got.BaseOffset != acknowledged {
			t.Errorf("a batch after %s: %v, offset %d; want %d", bad.name, kerr.ErrorForCode(got.ErrorCode), got.BaseOffset, acknowledged)
		}
		acknowledged += 3
	}
	reads := func(how string, n *node) {
		batches, end := n.dial(t).fetched("t")
		if end != acknowledged || len(batches) != int(acknowledged/3) {
			t.Errorf("%s: %d batches up to %d, want %d up to %d", how, len(batches), end, acknowledged/3, acknowledged)
		}
	}
	reads("before", n)
	reads("after a kill", killed(t, dir))
	n.stop()
	reads("after a stop", startNode(t, []string{"log.dirs=" + dir}))
}

// Whatever is acknowledged is there after a kill, byte for byte, and every client
// can read it.
func TestEveryAcknowledgedBatchIsThereAfterAKill(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, []string{"log.dirs=" + dir})
	createTopic(t, n.client(t), "t")
	c := n.dial(t)
	sent := make(map[int64][]byte)
	records := 0
	rapid.Check(t, func(rt *rapid.T) {
		for range 10 {
			raw := batchtest.Draw(rt)
			if got := c.put("t", raw); got.ErrorCode == 0 {
				sent[got.BaseOffset] = raw
				records += int(binary.BigEndian.Uint32(raw[57:]))
			}
		}
	})
	if len(sent) == 0 {
		t.Fatal("none was acknowledged")
	}
	again := killed(t, dir)
	have, end := again.dial(t).fetched("t")
	if len(have) != len(sent) || end != int64(records) {
		t.Errorf("%d batches up to %d; want %d up to %d", len(have), end, len(sent), records)
	}
	for offset, raw := range sent {
		if !bytes.Equal(have[offset][16:], raw[16:]) { // what the broker does not write itself
			t.Errorf("the batch at %d is another one", offset)
		}
	}
	// Batches that say that they are transactional never ended.
	cl := again.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for next := int64(0); next < end; {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != next {
				t.Fatalf("offset %d comes after %d", r.Offset, next-1)
			}
			next++
		})
	}
	// By time, kfake opens the batches itself.
	if _, err := kadm.NewClient(cl).ListOffsetsAfterMilli(t.Context(), 1, "t"); err != nil {
		t.Error(err)
	}
	if _, err := kadm.NewClient(cl).ListMaxTimestampOffsets(t.Context(), "t"); err != nil {
		t.Error(err)
	}
}

func TestOnePartitionIsRefusedAndTheOthersAreStored(t *testing.T) {
	n := startNode(t, nil)
	adm := kadm.NewClient(n.client(t))
	if _, err := adm.CreateTopics(t.Context(), 3, 1, nil, "t", "u"); err != nil {
		t.Fatal(err)
	}
	details, err := adm.ListTopics(t.Context(), "t", "u")
	if err != nil {
		t.Fatal(err)
	}
	good, bad := batchtest.Plain(2).Raw(), batchtest.Plain(2).With(func(f *batchtest.Form) { f.NumRecords = -5 }).Raw()
	c := n.dial(t)
	for version := int16(3); version <= 13; version++ {
		req := produceRequest(version, 1, to{"t", 0, good}, to{"t", 1, bad}, to{"t", 2, good}, to{"u", 0, bad}, to{"v", 0, good}, to{"v", 1, bad})
		if version >= 13 {
			for i := range req.Topics {
				req.Topics[i].TopicID = details[req.Topics[i].Topic].ID
			}
		}
		got := make(map[string]int16)
		for _, topic := range ask[*kmsg.ProduceResponse](t, c, req).Topics {
			name := topic.Topic
			for _, d := range details {
				if version >= 13 && d.ID == topic.TopicID {
					name = d.Topic
				}
			}
			for _, p := range topic.Partitions {
				key := fmt.Sprintf("%s-%d", name, p.Partition)
				if _, twice := got[key]; twice {
					t.Errorf("version %d: two answers for %s", version, key)
				}
				got[key] = p.ErrorCode
			}
		}
		unknown := kerr.UnknownTopicOrPartition.Code
		v := "v"
		if version >= 13 {
			unknown, v = kerr.UnknownTopicID.Code, ""
		}
		want := map[string]int16{
			"t-0": 0, "t-1": kerr.InvalidRecord.Code, "t-2": 0, "u-0": kerr.InvalidRecord.Code,
			v + "-0": unknown, v + "-1": kerr.InvalidRecord.Code,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("version %d: %v, want %v", version, got, want)
		}
	}
	if _, end := c.fetched("t"); end != 22 {
		t.Errorf("t has %d records, want 22", end)
	}
}

// kfake forces each batch by itself, in the loop that serves everybody.
func TestAPartitionThatComesTwiceIsStoredOnce(t *testing.T) {
	n := startNode(t, nil)
	createTopic(t, n.client(t), "t")
	c, good := n.dial(t), batchtest.Plain(1).Raw()
	req := produceRequest(12, -1, to{"t", 0, good}, to{"t", 0, good})
	req.Topics = append(req.Topics, req.Topics[0])
	var codes []int16
	for _, topic := range ask[*kmsg.ProduceResponse](t, c, req).Topics {
		for _, p := range topic.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	slices.Sort(codes)
	twice := kerr.InvalidRequest.Code
	if want := []int16{0, twice, twice, twice}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
	if _, end := c.fetched("t"); end != 1 {
		t.Errorf("t has %d records, want 1", end)
	}
}

func TestABadBatchWithoutAcksEndsTheConnection(t *testing.T) {
	n := startNode(t, nil)
	createTopic(t, n.client(t), "t")
	good, bad := batchtest.Plain(1).Raw(), batchtest.Plain(1).With(func(f *batchtest.Form) { f.Checksum = 1 }).Raw()
	for name, all := range map[string][]to{"alone": {{"t", 0, bad}}, "beside a good one": {{"t", 0, good}, {"u", 0, bad}}} {
		c := n.dial(t)
		c.send(frameOf(produceRequest(12, 0, to{"t", 0, good}), 1))
		ask[*kmsg.MetadataResponse](t, c, kmsg.NewPtrMetadataRequest())
		c.send(frameOf(produceRequest(12, 0, all...), 1))
		if !c.ended() {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	if _, end := n.dial(t).fetched("t"); end != 2 {
		t.Errorf("t has %d records, want 2", end)
	}
}

// Who may not write learns nothing of what is wrong with a batch, and has nothing
// opened.
func TestRightsAreAskedBeforeABatchIsLookedAt(t *testing.T) {
	n := startSecure(t, guarded)
	adm := kadm.NewClient(n.client(t, 0, asAdmin))
	if _, err := adm.CreateTopics(t.Context(), 1, 1, nil, "orders", "other"); err != nil {
		t.Fatal(err)
	}
	details, err := adm.ListTopics(t.Context(), "orders", "other")
	if err != nil {
		t.Fatal(err)
	}
	allowAlice(t, n, kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).Topics("orders").Operations(kadm.OpWrite))
	bad := batchtest.Plain(1).With(func(f *batchtest.Form) { f.NumRecords = 7 }).Raw()
	for _, version := range []int16{9, 12, 13} {
		c := dialRaw(t, n.addrs[0])
		handshake(t, c, "SCRAM-SHA-256")
		if last := scramOver(t, c, "alice", "alice-secret"); last.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(last.ErrorCode))
		}
		req := produceRequest(version, -1, to{"orders", 0, bad}, to{"other", 0, bad})
		for i := range req.Topics {
			req.Topics[i].TopicID = details[req.Topics[i].Topic].ID
		}
		got := make(map[int16]int)
		for _, topic := range ask[*kmsg.ProduceResponse](t, c, req).Topics {
			for _, p := range topic.Partitions {
				got[p.ErrorCode]++
			}
		}
		if len(got) != 2 || got[kerr.InvalidRecord.Code] != 1 || got[kerr.TopicAuthorizationFailed.Code] != 1 {
			t.Errorf("version %d: %v", version, got)
		}
	}
}

// BenchmarkProduce is a Produce of 16 KiB through the front, to a broker in memory.
func BenchmarkProduce(b *testing.B) {
	f := batchtest.Plain(0)
	for i := range int32(145) {
		f.Records = batchtest.Record(f.Records, kmsg.Record{OffsetDelta: i, Value: bytes.Repeat([]byte{byte(i)}, 105)})
	}
	f.NumRecords, f.LastOffsetDelta = 145, 144
	for _, kind := range []kgo.CompressionCodecType{kgo.CodecNone, kgo.CodecLz4, kgo.CodecZstd} {
		b.Run([]string{"none", "gzip", "snappy", "lz4", "zstd"}[kind], func(b *testing.B) {
			n := startNode(b, nil)
			createTopic(b, n.client(b), "t")
			c := n.dial(b)
			frame := frameOf(produceRequest(12, -1, to{"t", 0, f.Compressed(kind, batchtest.Compress(kind, f.Records)).Raw()}), 1)
			for b.Loop() {
				c.send(frame)
				if _, _, err := c.receive(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

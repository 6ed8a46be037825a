package durable_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	unlimited = 1<<31 - 1
	group     = "g"
)

// rawClient sends single requests and retries nothing.
type rawClient struct {
	cl *kgo.Client
	v4 bool // speaks as a client before KIP-890
	id [16]byte
}

func newRawClient(addr string, v4 bool) (*rawClient, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.DialTimeout(2 * time.Second)}
	if v4 {
		old := kversion.V3_7_0()
		old.SetMaxKeyVersion(int16(kmsg.AddPartitionsToTxn), 3) // later ones are for brokers
		opts = append(opts, kgo.MaxVersions(old))
	}
	cl, err := kgo.NewClient(opts...)
	return &rawClient{cl: cl, v4: v4}, err
}

func dial(t *testing.T, addr string, v4 bool) *rawClient {
	t.Helper()
	c, err := newRawClient(addr, v4)
	must(t, err)
	t.Cleanup(c.cl.Close)
	return c
}

func send[R kmsg.Response](ctx context.Context, c *rawClient, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return resp.(R), nil
}

// txn is a transactional producer as the client sees it.
type txn struct {
	id    string
	pid   int64
	epoch int16
	seq   map[int32]int32 // by partition of topic t
}

func (c *rawClient) init(ctx context.Context, id string, timeout int32) (*txn, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, timeout
	resp, err := send[*kmsg.InitProducerIDResponse](ctx, c, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	return &txn{id: id, pid: resp.ProducerID, epoch: resp.ProducerEpoch, seq: make(map[int32]int32)}, nil
}

// initIdempotent gives a producer without a transactional id; its epoch is
// shown negative, which recordBatch takes for "not transactional".
func (c *rawClient) initIdempotent(ctx context.Context) (*txn, error) {
	resp, err := send[*kmsg.InitProducerIDResponse](ctx, c, kmsg.NewPtrInitProducerIDRequest())
	if err != nil {
		return nil, err
	}
	return &txn{pid: resp.ProducerID, epoch: -1 - resp.ProducerEpoch, seq: make(map[int32]int32)}, kerr.ErrorForCode(resp.ErrorCode)
}

// produce writes values as one batch with the sequence number seq.
func (c *rawClient) produce(ctx context.Context, x *txn, partition, seq int32, values ...string) (int64, error) {
	if c.v4 {
		add := kmsg.NewPtrAddPartitionsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch = x.id, x.pid, x.epoch
		at := kmsg.NewAddPartitionsToTxnRequestTopic()
		at.Topic, at.Partitions = "t", []int32{partition}
		add.Topics = append(add.Topics, at)
		resp, err := send[*kmsg.AddPartitionsToTxnResponse](ctx, c, add)
		if err != nil {
			return 0, err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
			return 0, err
		}
	}
	if c.id == [16]byte{} {
		meta, err := send[*kmsg.MetadataResponse](ctx, c, kmsg.NewPtrMetadataRequest())
		if err != nil {
			return 0, err
		}
		for _, t := range meta.Topics {
			if *t.Topic == "t" {
				c.id = t.TopicID
			}
		}
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	if x.id != "" {
		req.TransactionID = &x.id
	}
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = "t", c.id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, recordBatch(x.pid, x.epoch, seq, values)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := send[*kmsg.ProduceResponse](ctx, c, req)
	if err != nil {
		return 0, err
	}
	p := resp.Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// write is produce with the next sequence number.
func (c *rawClient) write(t *testing.T, x *txn, partition int32, values ...string) int64 {
	t.Helper()
	offset, err := c.produce(t.Context(), x, partition, x.seq[partition], values...)
	must(t, err)
	x.seq[partition] += int32(len(values))
	return offset
}

// stage commits an offset of topic source, partition 0, in the transaction.
func (c *rawClient) stage(ctx context.Context, x *txn, group string, offset int64) error {
	if c.v4 {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = x.id, x.pid, x.epoch, group
		resp, err := send[*kmsg.AddOffsetsToTxnResponse](ctx, c, add)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
	}
	meta, err := send[*kmsg.MetadataResponse](ctx, c, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = x.id, x.pid, x.epoch, group
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = "source"
	for _, t := range meta.Topics {
		if *t.Topic == rt.Topic {
			rt.TopicID = t.TopicID
		}
	}
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset, rp.LeaderEpoch, rp.Metadata = offset, 0, kmsg.StringPtr("note")
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := send[*kmsg.TxnOffsetCommitResponse](ctx, c, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// end sends one EndTxn and, when it is accepted, moves x on.
func (c *rawClient) end(ctx context.Context, x *txn, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.pid, x.epoch, commit
	resp, err := send[*kmsg.EndTxnResponse](ctx, c, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil || c.v4 {
		return err
	}
	if resp.ProducerID < 0 {
		return fmt.Errorf("EndTxn v%d of %s at epoch %d was accepted without a producer id", resp.Version, x.id, x.epoch)
	}
	x.pid, x.epoch = resp.ProducerID, resp.ProducerEpoch
	clear(x.seq)
	return nil
}

func (c *rawClient) describe(t *testing.T, id string) kmsg.DescribeTransactionsResponseTransactionState {
	t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := send[*kmsg.DescribeTransactionsResponse](t.Context(), c, req)
	must(t, err)
	return resp.TransactionStates[0]
}

// offsets gives the end of a partition for the isolation level.
func (c *rawClient) endOffset(t *testing.T, partition int32, isolation int8) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := send[*kmsg.ListOffsetsResponse](t.Context(), c, req)
	must(t, err)
	must(t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
	return resp.Topics[0].Partitions[0].Offset
}

// committed gives the group's offset of topic source, -1 for none.
func (c *rawClient) committed(t *testing.T, group string) int64 {
	t.Helper()
	old := &rawClient{cl: c.cl}
	req := kmsg.NewPtrOffsetFetchRequest()
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = group
	req.Group, req.Groups = group, append(req.Groups, rg)
	resp, err := send[*kmsg.OffsetFetchResponse](t.Context(), old, req)
	must(t, err)
	for _, g := range resp.Groups {
		for _, topic := range g.Topics {
			return topic.Partitions[0].Offset
		}
	}
	for _, topic := range resp.Topics {
		return topic.Partitions[0].Offset
	}
	return -1
}

// readCommitted reads a partition of topic t up to its last stable offset, which
// must be its end, and gives the values that a read_committed consumer shows.
// It fetches and decodes with segmentio/kafka-go, whose own Reader shows
// control records and aborted ones too, and filters as Kafka's consumer does.
func readCommitted(t *testing.T, addr string, partition int32) []string {
	t.Helper()
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	must(t, err)
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var values []string
	for offset := int64(0); ; {
		resp, err := transport.RoundTrip(ctx, tcp, &fetch.Request{
			ReplicaID: -1, MaxWaitTime: 100, MinBytes: 1, MaxBytes: 1 << 20, IsolationLevel: 1, SessionEpoch: -1,
			Topics: []fetch.RequestTopic{{Topic: "t", Partitions: []fetch.RequestPartition{{
				Partition: partition, CurrentLeaderEpoch: -1, FetchOffset: offset, PartitionMaxBytes: 1 << 20,
			}}}},
		})
		must(t, err)
		p := resp.(*fetch.Response).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LastStableOffset != p.HighWatermark {
			t.Fatalf("partition %d: error %d, last stable offset %d of %d", partition, p.ErrorCode, p.LastStableOffset, p.HighWatermark)
		}
		if offset >= p.LastStableOffset {
			return values
		}
		var shown []string
		shown, offset = consume(t, p, offset)
		values = append(values, shown...)
	}
}

// consume filters one fetch answer: an aborted transaction begins where the
// answer says and ends at its control record.
func consume(t *testing.T, p fetch.ResponsePartition, from int64) (values []string, next int64) {
	t.Helper()
	pending := slices.SortedFunc(slices.Values(p.AbortedTransactions), func(a, b fetch.ResponseTransaction) int {
		return int(a.FirstOffset - b.FirstOffset)
	})
	aborted := make(map[int64]bool)
	for _, part := range p.RecordSet.Records.(*protocol.RecordStream).Records {
		if control, ok := part.(*protocol.ControlBatch); ok {
			next = control.BaseOffset + 1
			delete(aborted, control.ProducerID)
			continue
		}
		b := part.(*protocol.RecordBatch)
		for {
			record, err := b.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			next = record.Offset + 1
			for len(pending) > 0 && pending[0].FirstOffset <= record.Offset {
				aborted[pending[0].ProducerID] = true
				pending = pending[1:]
			}
			if record.Offset < from || aborted[b.ProducerID] && b.Attributes.Transactional() {
				continue
			}
			value, err := protocol.ReadAll(record.Value)
			must(t, err)
			values = append(values, string(value))
		}
	}
	return values, next
}

func wantValues(t *testing.T, addr string, partition int32, want ...string) {
	t.Helper()
	if got := readCommitted(t, addr, partition); !slices.Equal(got, want) {
		t.Errorf("partition %d shows %q, want %q", partition, got, want)
	}
}

func recordBatch(pid int64, epoch int16, seq int32, values []string) []byte {
	now := time.Now().UnixMilli()
	rb := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1 << 4,
		LastOffsetDelta: int32(len(values) - 1), NumRecords: int32(len(values)),
		FirstTimestamp: now, MaxTimestamp: now, ProducerID: pid, ProducerEpoch: epoch, FirstSequence: seq,
	}
	if epoch < 0 {
		rb.Attributes, rb.ProducerEpoch = 0, -1-epoch
	}
	for i, v := range values {
		rec := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		body := rec.AppendTo(nil)
		rec.Length = int32(len(body) - 1)
		rb.Records = rec.AppendTo(rb.Records)
	}
	rb.Length = int32(len(rb.AppendTo(nil)) - 12)
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files[path] = string(raw)
		return err
	}))
	return files
}

func differing(a, b map[string]string) []string {
	var names []string
	for name, v := range a {
		if b[name] != v {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

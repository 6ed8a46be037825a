package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// world is what a client may expect of a node: facts by name, and where each
// transactional producer stands.
type world struct {
	facts     map[string]string
	producers map[string]*producerState
}

// producerState is a transactional producer and its transaction. What it has
// written are facts once it commits.
type producerState struct {
	known   bool
	pid     int64
	epoch   int16
	writes  map[string]string
	offsets map[string]string
}

func newWorld() *world {
	return &world{facts: make(map[string]string), producers: make(map[string]*producerState)}
}

func (w *world) producer(id string) *producerState {
	p := w.producers[id]
	if p == nil {
		p = &producerState{pid: -1, epoch: -1, writes: make(map[string]string), offsets: make(map[string]string)}
		w.producers[id] = p
	}
	return p
}

func (p *producerState) open() bool { return len(p.writes)+len(p.offsets) > 0 }

// end is the end of the transaction of p.
func (w *world) end(p *producerState, commit bool) {
	if commit {
		maps.Copy(w.facts, p.writes)
		maps.Copy(w.facts, p.offsets)
	}
	clear(p.writes)
	clear(p.offsets)
}

// forget takes all facts away whose names begin with prefix.
func (w *world) forget(prefix string) {
	maps.DeleteFunc(w.facts, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
}

// step is one thing that was asked of the node.
type step struct {
	name        string
	asked, told time.Time
	change      func(*world)
	// Of a transaction, the end: all that change changes is changed together.
	id     string
	ends   bool
	commit bool
	v4     bool
}

// isV4 says that an id's producer speaks as one before KIP-890.
func isV4(id string) bool { return strings.HasPrefix(id, "old") }

// wireClient sends single requests and retries nothing.
type wireClient struct {
	conn net.Conn
	in   *bufio.Reader
	seq  map[string]int32 // by producer, epoch and partition
}

func newWireClient(conn net.Conn) *wireClient {
	return &wireClient{conn: conn, in: bufio.NewReader(conn), seq: make(map[string]int32)}
}

func oneRequest[R kmsg.Response](c *wireClient, version int16, req kmsg.Request) (resp R, err error) {
	req.SetVersion(version)
	if err = c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return resp, err
	}
	if _, err = c.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 7)); err != nil {
		return resp, err
	}
	var size [4]byte
	if _, err = io.ReadFull(c.in, size[:]); err != nil {
		return resp, fmt.Errorf("no answer to %s: %w", wire.NameForKey(req.Key()), err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err = io.ReadFull(c.in, frame); err != nil {
		return resp, err
	}
	body := frame[4:]
	answer := req.ResponseKind()
	if answer.IsFlexible() && answer.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	return answer.(R), answer.ReadFrom(body)
}

func (c *wireClient) init(id string) (*kmsg.InitProducerIDResponse, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 1<<31-1
	resp, err := oneRequest[*kmsg.InitProducerIDResponse](c, 4, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return resp, err
}

// write produces one record; p is nil outside of transactions.
func (c *wireClient) write(id string, p *producerState, topic string, partition int32, value string) error {
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1,
		FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(),
	}
	record := kmsg.Record{Value: []byte(value)}
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	batch.Records = record.AppendTo(nil)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	version, sequence := int16(12), ""
	if p != nil {
		sequence = fmt.Sprint(p.pid, p.epoch, topic, partition)
		batch.ProducerID, batch.ProducerEpoch, batch.Attributes, batch.FirstSequence = p.pid, p.epoch, 1<<4, c.seq[sequence]
		req.TransactionID = &id
		if isV4(id) {
			version = 11
			if err := c.addPartition(id, p, topic, partition); err != nil {
				return err
			}
		}
	}
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	t, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	t.Topic, t.Partitions = topic, append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	resp, err := oneRequest[*kmsg.ProduceResponse](c, version, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err == nil && p != nil {
		c.seq[sequence]++
	}
	return err
}

func (c *wireClient) addPartition(id string, p *producerState, topic string, partition int32) error {
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, p.pid, p.epoch
	at := kmsg.NewAddPartitionsToTxnRequestTopic()
	at.Topic, at.Partitions = topic, []int32{partition}
	add.Topics = append(add.Topics, at)
	resp, err := oneRequest[*kmsg.AddPartitionsToTxnResponse](c, 3, add)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	return err
}

// stage commits an offset of the first partition of a topic in the transaction.
func (c *wireClient) stage(id string, p *producerState, group, topic string, offset int64) error {
	version := int16(5)
	if isV4(id) {
		version = 4
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, p.pid, p.epoch, group
		resp, err := oneRequest[*kmsg.AddOffsetsToTxnResponse](c, 3, add)
		if err = errors.Join(err, kerr.ErrorForCode(resp.ErrorCode)); err != nil {
			return err
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = id, p.pid, p.epoch, group, -1
	t, rp := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	t.Topic, t.Partitions = topic, append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	resp, err := oneRequest[*kmsg.TxnOffsetCommitResponse](c, version, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	return err
}

func (c *wireClient) end(id string, pid int64, epoch int16, commit bool) (*kmsg.EndTxnResponse, error) {
	version := int16(5)
	if isV4(id) {
		version = 4
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, pid, epoch, commit
	resp, err := oneRequest[*kmsg.EndTxnResponse](c, version, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return resp, err
}

// powerLoad is a client that asks for one thing after the other, and writes down
// when it asked and was told.
type powerLoad struct {
	rng   *rand.Rand
	c     *wireClient
	id    string // of the cluster
	w     *world
	steps []step
	n     int
}

// do asks, and fails unless the node does it.
func (l *powerLoad) do(s step, request func() error) error {
	s.asked = time.Now()
	if err := request(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.told = time.Now()
	s.change(l.w)
	l.steps = append(l.steps, s)
	return nil
}

func (l *powerLoad) fresh(prefix string) string { l.n++; return fmt.Sprint(prefix, l.n) }

// transaction does the next thing of a random producer.
func (l *powerLoad) transaction() error {
	id := []string{"new-a", "new-b", "old-a", "old-b"}[l.rng.IntN(4)]
	p := l.w.producer(id)
	switch n := l.rng.IntN(20); {
	case !p.known || n == 0:
		return l.initTransaction(id)
	case p.open() && n < 7:
		return l.endTransaction(id, l.rng.IntN(3) > 0)
	case n < 9:
		l.n++
		offset := int64(l.n)
		return l.do(step{name: "stage " + id, id: id, change: func(w *world) {
			w.producer(id).offsets["offset "+id+" t/0"] = fmt.Sprint(offset)
		}}, func() error { return l.c.stage(id, p, id, "t", offset) })
	}
	partition, value := int32(l.rng.IntN(3)), l.fresh(id+"-")
	return l.do(step{name: fmt.Sprint("write ", id, " ", partition), id: id, change: func(w *world) {
		w.producer(id).writes[fmt.Sprintf("record t/%d %s", partition, value)] = "there"
	}}, func() error { return l.c.write(id, p, "t", partition, value) })
}

func (l *powerLoad) initTransaction(id string) error {
	var resp *kmsg.InitProducerIDResponse
	return l.do(step{name: "init " + id, id: id, ends: true, change: func(w *world) {
		p := w.producer(id)
		w.end(p, false)
		p.known, p.pid, p.epoch = true, resp.ProducerID, resp.ProducerEpoch
	}}, func() (err error) { resp, err = l.c.init(id); return err })
}

func (l *powerLoad) endTransaction(id string, commit bool) error {
	p := l.w.producer(id)
	var resp *kmsg.EndTxnResponse
	return l.do(step{name: fmt.Sprint("end ", id, " ", commit), id: id, ends: true, commit: commit, v4: isV4(id), change: func(w *world) {
		ended := w.producer(id)
		w.end(ended, commit)
		if !isV4(id) {
			ended.pid, ended.epoch = resp.ProducerID, resp.ProducerEpoch
		}
	}}, func() (err error) { resp, err = l.c.end(id, p.pid, p.epoch, commit); return err })
}

package broker_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

func TestBadFramesCloseTheConnectionAndNothingElse(t *testing.T) {
	n := startNode(t, append([]string{"socket.request.max.bytes=200000"}, bothRoles...), withCoordinator(echo))
	other := n.dial(t)
	header := func(size uint32, key, version int16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, size)
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(append(b, 0, 0, 0, 7), rest...)
	}
	whole := func(key, version int16, rest ...byte) []byte {
		return header(uint32(8+len(rest)), key, version, rest...)
	}
	metadata := frameOf(kmsg.NewPtrMetadataRequest(), 7)
	for name, frame := range map[string][]byte{
		"negative length":           header(0xffffffff, 3, 0),
		"one byte above the limit":  header(200001, 0, 0),
		"no room for a header":      {0, 0, 0, 7, 0, 3, 0, 0, 0, 0, 0},
		"zero length":               {0, 0, 0, 0},
		"garbage":                   []byte("GET / HTTP/1.1\r\nHost: kafka\r\n\r\n"),
		"unknown key":               whole(9999, 0, 0, 0),
		"negative key":              whole(-1, 0, 0, 0),
		"key of kmsg, not of kfake": whole(4, 0, 0, 0), // LeaderAndIsr
		"key of a raft voter":       whole(80, 0, 0, 0, 0),
		"version too high":          whole(3, 99, 0, 0),
		"negative version":          whole(3, -1, 0, 0),
		"produce version too low":   whole(0, 0, 0, 0),
		"our key, unknown version":  whole(1000, 1, 0, 0, 0),
		"client id beyond the end":  whole(3, 1, 0x7f, 0xff, 'a'),
		"body cut off":              append([]byte{0, 0, 0, byte(len(metadata) - 4 - 3)}, metadata[4:len(metadata)-3]...),
		"array beyond the end":      whole(3, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff),
		"our body is garbage":       whole(1001, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"unstable version not on":   frameOf(wire.NewPtrInitProducerIDRequestV6(), 7),
	} {
		t.Run(name, func(t *testing.T) {
			c := n.dial(t)
			c.send(frame)
			if id, rest, err := c.receive(); err == nil {
				t.Fatalf("answered: id %d, % x", id, rest)
			} else if errors.Is(err, net.ErrClosed) || isTimeout(err) {
				t.Fatalf("not closed: %v", err)
			}
			ask[*kmsg.MetadataResponse](t, other, kmsg.NewPtrMetadataRequest())
		})
	}
}

// TestNoRequestBringsTheNodeDown sends each request that the node serves, in
// each version, as it is by default, and in the first and the last version with
// each byte of its body changed.
func TestNoRequestBringsTheNodeDown(t *testing.T) {
	n := startNode(t, append([]string{"unstable.api.versions.enable=true"}, bothRoles...), withCoordinator(echo))
	versions := ask[*kmsg.ApiVersionsResponse](t, n.dial(t), apiVersionsRequest(3))
	parks := []kmsg.Key{kmsg.Fetch, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.ShareFetch, kmsg.Produce}
	for _, k := range versions.ApiKeys {
		patience := patience
		if slices.Contains(parks, kmsg.Key(k.ApiKey)) {
			patience = 3 * time.Millisecond
		}
		for version := k.MinVersion; version <= k.MaxVersion; version++ {
			frame := frameOf(defaultRequest(k.ApiKey, version), 1)
			n.hurl(t, frame, patience)
			if version != k.MinVersion && version != k.MaxVersion {
				continue
			}
			for at := 12; at < len(frame); at++ {
				for _, b := range []byte{0, 2, 0x7f, 0xff} {
					bad := slices.Clone(frame)
					bad[at] = b
					n.hurl(t, bad, patience)
				}
			}
		}
	}
	n.serves(t)
}

// TestNoFilledRequestBringsTheNodeDown does the same with requests that say
// something, to a node that has something.
func TestNoFilledRequestBringsTheNodeDown(t *testing.T) {
	n := startNode(t, []string{"unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"})
	createTopic(t, n.client(t), "t")
	for _, req := range filledRequests() {
		frame := frameOf(req, 1)
		body := len(frame) - len(req.AppendTo(nil))
		n.hurl(t, frame, 3*time.Millisecond)
		for at := body; at < len(frame); at++ {
			for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				bad := slices.Clone(frame)
				bad[at] = b
				n.hurl(t, bad, 3*time.Millisecond)
			}
		}
		n.serves(t)
	}
}

// hurl sends a frame, and waits for an answer or the end without minding which.
func (n *node) hurl(t *testing.T, frame []byte, patience time.Duration) {
	t.Helper()
	c, err := n.front.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(frame); err != nil {
		return
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); isTimeout(err) && patience > time.Second {
		t.Errorf("neither an answer nor the end after % x", frame)
	}
}

// batchOf is a record batch of one record under a producer id.
func batchOf(producerID int64) []byte {
	return batch(func(b *kmsg.RecordBatch) {
		if b.ProducerID = producerID; producerID >= 0 {
			b.Attributes = 0x10 // transactional
		}
	})
}

// filledRequests are requests of which kfake does more than refuse them.
func filledRequests() []kmsg.Request {
	produce := func(version int16, id int64) kmsg.Request {
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = version, -1, 1000
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = batchOf(id)
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		return req
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxBytes = 12, 1<<20
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes = 1 << 20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.Partitions = "t", append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)

	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 5, "g", "consumer", 6000, 1
	jp := kmsg.NewJoinGroupRequestProtocol()
	jp.Name, jp.Metadata = "range", []byte{0, 0, 0, 0, 0, 0}
	join.Protocols = append(join.Protocols, jp)

	noProtocol := *join
	noProtocol.Protocols = nil

	next := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	next.Group, next.MemberID, next.RebalanceTimeoutMillis = "g8", "m", 1000
	next.SubscribedTopicNames = []string{"t"}
	next.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}

	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "g", -1
	cp := kmsg.NewOffsetCommitRequestTopicPartition()
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic, ct.Partitions = "t", append(ct.Partitions, cp)
	commit.Topics = append(commit.Topics, ct)

	initTxn := kmsg.NewPtrInitProducerIDRequest()
	initTxn.Version, initTxn.TransactionalID, initTxn.TransactionTimeoutMillis = 5, kmsg.StringPtr("tid"), 1000

	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 5, 1000
	nt := kmsg.NewCreateTopicsRequestTopic()
	nt.Topic, nt.NumPartitions, nt.ReplicationFactor = "n", 1, 1
	create.Topics = append(create.Topics, nt)

	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.Version = 7
	op := kmsg.NewListOffsetsRequestTopicPartition()
	op.Timestamp = -1
	ot := kmsg.NewListOffsetsRequestTopic()
	ot.Topic, ot.Partitions = "t", append(ot.Partitions, op)
	offsets.Topics = append(offsets.Topics, ot)

	assign := kmsg.NewPtrDeleteRecordsRequest()
	ap := kmsg.NewDeleteRecordsRequestTopicPartition()
	at := kmsg.NewDeleteRecordsRequestTopic()
	at.Topic, at.Partitions = "t", append(at.Partitions, ap)
	assign.Topics = append(assign.Topics, at)

	two := wire.NewPtrInitProducerIDRequestV6()
	two.TransactionalID, two.Enable2PC = kmsg.StringPtr("tid"), true

	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID = 5, "tid"

	return []kmsg.Request{
		produce(9, -1), produce(12, 1), fetch, join, &noProtocol, next, commit, initTxn, create, offsets, assign, two, end,
	}
}

package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
)

// The messages of KIP.md for kafka-go's protocol package, by its struct tags and
// by nothing of ours. Three things it cannot do are done here:
//
//   - its registry ends at API key 51, so these are registered under keys that
//     it has no message for, and the true key is written into the frame;
//   - it knows no uuid, which is two int64 here;
//   - its batches have no producer: see batch.
const (
	slotFindCoordinator protocol.ApiKey = protocol.LeaderAndIsr
	slotEndTxn          protocol.ApiKey = protocol.StopReplica
	slotInit            protocol.ApiKey = protocol.UpdateMetadata
	slotEnd             protocol.ApiKey = protocol.ControlledShutdown
	slotDescribe        protocol.ApiKey = protocol.CreateDelegationToken
	slotList            protocol.ApiKey = protocol.RenewDelegationToken
	slotResolve         protocol.ApiKey = protocol.ExpireDelegationToken
)

// sentAs are the true API key and version of what has a slot, or the version of
// what kafka-go knows itself.
var sentAs = map[protocol.ApiKey]struct{ key, version int16 }{
	slotFindCoordinator: {10, 7},
	slotEndTxn:          {26, 5},
	slotInit:            {1000, 0},
	slotEnd:             {1001, 0},
	slotDescribe:        {1002, 0},
	slotList:            {1003, 0},
	slotResolve:         {1004, 0},

	protocol.Metadata:           {3, 8},
	protocol.InitProducerId:     {22, 4},
	protocol.AddPartitionsToTxn: {24, 3},
	protocol.Produce:            {0, 8},
}

func init() {
	protocol.Register(&findCoordinatorRequest{}, &findCoordinatorResponse{})
	protocol.Register(&endTxnRequest{}, &endTxnResponse{})
	protocol.Register(&initGlobalTxnRequest{}, &initGlobalTxnResponse{})
	protocol.Register(&endGlobalTxnRequest{}, &endGlobalTxnResponse{})
	protocol.Register(&describeGlobalTransactionsRequest{}, &describeGlobalTransactionsResponse{})
	protocol.Register(&listGlobalTransactionsRequest{}, &listGlobalTransactionsResponse{})
	protocol.Register(&resolveGlobalTransactionRequest{}, &resolveGlobalTransactionResponse{})
}

// flexible, as the first field, gives a struct its tagged fields (none).
type flexible = struct{}

type findCoordinatorRequest struct {
	_               flexible `kafka:"min=v7,max=v7,tag"`
	KeyType         int8     `kafka:"min=v7,max=v7"`
	CoordinatorKeys []string `kafka:"min=v7,max=v7"`
}

func (*findCoordinatorRequest) ApiKey() protocol.ApiKey { return slotFindCoordinator }

type findCoordinatorResponse struct {
	_              flexible      `kafka:"min=v7,max=v7,tag"`
	ThrottleTimeMs int32         `kafka:"min=v7,max=v7"`
	Coordinators   []coordinator `kafka:"min=v7,max=v7"`
}

type coordinator struct {
	_            flexible `kafka:"min=v7,max=v7,tag"`
	Key          string   `kafka:"min=v7,max=v7"`
	NodeID       int32    `kafka:"min=v7,max=v7"`
	Host         string   `kafka:"min=v7,max=v7"`
	Port         int32    `kafka:"min=v7,max=v7"`
	ErrorCode    int16    `kafka:"min=v7,max=v7"`
	ErrorMessage string   `kafka:"min=v7,max=v7,nullable"`
}

func (*findCoordinatorResponse) ApiKey() protocol.ApiKey { return slotFindCoordinator }

// endTxnRequest is version 5, which kafka-go does not know: on a cluster with
// transaction.version 2 a client that ends its own transaction uses it.
type endTxnRequest struct {
	_               flexible `kafka:"min=v5,max=v5,tag"`
	TransactionalID string   `kafka:"min=v5,max=v5"`
	ProducerID      int64    `kafka:"min=v5,max=v5"`
	ProducerEpoch   int16    `kafka:"min=v5,max=v5"`
	Committed       bool     `kafka:"min=v5,max=v5"`
}

func (*endTxnRequest) ApiKey() protocol.ApiKey { return slotEndTxn }

type endTxnResponse struct {
	_              flexible `kafka:"min=v5,max=v5,tag"`
	ThrottleTimeMs int32    `kafka:"min=v5,max=v5"`
	ErrorCode      int16    `kafka:"min=v5,max=v5"`
	ProducerID     int64    `kafka:"min=v5,max=v5"`
	ProducerEpoch  int16    `kafka:"min=v5,max=v5"`
}

func (*endTxnResponse) ApiKey() protocol.ApiKey { return slotEndTxn }

type initGlobalTxnRequest struct {
	_                     flexible `kafka:"min=v0,max=v0,tag"`
	GlobalTransactionalID string   `kafka:"min=v0,max=v0"`
	TimeoutMs             int32    `kafka:"min=v0,max=v0"`
	ClusterIDs            []string `kafka:"min=v0,max=v0"`
	InstanceIDHigh        int64    `kafka:"min=v0,max=v0"`
	InstanceIDLow         int64    `kafka:"min=v0,max=v0"`
}

func (*initGlobalTxnRequest) ApiKey() protocol.ApiKey { return slotInit }

type initGlobalTxnResponse struct {
	_              flexible       `kafka:"min=v0,max=v0,tag"`
	ThrottleTimeMs int32          `kafka:"min=v0,max=v0"`
	ErrorCode      int16          `kafka:"min=v0,max=v0"`
	ErrorMessage   string         `kafka:"min=v0,max=v0,nullable"`
	GlobalEpoch    int32          `kafka:"min=v0,max=v0"`
	Sequence       int64          `kafka:"min=v0,max=v0"`
	ClusterErrors  []clusterError `kafka:"min=v0,max=v0"`
}

type clusterError struct {
	_            flexible `kafka:"min=v0,max=v0,tag"`
	ClusterID    string   `kafka:"min=v0,max=v0"`
	ErrorCode    int16    `kafka:"min=v0,max=v0"`
	ErrorMessage string   `kafka:"min=v0,max=v0,nullable"`
}

func (*initGlobalTxnResponse) ApiKey() protocol.ApiKey { return slotInit }

type endGlobalTxnRequest struct {
	_                     flexible         `kafka:"min=v0,max=v0,tag"`
	GlobalTransactionalID string           `kafka:"min=v0,max=v0"`
	GlobalEpoch           int32            `kafka:"min=v0,max=v0"`
	Sequence              int64            `kafka:"min=v0,max=v0"`
	Committed             bool             `kafka:"min=v0,max=v0"`
	TimeoutMs             int32            `kafka:"min=v0,max=v0"`
	Participants          []endParticipant `kafka:"min=v0,max=v0"`
}

type endParticipant struct {
	_             flexible `kafka:"min=v0,max=v0,tag"`
	ClusterID     string   `kafka:"min=v0,max=v0"`
	ProducerID    int64    `kafka:"min=v0,max=v0"`
	ProducerEpoch int16    `kafka:"min=v0,max=v0"`
}

func (*endGlobalTxnRequest) ApiKey() protocol.ApiKey { return slotEnd }

type endGlobalTxnResponse struct {
	_              flexible           `kafka:"min=v0,max=v0,tag"`
	ThrottleTimeMs int32              `kafka:"min=v0,max=v0"`
	ErrorCode      int16              `kafka:"min=v0,max=v0"`
	ErrorMessage   string             `kafka:"min=v0,max=v0,nullable"`
	Outcome        int8               `kafka:"min=v0,max=v0"`
	Participants   []endedParticipant `kafka:"min=v0,max=v0"`
}

type endedParticipant struct {
	_             flexible `kafka:"min=v0,max=v0,tag"`
	ClusterID     string   `kafka:"min=v0,max=v0"`
	State         int8     `kafka:"min=v0,max=v0"`
	ProducerID    int64    `kafka:"min=v0,max=v0"`
	ProducerEpoch int16    `kafka:"min=v0,max=v0"`
	Message       string   `kafka:"min=v0,max=v0,nullable"`
}

func (*endGlobalTxnResponse) ApiKey() protocol.ApiKey { return slotEnd }

type describeGlobalTransactionsRequest struct {
	_                      flexible `kafka:"min=v0,max=v0,tag"`
	GlobalTransactionalIDs []string `kafka:"min=v0,max=v0"`
}

func (*describeGlobalTransactionsRequest) ApiKey() protocol.ApiKey { return slotDescribe }

type describeGlobalTransactionsResponse struct {
	_                  flexible               `kafka:"min=v0,max=v0,tag"`
	ThrottleTimeMs     int32                  `kafka:"min=v0,max=v0"`
	GlobalTransactions []describedTransaction `kafka:"min=v0,max=v0"`
}

type describedTransaction struct {
	_                     flexible               `kafka:"min=v0,max=v0,tag"`
	ErrorCode             int16                  `kafka:"min=v0,max=v0"`
	ErrorMessage          string                 `kafka:"min=v0,max=v0,nullable"`
	GlobalTransactionalID string                 `kafka:"min=v0,max=v0"`
	State                 string                 `kafka:"min=v0,max=v0"`
	GlobalEpoch           int32                  `kafka:"min=v0,max=v0"`
	Sequence              int64                  `kafka:"min=v0,max=v0"`
	TimeoutMs             int32                  `kafka:"min=v0,max=v0"`
	SessionEnded          bool                   `kafka:"min=v0,max=v0"`
	ClusterIDs            []string               `kafka:"min=v0,max=v0"`
	DecisionTimestampMs   int64                  `kafka:"min=v0,max=v0"`
	UpdateTimestampMs     int64                  `kafka:"min=v0,max=v0"`
	Reason                string                 `kafka:"min=v0,max=v0,nullable"`
	Participants          []describedParticipant `kafka:"min=v0,max=v0"`
}

type describedParticipant struct {
	_             flexible `kafka:"min=v0,max=v0,tag"`
	ClusterID     string   `kafka:"min=v0,max=v0"`
	ProducerID    int64    `kafka:"min=v0,max=v0"`
	ProducerEpoch int16    `kafka:"min=v0,max=v0"`
	State         int8     `kafka:"min=v0,max=v0"`
	OpenSinceMs   int64    `kafka:"min=v0,max=v0"`
	Message       string   `kafka:"min=v0,max=v0,nullable"`
}

func (*describeGlobalTransactionsResponse) ApiKey() protocol.ApiKey { return slotDescribe }

type listGlobalTransactionsRequest struct {
	_                flexible `kafka:"min=v0,max=v0,tag"`
	StateFilters     []string `kafka:"min=v0,max=v0"`
	DurationFilterMs int64    `kafka:"min=v0,max=v0"`
	PatternFilter    string   `kafka:"min=v0,max=v0,nullable"`
	HeuristicOnly    bool     `kafka:"min=v0,max=v0"`
}

func (*listGlobalTransactionsRequest) ApiKey() protocol.ApiKey { return slotList }

type listGlobalTransactionsResponse struct {
	_                   flexible            `kafka:"min=v0,max=v0,tag"`
	ThrottleTimeMs      int32               `kafka:"min=v0,max=v0"`
	ErrorCode           int16               `kafka:"min=v0,max=v0"`
	ErrorMessage        string              `kafka:"min=v0,max=v0,nullable"`
	UnknownStateFilters []string            `kafka:"min=v0,max=v0"`
	GlobalTransactions  []listedTransaction `kafka:"min=v0,max=v0"`
}

type listedTransaction struct {
	_                     flexible `kafka:"min=v0,max=v0,tag"`
	GlobalTransactionalID string   `kafka:"min=v0,max=v0"`
	State                 string   `kafka:"min=v0,max=v0"`
	GlobalEpoch           int32    `kafka:"min=v0,max=v0"`
	Sequence              int64    `kafka:"min=v0,max=v0"`
	AgeMs                 int64    `kafka:"min=v0,max=v0"`
	Heuristic             bool     `kafka:"min=v0,max=v0"`
	PendingClusterIDs     []string `kafka:"min=v0,max=v0"`
}

func (*listGlobalTransactionsResponse) ApiKey() protocol.ApiKey { return slotList }

type resolveGlobalTransactionRequest struct {
	_                     flexible `kafka:"min=v0,max=v0,tag"`
	GlobalTransactionalID string   `kafka:"min=v0,max=v0"`
	Action                int8     `kafka:"min=v0,max=v0"`
	ClusterID             string   `kafka:"min=v0,max=v0,nullable"`
}

func (*resolveGlobalTransactionRequest) ApiKey() protocol.ApiKey { return slotResolve }

type resolveGlobalTransactionResponse struct {
	_              flexible `kafka:"min=v0,max=v0,tag"`
	ThrottleTimeMs int32    `kafka:"min=v0,max=v0"`
	ErrorCode      int16    `kafka:"min=v0,max=v0"`
	ErrorMessage   string   `kafka:"min=v0,max=v0,nullable"`
	State          string   `kafka:"min=v0,max=v0"`
}

func (*resolveGlobalTransactionResponse) ApiKey() protocol.ApiKey { return slotResolve }

// broker is a connection that kafka-go's encoders and decoders speak over.
type broker struct {
	*protocol.Conn
	correlation int32
}

func dial(t *testing.T, addr string) *broker {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	at, _ := deadline(t).Deadline()
	if err := conn.SetDeadline(at); err != nil {
		t.Fatal(err)
	}
	return &broker{Conn: protocol.NewConn(conn, "kafka-go")}
}

// ask sends a request and returns its answer.
func ask[Response protocol.Message](t *testing.T, b *broker, req protocol.Message) Response {
	t.Helper()
	var zero Response
	as := sentAs[req.ApiKey()]
	b.correlation++
	var frame bytes.Buffer
	if err := protocol.WriteRequest(&frame, as.version, b.correlation, "kafka-go", req); err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	binary.BigEndian.PutUint16(frame.Bytes()[4:], uint16(as.key)) // after the size
	if _, err := b.Write(frame.Bytes()); err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	correlation, message, err := protocol.ReadResponse(b, req.ApiKey(), as.version)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	resp, ok := message.(Response)
	if !ok || correlation != b.correlation {
		t.Fatalf("%T was answered %T, want %T; correlation %d, want %d", req, message, zero, correlation, b.correlation)
	}
	return resp
}

// batch is a transactional record batch.
func batch(producerID int64, producerEpoch int16, sequence int32, values ...string) (protocol.RawRecordSet, error) {
	records := make([]protocol.Record, len(values))
	for i, v := range values {
		records[i].Value = protocol.NewBytes([]byte(v))
	}
	set := protocol.RecordSet{Version: 2, Attributes: protocol.Transactional, Records: protocol.NewRecordReader(records...)}
	var b bytes.Buffer
	if _, err := set.WriteTo(&b); err != nil {
		return protocol.RawRecordSet{}, fmt.Errorf("batch: %w", err)
	}
	// kafka-go puts the size of the record set before it, and writes -1 for
	// the three of a producer.
	raw := b.Bytes()[4:]
	binary.BigEndian.PutUint64(raw[43:], uint64(producerID))
	binary.BigEndian.PutUint16(raw[51:], uint16(producerEpoch))
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return protocol.RawRecordSet{Reader: &b}, nil
}

package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGlobalTransactionsRequest asks a coordinator for all that it knows of some
// global transactional ids.
type DescribeGlobalTransactionsRequest struct {
	// Version is the version to write and to read.
	Version int16

	// The global transactional ids to describe.
	GlobalTransactionalIDs []string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyDescribeGlobalTransactions.
func (*DescribeGlobalTransactionsRequest) Key() int16 { return KeyDescribeGlobalTransactions }

// MaxVersion returns 0.
func (*DescribeGlobalTransactionsRequest) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *DescribeGlobalTransactionsRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *DescribeGlobalTransactionsRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*DescribeGlobalTransactionsRequest) IsFlexible() bool { return true }

// ResponseKind returns a default DescribeGlobalTransactionsResponse of the same version.
func (v *DescribeGlobalTransactionsRequest) ResponseKind() kmsg.Response {
	r := NewPtrDescribeGlobalTransactionsResponse()
	r.Version = v.Version
	return r
}

// RequestWith issues v on r and returns the response or an error.
func (v *DescribeGlobalTransactionsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*DescribeGlobalTransactionsResponse, error) {
	return requestWith[*DescribeGlobalTransactionsResponse](ctx, r, v)
}

// Default does nothing: every default is zero.
func (*DescribeGlobalTransactionsRequest) Default() {}

// NewPtrDescribeGlobalTransactionsRequest returns a pointer to a default DescribeGlobalTransactionsRequest.
func NewPtrDescribeGlobalTransactionsRequest() *DescribeGlobalTransactionsRequest {
	v := new(DescribeGlobalTransactionsRequest)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *DescribeGlobalTransactionsRequest) AppendTo(dst []byte) []byte {
	dst = appendStrings(dst, v.GlobalTransactionalIDs)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *DescribeGlobalTransactionsRequest) ReadFrom(src []byte) error {
	if err := checkVersion("DescribeGlobalTransactionsRequest", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.GlobalTransactionalIDs = d.strings("GlobalTransactionalIds")
	v.UnknownTags = d.tags()
	return d.done("DescribeGlobalTransactionsRequest", v.Version)
}

// DescribeGlobalTransactionsResponse is returned for a
// DescribeGlobalTransactionsRequest. Errors of an id: TRANSACTIONAL_ID_NOT_FOUND,
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_COORDINATOR,
// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
// CORRUPT_GLOBAL_TRANSACTION_LOG.
type DescribeGlobalTransactionsResponse struct {
	// Version is the version to write and to read.
	Version int16

	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// One entry for each id of the request, in its order.
	GlobalTransactions []DescribeGlobalTransactionsResponseGlobalTransaction

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyDescribeGlobalTransactions.
func (*DescribeGlobalTransactionsResponse) Key() int16 { return KeyDescribeGlobalTransactions }

// MaxVersion returns 0.
func (*DescribeGlobalTransactionsResponse) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *DescribeGlobalTransactionsResponse) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *DescribeGlobalTransactionsResponse) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*DescribeGlobalTransactionsResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *DescribeGlobalTransactionsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *DescribeGlobalTransactionsResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// RequestKind returns a default DescribeGlobalTransactionsRequest of the same version.
func (v *DescribeGlobalTransactionsResponse) RequestKind() kmsg.Request {
	r := NewPtrDescribeGlobalTransactionsRequest()
	r.Version = v.Version
	return r
}

// Default does nothing: every default is zero.
func (*DescribeGlobalTransactionsResponse) Default() {}

// NewPtrDescribeGlobalTransactionsResponse returns a pointer to a default DescribeGlobalTransactionsResponse.
func NewPtrDescribeGlobalTransactionsResponse() *DescribeGlobalTransactionsResponse {
	v := new(DescribeGlobalTransactionsResponse)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *DescribeGlobalTransactionsResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendCompactArrayLen(dst, len(v.GlobalTransactions))
	for i := range v.GlobalTransactions {
		dst = v.GlobalTransactions[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *DescribeGlobalTransactionsResponse) ReadFrom(src []byte) error {
	if err := checkVersion("DescribeGlobalTransactionsResponse", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.GlobalTransactions = decodeArray(d, "GlobalTransactions", func(d *decoder, e *DescribeGlobalTransactionsResponseGlobalTransaction) { e.decode(d) })
	v.UnknownTags = d.tags()
	return d.done("DescribeGlobalTransactionsResponse", v.Version)
}

// DescribeGlobalTransactionsResponseGlobalTransaction is one element of
// GlobalTransactions.
type DescribeGlobalTransactionsResponseGlobalTransaction struct {
	// The error code of this id, 0 for success.
	ErrorCode int16

	// What went wrong and how to mend it, or null.
	ErrorMessage *string

	// The global transactional id.
	GlobalTransactionalID string

	// Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Dead.
	State string

	// The epoch of the present session. The default is -1.
	GlobalEpoch int32

	// The number of the last decided transaction; one below the first when there was none. The default is
	// -1.
	Sequence int64

	// How long, in milliseconds, a transaction of this session may stay undecided.
	TimeoutMillis int32

	// True when the session was ended by its timeout or by an operator: the client has to
	// call InitGlobalTxn.
	SessionEnded bool

	// The cluster ids of the session.
	ClusterIDs []string

	// When transaction Sequence was decided, in milliseconds since the epoch, -1 for none.
	// The default is -1.
	DecisionTimestampMillis int64

	// When the record of this id was last written, in milliseconds since the epoch, -1 for
	// none. The default is -1.
	UpdateTimestampMillis int64

	// Why the coordinator decided abort, null when it was asked for or commit was decided.
	Reason *string

	// The participants of transaction Sequence, and those that are open and undecided.
	Participants []DescribeGlobalTransactionsResponseGlobalTransactionParticipant

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default sets the fields whose default is not zero.
func (v *DescribeGlobalTransactionsResponseGlobalTransaction) Default() {
	v.GlobalEpoch = -1
	v.Sequence = -1
	v.DecisionTimestampMillis = -1
	v.UpdateTimestampMillis = -1
}

// NewDescribeGlobalTransactionsResponseGlobalTransaction returns a default DescribeGlobalTransactionsResponseGlobalTransaction.
func NewDescribeGlobalTransactionsResponseGlobalTransaction() DescribeGlobalTransactionsResponseGlobalTransaction {
	var v DescribeGlobalTransactionsResponseGlobalTransaction
	v.Default()
	return v
}

func (v *DescribeGlobalTransactionsResponseGlobalTransaction) appendTo(dst []byte) []byte {
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	dst = kbin.AppendCompactString(dst, v.GlobalTransactionalID)
	dst = kbin.AppendCompactString(dst, v.State)
	dst = kbin.AppendInt32(dst, v.GlobalEpoch)
	dst = kbin.AppendInt64(dst, v.Sequence)
	dst = kbin.AppendInt32(dst, v.TimeoutMillis)
	dst = kbin.AppendBool(dst, v.SessionEnded)
	dst = appendStrings(dst, v.ClusterIDs)
	dst = kbin.AppendInt64(dst, v.DecisionTimestampMillis)
	dst = kbin.AppendInt64(dst, v.UpdateTimestampMillis)
	dst = appendText(dst, v.Reason)
	dst = kbin.AppendCompactArrayLen(dst, len(v.Participants))
	for i := range v.Participants {
		dst = v.Participants[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

func (v *DescribeGlobalTransactionsResponseGlobalTransaction) decode(d *decoder) {
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.GlobalTransactionalID = d.string("GlobalTransactionalId")
	v.State = d.string("State")
	v.GlobalEpoch = d.int32("GlobalEpoch")
	v.Sequence = d.int64("Sequence")
	v.TimeoutMillis = d.int32("TimeoutMs")
	v.SessionEnded = d.bool("SessionEnded")
	v.ClusterIDs = d.strings("ClusterIds")
	v.DecisionTimestampMillis = d.int64("DecisionTimestampMs")
	v.UpdateTimestampMillis = d.int64("UpdateTimestampMs")
	v.Reason = d.nullableString("Reason")
	v.Participants = decodeArray(d, "Participants", func(d *decoder, e *DescribeGlobalTransactionsResponseGlobalTransactionParticipant) { e.decode(d) })
	v.UnknownTags = d.tags()
}

// DescribeGlobalTransactionsResponseGlobalTransactionParticipant is one element of
// Participants.
type DescribeGlobalTransactionsResponseGlobalTransactionParticipant struct {
	// The participant's cluster id.
	ClusterID string

	// The producer id of the participant's transaction. The default is -1.
	ProducerID int64

	// The producer epoch of the participant's transaction. The default is -1.
	ProducerEpoch int16

	// 0 pending, 1 complete, 2 heuristic commit, 3 heuristic abort, 4 heuristic unknown, 5
	// orphaned: the abort of an earlier transaction is still to be told.
	State int8

	// For how many milliseconds an undecided transaction has been open or a decided end
	// has been pending, -1 when neither. The default is -1.
	OpenSinceMillis int64

	// What was last seen at the participant, or null when all is well.
	Message *string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default sets the fields whose default is not zero.
func (v *DescribeGlobalTransactionsResponseGlobalTransactionParticipant) Default() {
	v.ProducerID = -1
	v.ProducerEpoch = -1
	v.OpenSinceMillis = -1
}

// NewDescribeGlobalTransactionsResponseGlobalTransactionParticipant returns a default DescribeGlobalTransactionsResponseGlobalTransactionParticipant.
func NewDescribeGlobalTransactionsResponseGlobalTransactionParticipant() DescribeGlobalTransactionsResponseGlobalTransactionParticipant {
	var v DescribeGlobalTransactionsResponseGlobalTransactionParticipant
	v.Default()
	return v
}

func (v *DescribeGlobalTransactionsResponseGlobalTransactionParticipant) appendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.ClusterID)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	dst = kbin.AppendInt8(dst, v.State)
	dst = kbin.AppendInt64(dst, v.OpenSinceMillis)
	dst = appendText(dst, v.Message)
	return appendTags(dst, &v.UnknownTags)
}

func (v *DescribeGlobalTransactionsResponseGlobalTransactionParticipant) decode(d *decoder) {
	v.ClusterID = d.string("ClusterId")
	v.ProducerID = d.int64("ProducerId")
	v.ProducerEpoch = d.int16("ProducerEpoch")
	v.State = d.int8("State")
	v.OpenSinceMillis = d.int64("OpenSinceMs")
	v.Message = d.nullableString("Message")
	v.UnknownTags = d.tags()
}

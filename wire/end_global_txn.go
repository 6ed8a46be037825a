package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// EndGlobalTxnRequest asks to commit or to abort one global transaction. The client
// sends the same request again until it knows the outcome.
type EndGlobalTxnRequest struct {
	// Version is the version to write and to read.
	Version int16

	// The global transactional id.
	GlobalTransactionalID string

	// The epoch that InitGlobalTxn gave to the session.
	GlobalEpoch int32

	// The number of the transaction: what InitGlobalTxn gave, and one more for each
	// transaction ended since.
	Sequence int64

	// True to commit, false to abort.
	Committed bool

	// How long, in milliseconds, the coordinator may hold the answer; what is known by
	// then is the answer.
	TimeoutMillis int32

	// The participants that were written to; the others are left out.
	Participants []EndGlobalTxnRequestParticipant

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyEndGlobalTxn.
func (*EndGlobalTxnRequest) Key() int16 { return KeyEndGlobalTxn }

// MaxVersion returns 0.
func (*EndGlobalTxnRequest) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *EndGlobalTxnRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *EndGlobalTxnRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*EndGlobalTxnRequest) IsFlexible() bool { return true }

// Timeout returns TimeoutMillis: kgo then waits that much longer for the answer,
// on the connection that it keeps for slow requests.
func (v *EndGlobalTxnRequest) Timeout() int32 { return v.TimeoutMillis }

// SetTimeout sets TimeoutMillis.
func (v *EndGlobalTxnRequest) SetTimeout(timeoutMillis int32) { v.TimeoutMillis = timeoutMillis }

// ResponseKind returns a default EndGlobalTxnResponse of the same version.
func (v *EndGlobalTxnRequest) ResponseKind() kmsg.Response {
	r := NewPtrEndGlobalTxnResponse()
	r.Version = v.Version
	return r
}

// RequestWith issues v on r and returns the response or an error.
func (v *EndGlobalTxnRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*EndGlobalTxnResponse, error) {
	return requestWith[*EndGlobalTxnResponse](ctx, r, v)
}

// Default does nothing: every default is zero.
func (*EndGlobalTxnRequest) Default() {}

// NewPtrEndGlobalTxnRequest returns a pointer to a default EndGlobalTxnRequest.
func NewPtrEndGlobalTxnRequest() *EndGlobalTxnRequest {
	v := new(EndGlobalTxnRequest)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *EndGlobalTxnRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.GlobalTransactionalID)
	dst = kbin.AppendInt32(dst, v.GlobalEpoch)
	dst = kbin.AppendInt64(dst, v.Sequence)
	dst = kbin.AppendBool(dst, v.Committed)
	dst = kbin.AppendInt32(dst, v.TimeoutMillis)
	dst = kbin.AppendCompactArrayLen(dst, len(v.Participants))
	for i := range v.Participants {
		dst = v.Participants[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *EndGlobalTxnRequest) ReadFrom(src []byte) error {
	if err := checkVersion("EndGlobalTxnRequest", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.GlobalTransactionalID = d.string("GlobalTransactionalId")
	v.GlobalEpoch = d.int32("GlobalEpoch")
	v.Sequence = d.int64("Sequence")
	v.Committed = d.bool("Committed")
	v.TimeoutMillis = d.int32("TimeoutMs")
	v.Participants = decodeArray(d, "Participants", func(d *decoder, e *EndGlobalTxnRequestParticipant) { e.decode(d) })
	v.UnknownTags = d.tags()
	return d.done("EndGlobalTxnRequest", v.Version)
}

// EndGlobalTxnRequestParticipant is one element of Participants.
type EndGlobalTxnRequestParticipant struct {
	// The participant's cluster id.
	ClusterID string

	// The producer id that the participant's transaction was written under.
	ProducerID int64

	// The producer epoch that the participant's transaction was written under.
	ProducerEpoch int16

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default does nothing: every default is zero.
func (*EndGlobalTxnRequestParticipant) Default() {}

// NewEndGlobalTxnRequestParticipant returns a default EndGlobalTxnRequestParticipant.
func NewEndGlobalTxnRequestParticipant() EndGlobalTxnRequestParticipant {
	var v EndGlobalTxnRequestParticipant
	v.Default()
	return v
}

func (v *EndGlobalTxnRequestParticipant) appendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.ClusterID)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	return appendTags(dst, &v.UnknownTags)
}

func (v *EndGlobalTxnRequestParticipant) decode(d *decoder) {
	v.ClusterID = d.string("ClusterId")
	v.ProducerID = d.int64("ProducerId")
	v.ProducerEpoch = d.int16("ProducerEpoch")
	v.UnknownTags = d.tags()
}

// EndGlobalTxnResponse is returned for an EndGlobalTxnRequest. With error code 0,
// Outcome 1 or 2 is the decision, which never changes, though participants may still
// be pending; Outcome 0 means ask again. With HEURISTIC_OUTCOME, Outcome is the
// decision and a participant ended against it. Every other error says nothing about
// the outcome: ask again after a retriable one; PRODUCER_FENCED,
// TRANSACTIONAL_ID_NOT_FOUND and GLOBAL_TRANSACTION_TOO_OLD are final. A commit that
// was asked for and whose vote failed is error code 0, Outcome 2, and the reason in
// ErrorMessage.
type EndGlobalTxnResponse struct {
	// Version is the version to write and to read.
	Version int16

	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// 0: Outcome tells what is known. HEURISTIC_OUTCOME: Outcome is the decision, and a
	// participant ended against it; with Outcome 0, the id's last transaction is torn, or
	// nobody can tell how this one ended. Any other code: nothing is known of the outcome;
	// PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND and GLOBAL_TRANSACTION_TOO_OLD are final,
	// and never mean aborted.
	ErrorCode int16

	// What went wrong and how to mend it, or why a commit that was asked for became an
	// abort, or null.
	ErrorMessage *string

	// 0 unknown (with ErrorCode 0: not decided yet, ask again with the same request), 1
	// committed, 2 aborted. A decided outcome never changes.
	Outcome int8

	// Where each participant of the decision stands; none when nothing is known of this
	// transaction.
	Participants []EndGlobalTxnResponseParticipant

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyEndGlobalTxn.
func (*EndGlobalTxnResponse) Key() int16 { return KeyEndGlobalTxn }

// MaxVersion returns 0.
func (*EndGlobalTxnResponse) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *EndGlobalTxnResponse) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *EndGlobalTxnResponse) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*EndGlobalTxnResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *EndGlobalTxnResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *EndGlobalTxnResponse) SetThrottle(throttleMillis int32) { v.ThrottleMillis = throttleMillis }

// RequestKind returns a default EndGlobalTxnRequest of the same version.
func (v *EndGlobalTxnResponse) RequestKind() kmsg.Request {
	r := NewPtrEndGlobalTxnRequest()
	r.Version = v.Version
	return r
}

// Default does nothing: every default is zero.
func (*EndGlobalTxnResponse) Default() {}

// NewPtrEndGlobalTxnResponse returns a pointer to a default EndGlobalTxnResponse.
func NewPtrEndGlobalTxnResponse() *EndGlobalTxnResponse {
	v := new(EndGlobalTxnResponse)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *EndGlobalTxnResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	dst = kbin.AppendInt8(dst, v.Outcome)
	dst = kbin.AppendCompactArrayLen(dst, len(v.Participants))
	for i := range v.Participants {
		dst = v.Participants[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *EndGlobalTxnResponse) ReadFrom(src []byte) error {
	if err := checkVersion("EndGlobalTxnResponse", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.Outcome = d.int8("Outcome")
	v.Participants = decodeArray(d, "Participants", func(d *decoder, e *EndGlobalTxnResponseParticipant) { e.decode(d) })
	v.UnknownTags = d.tags()
	return d.done("EndGlobalTxnResponse", v.Version)
}

// EndGlobalTxnResponseParticipant is one element of Participants.
type EndGlobalTxnResponseParticipant struct {
	// The participant's cluster id.
	ClusterID string

	// 0 pending, 1 complete, 2 heuristic commit, 3 heuristic abort, 4 heuristic unknown.
	State int8

	// The producer id to go on with, -1 when the producer must be initialised again. The
	// default is -1.
	ProducerID int64

	// The producer epoch to go on with, -1 when the producer must be initialised again.
	// The default is -1.
	ProducerEpoch int16

	// What was seen at the participant, or null when all is well.
	Message *string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default sets the fields whose default is not zero.
func (v *EndGlobalTxnResponseParticipant) Default() {
	v.ProducerID = -1
	v.ProducerEpoch = -1
}

// NewEndGlobalTxnResponseParticipant returns a default EndGlobalTxnResponseParticipant.
func NewEndGlobalTxnResponseParticipant() EndGlobalTxnResponseParticipant {
	var v EndGlobalTxnResponseParticipant
	v.Default()
	return v
}

func (v *EndGlobalTxnResponseParticipant) appendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.ClusterID)
	dst = kbin.AppendInt8(dst, v.State)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	dst = appendText(dst, v.Message)
	return appendTags(dst, &v.UnknownTags)
}

func (v *EndGlobalTxnResponseParticipant) decode(d *decoder) {
	v.ClusterID = d.string("ClusterId")
	v.State = d.int8("State")
	v.ProducerID = d.int64("ProducerId")
	v.ProducerEpoch = d.int16("ProducerEpoch")
	v.Message = d.nullableString("Message")
	v.UnknownTags = d.tags()
}

package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitGlobalTxnRequest begins a session of a global transactional id: it fences the
// session before it, waits out (CONCURRENT_TRANSACTIONS) a decision that is still
// being carried out, and checks every participant. TimeoutMillis is that of the
// transactions, not of this request, which therefore is no kmsg.TimeoutRequest.
type InitGlobalTxnRequest struct {
	// Version is the version to write and to read.
	Version int16

	// The global transactional id; every participant uses the same string as its
	// transactional.id.
	GlobalTransactionalID string

	// How long, in milliseconds, a global transaction of this session may stay undecided
	// before the coordinator aborts it.
	TimeoutMillis int32

	// The cluster ids of all participants that transactions of this session may have.
	ClusterIDs []string

	// Drawn at random by the client for each new session: a repeated or late copy of this
	// request does not fence its own sender.
	InstanceID [16]byte

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyInitGlobalTxn.
func (*InitGlobalTxnRequest) Key() int16 { return KeyInitGlobalTxn }

// MaxVersion returns 0.
func (*InitGlobalTxnRequest) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *InitGlobalTxnRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *InitGlobalTxnRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*InitGlobalTxnRequest) IsFlexible() bool { return true }

// ResponseKind returns a default InitGlobalTxnResponse of the same version.
func (v *InitGlobalTxnRequest) ResponseKind() kmsg.Response {
	r := NewPtrInitGlobalTxnResponse()
	r.Version = v.Version
	return r
}

// RequestWith issues v on r and returns the response or an error.
func (v *InitGlobalTxnRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*InitGlobalTxnResponse, error) {
	return requestWith[*InitGlobalTxnResponse](ctx, r, v)
}

// Default does nothing: every default is zero.
func (*InitGlobalTxnRequest) Default() {}

// NewPtrInitGlobalTxnRequest returns a pointer to a default InitGlobalTxnRequest.
func NewPtrInitGlobalTxnRequest() *InitGlobalTxnRequest {
	v := new(InitGlobalTxnRequest)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *InitGlobalTxnRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.GlobalTransactionalID)
	dst = kbin.AppendInt32(dst, v.TimeoutMillis)
	dst = appendStrings(dst, v.ClusterIDs)
	dst = kbin.AppendUuid(dst, v.InstanceID)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *InitGlobalTxnRequest) ReadFrom(src []byte) error {
	if err := checkVersion("InitGlobalTxnRequest", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.GlobalTransactionalID = d.string("GlobalTransactionalId")
	v.TimeoutMillis = d.int32("TimeoutMs")
	v.ClusterIDs = d.strings("ClusterIds")
	v.InstanceID = d.uuid("InstanceId")
	v.UnknownTags = d.tags()
	return d.done("InitGlobalTxnRequest", v.Version)
}

// InitGlobalTxnResponse is returned for an InitGlobalTxnRequest. Errors:
// PRODUCER_FENCED (a newer instance has taken the id over), CONCURRENT_TRANSACTIONS,
// INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
// NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
// PARTICIPANT_NOT_AVAILABLE, UNKNOWN_PARTICIPANT, PARTICIPANT_CLUSTER_ID_MISMATCH,
// PARTICIPANT_NOT_ENABLED, CORRUPT_GLOBAL_TRANSACTION_LOG.
type InitGlobalTxnResponse struct {
	// Version is the version to write and to read.
	Version int16

	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// The error code, 0 for success.
	ErrorCode int16

	// What went wrong and how to mend it, or null.
	ErrorMessage *string

	// The epoch of the session, to be named in every EndGlobalTxn; -1 on error. The
	// default is -1.
	GlobalEpoch int32

	// The number that the next EndGlobalTxn carries; -1 on error. The default is -1.
	Sequence int64

	// One entry for each cluster that failed its check, empty on success.
	ClusterErrors []InitGlobalTxnResponseClusterError

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyInitGlobalTxn.
func (*InitGlobalTxnResponse) Key() int16 { return KeyInitGlobalTxn }

// MaxVersion returns 0.
func (*InitGlobalTxnResponse) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *InitGlobalTxnResponse) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *InitGlobalTxnResponse) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*InitGlobalTxnResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *InitGlobalTxnResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *InitGlobalTxnResponse) SetThrottle(throttleMillis int32) { v.ThrottleMillis = throttleMillis }

// RequestKind returns a default InitGlobalTxnRequest of the same version.
func (v *InitGlobalTxnResponse) RequestKind() kmsg.Request {
	r := NewPtrInitGlobalTxnRequest()
	r.Version = v.Version
	return r
}

// Default sets the fields whose default is not zero.
func (v *InitGlobalTxnResponse) Default() {
	v.GlobalEpoch = -1
	v.Sequence = -1
}

// NewPtrInitGlobalTxnResponse returns a pointer to a default InitGlobalTxnResponse.
func NewPtrInitGlobalTxnResponse() *InitGlobalTxnResponse {
	v := new(InitGlobalTxnResponse)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *InitGlobalTxnResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	dst = kbin.AppendInt32(dst, v.GlobalEpoch)
	dst = kbin.AppendInt64(dst, v.Sequence)
	dst = kbin.AppendCompactArrayLen(dst, len(v.ClusterErrors))
	for i := range v.ClusterErrors {
		dst = v.ClusterErrors[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *InitGlobalTxnResponse) ReadFrom(src []byte) error {
	if err := checkVersion("InitGlobalTxnResponse", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.GlobalEpoch = d.int32("GlobalEpoch")
	v.Sequence = d.int64("Sequence")
	v.ClusterErrors = decodeArray(d, "ClusterErrors", func(d *decoder, e *InitGlobalTxnResponseClusterError) { e.decode(d) })
	v.UnknownTags = d.tags()
	return d.done("InitGlobalTxnResponse", v.Version)
}

// InitGlobalTxnResponseClusterError is one element of ClusterErrors.
type InitGlobalTxnResponseClusterError struct {
	// The cluster id, as in the request.
	ClusterID string

	// Why this cluster cannot take part.
	ErrorCode int16

	// What went wrong and how to mend it, or null.
	ErrorMessage *string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default does nothing: every default is zero.
func (*InitGlobalTxnResponseClusterError) Default() {}

// NewInitGlobalTxnResponseClusterError returns a default InitGlobalTxnResponseClusterError.
func NewInitGlobalTxnResponseClusterError() InitGlobalTxnResponseClusterError {
	var v InitGlobalTxnResponseClusterError
	v.Default()
	return v
}

func (v *InitGlobalTxnResponseClusterError) appendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.ClusterID)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	return appendTags(dst, &v.UnknownTags)
}

func (v *InitGlobalTxnResponseClusterError) decode(d *decoder) {
	v.ClusterID = d.string("ClusterId")
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.UnknownTags = d.tags()
}

package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ResolveGlobalTransactionRequest is an operator's word on one global transactional
// id.
type ResolveGlobalTransactionRequest struct {
	// Version is the version to write and to read.
	Version int16

	// The global transactional id.
	GlobalTransactionalID string

	// 0 abort an undecided transaction now, 1 tell pending participants again now, 2
	// forget a heuristic outcome, 3 give up what is pending on the cluster of
	// ClusterID.
	Action int8

	// The cluster that is gone for good, for action 3; null for the others.
	ClusterID *string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyResolveGlobalTransaction.
func (*ResolveGlobalTransactionRequest) Key() int16 { return KeyResolveGlobalTransaction }

// MaxVersion returns 0.
func (*ResolveGlobalTransactionRequest) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *ResolveGlobalTransactionRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *ResolveGlobalTransactionRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*ResolveGlobalTransactionRequest) IsFlexible() bool { return true }

// ResponseKind returns a default ResolveGlobalTransactionResponse of the same version.
func (v *ResolveGlobalTransactionRequest) ResponseKind() kmsg.Response {
	r := NewPtrResolveGlobalTransactionResponse()
	r.Version = v.Version
	return r
}

// RequestWith issues v on r and returns the response or an error.
func (v *ResolveGlobalTransactionRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*ResolveGlobalTransactionResponse, error) {
	return requestWith[*ResolveGlobalTransactionResponse](ctx, r, v)
}

// Default does nothing: every default is zero.
func (*ResolveGlobalTransactionRequest) Default() {}

// NewPtrResolveGlobalTransactionRequest returns a pointer to a default ResolveGlobalTransactionRequest.
func NewPtrResolveGlobalTransactionRequest() *ResolveGlobalTransactionRequest {
	v := new(ResolveGlobalTransactionRequest)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *ResolveGlobalTransactionRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.GlobalTransactionalID)
	dst = kbin.AppendInt8(dst, v.Action)
	dst = appendText(dst, v.ClusterID)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *ResolveGlobalTransactionRequest) ReadFrom(src []byte) error {
	if err := checkVersion("ResolveGlobalTransactionRequest", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.GlobalTransactionalID = d.string("GlobalTransactionalId")
	v.Action = d.int8("Action")
	v.ClusterID = d.nullableString("ClusterId")
	v.UnknownTags = d.tags()
	return d.done("ResolveGlobalTransactionRequest", v.Version)
}

// ResolveGlobalTransactionResponse is returned for a ResolveGlobalTransactionRequest.
// Errors: INVALID_REQUEST (no such action), INVALID_TXN_STATE (the action does not fit
// the state), TRANSACTIONAL_ID_NOT_FOUND, CLUSTER_AUTHORIZATION_FAILED,
// NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
// CORRUPT_GLOBAL_TRANSACTION_LOG.
type ResolveGlobalTransactionResponse struct {
	// Version is the version to write and to read.
	Version int16

	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// The error code, 0 for success.
	ErrorCode int16

	// What went wrong and how to mend it, or null.
	ErrorMessage *string

	// The recorded state after the action; with INVALID_TXN_STATE, the one that forbids it;
	// empty on any other error.
	State string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyResolveGlobalTransaction.
func (*ResolveGlobalTransactionResponse) Key() int16 { return KeyResolveGlobalTransaction }

// MaxVersion returns 0.
func (*ResolveGlobalTransactionResponse) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *ResolveGlobalTransactionResponse) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *ResolveGlobalTransactionResponse) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*ResolveGlobalTransactionResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *ResolveGlobalTransactionResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *ResolveGlobalTransactionResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// RequestKind returns a default ResolveGlobalTransactionRequest of the same version.
func (v *ResolveGlobalTransactionResponse) RequestKind() kmsg.Request {
	r := NewPtrResolveGlobalTransactionRequest()
	r.Version = v.Version
	return r
}

// Default does nothing: every default is zero.
func (*ResolveGlobalTransactionResponse) Default() {}

// NewPtrResolveGlobalTransactionResponse returns a pointer to a default ResolveGlobalTransactionResponse.
func NewPtrResolveGlobalTransactionResponse() *ResolveGlobalTransactionResponse {
	v := new(ResolveGlobalTransactionResponse)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *ResolveGlobalTransactionResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	dst = kbin.AppendCompactString(dst, v.State)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *ResolveGlobalTransactionResponse) ReadFrom(src []byte) error {
	if err := checkVersion("ResolveGlobalTransactionResponse", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.State = d.string("State")
	v.UnknownTags = d.tags()
	return d.done("ResolveGlobalTransactionResponse", v.Version)
}

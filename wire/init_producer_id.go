package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerIDRequestV6 is version 6 of Kafka's InitProducerId (KIP-939), which kmsg
// does not have.
type InitProducerIDRequestV6 struct {
	// The transactional id, null for an idempotent producer.
	TransactionalID *string

	// How long, in milliseconds, a transaction may stay open; not used with Enable2Pc.
	TransactionTimeoutMillis int32

	// The producer id that the caller expects, -1 for none. The default is -1.
	ProducerID int64

	// The producer epoch that the caller expects, -1 for none. The default is -1.
	ProducerEpoch int16

	// True for transactions that the broker never ends because of their age.
	Enable2PC bool

	// True to keep an open transaction instead of aborting it; unsupported in Kafka up to
	// 4.4.0.
	KeepPreparedTxn bool

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyInitProducerID.
func (*InitProducerIDRequestV6) Key() int16 { return KeyInitProducerID }

// MaxVersion returns InitProducerIDVersion.
func (*InitProducerIDRequestV6) MaxVersion() int16 { return InitProducerIDVersion }

// SetVersion does nothing: the type has one version. A client that negotiated
// version 5 would otherwise lose Enable2PC without a word, and the broker would
// end the transaction by its age; as it is, such a broker refuses the request.
func (*InitProducerIDRequestV6) SetVersion(int16) {}

// GetVersion returns InitProducerIDVersion.
func (*InitProducerIDRequestV6) GetVersion() int16 { return InitProducerIDVersion }

// IsFlexible returns true.
func (*InitProducerIDRequestV6) IsFlexible() bool { return true }

// ResponseKind returns a default InitProducerIDResponseV6 of the same version.
func (*InitProducerIDRequestV6) ResponseKind() kmsg.Response {
	return NewPtrInitProducerIDResponseV6()
}

// RequestWith issues v on r and returns the response or an error.
func (v *InitProducerIDRequestV6) RequestWith(ctx context.Context, r kmsg.Requestor) (*InitProducerIDResponseV6, error) {
	return requestWith[*InitProducerIDResponseV6](ctx, r, v)
}

// Default sets the fields whose default is not zero.
func (v *InitProducerIDRequestV6) Default() {
	v.ProducerID = -1
	v.ProducerEpoch = -1
}

// NewPtrInitProducerIDRequestV6 returns a pointer to a default InitProducerIDRequestV6.
func NewPtrInitProducerIDRequestV6() *InitProducerIDRequestV6 {
	v := new(InitProducerIDRequestV6)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *InitProducerIDRequestV6) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactNullableString(dst, v.TransactionalID)
	dst = kbin.AppendInt32(dst, v.TransactionTimeoutMillis)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	dst = kbin.AppendBool(dst, v.Enable2PC)
	dst = kbin.AppendBool(dst, v.KeepPreparedTxn)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *InitProducerIDRequestV6) ReadFrom(src []byte) error {
	d := &decoder{r: kbin.Reader{Src: src}}
	v.TransactionalID = d.nullableString("TransactionalId")
	v.TransactionTimeoutMillis = d.int32("TransactionTimeoutMs")
	v.ProducerID = d.int64("ProducerId")
	v.ProducerEpoch = d.int16("ProducerEpoch")
	v.Enable2PC = d.bool("Enable2Pc")
	v.KeepPreparedTxn = d.bool("KeepPreparedTxn")
	v.UnknownTags = d.tags()
	return d.done("InitProducerIdRequest", InitProducerIDVersion)
}

// InitProducerIDResponseV6 is returned for an InitProducerIDRequestV6.
type InitProducerIDResponseV6 struct {
	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// The error code, 0 for success.
	ErrorCode int16

	// The producer id. The default is -1.
	ProducerID int64

	// The producer epoch.
	ProducerEpoch int16

	// With KeepPreparedTxn, the producer id of the open transaction, -1 for none. The
	// default is -1.
	OngoingTxnProducerID int64

	// With KeepPreparedTxn, the producer epoch of the open transaction, -1 for none. The
	// default is -1.
	OngoingTxnProducerEpoch int16

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyInitProducerID.
func (*InitProducerIDResponseV6) Key() int16 { return KeyInitProducerID }

// MaxVersion returns InitProducerIDVersion.
func (*InitProducerIDResponseV6) MaxVersion() int16 { return InitProducerIDVersion }

// SetVersion does nothing: the type has one version.
func (*InitProducerIDResponseV6) SetVersion(int16) {}

// GetVersion returns InitProducerIDVersion.
func (*InitProducerIDResponseV6) GetVersion() int16 { return InitProducerIDVersion }

// IsFlexible returns true.
func (*InitProducerIDResponseV6) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *InitProducerIDResponseV6) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *InitProducerIDResponseV6) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// RequestKind returns a default InitProducerIDRequestV6 of the same version.
func (*InitProducerIDResponseV6) RequestKind() kmsg.Request {
	return NewPtrInitProducerIDRequestV6()
}

// Default sets the fields whose default is not zero.
func (v *InitProducerIDResponseV6) Default() {
	v.ProducerID = -1
	v.OngoingTxnProducerID = -1
	v.OngoingTxnProducerEpoch = -1
}

// NewPtrInitProducerIDResponseV6 returns a pointer to a default InitProducerIDResponseV6.
func NewPtrInitProducerIDResponseV6() *InitProducerIDResponseV6 {
	v := new(InitProducerIDResponseV6)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *InitProducerIDResponseV6) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	dst = kbin.AppendInt64(dst, v.OngoingTxnProducerID)
	dst = kbin.AppendInt16(dst, v.OngoingTxnProducerEpoch)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *InitProducerIDResponseV6) ReadFrom(src []byte) error {
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.ErrorCode = d.int16("ErrorCode")
	v.ProducerID = d.int64("ProducerId")
	v.ProducerEpoch = d.int16("ProducerEpoch")
	v.OngoingTxnProducerID = d.int64("OngoingTxnProducerId")
	v.OngoingTxnProducerEpoch = d.int16("OngoingTxnProducerEpoch")
	v.UnknownTags = d.tags()
	return d.done("InitProducerIdResponse", InitProducerIDVersion)
}

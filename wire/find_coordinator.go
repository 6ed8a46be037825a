package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findCoordinatorLowest is the first version with the layout of these types.
const findCoordinatorLowest int16 = 4

// FindCoordinatorRequest finds the coordinators of global transactional ids (key type
// CoordinatorTypeGlobalTransaction) or of anything else. Version 7 has the layout of
// versions 4 to 6; towards a broker that has only those, a client sends one of them
// and is answered with INVALID_REQUEST for the key type: the broker is no global
// transaction coordinator.
type FindCoordinatorRequest struct {
	// Version is the version to write and to read.
	Version int16

	// What the keys are: 0 group, 1 transaction, 2 share, 3 global transaction.
	CoordinatorType int8

	// The keys to find the coordinator of.
	CoordinatorKeys []string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyFindCoordinator.
func (*FindCoordinatorRequest) Key() int16 { return KeyFindCoordinator }

// MaxVersion returns FindCoordinatorVersion.
func (*FindCoordinatorRequest) MaxVersion() int16 { return FindCoordinatorVersion }

// SetVersion sets the version, but never one with another layout.
func (v *FindCoordinatorRequest) SetVersion(version int16) {
	v.Version = max(version, findCoordinatorLowest)
}

// GetVersion returns the version.
func (v *FindCoordinatorRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*FindCoordinatorRequest) IsFlexible() bool { return true }

// ResponseKind returns a default FindCoordinatorResponse of the same version.
func (v *FindCoordinatorRequest) ResponseKind() kmsg.Response {
	r := NewPtrFindCoordinatorResponse()
	r.Version = v.Version
	return r
}

// RequestWith issues v on r and returns the response or an error.
func (v *FindCoordinatorRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*FindCoordinatorResponse, error) {
	return requestWith[*FindCoordinatorResponse](ctx, r, v)
}

// Default does nothing: every default is zero.
func (*FindCoordinatorRequest) Default() {}

// NewPtrFindCoordinatorRequest returns a pointer to a default FindCoordinatorRequest of
// version FindCoordinatorVersion.
func NewPtrFindCoordinatorRequest() *FindCoordinatorRequest {
	v := &FindCoordinatorRequest{Version: FindCoordinatorVersion}
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *FindCoordinatorRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt8(dst, v.CoordinatorType)
	dst = appendStrings(dst, v.CoordinatorKeys)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *FindCoordinatorRequest) ReadFrom(src []byte) error {
	if err := checkVersion("FindCoordinatorRequest", v.Version, findCoordinatorLowest, FindCoordinatorVersion); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.CoordinatorType = d.int8("KeyType")
	v.CoordinatorKeys = d.strings("CoordinatorKeys")
	v.UnknownTags = d.tags()
	return d.done("FindCoordinatorRequest", v.Version)
}

// FindCoordinatorResponse is returned for a FindCoordinatorRequest. Errors of a key:
// COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
type FindCoordinatorResponse struct {
	// Version is the version to write and to read.
	Version int16

	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// One entry for each key.
	Coordinators []FindCoordinatorResponseCoordinator

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyFindCoordinator.
func (*FindCoordinatorResponse) Key() int16 { return KeyFindCoordinator }

// MaxVersion returns FindCoordinatorVersion.
func (*FindCoordinatorResponse) MaxVersion() int16 { return FindCoordinatorVersion }

// SetVersion sets the version, but never one with another layout.
func (v *FindCoordinatorResponse) SetVersion(version int16) {
	v.Version = max(version, findCoordinatorLowest)
}

// GetVersion returns the version.
func (v *FindCoordinatorResponse) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*FindCoordinatorResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *FindCoordinatorResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *FindCoordinatorResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// RequestKind returns a default FindCoordinatorRequest of the same version.
func (v *FindCoordinatorResponse) RequestKind() kmsg.Request {
	r := NewPtrFindCoordinatorRequest()
	r.Version = v.Version
	return r
}

// Default does nothing: every default is zero.
func (*FindCoordinatorResponse) Default() {}

// NewPtrFindCoordinatorResponse returns a pointer to a default FindCoordinatorResponse of
// version FindCoordinatorVersion.
func NewPtrFindCoordinatorResponse() *FindCoordinatorResponse {
	v := &FindCoordinatorResponse{Version: FindCoordinatorVersion}
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *FindCoordinatorResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendCompactArrayLen(dst, len(v.Coordinators))
	for i := range v.Coordinators {
		dst = v.Coordinators[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *FindCoordinatorResponse) ReadFrom(src []byte) error {
	if err := checkVersion("FindCoordinatorResponse", v.Version, findCoordinatorLowest, FindCoordinatorVersion); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.Coordinators = decodeArray(d, "Coordinators", func(d *decoder, e *FindCoordinatorResponseCoordinator) { e.decode(d) })
	v.UnknownTags = d.tags()
	return d.done("FindCoordinatorResponse", v.Version)
}

// FindCoordinatorResponseCoordinator is one element of Coordinators.
type FindCoordinatorResponseCoordinator struct {
	// The key, as in the request.
	Key string

	// The node that coordinates the key.
	NodeID int32

	// Its host name.
	Host string

	// Its port.
	Port int32

	// The error code of this key, 0 for success.
	ErrorCode int16

	// What went wrong, or null.
	ErrorMessage *string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default does nothing: every default is zero.
func (*FindCoordinatorResponseCoordinator) Default() {}

// NewFindCoordinatorResponseCoordinator returns a default FindCoordinatorResponseCoordinator.
func NewFindCoordinatorResponseCoordinator() FindCoordinatorResponseCoordinator {
	var v FindCoordinatorResponseCoordinator
	v.Default()
	return v
}

func (v *FindCoordinatorResponseCoordinator) appendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.Key)
	dst = kbin.AppendInt32(dst, v.NodeID)
	dst = kbin.AppendCompactString(dst, v.Host)
	dst = kbin.AppendInt32(dst, v.Port)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	return appendTags(dst, &v.UnknownTags)
}

func (v *FindCoordinatorResponseCoordinator) decode(d *decoder) {
	v.Key = d.string("Key")
	v.NodeID = d.int32("NodeId")
	v.Host = d.string("Host")
	v.Port = d.int32("Port")
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.UnknownTags = d.tags()
}

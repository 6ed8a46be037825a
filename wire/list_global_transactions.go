package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGlobalTransactionsRequest asks one coordinator for the ids that it coordinates
// and that pass every filter. For all ids, ask every coordinator.
type ListGlobalTransactionsRequest struct {
	// Version is the version to write and to read.
	Version int16

	// The states to list, empty for all.
	StateFilters []string

	// List only what has been undecided or pending for at least this many milliseconds, -1
	// for all. The default is -1.
	DurationFilterMillis int64

	// A regular expression in RE2 syntax that the whole id must match, null or empty for
	// all.
	PatternFilter *string

	// True to list only ids with a heuristic participant that no operator has forgotten.
	HeuristicOnly bool

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyListGlobalTransactions.
func (*ListGlobalTransactionsRequest) Key() int16 { return KeyListGlobalTransactions }

// MaxVersion returns 0.
func (*ListGlobalTransactionsRequest) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *ListGlobalTransactionsRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *ListGlobalTransactionsRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*ListGlobalTransactionsRequest) IsFlexible() bool { return true }

// ResponseKind returns a default ListGlobalTransactionsResponse of the same version.
func (v *ListGlobalTransactionsRequest) ResponseKind() kmsg.Response {
	r := NewPtrListGlobalTransactionsResponse()
	r.Version = v.Version
	return r
}

// RequestWith issues v on r and returns the response or an error.
func (v *ListGlobalTransactionsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*ListGlobalTransactionsResponse, error) {
	return requestWith[*ListGlobalTransactionsResponse](ctx, r, v)
}

// Default sets the fields whose default is not zero.
func (v *ListGlobalTransactionsRequest) Default() {
	v.DurationFilterMillis = -1
}

// NewPtrListGlobalTransactionsRequest returns a pointer to a default ListGlobalTransactionsRequest.
func NewPtrListGlobalTransactionsRequest() *ListGlobalTransactionsRequest {
	v := new(ListGlobalTransactionsRequest)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *ListGlobalTransactionsRequest) AppendTo(dst []byte) []byte {
	dst = appendStrings(dst, v.StateFilters)
	dst = kbin.AppendInt64(dst, v.DurationFilterMillis)
	dst = kbin.AppendCompactNullableString(dst, v.PatternFilter)
	dst = kbin.AppendBool(dst, v.HeuristicOnly)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *ListGlobalTransactionsRequest) ReadFrom(src []byte) error {
	if err := checkVersion("ListGlobalTransactionsRequest", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.StateFilters = d.strings("StateFilters")
	v.DurationFilterMillis = d.int64("DurationFilterMs")
	v.PatternFilter = d.nullableString("PatternFilter")
	v.HeuristicOnly = d.bool("HeuristicOnly")
	v.UnknownTags = d.tags()
	return d.done("ListGlobalTransactionsRequest", v.Version)
}

// ListGlobalTransactionsResponse is returned for a ListGlobalTransactionsRequest.
// Errors: INVALID_REQUEST (PatternFilter is no regular expression),
// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE. Ids that the caller may not
// describe are left out.
type ListGlobalTransactionsResponse struct {
	// Version is the version to write and to read.
	Version int16

	// How long, in milliseconds, the client has to wait because of a quota; 0 when no
	// quota was exceeded.
	ThrottleMillis int32

	// The error code, 0 for success.
	ErrorCode int16

	// What went wrong and how to mend it, or null.
	ErrorMessage *string

	// The state filters of the request that name no state.
	UnknownStateFilters []string

	// The ids that passed all filters.
	GlobalTransactions []ListGlobalTransactionsResponseGlobalTransaction

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Key returns KeyListGlobalTransactions.
func (*ListGlobalTransactionsResponse) Key() int16 { return KeyListGlobalTransactions }

// MaxVersion returns 0.
func (*ListGlobalTransactionsResponse) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write and to read.
func (v *ListGlobalTransactionsResponse) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version to write and to read.
func (v *ListGlobalTransactionsResponse) GetVersion() int16 { return v.Version }

// IsFlexible returns true.
func (*ListGlobalTransactionsResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, which applies after the response (KIP-219).
func (v *ListGlobalTransactionsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *ListGlobalTransactionsResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// RequestKind returns a default ListGlobalTransactionsRequest of the same version.
func (v *ListGlobalTransactionsResponse) RequestKind() kmsg.Request {
	r := NewPtrListGlobalTransactionsRequest()
	r.Version = v.Version
	return r
}

// Default does nothing: every default is zero.
func (*ListGlobalTransactionsResponse) Default() {}

// NewPtrListGlobalTransactionsResponse returns a pointer to a default ListGlobalTransactionsResponse.
func NewPtrListGlobalTransactionsResponse() *ListGlobalTransactionsResponse {
	v := new(ListGlobalTransactionsResponse)
	v.Default()
	return v
}

// AppendTo appends the body of the message to dst.
func (v *ListGlobalTransactionsResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = appendText(dst, v.ErrorMessage)
	dst = appendStrings(dst, v.UnknownStateFilters)
	dst = kbin.AppendCompactArrayLen(dst, len(v.GlobalTransactions))
	for i := range v.GlobalTransactions {
		dst = v.GlobalTransactions[i].appendTo(dst)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom reads the body of the message, all of src; the error is a
// *DecodeError.
func (v *ListGlobalTransactionsResponse) ReadFrom(src []byte) error {
	if err := checkVersion("ListGlobalTransactionsResponse", v.Version, 0, 0); err != nil {
		return err
	}
	d := &decoder{r: kbin.Reader{Src: src}}
	v.ThrottleMillis = d.int32("ThrottleTimeMs")
	v.ErrorCode = d.int16("ErrorCode")
	v.ErrorMessage = d.nullableString("ErrorMessage")
	v.UnknownStateFilters = d.strings("UnknownStateFilters")
	v.GlobalTransactions = decodeArray(d, "GlobalTransactions", func(d *decoder, e *ListGlobalTransactionsResponseGlobalTransaction) { e.decode(d) })
	v.UnknownTags = d.tags()
	return d.done("ListGlobalTransactionsResponse", v.Version)
}

// ListGlobalTransactionsResponseGlobalTransaction is one element of
// GlobalTransactions.
type ListGlobalTransactionsResponseGlobalTransaction struct {
	// The global transactional id.
	GlobalTransactionalID string

	// Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Dead.
	State string

	// The epoch of the present session. The default is -1.
	GlobalEpoch int32

	// The number of the last decided transaction; one below the first when there was none. The default is
	// -1.
	Sequence int64

	// For how many milliseconds the id has been undecided or pending, -1 when neither. The
	// default is -1.
	AgeMillis int64

	// True when a participant ended, or may have ended, against the decision, and no
	// operator has forgotten it.
	Heuristic bool

	// The cluster ids of the participants and leftovers that have not ended; none while
	// Ongoing.
	PendingClusterIDs []string

	// UnknownTags are the tagged fields of a newer peer.
	UnknownTags kmsg.Tags
}

// Default sets the fields whose default is not zero.
func (v *ListGlobalTransactionsResponseGlobalTransaction) Default() {
	v.GlobalEpoch = -1
	v.Sequence = -1
	v.AgeMillis = -1
}

// NewListGlobalTransactionsResponseGlobalTransaction returns a default ListGlobalTransactionsResponseGlobalTransaction.
func NewListGlobalTransactionsResponseGlobalTransaction() ListGlobalTransactionsResponseGlobalTransaction {
	var v ListGlobalTransactionsResponseGlobalTransaction
	v.Default()
	return v
}

func (v *ListGlobalTransactionsResponseGlobalTransaction) appendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.GlobalTransactionalID)
	dst = kbin.AppendCompactString(dst, v.State)
	dst = kbin.AppendInt32(dst, v.GlobalEpoch)
	dst = kbin.AppendInt64(dst, v.Sequence)
	dst = kbin.AppendInt64(dst, v.AgeMillis)
	dst = kbin.AppendBool(dst, v.Heuristic)
	dst = appendStrings(dst, v.PendingClusterIDs)
	return appendTags(dst, &v.UnknownTags)
}

func (v *ListGlobalTransactionsResponseGlobalTransaction) decode(d *decoder) {
	v.GlobalTransactionalID = d.string("GlobalTransactionalId")
	v.State = d.string("State")
	v.GlobalEpoch = d.int32("GlobalEpoch")
	v.Sequence = d.int64("Sequence")
	v.AgeMillis = d.int64("AgeMs")
	v.Heuristic = d.bool("Heuristic")
	v.PendingClusterIDs = d.strings("PendingClusterIds")
	v.UnknownTags = d.tags()
}

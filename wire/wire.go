// Package wire is the protocol of the Global Transaction Coordinator: its
// requests and responses, their API keys and versions, and their error codes.
//
// The JSON files in schema, in Kafka's message format, are the source of
// truth; the Go types follow them field by field in the manner of package kmsg
// and are carried by an unmodified kgo client (see Versions). Every message is
// flexible (KIP-482): fields that a newer peer tags on are kept and written
// again.
//
// Reading treats its input as hostile. A decoder neither panics nor allocates
// more than a fixed multiple of the input, and refuses with a *DecodeError that
// names the field: a null where the schema has none, a string above 32767
// bytes or not in UTF-8, tags out of order, and bytes left over.
//
// Writing cannot fail, as kmsg has it. Whoever makes a message keeps ids and
// other strings within what reading accepts; texts for people (ErrorMessage,
// Message, Reason) are cleaned and cut by the encoder.
package wire

import (
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// The API keys of the coordinator: clear of Kafka's own, which are below 100,
// while the KIP is not numbered.
const (
	KeyInitGlobalTxn              int16 = 1000
	KeyEndGlobalTxn               int16 = 1001
	KeyDescribeGlobalTransactions int16 = 1002
	KeyListGlobalTransactions     int16 = 1003
	KeyResolveGlobalTransaction   int16 = 1004
)

// Kafka's API keys of which this package has a newer version than kmsg.
const (
	KeyFindCoordinator int16 = 10
	KeyInitProducerID  int16 = 22
)

// Versions of Kafka's own RPCs that this package adds.
const (
	// FindCoordinatorVersion is the first version that knows
	// CoordinatorTypeGlobalTransaction.
	FindCoordinatorVersion int16 = 7
	// InitProducerIDVersion is the version with Enable2PC (KIP-939).
	InitProducerIDVersion int16 = 6
)

// CoordinatorTypeGlobalTransaction is FindCoordinator's key type of a global
// transactional id; 0, 1 and 2 are group, transaction and share.
const CoordinatorTypeGlobalTransaction int8 = 3

// Outcome in EndGlobalTxnResponse.
const (
	OutcomeUnknown   int8 = 0 // not decided yet: ask again with the same request
	OutcomeCommitted int8 = 1
	OutcomeAborted   int8 = 2
)

// State of a participant in EndGlobalTxnResponse and
// DescribeGlobalTransactionsResponse.
const (
	ParticipantPending          int8 = 0 // has not acknowledged the decision yet
	ParticipantComplete         int8 = 1 // ended as decided
	ParticipantHeuristicCommit  int8 = 2 // committed although abort was decided
	ParticipantHeuristicAbort   int8 = 3 // aborted although commit was decided
	ParticipantHeuristicUnknown int8 = 4 // ended, nobody can tell how
	ParticipantOrphaned         int8 = 5 // a leftover alone: has not acknowledged an earlier abort yet
)

// LeftoverMessage begins the Message of a participant that DescribeGlobalTransactions
// lists beside those of the last decision: an earlier session left it open, and it
// is aborted.
const LeftoverMessage = "left over from a session that is over; "

// Action in ResolveGlobalTransactionRequest.
const (
	ResolveAbort  int8 = 0 // abort an undecided transaction now
	ResolveRetry  int8 = 1 // tell pending participants again now
	ResolveForget int8 = 2 // forget a heuristic outcome
	ResolveGiveUp int8 = 3 // give up what is pending on a cluster that is gone for good
)

// State of a global transactional id in DescribeGlobalTransactionsResponse,
// ListGlobalTransactionsResponse and ResolveGlobalTransactionResponse.
const (
	StateEmpty          = "Empty"
	StateOngoing        = "Ongoing"
	StatePrepareCommit  = "PrepareCommit"
	StatePrepareAbort   = "PrepareAbort"
	StateCompleteCommit = "CompleteCommit"
	StateCompleteAbort  = "CompleteAbort"
	StateDead           = "Dead"
)

// API is one RPC of this package.
type API struct {
	Key int16
	// Name is the RPC's name, which is its messages' names without Request
	// and Response.
	Name string
	// MinVersion and MaxVersion are the versions that this package adds. The
	// versions of FindCoordinator and InitProducerId below are kmsg's.
	MinVersion, MaxVersion int16

	request func() kmsg.Request
}

var apis = []API{
	{KeyFindCoordinator, "FindCoordinator", FindCoordinatorVersion, FindCoordinatorVersion, func() kmsg.Request { return NewPtrFindCoordinatorRequest() }},
	{KeyInitProducerID, "InitProducerId", InitProducerIDVersion, InitProducerIDVersion, func() kmsg.Request { return NewPtrInitProducerIDRequestV6() }},
	{KeyInitGlobalTxn, "InitGlobalTxn", 0, 0, func() kmsg.Request { return NewPtrInitGlobalTxnRequest() }},
	{KeyEndGlobalTxn, "EndGlobalTxn", 0, 0, func() kmsg.Request { return NewPtrEndGlobalTxnRequest() }},
	{KeyDescribeGlobalTransactions, "DescribeGlobalTransactions", 0, 0, func() kmsg.Request { return NewPtrDescribeGlobalTransactionsRequest() }},
	{KeyListGlobalTransactions, "ListGlobalTransactions", 0, 0, func() kmsg.Request { return NewPtrListGlobalTransactionsRequest() }},
	{KeyResolveGlobalTransaction, "ResolveGlobalTransaction", 0, 0, func() kmsg.Request { return NewPtrResolveGlobalTransactionRequest() }},
}

// APIs lists the RPCs of this package by ascending key, for ApiVersions.
func APIs() []API { return append([]API(nil), apis...) }

// RequestForKey returns a new default request of that key, set to that
// version, and false when this package has no such version: the request may
// still be one of Kafka's own, for kmsg.RequestForKey.
func RequestForKey(key, version int16) (kmsg.Request, bool) {
	for _, api := range apis {
		if api.Key == key && api.MinVersion <= version && version <= api.MaxVersion {
			req := api.request()
			req.SetVersion(version)
			return req, true
		}
	}
	return nil, false
}

// NameForKey returns the name of one of this package's RPCs, and kmsg's name
// for every other key ("Unknown" when it has none).
func NameForKey(key int16) string {
	for _, api := range apis {
		if api.Key == key {
			return api.Name
		}
	}
	return kmsg.NameForKey(key)
}

// Versions returns the versions for kgo.MaxVersions that let an unmodified kgo
// client carry the messages of this package beside Kafka's own. Without it kgo
// refuses their keys as unknown. kgo's own FindCoordinator and InitProducerID
// stay at the versions that kmsg knows, since kgo takes the lower of the two.
// The result is the caller's to change.
func Versions() *kversion.Versions {
	versions := kversion.Stable()
	for _, api := range apis {
		versions.SetMaxKeyVersion(api.Key, api.MaxVersion)
	}
	return versions
}

package service

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// Right is what a caller must be allowed to do, in the words of Kafka's ACLs.
type Right int

// The rights. All but the last are on the TransactionalId of the request.
const (
	// RightDescribe (DESCRIBE): to look.
	RightDescribe Right = iota
	// RightUse (WRITE): to end a global transaction.
	RightUse
	// RightOpen (WRITE and TWO_PHASE_COMMIT): to begin a session, whose
	// transactions hold readers back until somebody ends them.
	RightOpen
	// RightResolve (ALTER on the cluster): what an operator does.
	RightResolve
)

// Caller is who has sent a request.
type Caller struct {
	Principal string // as User:alice
	Host      string // IP address
}

// Authorizer says what callers may do.
type Authorizer interface {
	// Allows says whether a caller has a right. id is the global
	// transactional id; it means nothing with RightResolve.
	Allows(who Caller, right Right, id string) bool
}

// allows is the authorizer's answer; without one everybody may do everything,
// as in Kafka.
func (s *Service) allows(who Caller, right Right, id string) bool {
	return s.o.Authorizer == nil || s.o.Authorizer.Allows(who, right, id)
}

// lacks tells people which ACL is missing. It holds nothing but what the caller
// has said, so it is the same whether the id exists or not (C-SEC-1).
func lacks(who Caller, right Right, id string) string {
	what := map[Right]string{
		RightDescribe: "DESCRIBE", RightUse: "WRITE", RightOpen: "WRITE and TWO_PHASE_COMMIT", RightResolve: "ALTER on the Cluster",
	}[right]
	if right != RightResolve {
		what += " on the TransactionalId " + plain.Quote(id)
	}
	return fmt.Sprintf("%s at host %s needs %s", plain.Text(who.Principal), who.Host, what)
}

// deniedError is a refusal with a text for people.
type deniedError struct{ text string }

func (e *deniedError) Error() string { return e.text }
func (e *deniedError) Unwrap() error { return kerr.TransactionalIDAuthorizationFailed }

// maxElements bounds each array of a request. A session has 32 clusters, and the
// core compares participants with each other on the loop that serves everybody.
const maxElements = 1000

// tooMany says that an array has more elements than it may have; else it is nil.
func tooMany[E any](what string, elements []E) *string {
	if len(elements) <= maxElements {
		return nil
	}
	return text(fmt.Sprintf("%d %s; one request may name %d", len(elements), what, maxElements))
}

// authorized answers a request that the caller may make, and refuses any other
// before anything is looked up: the same refusal whether the id exists or not,
// whose it is, and which node has it.
func (s *Service) authorized(ctx context.Context, who Caller, req kmsg.Request) kmsg.Response {
	denied := kerr.TransactionalIDAuthorizationFailed.Code
	switch req := req.(type) {
	case *wire.InitGlobalTxnRequest:
		if !s.allows(who, RightOpen, req.GlobalTransactionalID) {
			resp := req.ResponseKind().(*wire.InitGlobalTxnResponse)
			resp.ErrorCode, resp.ErrorMessage = denied, text(lacks(who, RightOpen, req.GlobalTransactionalID))
			return resp
		}
		if refused := tooMany("participant clusters", req.ClusterIDs); refused != nil {
			resp := req.ResponseKind().(*wire.InitGlobalTxnResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRequest.Code, refused
			return resp
		}
		return s.initGlobalTxn(ctx, req)
	case *wire.EndGlobalTxnRequest:
		if !s.allows(who, RightUse, req.GlobalTransactionalID) {
			resp := req.ResponseKind().(*wire.EndGlobalTxnResponse)
			resp.ErrorCode, resp.ErrorMessage = denied, text(lacks(who, RightUse, req.GlobalTransactionalID))
			return resp
		}
		if refused := tooMany("participants", req.Participants); refused != nil {
			resp := req.ResponseKind().(*wire.EndGlobalTxnResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRequest.Code, refused
			return resp
		}
		return s.endGlobalTxn(ctx, req)
	case *wire.DescribeGlobalTransactionsRequest:
		return s.describe(ctx, who, req)
	case *wire.ListGlobalTransactionsRequest:
		if refused := tooMany("state filters", req.StateFilters); refused != nil {
			resp := req.ResponseKind().(*wire.ListGlobalTransactionsResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRequest.Code, refused
			return resp
		}
		return s.list(ctx, who, req)
	case *wire.ResolveGlobalTransactionRequest:
		if !s.allows(who, RightResolve, "") {
			resp := req.ResponseKind().(*wire.ResolveGlobalTransactionResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.ClusterAuthorizationFailed.Code, text(lacks(who, RightResolve, ""))
			return resp
		}
		return s.resolve(ctx, who, req)
	}
	return nil
}
